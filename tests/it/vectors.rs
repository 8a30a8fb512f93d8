//! What the Go picker answered when run, replayed on ours: equal, or in a table with the reason.
//!
//! A case in a table must exist, must really differ, and its answer here is asserted as well, so the
//! table can neither rot nor hide anything.

mod discovery;
mod gate;
mod inflight_load;
mod metrics;
mod protocol;
mod request;
mod response_usage;
mod rewrite;
mod routing;
mod scaling_config;
mod scrape_http;
mod subset;

use std::collections::BTreeMap;

use serde_json::Value;

/// A case in which we answer otherwise on purpose.
pub struct Difference {
    /// Name of the case.
    pub case: &'static str,
    /// Our answer, as compact JSON.
    pub ours: &'static str,
    /// Why (design, deliberate differences).
    pub why: &'static str,
}

/// The recorded cases of one part, as (name, input, output).
pub fn cases(part: &str) -> Vec<(String, Value, Value)> {
    let path = format!("{}/tests/data/epp-vectors/{part}.jsonl", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    text.lines()
        .map(|line| {
            let case: Value = serde_json::from_str(line).unwrap();
            let name = case["case"].as_str().unwrap().to_owned();
            (name, case["input"].clone(), case["output"].clone())
        })
        .collect()
}

/// Replays every case of `part` and reports all disagreements at once.
pub fn replay(
    part: &str,
    differences: &[Difference],
    answer: impl Fn(&Value) -> Value,
    agrees: impl Fn(&Value, &Value) -> bool,
) {
    let mut table: BTreeMap<&str, &Difference> = differences.iter().map(|d| (d.case, d)).collect();
    assert_eq!(table.len(), differences.len(), "a case stands twice in the table of {part}");
    let (mut wrong, mut equal, total) = (Vec::new(), 0, cases(part).len());
    for (name, input, recorded) in cases(part) {
        let ours = answer(&input);
        match (agrees(&ours, &recorded), table.remove(name.as_str())) {
            (true, None) => equal += 1,
            (true, Some(_)) => wrong.push(format!("{name}: agrees, yet stands in the table")),
            (false, None) => wrong.push(format!("{name}: {ours} instead of {recorded}")),
            (false, Some(d)) => {
                assert!(!d.why.is_empty(), "{name}: no reason");
                let stated: Value = serde_json::from_str(d.ours).unwrap();
                if !close(&ours, &stated) {
                    wrong.push(format!("{name}: {ours} instead of our stated {stated}"));
                }
            }
        }
    }
    wrong.extend(table.keys().map(|name| format!("{name}: no such case")));
    assert!(wrong.is_empty(), "{part}:\n{}", wrong.join("\n"));
    println!("{part}: {equal} of {total} equal, {} differ on purpose", total - equal);
}

/// Equal, with numbers within 1e-9.
pub fn close(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(x), Value::Number(y)) => {
            let (x, y) = (x.as_f64().unwrap(), y.as_f64().unwrap());
            (x - y).abs() < 1e-9
        }
        (Value::Array(x), Value::Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| close(x, y))
        }
        (Value::Object(x), Value::Object(y)) => {
            x.len() == y.len() && x.iter().all(|(k, v)| y.get(k).is_some_and(|w| close(v, w)))
        }
        _ => a == b,
    }
}
