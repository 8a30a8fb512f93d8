//! The rows of the table of deliberate differences, by a short name, with the cases they speak of.

/// Name of a row and its patterns; `*` stands for anything.
pub const ROWS: &[(&str, &[&str])] = &[
    ("nothing mirrored", &["duplicate-header", "response-two-set-cookie", "*hop-by-hop*"]),
    (
        "control headers removed",
        &["control-headers-from-client", "pd-no-prefiller-*", "echo-forged*", "*forged*"],
    ),
    ("framing by mode", &["mode-*"]),
    ("request trailers", &["request-trailers-*", "h2-request-trailers*"]),
    ("upgrades on headers", &["upgrade-websocket-*", "connect-method", "ws-upgrade*"]),
    (
        "idempotent ends",
        &["duplicate-eos-*", "request-headers-after-answer", "response-sse-duplicate-eos"],
    ),
    ("no endpoints", &["empty-pool-get", "pool-not-synced-get", "flow-empty-get", "empty-get"]),
    ("sheddable", &["saturated-sheddable*", "kube-empty-sheddable"]),
    ("admitter", &["admitter-denies"]),
    ("drained filters", &["testing-filter-absent", "filter-drains-all"]),
    ("same rules", &["get-with-*subset*", "testing-filter-get", "saturated-sheddable-get"]),
    (
        "subset forms",
        &[
            "subset-unknown-port-same-ip",
            "subset-string",
            "subset-comma-string",
            "subset-spaces",
            "ipv6-*",
        ],
    ),
    ("subset on headers", &["subset-on-headers-only"]),
    ("subset of no strings", &["flow-idle-subset-only-non-string"]),
    (
        "routed",
        &[
            "gzip-body",
            "echo-gzip",
            "prompt-batch-of-token-ids",
            "prompt-embeds-only",
            "chat-image-url-as-string",
            "multipart-on-completions",
        ],
    ),
    (
        "segment borders",
        &[
            "anthropic-trailing-slash",
            "threads-messages-path",
            "path-xmessages",
            "path-xcompletions",
        ],
    ),
    ("bytes of the body", &["model-rewrite-header*", "kube-rewrite-*", "echo-rewrite"]),
    (
        "across chunks",
        &[
            "model-rewrite-sse-split-name",
            "response-sse-usage-split",
            "response-sse-no-space",
            "response-stream-true-but-json",
            "response-gzip",
        ],
    ),
    (
        "event streams",
        &["response-sse-content-type-in-value-field", "response-sse-content-type-key-upper-case"],
    ),
    (
        "never held",
        &[
            "response-audio-*",
            "response-ndjson-*",
            "grpc-streaming-response-*",
            "arrivals-*",
            "echo-audio",
            "echo-ndjson",
        ],
    ),
    (
        "errors counted",
        &["response-400*", "response-503*", "response-500*", "response-headers-eos"],
    ),
    ("usage of gRPC", &["grpc-generate-stream"]),
    ("cost with trailers", &["reporter-trailers"]),
    ("one trace parent", &["tracing-on-with-parent", "trace-parent"]),
    (
        "read while held",
        &["flow-saturated-half-close-*", "*-local-reply-while-queued", "flow-idle-timeout-*"],
    ),
    ("silent observer", &["observability-mode"]),
    ("same drain", &["sigterm-open-stream-file-mode", "kill-sigterm-*"]),
    ("health", &["health-*"]),
];

/// Why a reason does not hold for a case, if it does not.
pub fn refuse(case: &str, reason: &str) -> Result<(), String> {
    let Some((kind, text)) = reason.split_once(": ") else {
        return Err(format!("{case}: {reason:?} is no reason"));
    };
    match kind {
        "design" | "comes with" if !text.trim().is_empty() => Ok(()),
        "row" => match ROWS.iter().find(|(name, _)| *name == text) {
            None => Err(format!("{case}: no row {text:?}")),
            Some((_, patterns)) if patterns.iter().any(|pattern| matches(pattern, case)) => Ok(()),
            Some(_) => Err(format!("{case}: row {text:?} does not speak of it")),
        },
        _ => Err(format!("{case}: {reason:?} is no reason")),
    }
}

fn matches(pattern: &str, case: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = case.strip_prefix(parts.next().unwrap()) else { return false };
    let parts: Vec<_> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else { return false };
        rest = after;
    }
    rest.ends_with(last)
}

/// Mutants: a pattern that matches a prefix only; `*` that must stand for something.
#[test]
fn patterns() {
    assert!(matches("get-with-*subset*", "get-with-empty-subset"));
    assert!(matches("mode-*", "mode-") && matches("a", "a"));
    assert!(!matches("a", "ab") && !matches("*-a", "b-ab") && !matches("a*", "ba"));
    assert!(refuse("mode-none", "row: framing by mode").is_ok());
    assert!(refuse("chat", "row: framing by mode").is_err());
    assert!(refuse("chat", "row: nowhere").is_err() && refuse("chat", "?").is_err());
}
