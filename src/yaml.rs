//! YAML or JSON text as a plain tree in which every value knows its line.
//!
//! Decides how scalars are told apart and what a misspelt key may have meant; knows no key of any
//! document. Lines and columns count from 1.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A value and where it stands.
pub type Node = Spanned<Value>;

/// One YAML value. Tags and anchors are resolved by the reader.
#[derive(Debug)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number that is not whole, or larger than any document can mean; finite.
    Float(f64),
    /// A whole number.
    Int(i128),
    /// Text, quoted or plain.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// In the order of the document; keys that are no text read as their spelling.
    Map(Vec<(Spanned<String>, Node)>),
}

impl Value {
    /// The kind of value, with its article, for error texts.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Float(_) | Self::Int(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Int(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u128<E>(self, number: u128) -> Result<Value, E> {
        // Larger than any whole number that a document here can mean.
        Ok(Value::Float(number as f64))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

/// The first document of `text`, and whether another follows. `None`: the text holds no value.
///
/// The whole text must be well formed, what follows the first document too: a stray bracket at the
/// end is more likely a torn file than a second document.
///
/// # Errors
/// The syntax error with its line and column.
pub fn first_document(text: &str) -> Result<Option<(Node, bool)>, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        // A port that is written `08000` or `8_000` must arrive as written to be refused by name.
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        // `name: y` and `zone: no` are text, as YAML 1.2 has it.
        strict_booleans: true,
    };
    let mut bytes = text.as_bytes();
    let mut documents = serde_saphyr::read_with_options(&mut bytes, options);
    let Some(first) = documents.next().transpose()? else { return Ok(None) };
    let another = documents.next().transpose()?.is_some_and(|_: Node| true);
    Ok(Some((first, another)))
}

/// The documents as text, each with the number of lines before it. A line that begins with `---` ends
/// one wherever it stands, within quotes too: the YAML grammar has it so.
pub fn documents(text: &str) -> Vec<(u64, &str)> {
    let mut pieces = Vec::new();
    let (mut start, mut before, mut at) = (0, 0, 0);
    let mut begun = false;
    for (line, number) in text.split_inclusive('\n').zip(0..) {
        let marker = line
            .strip_prefix("---")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if marker && begun {
            pieces.push((before, &text[start..at]));
            (start, before) = (at, number);
        }
        // Comments and directives belong to the document that they precede.
        begun |= marker || !(line.trim().is_empty() || line.starts_with(['#', '%']));
        at += line.len();
    }
    pieces.push((before, &text[start..]));
    pieces
}

/// The reader's words without the place, for texts that name it in lines of their own.
pub fn cause(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    text.rsplit_once(" at line ").map_or(text.clone(), |(cause, _)| cause.to_owned())
}

/// The rule that a key outside `known` breaks, with a guess at the one that was meant.
pub fn unknown(key: &str, known: &[&str]) -> String {
    let key = key.to_ascii_lowercase();
    let nearest = known.iter().map(|known| (distance(&key, known), known)).min();
    let guess = match nearest {
        // Further away than a third of its letters, a guess misleads more than it helps.
        Some((distance, nearest)) if distance * 3 <= nearest.len() => {
            format!(", did you mean {nearest:?}?")
        }
        _ => String::new(),
    };
    format!("is unknown{guess} (known: {})", known.join(", "))
}

/// Edit distance: letters to insert, delete or replace.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.chars().count()]
}
