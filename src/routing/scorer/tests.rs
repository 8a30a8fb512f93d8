//! What the recorded cases do not show: unknown signals, and that no scorer leaves its bounds.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::endpoint::{Endpoint, Signal};
use crate::pool::{Member, Slot};

const ALL: [Scorer; 6] = [
    Scorer::Queue,
    Scorer::RunningRequests,
    Scorer::KvCache,
    Scorer::LOAD_AWARE,
    Scorer::IN_FLIGHT,
    Scorer::TOKEN_LOAD,
];

fn scores(scorer: Scorer, loads: &[Load], tokens: u64) -> Vec<f64> {
    let member = |index| Member {
        endpoint: Endpoint::new("default", "e", ([10, 0, 0, 1], 8000).into()),
        slot: Slot(index),
        destination: "10.0.0.1:8000".into(),
    };
    let members: Vec<_> = (0..loads.len() as u32).map(member).collect();
    let view = PoolView { members: &members, loads };
    let candidates: Vec<u32> = (0..loads.len() as u32).collect();
    let mut totals = vec![0.0; loads.len()];
    let ask = Ask { prompt_tokens: tokens, ..Ask::default() };
    scorer.add(&view, &Thresholds::default(), &ask, &candidates, 1.0, &mut totals);
    totals
}

fn same(signal: Signal) -> Load {
    Load { waiting: signal, running: signal, kv: signal, ..Load::default() }
}

/// Mutants: a stale or unread signal that scores as an empty one does; an unmapped one that scores 0 or
/// 1; a stale reading that stretches the range.
#[test]
fn the_unknown_is_never_idle() {
    let read = |value, ms| same(Signal::Read { value, age: Duration::from_millis(ms) });
    let loads = [
        read(0.5, 0),
        Load::default(),
        read(0.0, 201),
        read(900.0, 201),
        same(Signal::Unmapped),
        read(1.0, 200),
    ];
    for (scorer, [busy, unmapped, full]) in [
        (Scorer::Queue, [1.0, 0.5, 0.0]),
        (Scorer::RunningRequests, [1.0, 0.5, 0.0]),
        (Scorer::KvCache, [0.5, 0.5, 0.0]),
        (Scorer::LoadAware { threshold: 1 }, [0.25, 0.25, 0.0]),
    ] {
        assert_eq!(scores(scorer, &loads, 0), [busy, 0.0, 0.0, 0.0, unmapped, full], "{scorer:?}");
    }
}

/// Mutants: a threshold of 0 that divides by it; a sum of tokens that wraps.
#[test]
fn extremes_stay_numbers() {
    let load = |in_flight_tokens| Load { in_flight_tokens, ..Load::default() };
    let most = Scorer::TokenLoad { threshold: 0 };
    assert_eq!(scores(most, &[load(0), load(1)], 0), [1.0, 0.0]);
    assert_eq!(scores(Scorer::TOKEN_LOAD, &[load(u64::MAX)], u64::MAX), [0.0]);
    let read = Signal::Read { value: 0.0, age: Duration::ZERO };
    assert_eq!(scores(Scorer::LoadAware { threshold: 0 }, &[same(read)], 0), [0.5]);
}

fn any_load() -> impl Strategy<Value = Load> {
    let signal = prop_oneof![
        Just(Signal::Never),
        Just(Signal::Unmapped),
        (0.0..1e6_f64, 0_u64..400)
            .prop_map(|(value, age)| Signal::Read { value, age: Duration::from_millis(age) }),
    ];
    (signal, 0_u32..9, any::<u64>()).prop_map(|(signal, in_flight, in_flight_tokens)| Load {
        in_flight,
        in_flight_tokens,
        ..same(signal)
    })
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Every score is a number in `[0, 1]`, and more load never scores higher. Mutants: no clamp; a NaN
    /// of a range of one; a sign turned.
    #[test]
    fn scores_are_bounded(
        loads in prop::collection::vec(any_load(), 1..9), tokens in any::<u64>(),
    ) {
        for scorer in ALL {
            let scores = scores(scorer, &loads, tokens);
            prop_assert!(scores.iter().all(|s| (0.0..=1.0).contains(s)), "{scorer:?} {scores:?}");
        }
    }
}
