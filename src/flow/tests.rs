//! Scenes of the waiting room, and a property against a list that does the same in a slower way.

use proptest::prelude::*;

use super::*;
use crate::fixed_seed;

/// Seconds after an arbitrary start.
fn at(seconds: u64) -> Instant {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let start = *START.get_or_init(|| tokio::time::Instant::now().into_std());
    start + Duration::from_secs(seconds)
}

fn arrival(ticket: u64, bytes: u64, deadline: u64) -> Event {
    Event::Arrival(Arrival {
        ticket: Ticket(ticket),
        bytes,
        priority: 0,
        fairness: None,
        deadline: at(deadline),
    })
}

const LIMITS: Limits = Limits { requests: 3, bytes: 100, wait: Duration::from_secs(290) };

/// What a room answers to events, each with its second, in short form.
fn play(events: impl IntoIterator<Item = (u64, Event)>) -> (Vec<String>, Level) {
    let mut room = Room::new(LIMITS);
    let mut log = Vec::new();
    for (second, event) in events {
        let mut verdicts = Vec::new();
        room.on(event, at(second), &mut verdicts);
        log.extend(verdicts.iter().map(|(ticket, verdict)| short(second, *ticket, *verdict)));
    }
    (log, room.level())
}

fn short(second: u64, ticket: Ticket, verdict: Verdict) -> String {
    let word = match verdict {
        Verdict::Dispatch => "go".to_owned(),
        Verdict::Reject(reason) => format!("{reason:?}"),
    };
    format!("{second}:{} {word}", ticket.0)
}

/// Mutants: last in first out; an arrival at a pool that is not empty held; one endpoint lets one go.
#[test]
fn an_endpoint_lets_all_go_in_order_and_then_nobody_waits() {
    let (log, level) = play([
        (0, arrival(1, 10, 290)),
        (1, arrival(2, 20, 291)),
        (2, Event::Pool(0)),
        (3, Event::Pool(1)),
        (4, arrival(3, 10, 294)),
        (5, Event::Pool(0)),
        (6, arrival(4, 40, 296)),
    ]);
    assert_eq!(log, ["3:1 go", "3:2 go", "4:3 go"]);
    assert_eq!(level, Level { requests: 1, bytes: 40, oldest: Some(at(6)) });
}

/// Mutants: `<` at a deadline; the newest expired first; a verdict for one that left.
#[test]
fn a_deadline_ends_a_wait_and_leaving_ends_it_without_a_word() {
    let (log, level) = play([
        (0, arrival(1, 1, 10)),
        (0, arrival(2, 1, 5)),
        (0, arrival(3, 1, 7)),
        (1, Event::Left(Ticket(3))),
        (1, Event::Left(Ticket(9))),
        (5, Event::Pool(0)),
        (10, Event::Pool(1)),
    ]);
    assert_eq!(log, ["5:2 Expired", "10:1 Expired"]);
    assert_eq!(level, Level::default());
    let (log, _) = play([(5, arrival(1, 1, 5))]);
    assert_eq!(log, ["5:1 Expired"]);
}

/// Mutants: `<=` at the number, `<` at the bytes, bytes that stay after their request left, a sum that
/// wraps.
#[test]
fn as_many_wait_as_may() {
    let (log, level) = play([
        (0, arrival(1, 60, 290)),
        (0, arrival(2, 41, 290)),
        (0, arrival(3, u64::MAX, 290)),
        (0, arrival(4, 40, 290)),
        (0, arrival(5, 0, 290)),
        (0, arrival(6, 0, 290)),
        (0, Event::Left(Ticket(1))),
        (0, arrival(7, 60, 290)),
    ]);
    assert_eq!(log, ["0:2 Full", "0:3 Full", "0:6 Full"]);
    assert_eq!((level.requests, level.bytes), (3, 100));
}

/// U095: twenty requests of 1 KB before a room of 10 KB: ten wait, ten are refused, and nothing is left
/// of either. Mutant: bytes counted at arrivals alone.
#[test]
fn bytes_are_exact() {
    let mut room = Room::new(Limits { bytes: 10_000, ..Limits::default() });
    let mut verdicts = Vec::new();
    for ticket in 0..20 {
        room.on(arrival(ticket, 1_000, 290), at(0), &mut verdicts);
    }
    assert_eq!(verdicts.len(), 10);
    assert!(verdicts.iter().all(|(_, v)| *v == Verdict::Reject(Reason::Full)), "{verdicts:?}");
    assert_eq!(room.level().bytes, 10_000);
    room.on(Event::Pool(1), at(1), &mut verdicts);
    assert_eq!((verdicts.len(), room.level()), (20, Level::default()));
}

