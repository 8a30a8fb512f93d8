//! One file of Kubernetes documents: YAML, several in a file, JSON, and a `List` of them.
//!
//! Decides what an `InferenceModelRewrite` and an `InferenceObjective` may say: strict about every
//! key of `spec`, lenient about `metadata` and `status`, which a cluster writes. Each document is read
//! by itself, so a mistake in one costs no other. Documents and lines count from 1.

mod rewrite;

use super::fields::{Entries, Reader};
use super::timestamp;
use crate::routing::rewrite::Rewrite;
use crate::yaml::{self, Node, Value};

/// `apiVersion` of the two kinds, today's and the one before.
const VERSIONS: [&str; 2] = ["llm-d.ai/v1alpha2", "inference.networking.x-k8s.io/v1alpha2"];

/// A kind that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Rewrite,
    Objective,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Rewrite => "InferenceModelRewrite",
            Self::Objective => "InferenceObjective",
        }
    }
}

/// What makes two documents versions of one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}

/// What a document says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Spec {
    Rewrite(Rewrite),
    /// The priority, where it is set.
    Objective(Option<i32>),
}

/// A document that keeps every rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Document {
    pub(super) id: Id,
    /// The name in its `poolRef`.
    pub(super) pool: String,
    pub(super) spec: Spec,
    pub(super) warnings: Vec<String>,
}

/// What was made of one document.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Valid(Document),
    /// Place and broken rules; the id as far as it could be read.
    Bad {
        id: Option<Id>,
        error: String,
    },
    /// Another kind.
    Ignored(String),
}

/// Reads every document of a file. Documents without a value give nothing.
pub(super) fn read(content: &[u8]) -> Vec<Outcome> {
    let bad = |error| Outcome::Bad { id: None, error };
    let text = match std::str::from_utf8(content) {
        Ok(text) => text.strip_prefix('\u{feff}').unwrap_or(text),
        Err(e) => {
            let at = e.valid_up_to();
            return vec![bad(format!("the file is not UTF-8 (first bad byte at offset {at})"))];
        }
    };
    let mut outcomes = Vec::new();
    for (number, (before, piece)) in yaml::documents(text).into_iter().enumerate() {
        let place = format!("document {}", number + 1);
        match yaml::first_document(piece) {
            Ok(None) => {}
            Ok(Some((node, false))) => outcome(&node, before, &place, &mut outcomes),
            Ok(Some((_, true))) => {
                outcomes.push(bad(format!("{place}: another one follows it without a line `---`")));
            }
            Err(error) => {
                let line = before + error.location().map_or(1, |at| at.line());
                let error = error.without_snippet();
                outcomes.push(bad(format!(
                    "{place}: line {line} of the file: cannot be parsed as YAML or JSON: {error}"
                )));
            }
        }
    }
    outcomes
}

/// Reads one value, or each item of a list of documents.
fn outcome(node: &Node, before: u64, place: &str, outcomes: &mut Vec<Outcome>) {
    let bad = |rule: String| {
        let line = before + node.referenced.line();
        Outcome::Bad { id: None, error: format!("{place}: line {line}: {rule}") }
    };
    let entries = match &node.value {
        Value::Map(entries) => entries,
        Value::Null => return,
        other => return outcomes.push(bad(format!("must be a mapping, it is {}", other.kind()))),
    };
    let kind = match get(entries, "kind").map(|kind| &kind.value) {
        Some(Value::Text(kind)) => kind.as_str(),
        _ => return outcomes.push(bad("kind is missing or no text".to_owned())),
    };
    match (kind, get(entries, "items").map(|items| &items.value)) {
        ("InferenceModelRewrite", _) => {
            outcomes.push(document(Kind::Rewrite, node, entries, before, place));
        }
        ("InferenceObjective", _) => {
            outcomes.push(document(Kind::Objective, node, entries, before, place));
        }
        (list, Some(Value::List(items))) if list.ends_with("List") => {
            for (index, item) in items.iter().enumerate() {
                outcome(item, before, &format!("{place}, items[{index}]"), outcomes);
            }
        }
        (other, _) => outcomes.push(Outcome::Ignored(other.to_owned())),
    }
}

fn get<'a>(entries: &'a Entries, name: &str) -> Option<&'a Node> {
    entries.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
}

