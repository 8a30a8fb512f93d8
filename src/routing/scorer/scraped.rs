//! What servers say of themselves: queues, running requests, cache use.
//!
//! Decides the formulas, and what a signal is worth that is not known: 0 where it should be, because
//! the unknown is never idle; the middle of what could be where the engine does not export it, so that
//! in a pool of several engines it neither attracts nor repels. Counts are requests, cache use is a
//! fraction.

use std::time::Duration;

use crate::endpoint::Signal;

/// Smallest and largest of the fresh readings, or `None` without any.
pub(super) fn range(signals: impl Iterator<Item = Signal>, limit: Duration) -> Option<(f64, f64)> {
    signals.filter_map(|signal| signal.fresh(limit)).fold(None, |seen, value| {
        let (min, max) = seen.unwrap_or((value, value));
        Some((min.min(value), max.max(value)))
    })
}

/// The fewest of the range score 1, the most 0; all equal 1.
pub(super) fn fewest(signal: Signal, range: Option<(f64, f64)>, limit: Duration) -> f64 {
    known(signal, limit, 1.0, |value| match range {
        Some((min, max)) if max > min => (max - value) / (max - min),
        _ => 1.0,
    })
}

/// The free part of the cache.
pub(super) fn free_cache(signal: Signal, limit: Duration) -> f64 {
    known(signal, limit, 1.0, |used| 1.0 - used)
}

/// An empty queue scores a half, one of `threshold` requests 0.
pub(super) fn short_queue(signal: Signal, threshold: u32, limit: Duration) -> f64 {
    let threshold = f64::from(threshold.max(1));
    known(signal, limit, 0.5, |waiting| 0.5 * (threshold - waiting.min(threshold)) / threshold)
}

fn known(signal: Signal, limit: Duration, best: f64, score: impl Fn(f64) -> f64) -> f64 {
    match signal {
        Signal::Unmapped => best / 2.0,
        mapped => mapped.fresh(limit).map_or(0.0, score),
    }
}
