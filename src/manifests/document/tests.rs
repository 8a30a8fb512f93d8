//! What documents may say, and what each mistake costs.

use proptest::prelude::*;

use super::*;
use crate::routing::rewrite::{Matches, Rule, Target};

const OBJECTIVE: &str = "\
apiVersion: llm-d.ai/v1alpha2
kind: InferenceObjective
metadata: {name: critical, namespace: prod, labels: {any: thing}}
spec:
  poolRef: {name: p}
  priority: 5
";

const REWRITE: &str = "\
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModelRewrite
metadata:
  name: r
  creationTimestamp: 1970-01-01T00:01:00Z
spec:
  poolRef: {group: inference.networking.k8s.io, kind: InferencePool, name: p}
  rules:
  - matches:
    - model: {type: Exact, value: m}
    - model: {value: n}
    targets:
    - {modelRewrite: a, weight: 90}
    - {modelRewrite: b, weight: 10}
  - targets: [{modelRewrite: c}]
status: {conditions: []}
";

fn target(model: &str, weight: Option<u32>) -> Target {
    Target { model: model.to_owned(), weight }
}

/// One line per outcome: id, or error, or kind.
fn told(text: &str) -> Vec<String> {
    let tell = |outcome| match outcome {
        Outcome::Valid(document) => document.id.to_string(),
        Outcome::Bad { id, error } => {
            assert_eq!(id.is_some(), error.contains('/') && error.contains("default/"), "{error}");
            error
        }
        Outcome::Ignored(kind) => format!("({kind})"),
    };
    read(text.as_bytes()).into_iter().map(tell).collect()
}

/// Mutants: any field swapped, dropped or defaulted otherwise.
#[test]
fn both_kinds_in_full() {
    let text = format!("# a comment\n---\n{OBJECTIVE}--- # next\n{REWRITE}---\n");
    let outcomes = read(text.as_bytes());
    let [Outcome::Valid(objective), Outcome::Valid(rewrite)] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!(objective.id.to_string(), "InferenceObjective prod/critical");
    assert_eq!((objective.pool.as_str(), &objective.spec), ("p", &Spec::Objective(Some(5))));
    assert_eq!(rewrite.id.to_string(), "InferenceModelRewrite default/r");
    let rules = vec![
        Rule {
            matches: Matches::Models(vec!["m".to_owned(), "n".to_owned()]),
            targets: vec![target("a", Some(90)), target("b", Some(10))],
        },
        Rule { matches: Matches::Any, targets: vec![target("c", None)] },
    ];
    let expected = Rewrite { name: "r".to_owned(), created: Some(60), rules };
    assert_eq!(rewrite.spec, Spec::Rewrite(expected));
    assert!(rewrite.warnings.is_empty(), "{:?}", rewrite.warnings);
}

/// Mutants: items left out; the kind of a list's item ignored; JSON with tabs refused.
#[test]
fn lists_and_json() {
    let text = r#"{"apiVersion": "v1", "kind": "List", "items": [
	{"apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective",
	 "metadata": {"name": "o"}, "spec": {"poolRef": {"name": "p"}}},
	{"kind": "ConfigMap", "data": {}},
	{"kind": "InferenceObjectiveList", "items": [null, 3]}]}"#;
    assert_eq!(
        told(text),
        [
            "InferenceObjective default/o",
            "(ConfigMap)",
            "document 1, items[2], items[1]: line 5: must be a mapping, it is a number",
        ]
    );
}