/// Reads a document of a known kind.
fn document(kind: Kind, root: &Node, entries: &Entries, before: u64, place: &str) -> Outcome {
    let mut reader = Reader { before, ..Reader::default() };
    let top = ["apiVersion", "kind", "metadata", "spec", "status"];
    let [version, _, metadata, spec, _] = reader.keys("top level", entries, top);
    if let Some(version) = reader.required("apiVersion", version, root)
        && !VERSIONS.contains(&version)
    {
        let rule = format!("apiVersion must be {}, it is {version:?}", VERSIONS.join(" or "));
        reader.fault(root, &rule);
    }
    let metadata = metadata_of(&mut reader, metadata, root);
    let id = metadata.name.map(|name| Id { kind, namespace: metadata.namespace, name });
    let read = spec_of(kind, &mut reader, (spec, root), id.as_ref(), metadata.created);
    match (id, read) {
        (Some(id), Some((pool, spec))) if reader.faults.is_empty() => {
            let named = |text| format!("{place} ({id}): {text}");
            let warnings = reader.warnings.into_iter().map(named).collect();
            Outcome::Valid(Document { id, pool, spec, warnings })
        }
        (id, _) => {
            let name = id.as_ref().map_or_else(|| kind.name().to_owned(), Id::to_string);
            let error = format!("{place} ({name}): {}", reader.faults.join("; "));
            Outcome::Bad { id, error }
        }
    }
}

struct Metadata {
    name: Option<String>,
    namespace: String,
    created: Option<i64>,
}

/// Only what is used is read, and only the name must be there.
fn metadata_of(reader: &mut Reader, node: Option<&Node>, root: &Node) -> Metadata {
    let entries = reader.map("metadata", node).unwrap_or_default();
    let name = reader.required("metadata.name", get(entries, "name"), root).map(str::to_owned);
    let namespace = reader.text("metadata.namespace", get(entries, "namespace"));
    let namespace = namespace.unwrap_or("default").to_owned();
    let created = get(entries, "creationTimestamp").and_then(|node| match &node.value {
        Value::Text(text) if timestamp::parse(text).is_some() => timestamp::parse(text),
        Value::Null => None,
        _ => {
            reader.warn(node, "metadata.creationTimestamp is no RFC 3339 time; it is left out");
            None
        }
    });
    Metadata { name, namespace, created }
}

/// Pool name and content of `spec`.
fn spec_of(
    kind: Kind,
    reader: &mut Reader,
    (spec, root): (Option<&Node>, &Node),
    id: Option<&Id>,
    created: Option<i64>,
) -> Option<(String, Spec)> {
    let before = reader.faults.len();
    let Some(entries) = reader.map("spec", spec) else {
        if reader.faults.len() == before {
            reader.fault(root, "spec is missing");
        }
        return None;
    };
    let at = spec.unwrap_or(root);
    match kind {
        Kind::Objective => {
            let [pool, priority] = reader.keys("spec", entries, ["poolRef", "priority"]);
            let range = i128::from(i32::MIN)..=i128::from(i32::MAX);
            let priority = reader.integer("spec.priority", priority, range);
            Some((pool_of(reader, pool, at)?, Spec::Objective(priority)))
        }
        Kind::Rewrite => {
            let [pool, rules] = reader.keys("spec", entries, ["poolRef", "rules"]);
            let rules = rewrite::rules(reader, rules, at);
            let name = id.map(|id| id.name.clone()).unwrap_or_default();
            let rewrite = Rewrite { name, created, rules: rules.unwrap_or_default() };
            Some((pool_of(reader, pool, at)?, Spec::Rewrite(rewrite)))
        }
    }
}

fn pool_of(reader: &mut Reader, node: Option<&Node>, at: &Node) -> Option<String> {
    let before = reader.faults.len();
    let Some(entries) = reader.map("spec.poolRef", node) else {
        if reader.faults.len() == before {
            reader.fault(at, "spec.poolRef is missing");
        }
        return None;
    };
    let [group, kind, name] = reader.keys("spec.poolRef", entries, ["group", "kind", "name"]);
    reader.text("spec.poolRef.group", group);
    reader.text("spec.poolRef.kind", kind);
    reader.required("spec.poolRef.name", name, node.unwrap_or(at)).map(str::to_owned)
}

#[cfg(test)]
mod tests;
