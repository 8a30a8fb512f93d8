//! The recorded model rewrites: which model each request was sent on as.
//!
//! Compared is the model alone. The bytes around it, paths and responses belong to other modules and
//! are held by their tests; a case stands here with its request's model whatever else it is about.

use std::collections::BTreeMap;

use plumbline::routing::Rewrites;
use plumbline::routing::rewrite::{Matches, Rewrite, Rule, Target};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::{Difference, close, replay};

const REWRITE_HEADER: &str = "x-llm-d-model-name-rewrite";

const NOT_ASKED: &str = "which paths have a model that may be rewritten is the request parser's \
                         decision; there these rules are not asked";

const DIFFERENCES: [Difference; 2] = [
    Difference {
        case: "rewrite/generic-passthrough-path",
        ours: r#"{"model":"g"}"#,
        why: NOT_ASKED,
    },
    Difference {
        case: "rewrite/count-tokens-not-rewritten",
        ours: r#"{"model":"t"}"#,
        why: NOT_ASKED,
    },
];

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The documents of a case; `age_s` is seconds before an arbitrary now.
fn documents(input: &Value) -> Vec<Rewrite> {
    let rule = |rule: &Value| Rule {
        matches: match (rule["match"].as_array(), &rule["nil_model_matches"]) {
            (None, Value::Null) => Matches::Any,
            (models, _) => Matches::Models(models.into_iter().flatten().map(text).collect()),
        },
        targets: rule["targets"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|target| Target {
                model: text(&target["model"]),
                weight: target["weight"].as_u64().map(|weight| weight.try_into().unwrap()),
            })
            .collect(),
    };
    let documents = input["rewrites"].as_array().into_iter().flatten();
    documents
        .map(|document| Rewrite {
            name: text(&document["name"]),
            created: Some(1_000_000 - document["age_s"].as_i64().unwrap_or(0)),
            rules: document["rules"].as_array().unwrap().iter().map(rule).collect(),
        })
        .collect()
}

/// The model of a body, `null` without one. The lone surrogate of one prompt is no text for serde.
fn model(body: &str) -> Value {
    let body = body.replace(r"\ud800", r"\ufffd");
    serde_json::from_str::<Value>(&body).unwrap()["model"].clone()
}

/// What was recorded, reduced to the model: a share per model where it was drawn.
fn recorded(output: &Value) -> Value {
    if let Some(forwarded) = output["forwarded"].as_object() {
        let draws = output["draws"].as_f64().unwrap();
        let shares: BTreeMap<_, _> = forwarded
            .iter()
            .map(|(body, count)| (text(&model(body)), count.as_f64().unwrap() / draws))
            .collect();
        return json!({ "shares": shares });
    }
    match &output["status"] {
        Value::String(_) => json!({ "model": model(output["forwarded_body"].as_str().unwrap()) }),
        status => json!({ "status": status }),
    }
}

fn answer(input: &Value) -> Value {
    let rewrites = Rewrites::new(documents(input));
    let request = &input["request"];
    let body = model(request["body"].as_str().unwrap());
    let header = request["headers"][REWRITE_HEADER].as_str();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut counts: BTreeMap<String, f64> = BTreeMap::new();
    for _ in 0..10_000 {
        let resolved = rewrites.resolve(body.as_str(), header, &mut rng);
        assert_eq!(resolved.changed, body.as_str() != Some(resolved.target));
        *counts.entry(resolved.target.to_owned()).or_default() += 1e-4;
    }
    match counts.first_key_value() {
        Some((target, _)) if target.is_empty() => json!({ "status": 400 }),
        Some((target, share)) if *share > 0.999 && !drawn(input) => json!({ "model": target }),
        _ => json!({ "shares": counts }),
    }
}

/// Whether a rule has several targets: then shares were recorded.
fn drawn(input: &Value) -> bool {
    documents(input).iter().flat_map(|d| &d.rules).any(|rule| rule.targets.len() > 1)
}

/// Equal, shares within two points.
fn agrees(ours: &Value, output: &Value) -> bool {
    let recorded = recorded(output);
    let (Some(x), Some(y)) = (ours["shares"].as_object(), recorded["shares"].as_object()) else {
        return close(ours, &recorded);
    };
    x.len() == y.len()
        && x.iter().all(|(model, share)| {
            y.get(model).is_some_and(|other| {
                (share.as_f64().unwrap() - other.as_f64().unwrap()).abs() < 0.02
            })
        })
}

/// Mutants: chaining rules, the header before the rule, the youngest document, weights ignored.
#[test]
fn models_are_rewritten_as_recorded() {
    replay("rewrite", &DIFFERENCES, answer, agrees);
}
