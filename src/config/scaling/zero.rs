//! The scale-to-zero map: entries of `wva-model-scale-to-zero-config`.
//!
//! Decides which entry speaks for which model and what a bad retention costs. Retentions are
//! durations; the texts of rules are upstream's.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_saphyr::Spanned;

use super::place::Place;
use crate::units::GoDuration;
use crate::yaml::{self, Node, Value};

const FIELDS: [&str; 4] = ["model_id", "namespace", "enable_scale_to_zero", "retention_period"];

/// A retention above this is used with a warning.
const LONG: Duration = Duration::from_secs(24 * 3600);

/// One entry; `None` leaves a field to the entry `default`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZeroLayer {
    /// The model; `None` only in the entry `default`.
    pub model: Option<String>,
    /// Only there.
    pub namespace: Option<String>,
    /// Whether the model may go to zero.
    pub enabled: Option<bool>,
    /// How long it must have been idle; > 0.
    pub retention: Option<Duration>,
}

/// What was found in an entry.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) layer: ZeroLayer,
    /// The entry is left out.
    pub(super) error: Option<String>,
    /// The retention alone is left out.
    pub(super) bad_retention: Option<String>,
    pub(super) warnings: Vec<String>,
}

/// Reads the entry of `key`.
pub(super) fn entry(key: &str, node: &Node, place: &Place) -> Read {
    let parsed;
    let node = match &node.value {
        Value::Text(text) => match yaml::first_document(text) {
            Ok(None) => return Read::default().judged(key),
            Ok(Some((inner, _))) => {
                parsed = inner;
                &parsed
            }
            Err(error) => {
                let error = format!("cannot be parsed as YAML: {}", yaml::cause(&error));
                return Read { error: Some(error), ..Read::default() };
            }
        },
        _ => node,
    };
    let mut read = Read::default();
    match &node.value {
        Value::Null => {}
        Value::Map(entries) => read.fields(entries, place),
        other => read.error = Some(format!("must be a mapping, it is {}", other.kind())),
    }
    read.judged(key)
}

impl Read {
    fn fields(&mut self, entries: &[(Spanned<String>, Node)], place: &Place) {
        for (key, node) in entries {
            let at = place.at(key.referenced.line(), key.referenced.column());
            match (key.value.as_str(), &node.value) {
                (name, Value::Null) if FIELDS.contains(&name) => {}
                ("model_id", Value::Text(text)) => self.layer.model = Some(text.clone()),
                ("model_id", Value::Int(number)) => self.layer.model = Some(number.to_string()),
                ("namespace", Value::Text(text)) if !text.is_empty() => {
                    self.layer.namespace = Some(text.clone());
                }
                ("namespace", Value::Text(_)) => {}
                ("enable_scale_to_zero", Value::Bool(on)) => self.layer.enabled = Some(*on),
                ("retention_period", Value::Text(text)) => self.retention(text, &at),
                (name, value) if FIELDS.contains(&name) => {
                    let expected =
                        if name == "enable_scale_to_zero" { "true or false" } else { "text" };
                    let found = value.kind();
                    self.error.get_or_insert(format!("{name} must be {expected}, it is {found}"));
                }
                (name, _) => {
                    let rule = yaml::unknown(name, &FIELDS);
                    self.warnings.push(format!("{at}: key {name:?} {rule}; it is ignored"));
                }
            }
        }
        self.layer.model = self.layer.model.take().filter(|model| !model.is_empty());
    }

    fn retention(&mut self, text: &str, at: &str) {
        let parsed = if text.is_empty() {
            Err("retention period cannot be empty".to_owned())
        } else {
            GoDuration::parse(text).map_err(|error| format!("invalid duration format: {error}"))
        };
        match parsed.map(|duration| (duration, duration.to_std())) {
            Ok((_, Some(retention))) if !retention.is_zero() => {
                if retention > LONG {
                    let text = format!("{at}: retention_period {text} is more than a day");
                    self.warnings.push(text);
                }
                self.layer.retention = Some(retention);
            }
            Ok((given, _)) => {
                let error = format!("retention period must be positive, got {given}");
                self.bad_retention = Some(error);
            }
            Err(error) => self.bad_retention = Some(error),
        }
    }

    fn judged(mut self, key: &str) -> Self {
        if key != "default" && self.layer.model.is_none() && self.error.is_none() {
            self.error = Some("model_id is missing".to_owned());
        }
        self
    }
}

/// Keys whose entries speak for a model and namespace that an earlier key has spoken for.
pub(super) fn duplicates(layers: &BTreeMap<String, ZeroLayer>) -> Vec<String> {
    let mut seen = std::collections::BTreeSet::new();
    let mut of_models = layers.iter().filter(|(key, _)| *key != "default");
    let mut twice = Vec::new();
    for (key, layer) in &mut of_models {
        if !seen.insert((&layer.model, &layer.namespace)) {
            twice.push(key.clone());
        }
    }
    twice
}
