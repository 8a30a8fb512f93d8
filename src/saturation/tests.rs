//! The seed's formulas, upstream's table (vectors 1 to 8 of its tests), and properties.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::thresholds::Draft;

fn read(value: f64, age_ms: u64) -> Signal {
    Signal::Read { value, age: Duration::from_millis(age_ms) }
}

fn load(waiting: f64, kv: f64) -> Load {
    aged(waiting, kv, 0)
}

fn aged(waiting: f64, kv: f64, age_ms: u64) -> Load {
    Load { waiting: read(waiting, age_ms), kv: read(kv, age_ms), ..Load::default() }
}

/// Q = 5, KV = 0.9, stale above 100 ms: the set of upstream's own table.
fn upstream_table() -> Thresholds {
    let draft =
        Draft { kv_cache_util: 0.9, staleness: Duration::from_millis(100), ..Draft::default() };
    Thresholds::try_new(draft).unwrap()
}

/// Vectors 1 to 7. Mutants: mean to max, `max` to `min`, stale to 0.
#[test]
fn pool_saturation_of_upstreams_table() {
    let never = Load::default();
    let table: [(&[Load], f64); 10] = [
        (&[], 1.0),
        (&[load(2.0, 0.5)], 0.5556),
        (&[load(10.0, 0.1)], 2.0),
        (&[load(1.0, 0.95)], 1.0556),
        (&[load(5.0, 0.1)], 1.0),
        (&[never], 1.0),
        (&[aged(1.0, 0.1, 101)], 1.0),
        (&[load(1.0, 0.1), load(0.0, 0.2)], 0.2111),
        (&[load(1.0, 0.1), load(15.0, 0.2)], 1.6),
        (&[aged(9.0, 0.9, 500), load(20.0, 0.2), load(1.0, 0.99)], 2.0333),
    ];
    for (loads, expected) in table {
        let got = pool_saturation(loads, &upstream_table());
        assert!((got - expected).abs() < 5e-5, "{loads:?}: {got} instead of {expected}");
    }
    // Vector 6: a score of 0.2 beside a stale endpoint.
    let pair = [load(1.0, 0.1), aged(0.0, 0.0, 101)];
    assert!((pool_saturation(&pair, &upstream_table()) - 0.6).abs() < 1e-9);
}

/// Vector 8 without its fail-open lines, which belong to the filter. Mutant: `<=` for `<`.
#[test]
fn limits_with_headroom() {
    let thresholds = Thresholds::try_new(Draft { headroom: 0.2, ..Draft::default() }).unwrap();
    for (load, kept) in [
        (load(5.0, 0.8), true),
        (load(5.0, 0.9), true),
        (load(7.0, 0.1), false),
        (load(1.0, 0.97), false),
        (load(6.0, 0.1), false),
    ] {
        assert_eq!(admits(&load, &thresholds), kept, "{load:?}");
    }
}

/// Mutant: treating an unmapped signal as missing (the endpoint would be full for ever).
#[test]
fn an_unmapped_signal_is_left_out_and_no_signal_is_unknown() {
    let thresholds = Thresholds::default();
    let queue_only = Load { kv: Signal::Unmapped, ..load(2.0, 9.0) };
    assert_eq!(endpoint_score(&queue_only, &thresholds), 0.4);
    assert!(admits(&queue_only, &thresholds));
    let blind = Load { waiting: Signal::Unmapped, kv: Signal::Unmapped, ..Load::default() };
    assert_eq!(endpoint_score(&blind, &thresholds), UNKNOWN);
    assert!(!admits(&blind, &thresholds));
}

/// Freshness is per signal. Mutant: reading the age of one signal for both.
#[test]
fn one_old_signal_is_enough_to_be_unknown() {
    let half = Load { kv: read(0.1, 201), ..load(0.0, 0.0) };
    assert_eq!(endpoint_score(&half, &Thresholds::default()), UNKNOWN);
    let at = Load { kv: read(0.1, 200), ..load(0.0, 0.0) };
    assert_eq!(endpoint_score(&at, &Thresholds::default()), 0.125);
}

/// Mutant: comparing the sum of the ranks with the threshold of one.
#[test]
fn the_queues_of_several_ranks_are_scored_per_rank() {
    let four = Load { ranks: 4, ..load(8.0, 0.0) };
    assert_eq!(endpoint_score(&four, &Thresholds::default()), 0.4);
    assert!(admits(&four, &Thresholds::default()));
}

fn any_load() -> impl Strategy<Value = Load> {
    (0.0..50.0_f64, 0.0..1.0_f64, 0_u64..400).prop_map(|(w, kv, age)| aged(w, kv, age))
}

fn any_thresholds() -> impl Strategy<Value = Thresholds> {
    (1_u8..20, 0.1..1.0_f64, 0.0..2.0_f64).prop_map(|(queue, kv, headroom)| {
        let draft = Draft {
            queue_depth: f64::from(queue),
            kv_cache_util: kv,
            headroom,
            ..Draft::default()
        };
        Thresholds::try_new(draft).unwrap()
    })
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// More waiting or more KV never lowers a fresh score. Mutant: `max` to `min`, or a swapped sign.
    #[test]
    fn score_is_monotone(t in any_thresholds(), w in 0.0..50.0_f64, kv in 0.0..1.0_f64,
                         dw in 0.0..9.0_f64, dkv in 0.0..0.5_f64) {
        prop_assert!(endpoint_score(&load(w + dw, kv + dkv), &t) >= endpoint_score(&load(w, kv), &t));
    }

    /// The pool is the mean of the maxima, not the maximum of the means. Mutant: either of the two.
    #[test]
    fn pool_is_the_mean_of_maxima(t in any_thresholds(),
                                  loads in prop::collection::vec(any_load(), 1..20)) {
        let mean = loads.iter().map(|l| {
            let (Signal::Read { value: w, age }, Signal::Read { value: kv, .. }) = (l.waiting, l.kv)
            else { unreachable!("any_load reads both") };
            if age > t.staleness() { 1.0 } else { (w / t.queue_depth()).max(kv / t.kv_cache_util()) }
        }).sum::<f64>() / loads.len() as f64;
        prop_assert!((pool_saturation(&loads, &t) - mean).abs() < 1e-9);
    }

    /// A stale endpoint scores exactly 1.0, whatever it last said. Mutant: keeping the old value.
    #[test]
    fn stale_is_exactly_one(t in any_thresholds(), w in 0.0..50.0_f64, kv in 0.0..1.0_f64) {
        prop_assert_eq!(endpoint_score(&aged(w, kv, 201), &t), 1.0);
        prop_assert!(!admits(&aged(w, kv, 201), &t));
    }

    /// Without headroom, kept means below the line and the line means dropped. Mutant: `<=`.
    #[test]
    fn without_headroom_the_filter_is_the_line(t in any_thresholds(), l in any_load()) {
        let bare = Thresholds::try_new(Draft { headroom: 0.0, ..t.numbers() }).unwrap();
        prop_assert_eq!(admits(&l, &bare), endpoint_score(&l, &bare) < 1.0);
    }
}
