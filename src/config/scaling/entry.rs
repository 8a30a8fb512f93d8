//! One entry of the saturation map: YAML text to an optional layer.
//!
//! Decides types and ranges of each field, and which contradictions an entry carries within itself;
//! zero, false and an empty list mean unset, as upstream merges. What only a merge can tell is
//! `layers`' decision. The texts of rules are upstream's, word for word.

use serde_saphyr::Spanned;

use super::place::Place;
use crate::scaling_entry::AnalyzerEntry;
use crate::yaml::{self, Node, Value};

/// The fields of an entry.
pub(in crate::config) const FIELDS: [&str; 12] = [
    "model_id",
    "namespace",
    "kvCacheThreshold",
    "queueLengthThreshold",
    "kvSpareTrigger",
    "queueSpareTrigger",
    "enableLimiter",
    "analyzerName",
    "scaleUpThreshold",
    "scaleDownBoundary",
    "priority",
    "analyzers",
];

/// Fields of an entry that later upstream releases know.
const LATER: [&str; 3] = ["enableRescale", "limiters", "scaleToZero"];

const ANALYZER_FIELDS: [&str; 5] =
    ["name", "enabled", "score", "scaleUpThreshold", "scaleDownBoundary"];

/// Fields of an analyzer that later upstream releases know.
const LATER_ANALYZER: [&str; 2] = ["type", "parameters"];

/// One entry; `None` and the empty list leave a field to the layer below.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layer {
    /// Fraction in (0, 1].
    pub kv_cache_threshold: Option<f64>,
    /// Requests, > 0.
    pub queue_length_threshold: Option<f64>,
    /// Fraction in (0, 1].
    pub kv_spare_trigger: Option<f64>,
    /// Requests, > 0.
    pub queue_spare_trigger: Option<f64>,
    /// Fraction in (0, 1].
    pub scale_up_threshold: Option<f64>,
    /// Fraction in (0, 1].
    pub scale_down_boundary: Option<f64>,
    /// Factor, > 0.
    pub priority: Option<f64>,
    /// Only `Some(true)` is written.
    pub enable_limiter: Option<bool>,
    /// Not empty.
    pub analyzer_name: Option<String>,
    /// The whole list.
    pub analyzers: Vec<AnalyzerEntry>,
}

/// What was found in an entry.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) layer: Layer,
    /// Broken rules, in upstream's order.
    pub(super) errors: Vec<String>,
    /// What is used as it stands, or left out, but is hardly meant; with its place.
    pub(super) warnings: Vec<String>,
    /// Keys that later releases know.
    pub(super) unused: Vec<String>,
}

type Entries = [(Spanned<String>, Node)];

/// Reads the text of an entry that begins at `place`.
pub(super) fn text(text: &str, place: &Place) -> Read {
    match yaml::first_document(text) {
        Ok(None) => Read::default(),
        Ok(Some((node, another))) => {
            let mut read = node_of(&node, place);
            if another {
                read.warnings.push(format!("{place}: only the first YAML document is used"));
            }
            read
        }
        Err(error) => {
            let at = error.location().map(|at| place.at(at.line(), at.column()));
            let at = at.unwrap_or_else(|| place.to_string());
            let error = format!("{at}: cannot be parsed as YAML: {}", yaml::cause(&error));
            Read { errors: vec![error], ..Read::default() }
        }
    }
}

/// Reads an entry that stands as a mapping.
pub(super) fn node_of(node: &Node, place: &Place) -> Read {
    let mut read = Read::default();
    match &node.value {
        Value::Null => {}
        Value::Map(entries) => read.entry(entries, place),
        other => read.errors.push(format!("must be a mapping, it is {}", other.kind())),
    }
    read
}

