//! Properties of the whole schedule and of the filter.

use std::time::Duration;

use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use super::filter::Filter;
use super::*;
use crate::endpoint::{Endpoint, Load, Signal};
use crate::pool::{Member, Slot};
use crate::saturation;

fn members(count: usize) -> Vec<Member> {
    (0..count as u32)
        .map(|index| {
            let address = ([10, 0, 0, 1], 8000).into();
            let endpoint = Endpoint::new("default", &format!("e{index}"), address);
            Member { endpoint, slot: Slot(index), destination: "10.0.0.1:8000".into() }
        })
        .collect()
}

fn load(waiting: f64, kv: f64, in_flight: u32) -> Load {
    let read = |value| Signal::Read { value, age: Duration::ZERO };
    Load {
        waiting: read(waiting),
        running: read(0.0),
        kv: read(kv),
        in_flight,
        ranks: 1,
        ..Load::default()
    }
}

fn any_load() -> impl Strategy<Value = Load> {
    (0_u8..10, 0.0..1.0_f64, 0_u32..5, 0_u64..400).prop_map(|(waiting, kv, in_flight, age)| {
        let read = |value| Signal::Read { value, age: Duration::from_millis(age) };
        Load {
            waiting: read(f64::from(waiting)),
            running: read(0.0),
            kv: read(kv),
            in_flight,
            ranks: 1,
            ..Load::default()
        }
    })
}

fn pick(loads: &[Load], rng: &mut impl RngCore) -> Option<usize> {
    let members = members(loads.len());
    let view = PoolView { members: &members, loads };
    let mut scratch = Scratch::default();
    let profile = Profile::default();
    let thresholds = Thresholds::default();
    schedule(&view, &Ask::default(), &profile, &thresholds, rng, &mut scratch)
        .ok()
        .and_then(|mut o| o.next())
}

/// Mutant: a panic or an index for an empty pool.
#[test]
fn an_empty_pool_is_a_refusal() {
    assert_eq!(pick(&[], &mut SmallRng::seed_from_u64(1)), None);
}

/// Mutants: leaving in-flight out of the profile, or ranking it upwards.
#[test]
fn among_equal_servers_the_one_with_fewest_requests_of_ours_wins() {
    let loads = [load(0.0, 0.0, 2), load(0.0, 0.0, 1), load(0.0, 0.0, 3)];
    for seed in 0..20 {
        assert_eq!(pick(&loads, &mut SmallRng::seed_from_u64(seed)), Some(1));
    }
}

/// When every reading is stale, the requests in flight still rank. Mutant: NaN or a constant from an
/// empty range of readings that outweighs them.
#[test]
fn when_all_are_stale_the_ledger_ranks() {
    let stale = |in_flight| Load { in_flight, ..Load::default() };
    let loads = [stale(4), stale(0), stale(9)];
    assert_eq!(pick(&loads, &mut SmallRng::seed_from_u64(3)), Some(1));
}

/// Mutant: picking the first of equals.
#[test]
fn ties_are_uniform() {
    let loads = [load(0.0, 0.1, 0); 4];
    let mut rng = SmallRng::seed_from_u64(5);
    let mut counts = [0_u32; 4];
    for _ in 0..4_000 {
        counts[pick(&loads, &mut rng).unwrap()] += 1;
    }
    assert!(counts.iter().all(|n| (900..1_100).contains(n)), "{counts:?}");
}

/// Requests that never end, over servers whose pages say nothing of them: U052 (200 over 2) and U058
/// (800 over 8). Mutants: a profile without requests in flight; one that ranks the scraped first.
#[test]
fn a_burst_that_no_scrape_has_seen_is_spread() {
    for (servers, requests, least, most) in [(2, 200, 95, 105), (8, 800, 90, 110)] {
        let mut loads = vec![load(0.0, 0.0, 0); servers];
        let mut rng = SmallRng::seed_from_u64(8);
        for _ in 0..requests {
            let picked = pick(&loads, &mut rng).unwrap();
            loads[picked].in_flight += 1;
        }
        let counts: Vec<_> = loads.iter().map(|load| load.in_flight).collect();
        assert!(counts.iter().all(|n| (least..=most).contains(n)), "{counts:?}");
    }
}

