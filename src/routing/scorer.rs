//! Scorers: how good each candidate is, by one aspect, in `[0, 1]`; higher is preferred.
//!
//! Decides names, parameters and how a score enters the sum; the formulas, upstream's, are in the
//! submodules. One difference is on purpose: a candidate whose signal is missing or stale scores 0 in
//! that aspect instead of looking idle. Weights belong to the profile.

mod prefill_load;
mod scraped;
mod sent;

use std::time::Duration;

use super::Ask;
use crate::endpoint::Load;
use crate::pool::PoolView;
use crate::thresholds::Thresholds;

/// A scorer of a profile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scorer {
    /// `prefill-load-scorer`, ours: `1 / (1 + cost)`, the cost in seconds.
    PrefillLoad {
        /// Oldest reading that counts, where the detector's staleness limit is shorter: three scrapes.
        /// A shorter one would send everything to whoever was scraped last.
        stale_after: Duration,
    },
    /// `queue-scorer`: `(max - waiting) / (max - min)` over the fresh candidates, all equal 1.
    Queue,
    /// `running-requests-size-scorer`: the same on running requests.
    RunningRequests,
    /// `kv-cache-utilization-scorer`: `1 - use`.
    KvCache,
    /// `load-aware-scorer`: half of `(threshold - waiting) / threshold`, never below 0.
    LoadAware {
        /// Waiting requests that make an endpoint worth nothing; at least 1.
        threshold: u32,
    },
    /// `active-request-scorer`, on the requests that this picker has in flight: up to
    /// `idle_threshold` scores 1, above it `(max - n) / max * max_busy_score`.
    InFlight {
        /// In-flight requests that still count as idle; >= 0.
        idle_threshold: u32,
        /// Best score of an endpoint that is not idle; in `[0, 1]`.
        max_busy_score: f64,
    },
    /// `token-load-scorer`: `(threshold - tokens) / threshold`, never below 0, on the prompt tokens that
    /// this picker has in flight there and those of the request itself.
    TokenLoad {
        /// Tokens that make an endpoint worth nothing; at least 1.
        threshold: u64,
    },
}

impl Scorer {
    /// [`Scorer::InFlight`] with upstream's defaults.
    pub const IN_FLIGHT: Self = Self::InFlight { idle_threshold: 0, max_busy_score: 1.0 };
    /// [`Scorer::LoadAware`] with upstream's default.
    pub const LOAD_AWARE: Self = Self::LoadAware { threshold: 128 };
    /// [`Scorer::TokenLoad`] with upstream's default.
    pub const TOKEN_LOAD: Self = Self::TokenLoad { threshold: 4 << 20 };

    /// Its `type` in an EndpointPickerConfig.
    pub fn name(self) -> &'static str {
        match self {
            Self::PrefillLoad { .. } => "prefill-load-scorer",
            Self::Queue => "queue-scorer",
            Self::RunningRequests => "running-requests-size-scorer",
            Self::KvCache => "kv-cache-utilization-scorer",
            Self::LoadAware { .. } => "load-aware-scorer",
            Self::InFlight { .. } => "active-request-scorer",
            Self::TokenLoad { .. } => "token-load-scorer",
        }
    }

    /// Adds `weight` times the score of each candidate to `totals`, which is parallel to
    /// `candidates`. Scores are clamped to `[0, 1]` before the weight, as upstream does.
    pub fn add(
        self,
        view: &PoolView<'_>,
        thresholds: &Thresholds,
        ask: &Ask<'_>,
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
            Self::PrefillLoad { stale_after } => {
                let limit = limit.max(stale_after);
                prefill_load::add(loads(), ask.prompt_tokens, limit, weight, totals);
            }
            Self::Queue => {
                let range = scraped::range(loads().map(|load| load.waiting), limit);
                each(&|load| scraped::fewest(load.waiting, range, limit));
            }
            Self::RunningRequests => {
                let range = scraped::range(loads().map(|load| load.running), limit);
                each(&|load| scraped::fewest(load.running, range, limit));
            }
            Self::KvCache => each(&|load| scraped::free_cache(load.kv, limit)),
            Self::LoadAware { threshold } => {
                each(&|load| scraped::short_queue(load.waiting, threshold, limit));
            }
            Self::InFlight { idle_threshold, max_busy_score } => {
                let most = loads().map(|load| load.in_flight).max().unwrap_or(0);
                each(&|load| sent::fewest(load.in_flight, most, idle_threshold, max_busy_score));
            }
            Self::TokenLoad { threshold } => {
                each(&|load| sent::few_tokens(load.in_flight_tokens, ask.prompt_tokens, threshold))
            }
        }
    }
}

#[cfg(test)]
mod tests;
