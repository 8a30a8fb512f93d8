//! The ledger: what is given back when, what the newest scrape cannot show, who is suspect.

use proptest::prelude::*;

use super::*;
use crate::endpoint::{Load, Since, Speed, Suspicion};

const MS: Duration = Duration::from_millis(1);

fn weight(tokens: u64) -> Weight {
    Weight { tokens, watched: true }
}

fn load_of(store: &Store, slot: Slot, now: Instant) -> Load {
    let pool = store.pool();
    let mut loads = Vec::new();
    store.read_loads(&pool, now, &mut loads);
    loads[pool.members.iter().position(|member| member.slot == slot).unwrap()]
}

fn values(waiting: f64, running: f64, kv: f64) -> Page {
    page(Scraped::Value(waiting), Scraped::Value(running), Scraped::Value(kv))
}

/// One endpoint, read once at `now`.
fn one() -> (Store, MembershipWriter, Slot, LoadWriter, Instant) {
    let (store, mut writer, now) = new_store();
    writer.apply(vec![endpoint("a", 1)]);
    let slot = slot_of(&store, "a").unwrap();
    let mut load = store.load_writer(slot);
    load.begin();
    load.publish(&values(0.0, 0.0, 0.0), now);
    (store, writer, slot, load, now)
}

/// Mutants: requests of before the scrape counted as new; new ones forgotten at its begin rather than
/// its end; an answered one still unanswered; tokens of a finished one kept.
#[test]
fn a_scrape_shows_what_was_there_when_it_began() {
    let (store, _writer, slot, mut load, now) = one();
    let since = |at| load_of(&store, slot, at).since;
    let mut first = store.begin(slot, weight(100), now);
    let second = store.begin(slot, weight(20), now);
    assert_eq!(since(now), Since { unanswered: 2, tokens: 120 });
    load.begin();
    let third = store.begin(slot, weight(3), now);
    assert_eq!(since(now), Since { unanswered: 3, tokens: 123 }, "the new scrape is not read yet");
    load.publish(&values(2.0, 0.0, 0.1), now);
    assert_eq!(since(now), Since { unanswered: 1, tokens: 3 });
    first.first_chunk(now);
    assert_eq!(since(now), Since { unanswered: 1, tokens: 3 }, "it was in the scrape");
    drop(third);
    assert_eq!(since(now), Since { unanswered: 0, tokens: 0 });
    drop((first, second));
    assert_eq!(since(now), Since { unanswered: 0, tokens: -120 }, "the scrape still shows them");
}

/// Scrapes that fail begin epochs and publish none. Mutant: the oldest epoch overwritten.
#[test]
fn failed_scrapes_forget_no_request() {
    let (store, _writer, slot, mut load, now) = one();
    let mut guards = Vec::new();
    for count in 1..20 {
        guards.push(store.begin(slot, weight(1), now));
        load.begin();
        assert_eq!(load_of(&store, slot, now).since.unanswered, count);
    }
    load.begin();
    load.publish(&values(19.0, 0.0, 0.0), now);
    let left = load_of(&store, slot, now).since.unanswered;
    assert!(left > 0 && left < 19, "{left}: more is counted as new than is, never less");
    load.begin();
    load.publish(&values(19.0, 0.0, 0.0), now);
    assert_eq!(load_of(&store, slot, now).since.unanswered, 0);
}

/// Mutants: a failure that gives the count back, or keeps the tokens.
#[test]
fn a_failed_request_keeps_its_count_alone() {
    let (store, _writer, slot, _load, now) = one();
    let mut guard = store.begin(slot, weight(50), now);
    guard.fail(now);
    let load = load_of(&store, slot, now);
    assert_eq!((load.in_flight, load.in_flight_tokens, load.since), (1, 0, Since::default()));
    guard.fail(now);
    drop(guard);
    assert_eq!(load_of(&store, slot, now).in_flight, 0);
}

/// Mutants: own requests counted as others'; the smoothed share of a scrape followed at once.
#[test]
fn others_are_what_the_scrape_has_and_we_have_not() {
    let (store, _writer, slot, mut load, now) = one();
    let _own = [store.begin(slot, weight(10), now), store.begin(slot, weight(10), now)];
    for tick in 1..=400 {
        load.begin();
        load.publish(&values(3.0, 4.0, 0.0), now + MS * 50 * tick);
    }
    let end = now + MS * 50 * 400;
    let seen = load_of(&store, slot, end);
    assert!((seen.others - 5.0).abs() < 0.2, "{seen:?}");
    assert!((seen.others_tokens - 10.0).abs() < 1.0, "one waits that is not ours: {seen:?}");
    load.begin();
    load.publish(&values(103.0, 4.0, 0.0), end + MS * 50);
    assert!(load_of(&store, slot, end).others < 7.0);
}