/// U055: whoever was over the line is a candidate again with its first reading below. Mutant: a filter
/// with a memory.
#[test]
fn an_endpoint_is_judged_by_its_newest_reading() {
    let mut rng = SmallRng::seed_from_u64(2);
    assert_eq!(pick(&[load(9.0, 0.99, 0), load(1.0, 0.5, 7)], &mut rng), Some(1));
    assert_eq!(pick(&[load(0.0, 0.1, 0), load(1.0, 0.5, 7)], &mut rng), Some(0));
}

/// What is refused, and why, in the order of the questions. Mutants: the gate before the subset (then
/// nothing at all is saturated), the gate over the whole pool, a drained filter that fails open.
#[test]
fn refusals_say_why() {
    let full = [load(50.0, 0.0, 0), load(0.0, 0.0, 0)];
    let mut members = members(2);
    members[1].endpoint.address = ([10, 0, 0, 2], 8000).into();
    let mut profile = Profile::default();
    let ask = |view: &PoolView<'_>, profile: &Profile, hint: Option<&str>, priority| {
        let subset = hint.and_then(|hint| Subset::from_hint(&subset::Hint::Text(hint.to_owned())));
        let ask = Ask { subset: subset.as_ref(), priority, ..Ask::default() };
        let mut rng = SmallRng::seed_from_u64(4);
        let mut scratch = Scratch::default();
        let order = schedule(view, &ask, profile, &Thresholds::default(), &mut rng, &mut scratch);
        order.map(|mut order| order.next().unwrap())
    };
    let view = PoolView { members: &members, loads: &full };
    let nobody = PoolView { members: &[], loads: &[] };
    assert_eq!(ask(&nobody, &profile, None, -1), Err(Refusal::EmptyPool));
    assert_eq!(ask(&view, &profile, Some("9.9.9.9"), -1), Err(Refusal::NoEndpoints));
    // (10 + 0) / 2 is over the line; the second alone is not.
    assert_eq!(ask(&view, &profile, None, -1), Err(Refusal::Saturated));
    assert_eq!(ask(&view, &profile, None, 0), Ok(1));
    assert_eq!(ask(&view, &profile, Some("10.0.0.2"), -1), Ok(1));

    profile.filters.push(Filter::Decode);
    let role = |role: &str| ("llm-d.ai/role".to_owned(), role.to_owned());
    members.iter_mut().for_each(|m| m.endpoint.labels.extend([role("prefill")]));
    let view = PoolView { members: &members, loads: &full };
    assert_eq!(ask(&view, &profile, None, 0), Err(Refusal::Drained(Filter::Decode)));
    members[0].endpoint.labels.extend([role("both")]);
    let view = PoolView { members: &members, loads: &[full[1]; 2] };
    assert_eq!(ask(&view, &profile, None, 0), Ok(0));
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// The filter keeps a subset in order; it keeps all only if it would keep all or none.
    /// Mutants: no fail-open; keeping a stale endpoint; reordering.
    #[test]
    fn filter_is_a_subset_and_fails_open(loads in prop::collection::vec(any_load(), 0..12)) {
        let (members, thresholds) = (members(loads.len()), Thresholds::default());
        let view = PoolView { members: &members, loads: &loads };
        let mut kept: Vec<u32> = (0..loads.len() as u32).collect();
        Filter::Utilization.apply(&view, &thresholds, &mut kept, &mut Vec::new());
        let good: Vec<u32> = (0..loads.len() as u32)
            .filter(|i| saturation::admits(&loads[*i as usize], &thresholds))
            .collect();
        let all: Vec<u32> = (0..loads.len() as u32).collect();
        prop_assert_eq!(kept, if good.is_empty() { all } else { good });
    }

    /// Whoever is picked passed the filter, unless nobody did. Mutant: scoring the unfiltered list.
    #[test]
    fn a_saturated_endpoint_is_picked_only_when_all_are(
        loads in prop::collection::vec(any_load(), 1..12), seed in any::<u64>(),
    ) {
        let picked = pick(&loads, &mut SmallRng::seed_from_u64(seed)).unwrap();
        let admitted = |load: &Load| saturation::admits(load, &Thresholds::default());
        prop_assert!(admitted(&loads[picked]) || !loads.iter().any(admitted));
    }
}
