//! Fields of a document, read with a fault for every rule that is broken.
//!
//! Decides how keys match (exactly, as the API server does) and what a fault says; knows no kind of
//! document. Lines count from 1.

use std::ops::RangeInclusive;

use serde_saphyr::Spanned;

use crate::yaml::{Node, Value, unknown};

/// The entries of a mapping.
pub(super) type Entries = [(Spanned<String>, Node)];

/// Reads the fields of one document and collects what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// Lines of the file before the document.
    pub(super) before: u64,
    /// Broken rules, each with line and field.
    pub(super) faults: Vec<String>,
    /// What is used as it stands but is hardly meant.
    pub(super) warnings: Vec<String>,
}

impl Reader {
    pub(super) fn fault(&mut self, at: &Node, text: &str) {
        let line = self.before + at.referenced.line();
        self.faults.push(format!("line {line}: {text}"));
    }

    pub(super) fn warn(&mut self, at: &Node, text: &str) {
        let line = self.before + at.referenced.line();
        self.warnings.push(format!("line {line}: {text}"));
    }

    /// The entries of `node`; `null` is as good as absent, and absent is no fault here.
    pub(super) fn map<'a>(&mut self, field: &str, node: Option<&'a Node>) -> Option<&'a Entries> {
        match node.map(|node| (&node.value, node))? {
            (Value::Map(entries), _) => Some(entries),
            (Value::Null, _) => None,
            (other, node) => {
                self.fault(node, &format!("{field} must be a mapping, it is {}", other.kind()));
                None
            }
        }
    }

    /// The items of `node`, as [`Self::map`].
    pub(super) fn list<'a>(&mut self, field: &str, node: Option<&'a Node>) -> Option<&'a [Node]> {
        match node.map(|node| (&node.value, node))? {
            (Value::List(items), _) => Some(items),
            (Value::Null, _) => None,
            (other, node) => {
                self.fault(node, &format!("{field} must be a list, it is {}", other.kind()));
                None
            }
        }
    }

    /// The values of the `known` keys of `parent`; any other key is a fault.
    pub(super) fn keys<'a, const N: usize>(
        &mut self,
        parent: &str,
        entries: &'a Entries,
        known: [&str; N],
    ) -> [Option<&'a Node>; N] {
        let mut found = [None; N];
        for (key, value) in entries {
            let name = &key.value;
            let rule = match known.iter().position(|known| known == name) {
                Some(at) if found[at].is_none() => {
                    found[at] = Some(value);
                    continue;
                }
                Some(_) => "is given twice".to_owned(),
                None => unknown(name, &known),
            };
            let line = self.before + key.referenced.line();
            self.faults.push(format!("line {line}: {parent}: key {name:?} {rule}"));
        }
        found
    }

    /// The text of a field, `None` if it is absent, `null` or empty.
    pub(super) fn text<'a>(&mut self, field: &str, node: Option<&'a Node>) -> Option<&'a str> {
        match node.map(|node| (&node.value, node))? {
            (Value::Null, _) => None,
            (Value::Text(text), _) => (!text.is_empty()).then_some(text),
            (other, node) => {
                let kind = other.kind();
                self.fault(node, &format!("{field} must be text, it is {kind} (quote it)"));
                None
            }
        }
    }

    /// As [`Self::text`], but it must be there; `at` is where it is missing.
    pub(super) fn required<'a>(
        &mut self,
        field: &str,
        node: Option<&'a Node>,
        at: &Node,
    ) -> Option<&'a str> {
        let before = self.faults.len();
        let found = self.text(field, node);
        if found.is_none() && self.faults.len() == before {
            self.fault(node.unwrap_or(at), &format!("{field} is missing or empty"));
        }
        found
    }

    /// A whole number in `range`, `None` if it is absent or `null`.
    pub(super) fn integer<T: TryFrom<i128>>(
        &mut self,
        field: &str,
        node: Option<&Node>,
        range: RangeInclusive<i128>,
    ) -> Option<T> {
        let (value, node) = node.map(|node| (&node.value, node))?;
        let rule = format!("must be a whole number from {} to {}", range.start(), range.end());
        let got = match value {
            Value::Null => return None,
            Value::Int(number) if range.contains(number) => return T::try_from(*number).ok(),
            Value::Int(number) => number.to_string(),
            other => other.kind().to_owned(),
        };
        self.fault(node, &format!("{field} {rule}, it is {got}"));
        None
    }
}
