//! The detector's JSON params: the seed's four fields as one optional layer.
//!
//! Decides types, ranges and unknown keys of this layer; how it merges is `config`'s decision.

use std::time::Duration;

use serde_json::Value;

use super::go_json;
use crate::thresholds::{Draft, range_violations};
use crate::units::GoDuration;

/// The fields that the detector knows, as the seed spells them.
pub const FIELDS: [&str; 4] =
    ["queueDepthThreshold", "kvCacheUtilThreshold", "metricsStalenessThreshold", "headroom"];

/// One layer of detector params; `None` means that the layer below decides.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    /// Waiting requests; > 0.
    pub queue_depth_threshold: Option<i64>,
    /// Fraction in (0, 1].
    pub kv_cache_util_threshold: Option<f64>,
    /// Maximum age of a reading; > 0.
    pub metrics_staleness_threshold: Option<Duration>,
    /// Fraction >= 0.
    pub headroom: Option<f64>,
    /// What was accepted but is rarely meant.
    pub warnings: Vec<String>,
}

impl Params {
    /// Reads the JSON text of `--params`.
    ///
    /// # Errors
    /// Every violated rule at once, each naming its field; for a text that is no JSON object, where
    /// and why.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let matched =
            go_json::match_keys(text, &FIELDS).map_err(|error| vec![format!("params: {error}")])?;
        let mut errors: Vec<String> = matched
            .unknown
            .iter()
            .map(|key| format!("unknown field {key:?}; known are {}", FIELDS.join(", ")))
            .collect();
        let mut params = Self { warnings: matched.warnings, ..Self::default() };
        let [queue, kv, staleness, headroom]: [Option<Value>; 4] =
            matched.values.try_into().unwrap_or_default();
        let mut keep = |error: String| errors.push(error);
        params.queue_depth_threshold = queue.and_then(|v| integer(FIELDS[0], &v, &mut keep));
        params.kv_cache_util_threshold = kv.and_then(|v| number(FIELDS[1], &v, &mut keep));
        let nanos = staleness.and_then(|v| duration(FIELDS[2], &v, &mut keep));
        params.headroom = headroom.and_then(|v| number(FIELDS[3], &v, &mut keep));
        params.metrics_staleness_threshold = nanos.map(|d| d.to_std().unwrap_or_default());
        errors.extend(params.range_errors(nanos));
        if errors.is_empty() { Ok(params) } else { Err(errors) }
    }

    /// The ranges of the fields that are set. A negative duration is shown as it was written.
    fn range_errors(&self, staleness: Option<GoDuration>) -> Vec<String> {
        let mut draft = Draft::default();
        if let Some(queue) = self.queue_depth_threshold {
            draft.queue_depth = queue as f64;
        }
        draft.kv_cache_util = self.kv_cache_util_threshold.unwrap_or(draft.kv_cache_util);
        draft.staleness = self.metrics_staleness_threshold.unwrap_or(draft.staleness);
        draft.headroom = self.headroom.unwrap_or(draft.headroom);
        range_violations(&draft)
            .into_iter()
            .map(|violation| match staleness {
                Some(given) if violation.field == FIELDS[2] => {
                    format!("{} must be strictly positive, got {given}", FIELDS[2])
                }
                _ => violation.to_string(),
            })
            .collect()
    }
}

fn type_error(field: &str, expected: &str, value: &Value) -> String {
    format!("{field} must be {expected}, got {value}")
}

/// Largest integer that a 64-bit float holds exactly.
const EXACT: i64 = 1 << 53;

fn integer(field: &str, value: &Value, error: &mut impl FnMut(String)) -> Option<i64> {
    match value.as_i64() {
        Some(integer) if (-EXACT..=EXACT).contains(&integer) => Some(integer),
        _ => {
            error(type_error(field, "an integer", value));
            None
        }
    }
}

fn number(field: &str, value: &Value, error: &mut impl FnMut(String)) -> Option<f64> {
    let number = value.as_f64();
    if number.is_none() {
        error(type_error(field, "a number", value));
    }
    number
}

fn duration(field: &str, value: &Value, error: &mut impl FnMut(String)) -> Option<GoDuration> {
    let Some(text) = value.as_str() else {
        error(type_error(field, "a duration string such as \"200ms\"", value));
        return None;
    };
    GoDuration::parse(text).map_err(|cause| error(format!("{field}: {cause}"))).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: returning after the first violation.
    #[test]
    fn all_violations_at_once() {
        let text = r#"{"queueDepthThreshold":-1,"kvCacheUtilThreshold":0,
            "metricsStalenessThreshold":"0s","headroom":-0.1,"queueDepth":3}"#;
        assert_eq!(
            Params::parse(text).unwrap_err(),
            [
                "unknown field \"queueDepth\"; known are queueDepthThreshold, \
                 kvCacheUtilThreshold, metricsStalenessThreshold, headroom",
                "queueDepthThreshold must be strictly positive, got -1",
                "kvCacheUtilThreshold must be in (0.0, 1.0], got 0.000000",
                "metricsStalenessThreshold must be strictly positive, got 0s",
                "headroom must be a non-negative value, got -0.100000",
            ]
        );
    }

    /// Mutant: taking the first duplicate, or refusing another case.
    #[test]
    fn keys_match_as_in_go_and_say_so() {
        let params = Params::parse(
            r#"{"QUEUEDEPTHTHRESHOLD":7,"headroom":null,"queueDepthThreshold":9} {"x":1}"#,
        )
        .unwrap();
        assert_eq!(params.queue_depth_threshold, Some(9));
        assert_eq!(params.headroom, None);
        assert_eq!(params.warnings.len(), 4, "{:?}", params.warnings);
    }
}