/// Mutants: an endpoint with requests of ours, or without any, suspected; a probe for two; a value
/// that moves not clearing.
#[test]
fn readings_that_stand_still_make_a_suspect() {
    let (store, _writer, slot, mut load, now) = one();
    let frozen = |load: &mut LoadWriter, ms| {
        load.begin();
        load.publish(&values(1.0, 0.0, 0.0), now + MS * ms);
    };
    frozen(&mut load, 0);
    frozen(&mut load, 4999);
    assert_eq!(load_of(&store, slot, now).suspicion, Suspicion::None);
    let own = store.begin(slot, weight(1), now);
    frozen(&mut load, 5000);
    assert_eq!(load_of(&store, slot, now).suspicion, Suspicion::None, "ours is there");
    drop(own);
    frozen(&mut load, 5050);
    let at = now + MS * 5050;
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::ProbeDue);
    let probe = store.reserve(slot, 0, weight(1), at);
    assert!(probe.is_some() && load_of(&store, slot, at).suspicion == Suspicion::Suspect);
    frozen(&mut load, 5100);
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::Suspect, "a probe clears nothing");
    assert_eq!(load_of(&store, slot, at + MS * 1000).suspicion, Suspicion::ProbeDue);
    probe.unwrap().first_chunk(at);
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::None, "its answer does");
    frozen(&mut load, 6000);
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::ProbeDue);
    load.publish(&values(1.0, 1.0, 0.0), now + MS * 6100);
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::None);
    load.publish(&values(0.0, 0.0, 0.0), now + MS * 6200);
    load.publish(&values(0.0, 0.0, 0.0), now + MS * 20_000);
    assert_eq!(load_of(&store, slot, at).suspicion, Suspicion::None, "idle is not suspect");
}

/// Mutants: a reservation by an old count; an unwatched request that teaches; a restart that forgets
/// nothing.
#[test]
fn speeds_are_learned_from_watched_requests_and_forgotten_with_the_server() {
    let (store, mut writer, now) = new_store();
    writer.apply(vec![endpoint("a", 1), endpoint("b", 2)]);
    let slots = ["a", "b"].map(|name| slot_of(&store, name).unwrap());
    let mut learner = store.learner(now);
    learner.learn(now);
    let serve = |from: Instant, watched| {
        for (slot, ms) in [(slots[0], 100), (slots[1], 900)] {
            let weight = Weight { tokens: 1000, watched };
            let mut guard = store.reserve(slot, 0, weight, from).unwrap();
            assert!(store.reserve(slot, 0, weight, from).is_none(), "the count has changed");
            guard.first_chunk(from + MS * ms);
            guard.end(Some(101), from + MS * (ms + 100 * ms / 10));
        }
    };
    serve(now, false);
    learner.learn(now + MS * 1000);
    assert_eq!(load_of(&store, slots[1], now).speed, Speed::default());
    for second in 1..30 {
        serve(now + MS * 1000 * second, true);
        learner.learn(now + MS * 1000 * (second + 1));
    }
    let [fast, slow] = slots.map(|slot| load_of(&store, slot, now).speed);
    assert!(
        fast.prefill > 2.0 * slow.prefill && fast.pace < 1.0 && slow.pace > 1.2,
        "{fast:?} {slow:?}"
    );
    store.load_writer(slots[1]).restarted();
    assert_eq!(load_of(&store, slots[1], now).speed, Speed::default());
    learner.learn(now + MS * 32_000);
    let again = load_of(&store, slots[1], now).speed;
    assert_eq!(again.pace, 1.0, "{again:?}");
}

