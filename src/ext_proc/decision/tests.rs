//! Many decisions at once, on threads of their own, and many within one scrape.

use std::sync::Barrier;
use std::time::Duration;

use super::*;
use crate::endpoint::Endpoint;
use crate::ext_proc::Options;
use crate::policy::{PolicyWriter, Source};
use crate::routing::Profile;
use crate::store::{HeldBytes, Page, Scraped, Store};
use crate::telemetry::metrics::Metrics;
use crate::thresholds::Thresholds;

const ENDPOINTS: u16 = 8;

/// A decision of this priority panics, in tests alone.
pub(in crate::ext_proc) const FAULT: i32 = -271_828;

/// Eight equal endpoints, idle, and read once.
pub(in crate::ext_proc) fn picking(profile: Profile) -> Picking {
    let now = Instant::now().into_std();
    let (store, mut members) = Store::new(now);
    let endpoints = (1..=ENDPOINTS)
        .map(|port| Endpoint::new("ns", &format!("e{port}"), ([127, 0, 0, 1], port).into()));
    members.apply(endpoints.collect());
    let idle = Scraped::Value(0.0);
    let page =
        Page { waiting: idle, running: idle, kv: idle, ranks: 1, capacity_tokens: Some(1e6) };
    for member in &store.pool().members {
        let mut load = store.load_writer(member.slot);
        load.begin();
        load.publish(&page, now);
    }
    let policy = Policy::new(Thresholds::default(), [Source::BuiltIn; 8], profile);
    let (_, policy) = PolicyWriter::new(policy);
    Picking {
        store,
        policy,
        metrics: Arc::new(Metrics::new().unwrap()),
        max_body: 1 << 20,
        held: HeldBytes::default(),
        max_held: 1 << 20,
        flow: None,
        linger: Duration::from_millis(250),
        options: Options::default(),
    }
}

fn pick(picking: &Picking, policy: &Policy) -> Pick {
    let ask = Ask { prompt_tokens: 500, ..Ask::default() };
    let weight = Weight { tokens: 500, watched: true };
    picking.pick(policy, &ask, weight).unwrap_or_else(|refusal| panic!("{refusal:?}"))
}

fn counts(picking: &Picking) -> Vec<u32> {
    let (pool, mut loads) = (picking.store.pool(), Vec::new());
    picking.store.read_loads(&pool, Instant::now().into_std(), &mut loads);
    loads.iter().map(|load| load.in_flight).collect()
}

/// The readings go stale in a slow run, so that the ledger alone ranks; the counts come out the same.
/// Mutants: a choice booked without asking whether it still holds, a reservation that never fails; both
/// spread wider than the races that are counted.
#[test]
fn simultaneous_picks_spread_evenly() {
    for _ in 0..5 {
        let picking = picking(Profile::default());
        let barrier = Barrier::new(64);
        let picks: Vec<Pick> = std::thread::scope(|scope| {
            let one = || {
                let policy = picking.policy.load();
                barrier.wait();
                pick(&picking, &policy)
            };
            let threads: Vec<_> = (0..64).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let counts = counts(&picking);
        let races = picking.metrics.pick_races.get();
        assert_eq!(counts.iter().sum::<u32>(), 64);
        let off: u64 = counts.iter().map(|count| u64::from(count.abs_diff(8))).sum();
        assert!(off <= 2 * races, "{counts:?} with {races} races");
        drop(picks);
        assert_eq!(picking.store.in_flight(), 0);
    }
}

/// Mutant: the ledger left out of the cost (every request goes where the scrape was best).
#[test]
fn a_burst_within_one_scrape_spreads_within_one() {
    let picking = picking(Profile::default());
    let policy = picking.policy.load();
    let picks: Vec<Pick> = (0..500).map(|_| pick(&picking, &policy)).collect();
    let counts = counts(&picking);
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    assert!(most - least <= 1, "{counts:?}");
    assert_eq!(picks.len(), 500);
    assert_eq!(picking.metrics.pick_races.get(), 0);
}

/// Mutant: the counts of failures given back at once (the broken one, always idle, gets nearly all).
#[test]
fn a_server_that_fails_fast_does_not_attract_everyone() {
    let picking = picking(Profile::default());
    let policy = picking.policy.load();
    let broken = "127.0.0.1:1";
    let (mut failed, mut working) = (Vec::new(), Vec::new());
    for _ in 0..160 {
        let Pick { destination, mut guard, .. } = pick(&picking, &policy);
        if &*destination == broken {
            guard.fail(Instant::now().into_std());
            failed.push(guard);
        } else {
            guard.first_chunk(Instant::now().into_std());
            working.push(guard);
        }
    }
    assert!((15..=25).contains(&failed.len()), "{}", failed.len());
}
