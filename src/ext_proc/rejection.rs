//! Refusals: status, text, reason and what the access log shows, all in one place.
//!
//! Decides the numbers and words of every answer that is ours and not an endpoint's. The body is
//! upstream's form, `inference error: <Code> - <message>`; `details` is one word of a closed set.

use crate::flow::Reason;
use crate::request::BodyError;
use crate::routing::{Filter, Refusal};

/// A refusal as it goes to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// HTTP status.
    pub status: u16,
    /// Text for the client.
    pub body: String,
    /// Value of `x-llm-d-request-dropped-reason`, where upstream sets one.
    pub reason: Option<&'static str>,
    /// What the gateway's access log shows.
    pub details: &'static str,
}

/// No endpoint was picked.
pub(super) fn of(refusal: Refusal) -> Rejection {
    match refusal {
        Refusal::EmptyPool | Refusal::NoEndpoints => no_endpoints(
            "failed to find endpoint candidates for serving the request",
            "rejected-no-endpoints",
        ),
        Refusal::Drained(filter) => {
            let message = format!("{} left no endpoint for the request", filter.name());
            no_endpoints(&message, drained_by(filter))
        }
        Refusal::Saturated => Rejection {
            status: 429,
            body:
                "inference error: ResourceExhausted - system saturated, sheddable request dropped"
                    .to_owned(),
            reason: Some("rejected-saturated"),
            details: "rejected-saturated",
        },
    }
}

/// `details` is a closed set, so each filter has its word.
fn drained_by(filter: Filter) -> &'static str {
    match filter {
        Filter::Utilization => "drained-by-utilization-detector",
        Filter::Decode => "drained-by-decode-filter",
    }
}

/// A wait that ended without an endpoint. The pool is empty in all of them, so a busy one is none of
/// the reasons.
pub(super) fn of_wait(reason: Reason) -> Rejection {
    match reason {
        Reason::Full => {
            no_endpoints("no endpoints are available and the waiting room is full", "waiting-full")
        }
        Reason::Expired => no_endpoints(
            "request timed out in queue and no endpoints are available: request evicted from queue: \
             request TTL expired: no endpoints available",
            "waiting-expired",
        ),
        Reason::ShuttingDown => {
            let body = "the endpoint picker is shutting down";
            unavailable(body, "rejected-shutting-down", "rejected-shutting-down")
        }
    }
}

/// What [`left`] is counted as where nobody is there to be answered.
pub(super) const LEFT: &str = "rejected-context-cancelled";

/// The gateway ended its side while the request was held.
pub(super) fn left() -> Rejection {
    unavailable("the request was given up while it waited for an endpoint", LEFT, LEFT)
}

fn no_endpoints(message: &str, details: &'static str) -> Rejection {
    unavailable(message, "rejected-no-endpoints", details)
}

fn unavailable(message: &str, reason: &'static str, details: &'static str) -> Rejection {
    let body = format!("inference error: ServiceUnavailable - {message}");
    Rejection { status: 503, body, reason: Some(reason), details }
}

/// `Prefer: if-available` asks for a cached prefix, and no endpoint is known to have one: there is no
/// prefix index yet.
pub(super) fn not_cached() -> Rejection {
    let body = "inference error: PreconditionFailed - no decode worker has the requested KV cache";
    Rejection { status: 412, body: body.to_owned(), reason: None, details: "prefix-not-cached" }
}

/// Nothing can be made of the request.
fn bad_request(message: &str, details: &'static str) -> Rejection {
    let body = format!("inference error: BadRequest - {message}");
    Rejection { status: 400, body, reason: None, details }
}

/// The body cannot be read as what its path says it is.
pub(super) fn body(error: &BodyError, limit: usize) -> Rejection {
    match error.status() {
        413 => too_large(limit),
        _ => bad_request(&error.to_string(), "bad-request-body"),
    }
}

/// A rewrite names a model, but the body is compressed and goes on as it came.
pub(super) fn compressed_rewrite() -> Rejection {
    bad_request("the model of a compressed body cannot be rewritten", "compressed-body-rewrite")
}

/// All held requests together are over `limit` bytes.
pub(super) fn held_too_much(limit: usize) -> Rejection {
    Rejection {
        status: 429,
        body: format!(
            "inference error: ResourceExhausted - requests of more than {limit} bytes are held \
             (--max-held-bytes)"
        ),
        reason: Some("rejected-saturated"),
        details: "held-bytes",
    }
}

/// Request headers came without a header map.
pub(super) fn no_header_map() -> Rejection {
    bad_request("request headers without a header map", "no-header-map")
}

/// A fault of ours.
pub(super) fn fault() -> Rejection {
    internal("a fault of the endpoint picker", "fault")
}

fn internal(message: &str, details: &'static str) -> Rejection {
    let body = format!("inference error: Internal - {message}");
    Rejection { status: 500, body, reason: None, details }
}

pub(super) fn grpc_mode() -> Rejection {
    internal(
        "body mode GRPC is not supported; set request_body_mode to FULL_DUPLEX_STREAMED",
        "unsupported-body-mode",
    )
}

pub(super) fn out_of_order() -> Rejection {
    internal("a body or trailers came before the request headers", "out-of-order-message")
}

pub(super) fn no_body() -> Rejection {
    internal("trailers came without the buffered body", "out-of-order-message")
}

pub(super) fn too_large(limit: usize) -> Rejection {
    Rejection {
        status: 413,
        body: format!(
            "inference error: RequestEntityTooLarge - the body is over {limit} bytes \
             (--max-body-bytes)"
        ),
        reason: None,
        details: "body-too-large",
    }
}
