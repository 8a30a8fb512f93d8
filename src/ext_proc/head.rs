//! What request headers say: where the body belongs, which control headers came, what is forged.
//!
//! Decides names, aliases and precedence: of a header and its old alias the new name counts even when
//! empty; of several of one name the last. Values are bytes as the gateway sent them.

use super::message::{HeaderValue, HttpHeaders};
use crate::request::{Api, Parsers, Paths};

/// Headers that only a picker or a gateway may set, or that steer us and concern nobody behind us. A
/// client's are removed. The destination is the last; it is overwritten where it is already known.
pub(super) const REMOVED: [&str; 22] = [
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-scores",
    "x-llm-d-request-dropped-reason",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
    "x-llm-d-inference-objective",
    "x-gateway-inference-objective",
    "x-llm-d-inference-fairness-id",
    "x-gateway-inference-fairness-id",
    "x-llm-d-model-name-rewrite",
    "x-gateway-model-name-rewrite",
    "x-llm-d-slo-ttft-ms",
    "x-slo-ttft-ms",
    "x-llm-d-slo-tpot-ms",
    "x-slo-tpot-ms",
    "x-llm-d-video-fps",
    "x-llm-d-video-duration-seconds",
    "x-llm-d-video-resolution",
    super::wire::DESTINATION,
];

/// Names of [`REMOVED`] that a client sent, as bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Forged(u32);

impl Forged {
    /// The names to remove.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        REMOVED.into_iter().enumerate().filter(move |(i, _)| self.0 & (1 << i) != 0).map(|(_, n)| n)
    }
}

/// What the picker reads of the request headers.
#[derive(Debug, Default)]
pub(super) struct RequestHead {
    /// `:path`, `x-original-path` and `x-forwarded-path`.
    pub(super) paths: [Option<String>; 3],
    pub(super) content_type: Option<String>,
    pub(super) content_encoding: Option<String>,
    /// Name of the objective that gives the priority.
    pub(super) objective: Option<String>,
    /// Whose traffic it is.
    pub(super) fairness: Option<String>,
    /// Model to put into the body, set by a body-based router before us.
    pub(super) rewrite_to: Option<String>,
    /// Whether `x-request-id` came with a value.
    pub(super) has_request_id: bool,
    /// `Prefer: if-available` (RFC 7240): answer 412 rather than compute a prefix anew.
    pub(super) if_available: bool,
    /// An HTTP/1 upgrade or CONNECT.
    pub(super) upgrade: bool,
    pub(super) forged: Forged,
}

/// The values of one header and of its old alias.
#[derive(Default)]
struct Aliased {
    new: Option<String>,
    old: Option<String>,
}

impl RequestHead {
    /// What the body, if any, is of.
    pub(super) fn api(&self) -> Api {
        let [path, original, forwarded] = self.paths.each_ref().map(Option::as_deref);
        Api::of(Paths { path, original, forwarded }, Parsers::default())
    }
}

impl Aliased {
    fn value(self) -> Option<String> {
        self.new.or(self.old).filter(|value| !value.is_empty())
    }
}

/// Reads the headers; `None` when the message has no header map at all.
pub(super) fn read(headers: HttpHeaders) -> Option<RequestHead> {
    let mut head = RequestHead::default();
    let [mut objective, mut fairness, mut rewrite] = [(); 3].map(|()| Aliased::default());
    for header in headers.headers?.headers {
        let lower;
        // Every byte is looked at, without a branch: gateways send lower case.
        let upper = header.key.iter().fold(false, |upper, b| upper | b.is_ascii_uppercase());
        let key = if upper {
            lower = header.key.to_ascii_lowercase();
            lower.as_slice()
        } else {
            &header.key[..]
        };
        if key.starts_with(b"x-") {
            let index = REMOVED.iter().position(|name| name.as_bytes() == key);
            head.forged.0 |= index.map_or(0, |index| 1 << index);
        }
        match key {
            b":path" => head.paths[0] = Some(text(&header)),
            b":method" => head.upgrade |= bytes(&header) == b"CONNECT",
            // An offer of HTTP/2 is no tunnel: the request goes on as it is, with its body.
            b"upgrade" => head.upgrade |= !bytes(&header).eq_ignore_ascii_case(b"h2c"),
            b"x-original-path" => head.paths[1] = Some(text(&header)),
            b"x-forwarded-path" => head.paths[2] = Some(text(&header)),
            b"content-type" => head.content_type = Some(text(&header)),
            b"content-encoding" => head.content_encoding = Some(text(&header)),
            b"x-request-id" => head.has_request_id = !bytes(&header).is_empty(),
            b"prefer" => head.if_available |= prefers_available(bytes(&header)),
            b"x-llm-d-inference-objective" => objective.new = Some(text(&header)),
            b"x-gateway-inference-objective" => objective.old = Some(text(&header)),
            b"x-llm-d-inference-fairness-id" => fairness.new = Some(text(&header)),
            b"x-gateway-inference-fairness-id" => fairness.old = Some(text(&header)),
            b"x-llm-d-model-name-rewrite" => rewrite.new = Some(text(&header)),
            b"x-gateway-model-name-rewrite" => rewrite.old = Some(text(&header)),
            _ => {}
        }
    }
    head.objective = objective.value();
    head.fairness = fairness.value();
    head.rewrite_to = rewrite.value();
    Some(head)
}

