//! The scaling configuration: what three releases of the autoscaler made of a ConfigMap, and what we do.
//!
//! One line of text holds a whole answer, so that the table of differences can state ours in full.

use std::collections::BTreeMap;

use plumbline::config::scaling::{Held, from_data};
use plumbline::config::{Layers, Params};
use plumbline::scaling_entry::SATURATION;
use serde_json::Value;

#[path = "scaling_config/differences.rs"]
mod differences;

use differences::DIFFERENCES;

type Data<'a> = Vec<(&'a str, &'a str)>;

fn data(value: &Value) -> Data<'_> {
    let object = value.as_object().unwrap();
    object.iter().map(|(key, text)| (key.as_str(), text.as_str().unwrap())).collect()
}

/// Our answer to an input.
fn ours(input: &Value) -> String {
    let local = input.get("namespace_data").map(|local| ("ns", data(local)));
    let mut held = Held::default();
    let mut rejected = BTreeMap::new();
    for version in [input.get("data"), input.get("then_data")].into_iter().flatten() {
        let document = from_data(Some(data(version)), local.clone());
        held = held.next(&document).0;
        rejected = document.rejected.iter().map(|r| (r.key.clone(), r.error.clone())).collect();
    }
    let layers = Layers { params: Params::default(), scaling: held };
    let line = layers.line(input["model_id"].as_str(), input["namespace"].as_str().unwrap());
    let (entry, numbers) = (&line.entry, line.entry.thresholds.numbers());
    let analyzers: Vec<_> =
        entry.analyzers.iter().map(|a| format!("{}*{}", a.name, a.score)).collect();
    let bounds = entry.bounds(SATURATION);
    let mut text = format!(
        "{} kv {}-{} queue {}-{} bounds {}/{} own {}/{} priority {} limiter {} name {:?} analyzers [{}]",
        layers.selection().name().to_lowercase(),
        numbers.kv_cache_util,
        numbers.kv_spare_trigger,
        numbers.queue_depth,
        numbers.queue_spare_trigger,
        numbers.scale_up_threshold,
        numbers.scale_down_boundary,
        bounds.0,
        bounds.1,
        entry.priority,
        entry.enable_limiter,
        entry.analyzer_name,
        analyzers.join(" "),
    );
    for (key, error) in rejected {
        text += &format!(" | {key}: {error}");
    }
    text
}

/// The recorded answer in the same words.
fn recorded(output: &Value) -> String {
    let resolved = &output["resolved"];
    let selected = output["selected_analyzer"].as_str().unwrap();
    let number = |value: &Value| match value {
        Value::Number(number) => number.as_f64().unwrap().to_string(),
        Value::String(text) => text.clone(),
        _ => "?".to_owned(),
    };
    let of = |name: &str| number(&resolved[name]);
    let own = |name: &str| number(&output["saturation_thresholds"][name]);
    let mut text = if let Some(skipped) = resolved.as_str() {
        format!("{selected} {skipped}")
    } else {
        let list = resolved["analyzers"].as_array().into_iter().flatten();
        let analyzers: Vec<_> = list
            .map(|a| format!("{}*{}", a["name"].as_str().unwrap(), number(&a["score"])))
            .collect();
        format!(
            "{selected} kv {}-{} queue {}-{} bounds {}/{} own {}/{} priority {} limiter {} name {} \
             analyzers [{}]",
            of("kv_cache_threshold"),
            of("kv_spare_trigger"),
            of("queue_length_threshold"),
            of("queue_spare_trigger"),
            of("scale_up_threshold"),
            of("scale_down_boundary"),
            own("scale_up_threshold"),
            own("scale_down_boundary"),
            of("priority"),
            resolved["enable_limiter"],
            resolved["analyzer_name"],
            analyzers.join(" "),
        )
    };
    for (key, error) in output["rejected"].as_object().unwrap() {
        text += &format!(" | {key}: {}", error.as_str().unwrap());
    }
    text
}

/// Every recorded case is equal, or stands in the table with our answer and the reason. Mutants: any
/// rule of the merge, any text of a rule.
#[test]
fn every_case_is_equal_or_listed() {
    let path = format!("{}/tests/data/wva-vectors/config.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut table: BTreeMap<(String, String), _> =
        DIFFERENCES.iter().map(|d| ((d.case.to_owned(), d.release.to_owned()), d)).collect();
    assert_eq!(table.len(), DIFFERENCES.len(), "a case stands twice in the table");
    let mut wrong = Vec::new();
    for line in text.lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let name = case["case"].as_str().unwrap();
        // A line may speak for several releases.
        let release = case["wva"][0].as_str().unwrap();
        let (ours, recorded) = (ours(&case["input"]), recorded(&case["output"]));
        match (ours == recorded, table.remove(&(name.to_owned(), release.to_owned()))) {
            (true, None) => {}
            (true, Some(_)) => wrong.push(format!("{name} {release}: agrees, yet is listed")),
            (false, None) => wrong.push(format!("{name} {release}:\n  {ours}\n  {recorded}")),
            (false, Some(listed)) if listed.ours != ours => {
                wrong.push(format!("{name} {release}: {ours}\n  listed {}", listed.ours));
            }
            (false, Some(listed)) => assert!(!listed.why.text().is_empty()),
        }
    }
    wrong.extend(table.keys().map(|(name, release)| format!("{name} {release}: no such case")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
