//! Scorers: how good each candidate is, by one aspect, in `[0, 1]`; higher is preferred.
//!
//! Decides by upstream's formulas, with one difference on purpose: a candidate whose signal is
//! missing or stale scores 0 in that aspect instead of looking idle. Weights belong to the profile.

use crate::endpoint::{Load, Signal};
use crate::pool::PoolView;
use crate::thresholds::Thresholds;

/// Score of a candidate whose engine does not export the signal: it neither attracts nor repels in a
/// pool of several engines.
const UNMAPPED: f64 = 0.5;

/// A scorer of a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scorer {
    /// `queue-scorer`: `(max - waiting) / (max - min)` over the fresh candidates, all equal 1.
    Queue,
    /// `kv-cache-utilization-scorer`: `1 - use`.
    KvCache,
    /// `active-request-scorer`, on the requests that this picker has in flight: up to
    /// `idle_threshold` scores 1, above it `(max - n) / max * max_busy_score`.
    InFlight {
        /// In-flight requests that still count as idle; >= 0.
        idle_threshold: u32,
        /// Best score of an endpoint that is not idle; in `[0, 1]`.
        max_busy_score: f64,
    },
}

impl Scorer {
    /// [`Scorer::InFlight`] with upstream's defaults.
    pub const IN_FLIGHT: Self = Self::InFlight { idle_threshold: 0, max_busy_score: 1.0 };

    /// Its `type` in an EndpointPickerConfig.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue-scorer",
            Self::KvCache => "kv-cache-utilization-scorer",
            Self::InFlight { .. } => "active-request-scorer",
        }
    }

    /// Adds `weight` times the score of each candidate to `totals`, which is parallel to
    /// `candidates`. Scores are clamped to `[0, 1]` before the weight, as upstream does.
    pub fn add(
        self,
        view: &PoolView<'_>,
        thresholds: &Thresholds,
        candidates: &[u32],
        weight: f64,
        totals: &mut [f64],
    ) {
        let limit = thresholds.staleness();
        let loads = || candidates.iter().map(|i| &view.loads[*i as usize]);
        let mut each = |score: &dyn Fn(&Load) -> f64| {
            for (total, load) in totals.iter_mut().zip(loads()) {
                *total += score(load).clamp(0.0, 1.0) * weight;
            }
        };
        match self {
            Self::Queue => {
                let range = range(loads().filter_map(|load| load.waiting.fresh(limit)));
                each(&|load| match (load.waiting, range) {
                    (Signal::Unmapped, _) => UNMAPPED,
                    (waiting, Some((min, max))) => waiting
                        .fresh(limit)
                        .map_or(0.0, |w| if max > min { (max - w) / (max - min) } else { 1.0 }),
                    (_, None) => 0.0,
                });
            }
            Self::KvCache => each(&|load| match load.kv {
                Signal::Unmapped => UNMAPPED,
                kv => kv.fresh(limit).map_or(0.0, |kv| 1.0 - kv),
            }),
            Self::InFlight { idle_threshold, max_busy_score } => {
                let max = loads().map(|load| load.in_flight).max().unwrap_or(0);
                each(&|load| {
                    if load.in_flight <= idle_threshold {
                        1.0
                    } else {
                        f64::from(max - load.in_flight) / f64::from(max) * max_busy_score
                    }
                });
            }
        }
    }
}

/// Smallest and largest of the values, or `None` without any.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |seen, value| {
        let (min, max) = seen.unwrap_or((value, value));
        Some((min.min(value), max.max(value)))
    })
}
