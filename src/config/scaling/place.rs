//! Where something stands: lines and columns of the file, for a text that stands within a text.
//!
//! Decides how the place within an entry becomes one of the file. Lines and columns count from 1.

use std::fmt;

use crate::yaml::{Node, Value};

/// The beginning of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Place {
    /// Lines of the file before the entry's first.
    lines: u64,
    /// Characters before the entry's first column; `None`: a quoted text, its columns are its own.
    columns: Option<u64>,
    /// The line of its key.
    key: u64,
}

impl Place {
    /// Of the value `node` behind a key in line `key`, after `before` lines of other documents.
    pub(super) fn of(node: &Node, key: u64, before: u64) -> Self {
        let (line, column) = (node.referenced.line(), node.referenced.column());
        match &node.value {
            // A block scalar: its content has lines of its own, indented as the first one.
            Value::Text(_) if line > key => {
                Self { lines: before + line - 1, columns: Some(column - 1), key: before + key }
            }
            Value::Text(_) => Self { lines: 0, columns: None, key: before + key },
            // A mapping that stands in the document itself.
            _ => Self { lines: before, columns: Some(0), key: before + key },
        }
    }

    /// A place within the entry, as one of the file.
    pub(super) fn at(&self, line: u64, column: u64) -> String {
        match self.columns {
            Some(columns) => format!("line {}, column {}", self.lines + line, columns + column),
            // A text that stands in no file.
            None if self.key == 0 => format!("line {line}, column {column}"),
            None => format!("line {}, within the text line {line}, column {column}", self.key),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.key)
    }
}
