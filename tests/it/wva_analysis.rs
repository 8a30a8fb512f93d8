//! What the real autoscaler's analyzers answered when run, replayed on ours: equal, or in a table with
//! the reason. Of several releases, the one whose document is our specification counts.
//!
//! A case in a table must exist, must really differ, and its answer here is asserted as well, so the
//! table can neither rot nor hide anything.

mod engine_args;
mod queue_model;
pub mod spare;
mod throughput;
pub mod tokens;

use std::collections::BTreeMap;

use serde_json::Value;

/// The release that counts where they differ.
const OURS: &str = "2026-07-22";
/// The release after it.
const NEWER: &str = "2026-08-07";

/// A case in which we answer otherwise on purpose.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    part: String,
    case: String,
    /// Why.
    why: String,
    /// Our answer; absent: it is the newer release's.
    ours: Option<Value>,
}

fn differences(part: &str) -> BTreeMap<String, Difference> {
    let path = format!("{}/tests/data/wva-vectors/differences.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut table = BTreeMap::new();
    for line in text.lines() {
        let row: Difference = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert!(!row.why.is_empty(), "{}: no reason", row.case);
        if row.part == part {
            let twice = table.insert(row.case.clone(), row);
            assert!(twice.is_none(), "{} stands twice", twice.unwrap().case);
        }
    }
    table
}

/// One recorded case: the input, and what each release answers, newest last.
struct Case {
    input: Value,
    answers: Vec<(Vec<String>, Value)>,
}

impl Case {
    fn answer_of(&self, release: &str) -> Option<&Value> {
        self.answers.iter().find(|(of, _)| of.iter().any(|r| r == release)).map(|(_, value)| value)
    }
}

fn cases(part: &str) -> BTreeMap<String, Case> {
    let path = format!("{}/tests/data/wva-vectors/{part}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["case"].as_str().unwrap().to_owned();
        let releases: Vec<String> = serde_json::from_value(line["wva"].clone()).unwrap();
        let case = cases
            .entry(name)
            .or_insert_with(|| Case { input: line["input"].clone(), answers: Vec::new() });
        case.answers.push((releases, line["output"].clone()));
    }
    assert!(!cases.is_empty(), "{path} is empty");
    cases
}

/// Replays every case of `part`, and reports all disagreements at once.
pub fn replay(part: &str, answer: impl Fn(&Value) -> Value, expected: impl Fn(&Value) -> Value) {
    replay_against(part, part, answer, expected);
}

/// The same with rows of the table that stand under a name of their own.
pub fn replay_against(
    part: &str,
    rows: &str,
    answer: impl Fn(&Value) -> Value,
    expected: impl Fn(&Value) -> Value,
) {
    let mut table = differences(rows);
    let all = cases(part);
    let (mut wrong, mut equal, total) = (Vec::new(), 0, all.len());
    for (name, case) in &all {
        let recorded = case.answer_of(OURS).unwrap_or_else(|| &case.answers.last().unwrap().1);
        let recorded = expected(recorded);
        let ours = answer(&case.input);
        let agrees = close(&ours, &recorded);
        match table.remove(name.as_str()) {
            None if agrees => equal += 1,
            None => wrong.push(format!("{name}:\n  ours     {ours}\n  recorded {recorded}")),
            Some(_) if agrees => wrong.push(format!("{name}: agrees, yet stands in the table")),
            Some(row) => {
                let newer = || expected(case.answer_of(NEWER).unwrap());
                let stated = row.ours.unwrap_or_else(newer);
                if !close(&ours, &stated) {
                    wrong.push(format!("{name}:\n  ours   {ours}\n  stated {stated}"));
                }
            }
        }
    }
    wrong.extend(table.keys().map(|name| format!("{name}: no such case")));
    assert!(wrong.is_empty(), "{rows}:\n{}", wrong.join("\n"));
    println!("{rows}: {equal} of {total} equal, {} differ on purpose", total - equal);
}

/// Equal, with numbers equal up to the last bits of a sum. A list that is absent is empty.
fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            (x - y).abs() <= 1e-12 * x.abs().max(y.abs()).max(1.0)
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| close(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(key, x)| y.get(key).is_some_and(|y| close(x, y)))
        }
        (a, b) => a == b,
    }
}

/// A number of a case; those that JSON has no form for stand there as text.
pub fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("+Inf") => Some(f64::INFINITY),
        Some("-Inf") => Some(f64::NEG_INFINITY),
        Some(other) => panic!("{other}"),
        None => value.as_f64(),
    }
}

/// A count of a case; absent is 0.
pub fn count(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap_or(0)).unwrap()
}

/// A text of a case; absent is empty.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
