//! The switches of a server: how `POST /admin/set` reads, and what each may hold.
//!
//! Strict: one unknown key or bad value refuses the whole document, and nothing changes. Delays are
//! milliseconds, ratios and KV use fractions of 1.

use serde_json::{Map, Value};

use super::faults::{Fault, FaultKind, MetricsMode};

/// Gauges that show a fixed value; `None` shows the engine's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pins {
    /// Requests waiting.
    pub waiting: Option<u64>,
    /// Requests running.
    pub running: Option<u64>,
    /// KV use; 0 or more, above 1 is shown as it is.
    pub kv: Option<f64>,
}

/// What to change; `None` leaves as it is. The inner `None` of a pin or the fault takes it away.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Change {
    /// Pin of requests waiting.
    pub waiting: Option<Option<u64>>,
    /// Pin of requests running.
    pub running: Option<Option<u64>>,
    /// Pin of KV use.
    pub kv: Option<Option<f64>>,
    /// Whether the metrics page stops changing.
    pub freeze_metrics: Option<bool>,
    /// How `/metrics` answers.
    pub metrics: Option<MetricsMode>,
    /// What requests suffer.
    pub fault: Option<Option<Fault>>,
}

/// Why a document was refused; the text names the key and its rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}; nothing was changed")]
pub struct Refused(String);

const KEYS: [&str; 6] = ["waiting", "running", "kv", "freeze_metrics", "metrics", "fault"];
const KINDS: &str = "slow, status, hang, drop";

impl Change {
    /// Reads the document of `POST /admin/set`.
    ///
    /// # Errors
    /// [`Refused`]: no JSON object, an unknown key, or a value outside its rule.
    pub fn parse(body: &[u8]) -> Result<Self, Refused> {
        let document: Map<String, Value> = serde_json::from_slice(body)
            .map_err(|error| Refused(format!("the body is no JSON object: {error}")))?;
        let mut change = Self::default();
        for (key, value) in &document {
            match key.as_str() {
                "waiting" => change.waiting = Some(optional(key, value, count)?),
                "running" => change.running = Some(optional(key, value, count)?),
                "kv" => change.kv = Some(optional(key, value, fraction)?),
                "freeze_metrics" => {
                    let frozen =
                        value.as_bool().ok_or_else(|| rule(key, value, "true or false"))?;
                    change.freeze_metrics = Some(frozen);
                }
                "metrics" => {
                    let mode = value.as_str().and_then(MetricsMode::named).ok_or_else(|| {
                        rule(key, value, &format!("one of {}", MetricsMode::NAMES.join(", ")))
                    })?;
                    change.metrics = Some(mode);
                }
                "fault" => change.fault = Some(optional(key, value, fault)?),
                _ => return Err(unknown("", key, &KEYS)),
            }
        }
        Ok(change)
    }
}

fn optional<T>(
    key: &str,
    value: &Value,
    read: impl Fn(&str, &Value) -> Result<T, Refused>,
) -> Result<Option<T>, Refused> {
    if value.is_null() { Ok(None) } else { read(key, value).map(Some) }
}

fn count(key: &str, value: &Value) -> Result<u64, Refused> {
    value.as_u64().ok_or_else(|| rule(key, value, "null or a whole number, 0 or more"))
}

fn fraction(key: &str, value: &Value) -> Result<f64, Refused> {
    let number = value.as_f64().filter(|number| *number >= 0.0);
    number.ok_or_else(|| rule(key, value, "null or a number, 0 or more"))
}

