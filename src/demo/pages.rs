//! Plumbline's own pages as the demo reads them: `/debug/pool`, `/debug/policy`, `/metrics`.
//!
//! Decides how their JSON and text become plain values; fetches nothing. Times are seconds in
//! `/metrics` and Go duration strings in the policy.

use std::time::Duration;

use serde_json::Value;

use super::observed::{Reading, Sample};
use crate::units::GoDuration;

/// `/debug/pool` at the time `at`; `None` for anything that is not such a page.
pub(super) fn pool(page: &[u8], at: Duration) -> Option<Sample> {
    let page: Value = serde_json::from_slice(page).ok()?;
    let readings = page["endpoints"].as_array()?.iter().map(reading).collect::<Option<Vec<_>>>()?;
    Some(Sample { at, saturation: page["saturation"].as_f64()?, readings })
}

fn reading(endpoint: &Value) -> Option<Reading> {
    Some(Reading {
        address: endpoint["address"].as_str()?.parse().ok()?,
        waiting: endpoint["waiting"].as_f64(),
        running: endpoint["running"].as_f64(),
        kv: endpoint["kv"].as_f64(),
        score: endpoint["score"].as_f64()?,
        in_flight: endpoint["in_flight"].as_u64()?,
        stale: endpoint["stale"].as_bool()?,
    })
}

/// One threshold in force: name, value as people write it, layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Threshold {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) source: String,
}

/// `/debug/policy`.
pub(super) fn thresholds(page: &[u8]) -> Option<Vec<Threshold>> {
    let page: Value = serde_json::from_slice(page).ok()?;
    let entry = |(name, entry): (&String, &Value)| Threshold {
        name: name.clone(),
        value: entry["value"].as_str().map_or_else(|| entry["value"].to_string(), str::to_owned),
        source: entry["source"].as_str().unwrap_or_default().to_owned(),
    };
    Some(page["thresholds"].as_object()?.iter().map(entry).collect())
}

/// The staleness limit among them.
pub(super) fn staleness(thresholds: &[Threshold]) -> Option<Duration> {
    let value = &thresholds.iter().find(|entry| entry.name == "metricsStalenessThreshold")?.value;
    GoDuration::parse(value).ok()?.to_std()
}

/// Plumbline's own time per decision.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Decisions {
    pub(super) count: u64,
    /// Upper bound of the histogram bucket that holds the median.
    pub(super) p50: Duration,
    /// The same of the 99th percentile.
    pub(super) p99: Duration,
}

/// The decision histogram in `/metrics`; `None` without one decision.
pub(super) fn decisions(page: &str) -> Option<Decisions> {
    const FAMILY: &str = "plumbline_decision_duration_seconds";
    let series = |suffix: &str| {
        let name = format!("{FAMILY}_{suffix}");
        page.lines().filter_map(move |line| {
            let rest = line.strip_prefix(&name)?;
            let (labels, value) = rest.rsplit_once(' ')?;
            Some((labels, value.parse::<f64>().ok()?))
        })
    };
    let (_, count) = series("count").next().filter(|(_, count)| *count > 0.0)?;
    let bound = |share: f64| {
        series("bucket")
            .filter(|(_, below)| *below >= share * count)
            .filter_map(|(labels, _)| labels.split('"').nth(1)?.parse::<f64>().ok())
            .fold(f64::INFINITY, f64::min)
    };
    let duration = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    Some(Decisions { count: count as u64, p50: duration(bound(0.50)), p99: duration(bound(0.99)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: the first bucket instead of the smallest one that is large enough.
    #[test]
    fn quantiles_are_bucket_bounds() {
        let page = "\
# TYPE plumbline_decision_duration_seconds histogram
plumbline_decision_duration_seconds_bucket{le=\"0.000001\"} 10
plumbline_decision_duration_seconds_bucket{le=\"0.00001\"} 60
plumbline_decision_duration_seconds_bucket{le=\"0.001\"} 99
plumbline_decision_duration_seconds_bucket{le=\"+Inf\"} 100
plumbline_decision_duration_seconds_sum 0.002
plumbline_decision_duration_seconds_count 100
";
        let decisions = decisions(page).unwrap();
        assert_eq!(decisions.count, 100);
        assert_eq!(decisions.p50, Duration::from_micros(10));
        assert_eq!(decisions.p99, Duration::from_millis(1));
        assert_eq!(super::decisions("plumbline_decision_duration_seconds_count 0\n"), None);
    }

    /// Mutants: `null` read as zero, or a page of another shape taken for an empty pool.
    #[test]
    fn an_unknown_value_stays_unknown() {
        let page = br#"{"saturation":0.5,"endpoints":[{"address":"127.0.0.1:1","waiting":null,
            "running":3,"kv":0.25,"score":1.0,"in_flight":2,"stale":true}]}"#;
        let sample = pool(page, Duration::from_secs(1)).unwrap();
        assert_eq!(sample.readings[0].waiting, None);
        assert_eq!(sample.readings[0].running, Some(3.0));
        assert!(sample.readings[0].stale);
        assert_eq!(pool(b"{}", Duration::ZERO), None);
    }

    /// Mutant: a duration that keeps its JSON quotes.
    #[test]
    fn the_staleness_limit_is_found() {
        let page = br#"{"thresholds":{"queueDepthThreshold":{"value":5,"source":"params"},
            "metricsStalenessThreshold":{"value":"200ms","source":"built-in"}}}"#;
        let thresholds = thresholds(page).unwrap();
        assert_eq!(thresholds[0].value, "5");
        assert_eq!(thresholds[0].source, "params");
        assert_eq!(staleness(&thresholds), Some(Duration::from_millis(200)));
    }
}
