//! Semantic lint: values that every rule allows and hardly anybody means.
//!
//! Decides warnings only; nothing here refuses a configuration.

use super::{Params, Surroundings};
use crate::policy::Policy;
use crate::units::GoDuration;

/// Warnings about a valid configuration, most consequential first.
pub fn warnings(params: &Params, policy: &Policy, around: &Surroundings) -> Vec<String> {
    let mut found = Vec::new();
    let thresholds = &policy.thresholds;
    let (staleness, interval) = (thresholds.staleness(), around.scrape_interval);
    let text = |duration| GoDuration::from(duration).to_string();
    if around.endpoints == Some(0) {
        found.push("no endpoints: every request gets 503 until some appear".to_owned());
    }
    if staleness < interval {
        found.push(format!(
            "metricsStalenessThreshold {} is below the scrape interval {}: every endpoint counts as \
             saturated most of the time",
            text(staleness),
            text(interval)
        ));
    } else if staleness < interval * 3 {
        found.push(format!(
            "metricsStalenessThreshold {} is below three scrape intervals of {}: one slow scrape \
             makes an endpoint count as saturated",
            text(staleness),
            text(interval)
        ));
    }
    if thresholds.headroom() > 1.0 {
        found.push(format!(
            "headroom {} is a fraction: 0.2 allows 20 % over the line, {} allows {} %",
            thresholds.headroom(),
            thresholds.headroom(),
            thresholds.headroom() * 100.0
        ));
    }
    found.extend(params.warnings.iter().cloned());
    found
}