fn fault(key: &str, value: &Value) -> Result<Fault, Refused> {
    let fields =
        value.as_object().ok_or_else(|| rule(key, value, "null or an object with a kind"))?;
    let kind = fields.get("kind").unwrap_or(&Value::Null);
    let (kind, own): (_, &[&str]) = match kind.as_str() {
        Some("slow") => {
            let delay = fields.get("delay_ms").unwrap_or(&Value::Null);
            let delay_ms = delay.as_u64().ok_or_else(|| {
                rule("fault.delay_ms", delay, "a whole number of milliseconds, 0 or more")
            })?;
            (FaultKind::Slow { delay_ms }, &["kind", "ratio", "delay_ms"])
        }
        Some("status") => {
            let code = fields.get("code").unwrap_or(&Value::Null);
            let valid = code.as_u64().and_then(|code| u16::try_from(code).ok());
            let code = valid
                .filter(|code| (200..=599).contains(code))
                .ok_or_else(|| rule("fault.code", code, "an HTTP status in [200, 599]"))?;
            (FaultKind::Status { code }, &["kind", "ratio", "code"])
        }
        Some("hang") => (FaultKind::Hang, &["kind", "ratio"]),
        Some("drop") => (FaultKind::Drop, &["kind", "ratio"]),
        _ => return Err(rule("fault.kind", kind, &format!("one of {KINDS}"))),
    };
    if let Some(key) = fields.keys().find(|key| !own.contains(&key.as_str())) {
        return Err(unknown("fault.", key, own));
    }
    let ratio = fields.get("ratio").map_or(Some(1.0), Value::as_f64);
    let ratio = ratio.filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(|| {
        rule("fault.ratio", fields.get("ratio").unwrap_or(&Value::Null), "a number in [0, 1]")
    })?;
    Ok(Fault { kind, ratio })
}

fn rule(key: &str, value: &Value, rule: &str) -> Refused {
    Refused(format!("{key} must be {rule}, not {value}"))
}

fn unknown(scope: &str, key: &str, known: &[&str]) -> Refused {
    Refused(format!("unknown key {:?}; known keys: {}", format!("{scope}{key}"), known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: reading `null` as "unchanged" turns the first line red.
    #[test]
    fn values_set_and_null_takes_away() {
        let change = Change::parse(br#"{"waiting":null,"running":7,"kv":0.5,"metrics":"hang"}"#);
        assert_eq!(
            change.unwrap(),
            Change {
                waiting: Some(None),
                running: Some(Some(7)),
                kv: Some(Some(0.5)),
                metrics: Some(MetricsMode::Hang),
                ..Change::default()
            }
        );
        let fault = |text: &str| Change::parse(text.as_bytes()).unwrap().fault;
        assert_eq!(
            fault(r#"{"fault":{"kind":"slow","delay_ms":5,"ratio":0.5}}"#),
            Some(Some(Fault { kind: FaultKind::Slow { delay_ms: 5 }, ratio: 0.5 }))
        );
        assert_eq!(
            fault(r#"{"fault":{"kind":"status","code":503}}"#),
            Some(Some(Fault { kind: FaultKind::Status { code: 503 }, ratio: 1.0 }))
        );
        assert_eq!(fault(r#"{"fault":null}"#), Some(None));
        assert_eq!(fault("{}"), None);
    }

    /// Mutants: skipping an unknown key, or a range check left out, accepts its line.
    #[test]
    fn a_bad_document_names_the_key_and_the_rule() {
        for (text, parts) in [
            (r#"{"wating":1}"#, ["\"wating\"", "known keys: waiting, running, kv, freeze_metrics"]),
            (r#"{"waiting":-1}"#, ["waiting must be", "not -1"]),
            (r#"{"waiting":1.5}"#, ["waiting must be", "whole number"]),
            (r#"{"kv":-0.1}"#, ["kv must be", "0 or more"]),
            (r#"{"freeze_metrics":1}"#, ["freeze_metrics must be", "true or false"]),
            (r#"{"metrics":"off"}"#, ["metrics must be", "ok, 500, hang, empty, garbage"]),
            (r#"{"fault":{}}"#, ["fault.kind must be", "slow, status, hang, drop"]),
            (r#"{"fault":{"kind":"slow"}}"#, ["fault.delay_ms must be", "not null"]),
            (r#"{"fault":{"kind":"status","code":99}}"#, ["fault.code must be", "[200, 599]"]),
            (r#"{"fault":{"kind":"hang","ratio":2}}"#, ["fault.ratio must be", "[0, 1]"]),
            (
                r#"{"fault":{"kind":"hang","code":5}}"#,
                ["\"fault.code\"", "known keys: kind, ratio"],
            ),
            ("[]", ["no JSON object", "nothing was changed"]),
            ("", ["no JSON object", "nothing was changed"]),
        ] {
            let error = Change::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
        }
    }
}