impl Read {
    fn entry(&mut self, entries: &Entries, place: &Place) {
        self.keys(entries, place, &FIELDS, &LATER, "");
        let get = |name: &str| find(entries, name);
        self.text_field("model_id", get("model_id"));
        self.text_field("namespace", get("namespace"));
        let layer = Layer {
            kv_cache_threshold: self.number("", "kvCacheThreshold", get("kvCacheThreshold")),
            queue_length_threshold: self.number("", FIELDS[3], get("queueLengthThreshold")),
            kv_spare_trigger: self.number("", "kvSpareTrigger", get("kvSpareTrigger")),
            queue_spare_trigger: self.number("", "queueSpareTrigger", get("queueSpareTrigger")),
            scale_up_threshold: self.number("", "scaleUpThreshold", get("scaleUpThreshold")),
            scale_down_boundary: self.number("", "scaleDownBoundary", get("scaleDownBoundary")),
            priority: self.number("", "priority", get("priority")),
            enable_limiter: self.truth("enableLimiter", get("enableLimiter")).filter(|on| *on),
            analyzer_name: self.text_field("analyzerName", get("analyzerName")),
            analyzers: Vec::new(),
        };
        let analyzers = self.analyzers(get("analyzers"), place);
        self.errors.extend(broken(&layer));
        for analyzer in &analyzers {
            self.errors.extend(analyzer_rules(analyzer, &layer));
        }
        self.layer = Layer { analyzers, ..layer };
    }

    /// Tells of keys that are not read.
    fn keys(&mut self, entries: &Entries, place: &Place, known: &[&str], later: &[&str], of: &str) {
        for (key, _) in entries.iter().filter(|(key, _)| !known.contains(&&*key.value)) {
            if later.contains(&&*key.value) {
                self.unused.push(format!("{of}{}", key.value));
                continue;
            }
            let at = place.at(key.referenced.line(), key.referenced.column());
            let rule = yaml::unknown(&key.value, known);
            self.warnings.push(format!("{at}: key {:?} {rule}; it is ignored", key.value));
        }
    }

    fn wrong(&mut self, of: &str, field: &str, expected: &str, value: &Value) {
        let found = match value {
            Value::Text(text) => format!("text {text:?}"),
            other => other.kind().to_owned(),
        };
        self.errors.push(format!("{of}{field} must be {expected}, got {found}"));
    }

    /// A number; zero is unset.
    fn number(&mut self, of: &str, field: &str, node: Option<&Node>) -> Option<f64> {
        match &node?.value {
            Value::Null => None,
            // Whole numbers of documents are far below the last one that a float holds exactly.
            Value::Int(number) => Some(*number as f64),
            Value::Float(number) => Some(*number),
            other => {
                self.wrong(of, field, "a number", other);
                None
            }
        }
        .filter(|number| *number != 0.0)
    }

    fn truth(&mut self, field: &str, node: Option<&Node>) -> Option<bool> {
        match &node?.value {
            Value::Null => None,
            Value::Bool(truth) => Some(*truth),
            other => {
                self.wrong("", field, "true or false", other);
                None
            }
        }
    }

    /// Text that is not empty.
    fn text_field(&mut self, field: &str, node: Option<&Node>) -> Option<String> {
        match &node?.value {
            Value::Null => None,
            Value::Text(text) => Some(text.clone()).filter(|text| !text.is_empty()),
            // A model may be called 7; upstream's reader takes any scalar as text, too.
            Value::Int(number) => Some(number.to_string()),
            other => {
                self.wrong("", field, "text", other);
                None
            }
        }
    }

