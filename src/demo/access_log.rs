//! Envoy's access log: what the gateway itself says about each request.
//!
//! Decides how a line reads and what "the picker added" means; joins by the request id that the demo
//! sent. Times are microseconds in the log, durations here.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;

/// One request as the gateway saw it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The status it sent.
    pub(super) code: u16,
    /// Where the status comes from, such as `via_upstream`.
    pub(super) details: String,
    /// The endpoint it connected or tried to connect to.
    pub(super) upstream: Option<SocketAddr>,
    /// How long the request waited for the picker's answer after its last byte had come.
    pub(super) request_wait: Option<Duration>,
    /// How long the response's headers waited to be let through.
    pub(super) response_wait: Option<Duration>,
}

/// Reads the log; a line that is cut off or carries no number of ours is left out.
pub(super) fn read(log: &str) -> HashMap<u64, Line> {
    log.lines().filter_map(line).collect()
}

/// The request id of a request.
pub(super) fn id(number: u64) -> String {
    format!("demo-{number}")
}

fn line(text: &str) -> Option<(u64, Line)> {
    let fields: Value = serde_json::from_str(text).ok()?;
    let number = fields["id"].as_str()?.strip_prefix("demo-")?.parse().ok()?;
    let body = fields["body_us"].as_u64().map(Duration::from_micros);
    let phases = fields["picker_us"].as_str().unwrap_or_default();
    let line = Line {
        code: fields["code"].as_u64().and_then(|code| code.try_into().ok()).unwrap_or_default(),
        details: fields["details"].as_str().unwrap_or_default().to_owned(),
        upstream: fields["upstream"].as_str().and_then(|address| address.parse().ok()),
        // The picker answers the headers once it has read the whole body, so the body's own time is
        // in that figure and comes off.
        request_wait: phase(phases, "rh:")
            .map(|answered| answered.saturating_sub(body.unwrap_or_default())),
        response_wait: phase(phases, "sh:"),
    };
    Some((number, line))
}

/// From `rh:593:0,rb:1:668:0,sh:210:0,…`: microseconds until the picker answered those headers.
fn phase(phases: &str, name: &str) -> Option<Duration> {
    let headers = phases.split(',').find_map(|phase| phase.strip_prefix(name))?;
    headers.split(':').next()?.parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: the body's time left in, the body's phase taken for the headers', or a cut-off line
    /// that stops the reading.
    #[test]
    fn a_line_reads_and_the_body_comes_off() {
        let log = concat!(
            r#"{"id":"demo-7","code":200,"details":"via_upstream","upstream":"127.0.0.1:81","#,
            r#""picker_us":"rb:1:668:0,rh:593:0,sh:71:0","body_us":200}"#,
            "\n",
            r#"{"id":"other","code":200}"#,
            "\n{\"id\":\"demo-9\",\"co\n",
            r#"{"id":"demo-8","code":500,"details":"ext_proc_error","upstream":null,"#,
            r#""picker_us":null,"body_us":null}"#,
        );
        let lines = read(log);
        assert_eq!(lines.len(), 2);
        assert_eq!(
            lines[&7],
            Line {
                code: 200,
                details: "via_upstream".into(),
                upstream: Some("127.0.0.1:81".parse().unwrap()),
                request_wait: Some(Duration::from_micros(393)),
                response_wait: Some(Duration::from_micros(71)),
            }
        );
        assert_eq!(lines[&8].request_wait, None);
        assert_eq!(lines[&8].code, 500);
    }
}
