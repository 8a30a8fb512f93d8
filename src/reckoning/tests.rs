//! The present against the seed: equal where nothing happened, never below the scrape in its queue.

use proptest::prelude::*;

use super::*;
use crate::endpoint::{Signal, Since};
use crate::saturation;
use crate::thresholds::Thresholds;

fn read(value: f64) -> Signal {
    Signal::Read { value, age: Duration::ZERO }
}

/// Mutants: R left out; the sign of the tokens turned; a capacity of 0 divided by.
#[test]
fn own_requests_are_added() {
    let since = Since { unanswered: 3, tokens: -500 };
    let load = Load { since, capacity: 1000.0, ..Load::default() };
    assert_eq!(ahead(&load, 1), Ahead { waiting: 3.0, kv: -0.5 });
    assert_eq!(ahead(&load, 4).waiting, 12.0);
    assert_eq!(ahead(&load, 0).waiting, 3.0, "this one picks");
    assert_eq!(ahead(&Load { capacity: 0.0, ..load }, 1).kv, 0.0);
}

/// Mutants: the weight of the old value; `exp` for `exp_m1`.
#[test]
fn smoothing_forgets_over_its_time() {
    assert_eq!(smooth(None, 7.0, Duration::ZERO, OTHERS), 7.0);
    assert_eq!(smooth(Some(7.0), 9.0, Duration::ZERO, OTHERS), 7.0);
    let after = smooth(Some(0.0), 1.0, OTHERS, OTHERS);
    assert!((after - 0.632).abs() < 0.001, "{after}");
    assert_eq!(mean_tokens(None, 50), 50.0);
    assert_eq!(mean_tokens(Some(100.0), 200), 101.0);
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutant: K* clamped where nothing was assigned (readings above 1 exist), or W* rounded.
    #[test]
    fn nothing_of_ours_is_the_seed_bit_for_bit(
        waiting in 0.0..1e6_f64, kv in 0.0..2.0_f64, capacity in 0.0..1e9_f64, replicas in 0..9_u32,
    ) {
        let load = Load { waiting: read(waiting), kv: read(kv), capacity, ..Load::default() };
        let now = Load { ahead: ahead(&load, replicas), ..load };
        let thresholds = Thresholds::default();
        let scores = [load, now].map(|load| saturation::endpoint_score(&load, &thresholds).to_bits());
        prop_assert_eq!(scores[0], scores[1]);
    }

    /// Mutants: U subtracted; K* outside [0, 1].
    #[test]
    fn the_present_is_never_below_the_scraped_queue(
        waiting in 0.0..1e6_f64, kv in 0.0..1.0_f64, unanswered in 0..1000_u32,
        tokens in -1_000_000..1_000_000_i64, capacity in 1.0..1e6_f64,
    ) {
        let since = Since { unanswered, tokens };
        let load =
            Load { waiting: read(waiting), kv: read(kv), since, capacity, ..Load::default() };
        let now = Load { ahead: ahead(&load, 1), ..load };
        prop_assert!(now.waiting_per_rank().value() >= load.waiting.value());
        prop_assert!((0.0..=1.0).contains(&now.kv_now().value().unwrap()));
    }
}
