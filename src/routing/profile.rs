//! Profiles: filters, weighted scorers and a picker, in the order in which they run.
//!
//! Decides nothing per request; a profile is data of the policy.

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

impl Default for Profile {
    /// The detector's filter, then upstream's weights for queue and KV cache, and this picker's own
    /// requests in flight, which see a burst that no scrape has seen yet.
    fn default() -> Self {
        Self {
            filters: vec![Filter::Utilization],
            scorers: vec![(Scorer::Queue, 2.0), (Scorer::KvCache, 2.0), (Scorer::IN_FLIGHT, 1.0)],
            picker: Picker::one(Choice::MaxScore),
        }
    }
}