/// A request that was let go and found the pool empty again keeps its place and its age's ticket.
/// Mutants: the returned one behind the newer; counted twice.
#[test]
fn who_comes_back_keeps_its_place() {
    let (log, level) = play([
        (0, arrival(1, 10, 290)),
        (1, Event::Pool(1)),
        (2, Event::Pool(0)),
        (2, arrival(2, 10, 290)),
        (3, arrival(1, 10, 290)),
        (3, arrival(2, 15, 290)),
        (4, Event::Pool(1)),
    ]);
    assert_eq!(log, ["1:1 go", "4:1 go", "4:2 go"]);
    assert_eq!(level, Level::default());
    let (_, level) = play([(0, arrival(1, 10, 290)), (5, arrival(1, 30, 290))]);
    assert_eq!(level, Level { requests: 1, bytes: 30, oldest: Some(at(0)) });
}

/// Mutants: arrivals still held after the drain began; an endpoint that overrules it.
#[test]
fn a_drain_sends_everybody_away() {
    let (log, level) = play([
        (0, arrival(1, 1, 290)),
        (1, arrival(2, 1, 290)),
        (2, Event::Drain),
        (3, arrival(3, 1, 290)),
        (4, Event::Pool(1)),
        (5, arrival(4, 1, 290)),
    ]);
    assert_eq!(
        log,
        ["2:1 ShuttingDown", "2:2 ShuttingDown", "3:3 ShuttingDown", "5:4 ShuttingDown"]
    );
    assert_eq!(level, Level::default());
}

/// Mutants: the deadline of the first arrival instead of the nearest; one that passed still named.
#[test]
fn the_next_deadline_is_the_nearest() {
    let mut room = Room::new(LIMITS);
    let mut verdicts = Vec::new();
    assert_eq!(room.wake_at(), None);
    room.on(arrival(1, 1, 9), at(0), &mut verdicts);
    room.on(arrival(2, 1, 4), at(0), &mut verdicts);
    assert_eq!(room.wake_at(), Some(at(4)));
    room.expire(at(3), &mut verdicts);
    assert_eq!(verdicts, []);
    room.expire(at(4), &mut verdicts);
    assert_eq!(verdicts, [(Ticket(2), Verdict::Reject(Reason::Expired))]);
    assert_eq!(room.wake_at(), Some(at(9)));
}

#[derive(Debug, Clone)]
enum Act {
    Arrive { bytes: u64, wait: u64 },
    Leave(usize),
    Pool(usize),
    Drain,
    Wait(u64),
}

fn any_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        8 => (0_u64..70, 0_u64..9).prop_map(|(bytes, wait)| Act::Arrive { bytes, wait }),
        3 => (0_usize..12).prop_map(Act::Leave),
        2 => (0_usize..2).prop_map(Act::Pool),
        1 => Just(Act::Drain),
        4 => (0_u64..4).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(fixed_seed())]

    /// Whatever happens: never more waits than may, every request is answered once unless it left,
    /// those that go on at one instant go in the order in which they came, nobody goes on at or after
    /// its deadline, and the level is what a plain list says. Mutants: bytes kept on a dispatch; a
    /// request answered twice (a deadline left behind); deadlines checked after the event.
    #[test]
    fn each_is_answered_once_in_order_and_in_time(acts in prop::collection::vec(any_act(), 1..40)) {
        let mut room = Room::new(LIMITS);
        let (mut now, mut next) = (0, 0);
        // Ticket, bytes, deadline.
        let mut waiting: Vec<(u64, u64, u64)> = Vec::new();
        for act in acts {
            let mut verdicts = Vec::new();
            match act {
                Act::Arrive { bytes, wait } => {
                    waiting.push((next, bytes, now + wait));
                    room.on(arrival(next, bytes, now + wait), at(now), &mut verdicts);
                    next += 1;
                }
                Act::Leave(index) => {
                    let left = (index < waiting.len()).then(|| waiting.remove(index).0);
                    room.on(Event::Left(Ticket(left.unwrap_or(next))), at(now), &mut verdicts);
                }
                Act::Pool(endpoints) => room.on(Event::Pool(endpoints), at(now), &mut verdicts),
                Act::Drain => room.on(Event::Drain, at(now), &mut verdicts),
                Act::Wait(seconds) => {
                    now += seconds;
                    room.expire(at(now), &mut verdicts);
                }
            }
            let mut gone = None;
            for (ticket, verdict) in verdicts {
                let known = waiting.iter().position(|(t, _, _)| *t == ticket.0);
                prop_assert!(known.is_some(), "answered twice or unknown: {}", ticket.0);
                let (_, _, deadline) = waiting.remove(known.unwrap());
                if verdict == Verdict::Dispatch {
                    prop_assert!(now < deadline && gone < Some(ticket));
                    gone = Some(ticket);
                }
            }
            let bytes = waiting.iter().map(|(_, bytes, _)| bytes).sum::<u64>();
            let level = room.level();
            prop_assert_eq!((level.requests, level.bytes), (waiting.len(), bytes));
            prop_assert!(level.requests <= LIMITS.requests && level.bytes <= LIMITS.bytes);
            prop_assert_eq!(room.wake_at(), waiting.iter().map(|(_, _, d)| at(*d)).min());
        }
    }
}
