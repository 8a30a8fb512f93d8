//! JSON objects as Go's `encoding/json` decodes them into a struct: keys match in any case, the last of
//! several equal keys wins, and `null` leaves a field alone.
//!
//! Decides key matching only; the values keep their JSON type for the field's own rule.

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object as it stands in the text: order and duplicates kept.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Entries;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }

            fn visit_unit<E: de::Error>(self) -> Result<Entries, E> {
                Ok(Entries(Vec::new()))
            }
        }
        deserializer.deserialize_any(Object)
    }
}

/// An object whose keys were matched against the known names.
#[derive(Debug, Default, PartialEq)]
pub struct Matched {
    /// One value per known name, `None` when absent or `null`.
    pub values: Vec<Option<Value>>,
    /// Keys that match no known name, as written.
    pub unknown: Vec<String>,
    /// What Go accepts in silence and a person rarely means: other case, duplicates, `null`.
    pub warnings: Vec<String>,
}

/// Reads one JSON object and matches its keys. A text after the object is ignored with a warning, as
/// Go's decoder reads only the first value.
///
/// # Errors
/// The JSON error with line and column.
pub fn match_keys(text: &str, known: &[&str]) -> Result<Matched, serde_json::Error> {
    let mut stream = serde_json::Deserializer::from_str(text).into_iter::<Entries>();
    let entries = match stream.next() {
        Some(entries) => entries?.0,
        None => return Err(de::Error::custom("empty text instead of a JSON object")),
    };
    let mut matched = Matched { values: vec![None; known.len()], ..Matched::default() };
    if !text[stream.byte_offset()..].trim().is_empty() {
        matched.warnings.push("text after the first JSON value is ignored".to_owned());
    }
    let mut seen = vec![false; known.len()];
    for (key, value) in entries {
        let Some(index) = known.iter().position(|name| name.eq_ignore_ascii_case(&key)) else {
            matched.unknown.push(key);
            continue;
        };
        let name = known[index];
        if name != key {
            matched.warnings.push(format!("key {key:?} is read as {name:?}"));
        }
        if std::mem::replace(&mut seen[index], true) {
            matched.warnings.push(format!("key {name:?} occurs twice; the last one counts"));
        }
        if value.is_null() {
            // Go's decoder leaves the field as it is, so an earlier duplicate stays.
            matched.warnings.push(format!("{name:?} is null; it counts as not set"));
        } else {
            matched.values[index] = Some(value);
        }
    }
    Ok(matched)
}
