//! Profiles: filters, weighted scorers and a picker, in the order in which they run.
//!
//! Decides nothing per request; a profile is data of the policy.

use std::time::Duration;

use super::filter::Filter;
use super::picker::{Choice, Picker};
use super::scorer::Scorer;

/// One scheduling profile.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Run in order; each narrows what the one before left.
    pub filters: Vec<Filter>,
    /// Scorer and weight; totals are sums of clamped score times weight, not divided by anything.
    pub scorers: Vec<(Scorer, f64)>,
    /// Chooses from the totals.
    pub picker: Picker,
}

impl Profile {
    /// Ours: the detector's filter, then seconds of waiting. Readings are believed for three scrape
    /// `interval`s at least.
    pub fn prefill_load(interval: Duration) -> Self {
        Self {
            filters: vec![Filter::Utilization],
            scorers: vec![(Scorer::PrefillLoad { stale_after: interval * 3 }, 1.0)],
            picker: Picker::one(Choice::MaxScore),
        }
    }

    /// Upstream's default: queue and KV cache, equally, and no filter.
    pub fn upstream() -> Self {
        Self {
            filters: Vec::new(),
            scorers: vec![(Scorer::Queue, 2.0), (Scorer::KvCache, 2.0)],
            picker: Picker::one(Choice::MaxScore),
        }
    }
}

impl Default for Profile {
    /// Ours, for endpoints that are scraped 20 times a second.
    fn default() -> Self {
        Self::prefill_load(Duration::from_millis(50))
    }
}
