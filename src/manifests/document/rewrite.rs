//! The rules of an `InferenceModelRewrite`.
//!
//! Decides what a rule may say. What the API server refuses is a fault; two things that it refuses but
//! for which the Go picker has an answer, no targets and weights beside none, are warnings. Weights
//! are plain shares.

use super::super::fields::Reader;
use crate::routing::rewrite::{Matches, Rule, Target};
use crate::yaml::Node;

/// The rules in order, `None` with a fault.
pub(super) fn rules(reader: &mut Reader, node: Option<&Node>, at: &Node) -> Option<Vec<Rule>> {
    let before = reader.faults.len();
    let Some(items) = reader.list("spec.rules", node) else {
        if reader.faults.len() == before {
            reader.fault(at, "spec.rules is missing");
        }
        return None;
    };
    if items.is_empty() {
        reader.warn(node.unwrap_or(at), "spec.rules is empty: the document does nothing");
    }
    items
        .iter()
        .enumerate()
        .map(|(i, item)| rule(reader, &format!("spec.rules[{i}]"), item))
        .collect()
}

fn rule(reader: &mut Reader, field: &str, node: &Node) -> Option<Rule> {
    let entries = item(reader, field, node)?;
    let [found, drawn] = reader.keys(field, entries, ["matches", "targets"]);
    let listed = reader.list(&format!("{field}.matches"), found).unwrap_or_default();
    let mut models = Vec::new();
    for (i, entry) in listed.iter().enumerate() {
        models.extend(model(reader, &format!("{field}.matches[{i}]"), entry));
    }
    let matches = if listed.is_empty() { Matches::Any } else { Matches::Models(models) };
    let targets = targets(reader, &format!("{field}.targets"), drawn, node);
    Some(Rule { matches, targets })
}

/// The model that one entry of `matches` names.
fn model(reader: &mut Reader, field: &str, node: &Node) -> Option<String> {
    let entries = item(reader, field, node)?;
    let [model] = reader.keys(field, entries, ["model"]);
    let before = reader.faults.len();
    let field = format!("{field}.model");
    let Some(entries) = reader.map(&field, model) else {
        if reader.faults.len() == before {
            reader.warn(node, &format!("{field} is missing: the entry matches nothing"));
        }
        return None;
    };
    let [kind, value] = reader.keys(&field, entries, ["type", "value"]);
    if let Some(kind) = reader.text(&format!("{field}.type"), kind)
        && kind != "Exact"
    {
        reader.fault(node, &format!("{field}.type must be \"Exact\", it is {kind:?}"));
    }
    reader.required(&format!("{field}.value"), value, node).map(str::to_owned)
}

fn targets(reader: &mut Reader, field: &str, node: Option<&Node>, rule: &Node) -> Vec<Target> {
    let before = reader.faults.len();
    let items = reader.list(field, node).unwrap_or_default();
    let mut targets = Vec::new();
    for (i, entry) in items.iter().enumerate() {
        targets.extend(target(reader, &format!("{field}[{i}]"), entry));
    }
    let at = node.unwrap_or(rule);
    if items.is_empty() && reader.faults.len() == before {
        reader.warn(at, &format!("{field} is empty: requests of this rule get 400"));
    }
    let weighted = targets.iter().filter(|target| target.weight.is_some()).count();
    if weighted > 0 && weighted < targets.len() {
        reader
            .warn(at, &format!("{field}: a target without a weight beside others is never drawn"));
    }
    targets
}

fn target(reader: &mut Reader, field: &str, node: &Node) -> Option<Target> {
    let entries = item(reader, field, node)?;
    let [model, weight] = reader.keys(field, entries, ["modelRewrite", "weight"]);
    let model = reader.required(&format!("{field}.modelRewrite"), model, node);
    let weight = reader.integer(&format!("{field}.weight"), weight, 1..=1_000_000);
    Some(Target { model: model?.to_owned(), weight })
}

/// The entries of a list's item, which must be a mapping.
fn item<'a>(
    reader: &mut Reader,
    field: &str,
    node: &'a Node,
) -> Option<&'a super::super::fields::Entries> {
    let before = reader.faults.len();
    let entries = reader.map(field, Some(node));
    if entries.is_none() && reader.faults.len() == before {
        reader.fault(node, &format!("{field} must be a mapping, it is null"));
    }
    entries
}
