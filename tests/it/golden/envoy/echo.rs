//! The server behind the recorded gateway: tells what it saw, or answers as the recorded one did.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

use crate::harness::Backend;

/// `{"model":"m","prompt":"hi"}`, stored without compression.
pub const GZIP: &[u8] = &[
    0x1f, 0x8b, 0x08, 0, 0, 0, 0, 0, 0, 0xff, 0x01, 27, 0, 0xe4, 0xff, b'{', b'"', b'm', b'o',
    b'd', b'e', b'l', b'"', b':', b'"', b'm', b'"', b',', b'"', b'p', b'r', b'o', b'm', b'p', b't',
    b'"', b':', b'"', b'h', b'i', b'"', b'}', 0x71, 0xe4, 0x31, 0x42, 27, 0, 0, 0,
];

/// Status and body of a server that does not tell what it saw.
pub fn canned(case: &Value) -> Option<(u16, String)> {
    let name = case["case"].as_str().unwrap();
    let result = &case["result"];
    let body = result["body"].as_str().unwrap_or_default();
    let kinds = ["sim-", "echo-status-", "echo-sse", "echo-audio", "echo-ndjson", "echo-get-sse"];
    let other = ["echo-options", "ovr-sse", "fdsnone-audio", "echo-20MB-response"];
    if !kinds.iter().any(|kind| name.starts_with(kind)) && !other.contains(&name) {
        return None;
    }
    Some((result["status"].as_str().unwrap().parse().unwrap(), body.to_owned()))
}

/// The running server.
pub struct Echo {
    pub at: std::net::SocketAddr,
    _backend: Backend,
}

impl Echo {
    pub fn start(cases: &[Value]) -> Self {
        let canned: BTreeMap<_, _> = cases
            .iter()
            .filter_map(|case| Some((case["case"].as_str().unwrap().to_owned(), canned(case)?)))
            .collect();
        let canned = Arc::new(canned);
        let backend = Backend::start(move |request| {
            let canned = Arc::clone(&canned);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
                let case = head.headers.get("x-case").and_then(|case| case.to_str().ok());
                let answer = match case.and_then(|case| canned.get(case)) {
                    Some((status, text)) => Response::builder()
                        .status(*status)
                        .header("content-type", "application/json")
                        .body(Full::new(Bytes::from(text.clone()))),
                    None => Response::builder()
                        .header("content-type", "application/json")
                        .header("set-cookie", "a=1")
                        .header("set-cookie", "b=2")
                        .body(Full::new(report(&head, &body))),
                };
                answer.map_err(std::io::Error::other)
            }
        });
        Self { at: backend.at, _backend: backend }
    }
}

fn report(head: &http::request::Parts, body: &[u8]) -> Bytes {
    let headers: Vec<_> = head
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let sha = &plumbline::conformance::answer::digest(body)[..12];
    let report = json!({ "headers": headers, "body_len": body.len(), "body_sha": sha,
                         "any": head.headers.get("x-case").is_none() });
    Bytes::from(report.to_string())
}
