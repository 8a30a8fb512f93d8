//! Configuration: from what users write to one validated [`Policy`].
//!
//! Decides how layers merge and what is refused; reads no file of its own accord and starts nothing.
//! Every layer reports all of its violations at once.

pub mod go_json;
pub mod lint;
pub mod params;

use std::time::Duration;

use crate::policy::{Policy, Source, Sources};
use crate::routing::Profile;
use crate::thresholds::{Draft, Thresholds};

pub use params::Params;

/// Merges the layers, later wins field by field, and checks the cross-field rules on the result.
///
/// # Errors
/// One text per violated rule.
pub fn resolve(params: &Params) -> Result<(Thresholds, Sources), Vec<String>> {
    let mut draft = Draft::default();
    let mut sources = [Source::BuiltIn; 8];
    let mut set = |index: usize, present: bool| {
        if present {
            sources[index] = Source::Params;
        }
    };
    set(0, params.queue_depth_threshold.is_some());
    set(1, params.kv_cache_util_threshold.is_some());
    set(2, params.metrics_staleness_threshold.is_some());
    set(3, params.headroom.is_some());
    if let Some(queue) = params.queue_depth_threshold {
        // Exact: the range check refuses what a float could not hold.
        draft.queue_depth = queue as f64;
    }
    draft.kv_cache_util = params.kv_cache_util_threshold.unwrap_or(draft.kv_cache_util);
    draft.staleness = params.metrics_staleness_threshold.unwrap_or(draft.staleness);
    draft.headroom = params.headroom.unwrap_or(draft.headroom);
    if sources[4] == Source::BuiltIn {
        // Nobody asked for the built-in trigger, so it gives way to a lower KV line instead of
        // making a value that the detector's own rules allow a contradiction.
        draft.kv_spare_trigger = draft.kv_spare_trigger.min(draft.kv_cache_util);
    }
    Thresholds::try_new(draft)
        .map(|thresholds| (thresholds, sources))
        .map_err(|broken| broken.iter().map(ToString::to_string).collect())
}

/// The policy of a start: resolved thresholds and this profile.
///
/// # Errors
/// As [`resolve`].
pub fn policy(params: &Params, profile: Profile) -> Result<Policy, Vec<String>> {
    let (thresholds, sources) = resolve(params)?;
    Ok(Policy::new(thresholds, sources, profile))
}

/// What the lint needs to know beside the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// Time between two scrapes of one endpoint.
    pub scrape_interval: Duration,
    /// Endpoints at start; `None` when they come from a source that is not read yet.
    pub endpoints: Option<usize>,
}
