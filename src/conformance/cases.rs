//! The cases that ship with the binary: what the protocol asks of every endpoint picker.
//!
//! Decides how a case is written (`cases.jsonl`, one a line); the words of its steps are those of
//! `dialog`, those of its expectations those of `expect`.

use serde_json::{Map, Value};

use super::dialog::{self, Step};
use super::expect::Expectation;

/// Stands for a member of the pool, learnt from the picker before the cases run.
pub const ENDPOINT: &str = "<endpoint>";

/// Which pool a case needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pool {
    /// One with an endpoint at least.
    Filled,
    /// One without.
    Empty,
    /// Any.
    Any,
}

/// One case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// Unique.
    pub name: String,
    /// What it shows, in a sentence.
    pub about: String,
    /// Which pool it needs.
    pub pool: Pool,
    /// How many of its dialogs run side by side; 1 or more.
    pub at_once: usize,
    /// What it does.
    pub kind: Kind,
}

/// What a case does.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Plays a dialog. Steps and expectations as JSON, because they may name [`ENDPOINT`].
    Dialog {
        /// The steps.
        request: Vec<Value>,
        /// What must come.
        expect: Vec<Value>,
    },
    /// Checks the health of these names.
    Health(Vec<String>),
}

/// A case that cannot be read, which is a fault of this program.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of the cases: {rule}")]
pub struct Unreadable {
    line: usize,
    rule: String,
}

/// All cases in their order.
///
/// # Errors
/// [`Unreadable`], which a test rules out.
pub fn all() -> Result<Vec<Case>, Unreadable> {
    let lines = include_str!("cases.jsonl").lines().enumerate();
    lines.map(|(at, line)| read(line).map_err(|rule| Unreadable { line: at + 1, rule })).collect()
}

fn read(line: &str) -> Result<Case, String> {
    let object: Map<String, Value> =
        serde_json::from_str(line).map_err(|error| error.to_string())?;
    let text = |name: &str| {
        let text = object.get(name).and_then(Value::as_str);
        text.map(str::to_owned).ok_or_else(|| format!("{name} must be a string"))
    };
    let list = |name: &str| {
        let list = object.get(name).and_then(Value::as_array);
        list.cloned().ok_or_else(|| format!("{name} must be a list"))
    };
    let kind = if object.contains_key("health") {
        let names = list("health")?;
        Kind::Health(names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    } else {
        let kind = Kind::Dialog { request: list("request")?, expect: list("expect")? };
        // What can be read with any endpoint can be read with the true one.
        playable(&kind, "127.0.0.1:1")?;
        kind
    };
    let pool = match object.get("pool").and_then(Value::as_str) {
        None | Some("filled") => Pool::Filled,
        Some("empty") => Pool::Empty,
        Some("any") => Pool::Any,
        Some(other) => return Err(format!("pool must be filled, empty or any, not {other:?}")),
    };
    let at_once = object.get("at_once").and_then(Value::as_u64).unwrap_or(1).max(1);
    Ok(Case {
        name: text("case")?,
        about: text("about")?,
        pool,
        at_once: usize::try_from(at_once).map_err(|error| error.to_string())?,
        kind,
    })
}

impl Case {
    /// Whether it must know a member of the pool.
    pub fn names_an_endpoint(&self) -> bool {
        let Kind::Dialog { request, expect } = &self.kind else { return false };
        request.iter().chain(expect).any(|value| value.to_string().contains(ENDPOINT))
    }
}

/// Steps and expectations of a dialog, with the endpoint put in.
///
/// # Errors
/// What is wrong with them.
pub fn playable(kind: &Kind, endpoint: &str) -> Result<(Vec<Step>, Vec<Expectation>), String> {
    let Kind::Dialog { request, expect } = kind else { return Ok((Vec::new(), Vec::new())) };
    let named = |value: &Value| -> Result<Value, String> {
        serde_json::from_str(&value.to_string().replace(ENDPOINT, endpoint))
            .map_err(|error| error.to_string())
    };
    let steps: Vec<_> = request.iter().map(named).collect::<Result<_, _>>()?;
    let steps = dialog::parse(&steps).map_err(|error| error.to_string())?;
    let expect = expect.iter().map(|entry| Expectation::read(&named(entry)?));
    Ok((steps, expect.collect::<Result<_, _>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a misspelt step or expectation; two cases of one name.
    #[test]
    fn every_case_can_be_played() {
        let cases = all().unwrap();
        let names: std::collections::BTreeSet<_> = cases.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() > 30, "{}", cases.len());
        for case in &cases {
            let Kind::Dialog { request, .. } = &case.kind else { continue };
            let (_, expect) = playable(&case.kind, "127.0.0.1:1").unwrap();
            assert!(expect.iter().all(|e| e.by < request.len()), "{}", case.name);
            assert!(expect.is_sorted_by_key(|e| e.by), "{}", case.name);
        }
    }
}
