//! The utilization detector: endpoint score, pool saturation, and who stays under the safety limits.
//!
//! Decides by the seed's roofline formula alone, on whatever load it is given; what is done with the
//! answer (shed, hold, scale) is decided elsewhere. Where `reckoning` says what the scrape cannot show,
//! that is counted in; where it says nothing, the readings are taken as they are. Scores are ratios: 1.0 is exactly at the line,
//! and nothing is clamped from above.

use crate::endpoint::{Load, Signal};
use crate::thresholds::Thresholds;

/// Score of an endpoint whose load is not known: exactly full, fail closed.
pub const UNKNOWN: f64 = 1.0;

/// `max(QueueDepth / QueueThreshold, KVCacheUsage / KVCacheThreshold)` (seed: utilization-detector).
///
/// A mapped signal that is missing or older than the staleness limit makes the score exactly 1.0; a
/// signal that the engine does not export is left out. An endpoint that exports neither is unknown.
/// The queue of several ranks on one port is their sum over their number.
pub fn endpoint_score(load: &Load, thresholds: &Thresholds) -> f64 {
    let limit = thresholds.staleness();
    let roof = |signal: Signal, ratio: &dyn Fn(f64) -> f64| match signal {
        Signal::Unmapped => Some(None),
        mapped => mapped.fresh(limit).map(|value| Some(ratio(value))),
    };
    let queue = roof(load.waiting_per_rank(), &|v| thresholds.queue_ratio(v));
    let kv = roof(load.kv_now(), &|v| thresholds.kv_ratio(v));
    match (queue, kv) {
        (Some(Some(queue)), Some(Some(kv))) => queue.max(kv),
        (Some(Some(one)), Some(None)) | (Some(None), Some(Some(one))) => one,
        _ => UNKNOWN,
    }
}

/// Whether any mapped signal of the detector is missing or too old.
pub fn is_stale(load: &Load, thresholds: &Thresholds) -> bool {
    let limit = thresholds.staleness();
    let old = |signal: Signal| signal.is_mapped() && signal.fresh(limit).is_none();
    let blind = !load.waiting.is_mapped() && !load.kv.is_mapped();
    blind || old(load.waiting) || old(load.kv)
}

/// The unweighted mean of the endpoint scores; an empty pool is full (1.0).
pub fn pool_saturation<'a>(
    loads: impl IntoIterator<Item = &'a Load>,
    thresholds: &Thresholds,
) -> f64 {
    let (mut sum, mut count) = (0.0, 0_u32);
    for load in loads {
        sum += endpoint_score(load, thresholds);
        count += 1;
    }
    if count == 0 { UNKNOWN } else { sum / f64::from(count) }
}

/// Whether the filter keeps an endpoint: fresh, and strictly below both limits, headroom included.
pub fn admits(load: &Load, thresholds: &Thresholds) -> bool {
    let below = |signal: Signal, limit: f64| signal.value().is_none_or(|value| value < limit);
    !is_stale(load, thresholds)
        && below(load.waiting_per_rank(), thresholds.queue_limit())
        && below(load.kv_now(), thresholds.kv_limit())
}

#[cfg(test)]
mod tests;