/// What the picker reads of the response headers.
#[derive(Debug, Default)]
pub(super) struct ResponseFacts {
    pub(super) content_type: Option<String>,
    pub(super) content_encoding: Option<String>,
    /// `:status`, 0 when absent or no number.
    pub(super) status: u16,
}

/// Reads response headers; without a header map nothing is known.
pub(super) fn read_response(headers: HttpHeaders) -> ResponseFacts {
    let mut facts = ResponseFacts::default();
    for header in headers.headers.map(|map| map.headers).unwrap_or_default() {
        if header.key.eq_ignore_ascii_case(b"content-type") {
            facts.content_type = Some(text(&header));
        } else if header.key.eq_ignore_ascii_case(b"content-encoding") {
            facts.content_encoding = Some(text(&header));
        } else if &header.key[..] == b":status" {
            let status = std::str::from_utf8(bytes(&header)).ok();
            facts.status = status.and_then(|status| status.parse().ok()).unwrap_or(0);
        }
    }
    facts
}

/// `raw_value`, else `value`: gateways fill either.
pub(super) fn bytes(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value }
}

fn text(header: &HeaderValue) -> String {
    String::from_utf8_lossy(bytes(header)).into_owned()
}

/// Whether a `Prefer` list has the token, in any case, with or without parameters.
fn prefers_available(value: &[u8]) -> bool {
    value.split(|b| *b == b',').any(|preference| {
        let token = preference.split(|b| *b == b';' || *b == b'=').next().unwrap_or_default();
        token.trim_ascii().eq_ignore_ascii_case(b"if-available")
    })
}

#[cfg(test)]
mod tests {
    use super::super::message::HeaderMap;
    use super::*;

    fn head(pairs: &[(&str, &str)]) -> RequestHead {
        let headers = pairs.iter().map(|(key, value)| HeaderValue {
            key: key.as_bytes().to_vec().into(),
            raw_value: value.as_bytes().to_vec().into(),
            ..Default::default()
        });
        let map = HeaderMap { headers: headers.collect() };
        read(HttpHeaders { headers: Some(map), ..Default::default() }).unwrap()
    }

    /// Mutants: the old alias preferred; the first duplicate; `value` read before `raw_value`.
    #[test]
    fn new_names_and_last_values_count() {
        let both = head(&[
            ("x-llm-d-inference-objective", "a"),
            ("X-LLM-D-Inference-Objective", "b"),
            ("x-gateway-inference-objective", "old"),
        ]);
        assert_eq!(both.objective.as_deref(), Some("b"));
        assert_eq!(head(&[("x-gateway-inference-objective", "old")]).objective.unwrap(), "old");
        let empty = [("x-llm-d-inference-objective", ""), ("x-gateway-inference-objective", "old")];
        assert_eq!(head(&empty).objective, None);
        let value_only = HeaderValue { key: "p".into(), value: "v".into(), ..Default::default() };
        assert_eq!(bytes(&value_only), b"v");
        let both = HeaderValue { raw_value: "r".into(), ..value_only };
        assert_eq!(bytes(&both), b"r");
    }

    /// Recorded: edge case 33. Mutant: a prefix match of the token.
    #[test]
    fn prefer_if_available_is_a_token() {
        for (value, expected) in [
            ("return=minimal, if-available", true),
            ("If-Available", true),
            ("if-available;param=v", true),
            ("if-available-but-different", false),
            ("return=if-available", false),
        ] {
            assert_eq!(head(&[("prefer", value)]).if_available, expected, "{value}");
        }
    }

    /// Mutants: a bit shifted; upper case passed on.
    #[test]
    fn forged_headers_are_named() {
        let forged = head(&[("X-Prefiller-Host-Port", "6.6.6.6:1"), ("x-other", "y")]).forged;
        assert_eq!(forged.names().collect::<Vec<_>>(), ["x-prefiller-host-port"]);
        assert_eq!(head(&[]).forged, Forged::default());
    }

    /// Mutants: two of the three paths swapped; CONNECT taken for a request with a body.
    #[test]
    fn paths_and_tunnels_are_seen() {
        let paths = head(&[("x-forwarded-path", "/c"), (":path", "/a"), ("x-original-path", "/b")]);
        assert_eq!(
            paths.paths.each_ref().map(Option::as_deref),
            [Some("/a"), Some("/b"), Some("/c")]
        );
        assert!(
            head(&[(":method", "CONNECT")]).upgrade && head(&[("Upgrade", "websocket")]).upgrade
        );
    }
}