    fn analyzers(&mut self, node: Option<&Node>, place: &Place) -> Vec<AnalyzerEntry> {
        let Some(node) = node else { return Vec::new() };
        let items = match &node.value {
            Value::Null => return Vec::new(),
            Value::List(items) => items,
            other => {
                self.wrong("", "analyzers", "a list", other);
                return Vec::new();
            }
        };
        let mut analyzers: Vec<AnalyzerEntry> = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Value::Map(entries) = &item.value else {
                self.wrong(&format!("analyzers[{index}]"), "", "a mapping", &item.value);
                continue;
            };
            self.keys(entries, place, &ANALYZER_FIELDS, &LATER_ANALYZER, "analyzers[].");
            // A list of a later release names its analyzers by type alone.
            let named = find(entries, "name").or_else(|| find(entries, "type"));
            let Some(name) = self.text_field("analyzers[].name", named) else {
                self.errors.push(format!("analyzers[{index}]: name is required"));
                continue;
            };
            let of = format!("analyzer {name:?}: ");
            let mut number = |field| self.number(&of, field, find(entries, field));
            let (score, up) = (number("score"), number("scaleUpThreshold"));
            let down = number("scaleDownBoundary");
            let enabled = self.truth("enabled", find(entries, "enabled"));
            if analyzers.iter().any(|other| other.name == name) {
                let at = place.at(item.referenced.line(), item.referenced.column());
                let text = format!("{at}: analyzer {name:?} is listed twice; the first one counts");
                self.warnings.push(text);
            }
            analyzers.push(AnalyzerEntry {
                name,
                enabled: enabled.unwrap_or(true),
                score: score.filter(|score| *score > 0.0).unwrap_or(1.0),
                scale_up_threshold: up,
                scale_down_boundary: down,
            });
        }
        analyzers
    }
}

fn find<'a>(entries: &'a Entries, name: &str) -> Option<&'a Node> {
    entries.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
}

/// The rules that the fields of a layer break by themselves, in upstream's order.
fn broken(layer: &Layer) -> Vec<String> {
    let unit = |field: &str, value: Option<f64>| {
        let outside = value.filter(|value| !(0.0..=1.0).contains(value))?;
        Some(format!("{field} must be between 0 and 1, got {outside:.2}"))
    };
    let positive = |field: &str, value: Option<f64>| {
        let below = value.filter(|value| *value < 0.0 || !value.is_finite())?;
        Some(format!("{field} must be >= 0, got {below:.1}"))
    };
    let mut errors: Vec<String> = [
        unit("kvCacheThreshold", layer.kv_cache_threshold),
        positive("queueLengthThreshold", layer.queue_length_threshold),
        unit("kvSpareTrigger", layer.kv_spare_trigger),
        positive("queueSpareTrigger", layer.queue_spare_trigger),
        layer.priority.filter(|p| *p < 0.0).map(|p| format!("priority must be >= 0, got {p:.2}")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let pair = (layer.kv_cache_threshold, layer.kv_spare_trigger);
    // A number out of range says nothing about the other.
    if let ((Some(kv), Some(spare)), []) = (pair, &errors[..]) {
        errors.extend(super::spare_rule(kv, spare));
    }
    errors.extend(pair_rules(layer.scale_up_threshold, layer.scale_down_boundary));
    errors
}

/// Ranges of a pair of bounds, and that it is not upside down.
fn pair_rules(up: Option<f64>, down: Option<f64>) -> Vec<String> {
    let unit = |field: &str, value: Option<f64>| {
        let outside = value.filter(|value| !(0.0..=1.0).contains(value))?;
        Some(format!("{field} must be in (0, 1], got {outside:.2}"))
    };
    let ranges = [unit("scaleUpThreshold", up), unit("scaleDownBoundary", down)];
    let mut errors: Vec<String> = ranges.into_iter().flatten().collect();
    if let (Some(up), Some(down), []) = (up, down, &errors[..]) {
        errors.extend(super::pair_rule(up, down));
    }
    errors
}

/// An analyzer's own bounds, filled up by those of its entry.
fn analyzer_rules(analyzer: &AnalyzerEntry, layer: &Layer) -> Vec<String> {
    let (own_up, own_down) = (analyzer.scale_up_threshold, analyzer.scale_down_boundary);
    if own_up.is_none() && own_down.is_none() {
        return Vec::new();
    }
    let up = own_up.or(layer.scale_up_threshold);
    let down = own_down.or(layer.scale_down_boundary);
    let named = |rule| format!("analyzer {:?}: {rule}", analyzer.name);
    pair_rules(up, down).into_iter().map(named).collect()
}
