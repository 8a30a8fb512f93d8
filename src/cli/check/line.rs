//! The line of one model in the report of `check`.
//!
//! Decides names and order of what is printed, and which findings of the scaling configuration are
//! errors and which warnings.

use serde_json::{Map, Value, json};

use crate::config::LineSource;
use crate::policy::Source;
use crate::scaling_entry::AnalyzerEntry;
use crate::units::GoDuration;

/// What `check` says about the layers of a process.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) conflicts: Vec<String>,
}

/// Everything that is wrong or odd about the layers themselves; `lint` looks at the result.
pub(super) fn findings(line: &LineSource) -> Findings {
    let mut found = Findings::default();
    let (_, dropped) = line.layers.table();
    if let Some((file, version)) = &line.file {
        let path = file.path().display();
        match &**version {
            Err(error) => found.errors.push(format!("--scaling-config: {error}")),
            Ok(document) => {
                let named = |text: &dyn std::fmt::Display| format!("{path}: {text}");
                found.errors.extend(document.rejected.iter().map(|entry| named(entry)));
                found.warnings.extend(document.warnings.iter().map(|warning| named(warning)));
                if !document.unused.is_empty() {
                    let keys: Vec<_> = document.unused.iter().map(String::as_str).collect();
                    found.notes.push(named(&format!("known, not used: {}", keys.join(", "))));
                }
                if line.layers.scaling.global.is_some() && !line.layers.scaling.has_default() {
                    found.warnings.push(
                        "No 'default' entry in saturation scaling ConfigMap, using hardcoded \
                         defaults"
                            .to_owned(),
                    );
                }
            }
        }
    }
    found.errors.extend(dropped.iter().map(ToString::to_string));
    found.conflicts = line.layers.conflicts(&line.model.namespace);
    let singles = line.layers.scaling.scope(&line.model.namespace);
    if line.model.id.is_none() && singles.is_some_and(|map| map.keys().any(|key| key != "default"))
    {
        found.notes.push(
            "entries of single models count in routing with --model-id; this is the line of every \
             other model"
                .to_owned(),
        );
    }
    found
}

/// What scaling is told beside the thresholds: name, value and source.
pub(super) fn rows(line: &LineSource) -> Vec<(&'static str, Value, Source)> {
    let whole = line.layers.line(line.model.id.as_deref(), &line.model.namespace);
    let (entry, others) = (&whole.entry, &whole.others);
    let retention = GoDuration::from(entry.scale_to_zero.retention).to_string();
    let analyzers: Vec<Value> = entry.analyzers.iter().map(analyzer).collect();
    vec![
        ("analyzerName", json!(entry.analyzer_name), others.analyzer_name),
        ("analyzers", json!(analyzers), others.analyzers),
        ("priority", json!(entry.priority), others.priority),
        ("enableLimiter", json!(entry.enable_limiter), others.enable_limiter),
        ("enable_scale_to_zero", json!(entry.scale_to_zero.enabled), others.scale_to_zero),
        ("retention_period", json!(retention), others.retention),
    ]
}

fn analyzer(entry: &AnalyzerEntry) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), json!(entry.name));
    object.insert("enabled".to_owned(), json!(entry.enabled));
    object.insert("score".to_owned(), json!(entry.score));
    let own = [
        ("scaleUpThreshold", entry.scale_up_threshold),
        ("scaleDownBoundary", entry.scale_down_boundary),
    ];
    for (name, bound) in own {
        if let Some(bound) = bound {
            object.insert(name.to_owned(), json!(bound));
        }
    }
    Value::Object(object)
}

/// The object `scaling` of the JSON report.
pub(super) fn json(line: &LineSource) -> Value {
    let mut object = Map::new();
    object.insert("model".to_owned(), json!(line.model.id));
    object.insert("namespace".to_owned(), json!(line.model.namespace));
    object.insert("selection".to_owned(), json!(line.layers.selection().name()));
    for (name, value, source) in rows(line) {
        object.insert(name.to_owned(), json!({ "value": value, "source": source.name() }));
    }
    Value::Object(object)
}

/// The same as lines of text.
pub(super) fn text(line: &LineSource) -> String {
    let mut text = String::new();
    for (name, value, source) in rows(line) {
        let value = match &value {
            Value::String(plain) if plain.is_empty() => "-".to_owned(),
            Value::String(plain) => plain.clone(),
            Value::Array(analyzers) => {
                let names = analyzers.iter().map(|one| match one.as_object() {
                    Some(one) if one.len() > 3 => value_of(one),
                    _ => one["name"].as_str().unwrap_or_default().to_owned(),
                });
                let names: Vec<_> = names.collect();
                if names.is_empty() { "-".to_owned() } else { names.join(",") }
            }
            other => other.to_string(),
        };
        text += &format!("{name:<26} {value:<8} {}\n", source.name());
    }
    let model = line.model.id.as_deref().unwrap_or("(any)");
    let selection = line.layers.selection().name();
    text + &format!("model {model} in {}, planned by {selection}\n", line.model.namespace)
}

/// An analyzer with bounds of its own.
fn value_of(one: &Map<String, Value>) -> String {
    let bounds: Vec<_> =
        one.iter().skip(3).map(|(name, bound)| format!("{name}={bound}")).collect();
    format!("{}({})", one["name"].as_str().unwrap_or_default(), bounds.join(" "))
}
