//! Semantic lint: values that every rule allows and hardly anybody means.
//!
//! Decides warnings only; nothing here refuses a configuration.

use super::{LineSource, Surroundings};
use crate::policy::Policy;
use crate::scaling_entry::{ScalingEntry, ScalingScope, ScalingTable, Selection};
use crate::units::GoDuration;

/// Analyzers that are there, in the order in which they run.
pub const REGISTERED: [&str; 1] = [crate::scaling_entry::SATURATION];

/// Told where the pool is known to be empty.
pub const NO_ENDPOINTS: &str = "no endpoints: every request gets 503 until some appear";

/// Warnings about a valid configuration, most consequential first.
pub fn warnings(line: &LineSource, policy: &Policy, around: &Surroundings) -> Vec<String> {
    let mut found = Vec::new();
    let thresholds = &policy.thresholds;
    let (staleness, interval) = (thresholds.staleness(), around.scrape_interval);
    let text = |duration| GoDuration::from(duration).to_string();
    if around.endpoints == Some(0) {
        found.push(NO_ENDPOINTS.to_owned());
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
    let headroom = thresholds.headroom();
    if headroom > 1.0 {
        found.push(format!(
            "headroom {headroom} is a fraction: 0.2 allows 20 % over the line, {headroom} allows {} %",
            headroom * 100.0
        ));
    } else if headroom > 0.0 {
        found.push(format!(
            "headroom {headroom}: requests are routed to replicas that scaling counts as saturated"
        ));
    }
    found.extend(scaling(&policy.scaling));
    found.extend(line.layers.params.warnings.iter().cloned());
    found
}

/// Warnings about resolved entries, each with the entry that it is about.
pub fn scaling(table: &ScalingTable) -> Vec<String> {
    let mut found = Vec::new();
    let mut scope = |prefix: &str, scope: &ScalingScope| {
        let models = scope.models.iter().map(|(key, entry)| (key.as_str(), entry));
        for (key, entry) in [("default", &scope.default)].into_iter().chain(models) {
            let name = format!("entry \"{prefix}{key}\"");
            if table.selection == Selection::SpareCapacity {
                found.extend(spare_triggers(&name, entry));
            }
            // What an entry inherits is told once, of the entry that says it.
            if key == "default" || entry.analyzers != scope.default.analyzers {
                found.extend(analyzers(&name, entry));
            }
        }
    };
    scope("", &table.global);
    for (namespace, local) in &table.local {
        scope(&format!("{namespace}/"), local);
    }
    found
}

/// V1 adds a replica while the mean spare is below the trigger: where the trigger reaches the
/// threshold, an idle pool is below it too.
fn spare_triggers(name: &str, entry: &ScalingEntry) -> Vec<String> {
    let line = entry.thresholds.numbers();
    let pairs = [
        ("queueSpareTrigger", line.queue_spare_trigger, "queueLengthThreshold", line.queue_depth),
        ("kvSpareTrigger", line.kv_spare_trigger, "kvCacheThreshold", line.kv_cache_util),
    ];
    let reached = pairs.into_iter().filter(|(_, trigger, _, threshold)| trigger >= threshold);
    reached
        .map(|(trigger, at, threshold, limit)| {
            format!(
                "{name}: {trigger} {at} reaches {threshold} {limit}: V1 would grow an idle pool \
                 without end"
            )
        })
        .collect()
}

fn analyzers(name: &str, entry: &ScalingEntry) -> Vec<String> {
    let mut found = Vec::new();
    let model = entry.thresholds.numbers();
    let mut last = 0;
    for analyzer in &entry.analyzers {
        let own = &analyzer.name;
        let up = analyzer.scale_up_threshold.unwrap_or(model.scale_up_threshold);
        let down = analyzer.scale_down_boundary.unwrap_or(model.scale_down_boundary);
        if up <= down {
            found.push(format!(
                "{name}: analyzer {own:?} has scaleUpThreshold {up} and scaleDownBoundary {down}, \
                 upside down: the model's pair is used"
            ));
        }
        match REGISTERED.iter().position(|registered| registered == own) {
            None => found.push(format!(
                "{name}: analyzer {own:?} is unknown and has no effect (known: {})",
                REGISTERED.join(", ")
            )),
            Some(position) if position < last => found.push(format!(
                "{name}: analyzer {own:?} runs before those that the list has before it"
            )),
            Some(position) => last = position,
        }
    }
    if !entry.analyzer_name.is_empty() && !REGISTERED.contains(&entry.analyzer_name.as_str()) {
        let given = &entry.analyzer_name;
        found.push(format!("{name}: analyzerName {given:?} is unknown and selects nothing"));
    }
    found
}