#[derive(Debug, Clone)]
enum Step {
    Begin(u8, u8, bool),
    FirstChunk(u8),
    Fail(u8),
    Move(u8, u8),
    End(u8),
    Scrape(u8),
    Members(Vec<u8>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let n = any::<u8>;
    let step = prop_oneof![
        3 => (n(), n(), any::<bool>()).prop_map(|(at, tokens, w)| Step::Begin(at, tokens, w)),
        1 => n().prop_map(Step::FirstChunk),
        1 => n().prop_map(Step::Fail),
        1 => (n(), n()).prop_map(|(which, to)| Step::Move(which, to)),
        2 => n().prop_map(Step::End),
        1 => n().prop_map(Step::Scrape),
        1 => prop::collection::vec(0_u8..6, 0..6).prop_map(Step::Members),
    ];
    prop::collection::vec(step, 0..120)
}

/// A guard as the test thinks of it.
struct Told {
    id: String,
    guard: InFlight,
    tokens: u64,
    unanswered: bool,
    failed: bool,
}

fn nth<T>(list: &mut [T], n: u8) -> Option<&mut T> {
    let len = list.len();
    (len > 0).then(|| &mut list[usize::from(n) % len])
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// The guards add up to the cells after any history, and every member's counts are those of the
    /// guards under its id. Mutants: a second decrement; a slot given to two ids; a move that leaves
    /// tokens behind; a first chunk counted twice.
    #[test]
    fn guards_add_up_to_cells(steps in steps()) {
        let (store, mut writer, now) = new_store();
        let mut guards: Vec<Told> = Vec::new();
        for step in steps {
            let pool = store.pool();
            let member = |n: u8| pool.members.get(usize::from(n) % pool.members.len().max(1));
            match step {
                Step::Begin(at, tokens, watched) => if let Some(m) = member(at) {
                    let tokens = u64::from(tokens);
                    let guard = store.begin(m.slot, Weight { tokens, watched }, now);
                    let id = m.endpoint.id.to_string();
                    guards.push(Told { id, guard, tokens, unanswered: true, failed: false });
                },
                Step::FirstChunk(n) => if let Some(told) = nth(&mut guards, n) {
                    told.guard.first_chunk(now);
                    told.unanswered = false;
                },
                Step::Fail(n) => if let Some(told) = nth(&mut guards, n) {
                    told.guard.fail(now);
                    (told.unanswered, told.failed) = (false, true);
                },
                Step::Move(n, to) => {
                    let to = member(to).map(|m| (m.slot, m.endpoint.id.to_string()));
                    if let (Some(told), Some((slot, id))) = (nth(&mut guards, n), to)
                        && told.id != id
                    {
                        told.guard.move_to(slot, now);
                        (told.id, told.unanswered, told.failed) = (id, true, false);
                    }
                }
                Step::End(n) if !guards.is_empty() => {
                    let at = usize::from(n) % guards.len();
                    guards.swap_remove(at).guard.end(Some(u64::from(n)), now);
                }
                Step::End(_) => {}
                Step::Scrape(n) => if let Some(m) = member(n) {
                    let mut load = store.load_writer(m.slot);
                    load.begin();
                    load.publish(&values(1.0, 1.0, 0.5), now);
                },
                Step::Members(names) => {
                    let names = names.iter().map(|n| endpoint(&format!("e{n}"), 1));
                    writer.apply(names.collect());
                }
            }
            prop_assert_eq!(store.in_flight(), guards.len() as u64);
            let pool = store.pool();
            for member in &pool.members {
                let load = load_of(&store, member.slot, now);
                let ours = || guards.iter().filter(|told| told.id == member.endpoint.id.as_str());
                let waiting: u64 = ours().filter(|t| t.unanswered).map(|t| t.tokens).sum();
                let all: u64 = ours().filter(|t| !t.failed).map(|t| t.tokens).sum();
                let ledger = &store.shared.slab.cell(member.slot).ledger;
                prop_assert_eq!(load.in_flight as usize, ours().count());
                prop_assert_eq!(load.in_flight_tokens, waiting);
                prop_assert_eq!(ledger.tokens.load(Ordering::Relaxed), all);
                prop_assert!(load.since.unanswered as usize <= ours().filter(|t| t.unanswered).count());
            }
        }
        drop(guards);
        for n in 0..16 {
            let cell = store.shared.slab.cell(Slot(n));
            prop_assert_eq!(cell.in_flight(), 0);
            prop_assert_eq!(cell.ledger.tokens.load(Ordering::Relaxed), 0);
            prop_assert_eq!(cell.ledger.unanswered.load(Ordering::Relaxed), 0);
        }
    }
}