/// Each mistake is named with document, line of the file, field and rule, and costs its own document.
/// Mutants: lines counted from the document instead of the file; returning after the first fault.
#[test]
fn every_mistake_is_named() {
    let text = "\
kind: InferenceObjective
apiVersion: llm-d.ai/v1
metadata: {name: o}
spec: {poolref: {name: p}, priority: high}
---
a: [
---
kind: InferenceModelRewrite
apiVersion: llm-d.ai/v1alpha2
metadata: {name: r}
spec:
  poolRef: {name: p}
  rules:
  - matches: [{model: {type: Prefix, value: ''}}]
    targets: [{modelRewrite: a, weight: 0}, {weight: 1000001}, {modelRewrite: 7}]
---
kind: InferenceObjective
apiVersion: llm-d.ai/v1alpha2
spec: {poolRef: {name: p}, priority: 3000000000}
---
just text
---
kind: Other
";
    let told = told(text);
    assert_eq!(
        told[0],
        "document 1 (InferenceObjective default/o): line 1: apiVersion must be llm-d.ai/v1alpha2 or \
         inference.networking.x-k8s.io/v1alpha2, it is \"llm-d.ai/v1\"; line 4: spec: key \"poolref\" \
         is unknown, did you mean \"poolRef\"? (known: poolRef, priority); line 4: spec.priority must \
         be a whole number from -2147483648 to 2147483647, it is text; line 4: spec.poolRef is missing"
    );
    assert!(told[1].starts_with("document 2: line "), "{}", told[1]);
    assert!(told[1].contains("cannot be parsed as YAML or JSON"), "{}", told[1]);
    assert_eq!(
        told[2],
        "document 3 (InferenceModelRewrite default/r): line 14: spec.rules[0].matches[0].model.type \
         must be \"Exact\", it is \"Prefix\"; line 14: spec.rules[0].matches[0].model.value is missing \
         or empty; line 15: spec.rules[0].targets[0].weight must be a whole number from 1 to 1000000, \
         it is 0; line 15: spec.rules[0].targets[1].modelRewrite is missing or empty; line 15: \
         spec.rules[0].targets[1].weight must be a whole number from 1 to 1000000, it is 1000001; \
         line 15: spec.rules[0].targets[2].modelRewrite must be text, it is a number (quote it)"
    );
    assert_eq!(
        told[3],
        "document 4 (InferenceObjective): line 17: metadata.name is missing or empty; line 19: \
         spec.priority must be a whole number from -2147483648 to 2147483647, it is 3000000000"
    );
    assert_eq!(told[4..], ["document 5: line 21: must be a mapping, it is text", "(Other)"]);
}

/// What the API server would refuse, but the Go picker answers. Mutants: refusing it, or silence.
#[test]
fn doubtful_rules_are_taken_with_a_warning() {
    let text = "\
kind: InferenceModelRewrite
apiVersion: llm-d.ai/v1alpha2
metadata: {name: r, creationTimestamp: yesterday}
spec:
  poolRef: {name: p}
  rules:
  - {matches: [{}], targets: []}
  - targets: [{modelRewrite: a}, {modelRewrite: b, weight: 1}]
";
    let outcomes = read(text.as_bytes());
    let [Outcome::Valid(document)] = &outcomes[..] else { panic!("{outcomes:?}") };
    let lines: Vec<_> = document.warnings.iter().map(|w| w.split(": ").nth(1).unwrap()).collect();
    assert_eq!(lines, ["line 3", "line 7", "line 7", "line 8"], "{:?}", document.warnings);
    let Spec::Rewrite(rewrite) = &document.spec else { panic!() };
    assert_eq!(rewrite.created, None);
    assert_eq!(rewrite.rules[0].matches, Matches::Models(vec![]));
}

/// Mutant: a marker within a line, or at its end, taken for a border.
#[test]
fn a_border_is_a_line_that_begins_with_three_dashes() {
    let text = format!("%YAML 1.2\n# --- \n---\n{OBJECTIVE}\n  # ---\n---x: 1\n");
    assert_eq!(yaml::documents(&text).len(), 1);
    assert_eq!(yaml::documents("a: 1\r\n---\r\nb: 2\n---").len(), 3);
    assert_eq!(yaml::documents("")[0], (0, ""));
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// No text panics, and cutting a good file short never turns into other documents. Mutants:
    /// slicing at a byte index; an `unwrap` on a location.
    #[test]
    fn any_text_is_read(text in "\\PC{0,60}", cut in 0..REWRITE.len()) {
        read(text.as_bytes());
        for outcome in read(&REWRITE.as_bytes()[..cut]) {
            if let Outcome::Valid(document) = outcome {
                prop_assert_eq!(document.id.name, "r");
            }
        }
    }
}
