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
    Load { waiting: read(waiting), running: read(0.0), kv: read(kv), in_flight, ranks: 1 }
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
        }
    })
}

fn pick(loads: &[Load], rng: &mut impl RngCore) -> Option<usize> {
    let members = members(loads.len());
    let view = PoolView { members: &members, loads };
    let mut scratch = Scratch::default();
    let profile = Profile::default();
    let thresholds = Thresholds::default();
    schedule(&view, None, &profile, &thresholds, rng, &mut scratch).ok().and_then(|mut o| o.next())
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
