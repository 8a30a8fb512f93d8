//! Routes: which path answers what, with the headers that name the server on every answer.
//!
//! Decides statuses, headers, trailers and how faults are carried out; completions are `completion`'s.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Version};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::admin::Change;
use super::completion;
use super::faults::{FaultKind, MetricsMode};
use super::openai::{self, Api};
use super::state::State;

/// Ends a connection (HTTP/1.1) or a stream (HTTP/2) without an answer or in the middle of one.
#[derive(Debug, thiserror::Error)]
#[error("cut on purpose")]
pub(super) struct Cut;

/// The body of every answer.
pub(super) type Body = UnsyncBoxBody<Bytes, Cut>;

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const METRICS: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");

/// A whole answer.
pub(super) fn whole(
    status: StatusCode,
    kind: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let body = Full::new(body.into()).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An OpenAI-style error.
pub(super) fn refusal(status: StatusCode, message: &str) -> Response<Body> {
    whole(status, JSON, openai::error_body(status.as_u16(), message))
}

/// Answers one request of connection `connection`.
pub(super) async fn answer(
    state: Arc<State>,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let wants_trailers = request.version() == Version::HTTP_2
        && request.headers().get("x-want-trailers").is_some_and(|value| value == "1");
    let mut response = route(&state, connection, request).await?;
    let headers = response.headers_mut();
    headers.insert("x-sim-endpoint", text_value(&state.name));
    headers.insert("x-sim-address", text_value(&state.address.to_string()));
    if !wants_trailers {
        return Ok(response);
    }
    Ok(response.map(|body| {
        let name = HeaderName::from_static("x-sim-trailer");
        let trailers = HeaderMap::from_iter([(name, HeaderValue::from_static("done"))]);
        body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
    }))
}

async fn route(
    state: &Arc<State>,
    connection: u64,
    request: Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match path.as_str() {
        "/metrics" if method == Method::GET => return metrics(state).await,
        "/health" if method == Method::GET => return Ok(whole(StatusCode::OK, TEXT, "")),
        path if path.starts_with("/admin/") => {
            return admin(state, connection, &method, path, request).await;
        }
        _ => {}
    }
    state.receive(head_json(&request));
    match state.strike() {
        Some(FaultKind::Slow { delay_ms }) => {
            tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        }
        Some(FaultKind::Status { code }) => {
            let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(refusal(status, "a fault set by /admin/set"));
        }
        Some(FaultKind::Hang) => std::future::pending().await,
        Some(FaultKind::Drop) => return Err(Cut),
        None => {}
    }
    if method == Method::GET {
        return Ok(get(state, &path));
    }
    if method != Method::POST {
        return Ok(refusal(StatusCode::METHOD_NOT_ALLOWED, "only GET and POST are served"));
    }
    post(state, &path, request).await
}

fn get(state: &State, path: &str) -> Response<Body> {
    if path != "/v1/models" {
        return refusal(StatusCode::NOT_FOUND, "no such path");
    }
    let (settings, engine) = (&state.settings, &state.settings.engine);
    let context = engine.num_gpu_blocks.saturating_mul(engine.block_size);
    let created = state.unix_now() as u64;
    let body = openai::models_body(&settings.model, &settings.loras, context, created);
    whole(StatusCode::OK, JSON, body)
}

async fn post(
    state: &Arc<State>,
    path: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let (head, body) = request.into_parts();
    // A body that breaks off has nobody left to answer to.
    let collected = body.collect().await.map_err(|_| Cut)?;
    let trailers = collected.trailers().map(trailer_list);
    let body = collected.to_bytes();
    let mut response = match path {
        "/v1/completions" => completion::answer(state, Api::Completion, &head, &body).await?,
        "/v1/chat/completions" => completion::answer(state, Api::Chat, &head, &body).await?,
        "/echo" => {
            let kind = head.headers.get(CONTENT_TYPE).cloned().unwrap_or(OCTETS);
            let (length, hash) = (body.len(), sha256(&body));
            let mut response = whole(StatusCode::OK, kind, body);
            response.headers_mut().insert("x-body-sha256", text_value(&hash));
            response.headers_mut().insert("x-body-length", length.into());
            response
        }
        _ => {
            let report =
                json!({"path": path, "body_length": body.len(), "body_sha256": sha256(&body)});
            whole(StatusCode::OK, JSON, report.to_string())
        }
    };
    if let Some(trailers) = trailers {
        response.headers_mut().insert("x-request-trailers", text_value(&trailers));
    }
    Ok(response)
}

async fn metrics(state: &State) -> Result<Response<Body>, Cut> {
    Ok(match state.metrics_mode() {
        MetricsMode::Ok => whole(StatusCode::OK, METRICS, state.page()),
        MetricsMode::Error => {
            whole(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "metrics are set to fail\n")
        }
        MetricsMode::Hang => std::future::pending().await,
        MetricsMode::Empty => whole(StatusCode::OK, METRICS, ""),
        MetricsMode::Garbage => whole(
            StatusCode::OK,
            METRICS,
            &b"{{{ vllm:num_requests_waiting \xff\x00 = \n\"}}}\n"[..],
        ),
    })
}

async fn admin(
    state: &State,
    connection: u64,
    method: &Method,
    path: &str,
    request: Request<Incoming>,
) -> Result<Response<Body>, Cut> {
    let report = match (method.as_str(), path) {
        ("GET", "/admin/state") => state.json(),
        ("GET", "/admin/received") => state.received(),
        ("POST", "/admin/restart") => {
            state.restart(Some(connection));
            state.json()
        }
        ("POST", "/admin/set") => {
            let body = request.into_body().collect().await.map_err(|_| Cut)?.to_bytes();
            match Change::parse(&body) {
                Ok(change) => state.set(&change),
                Err(refused) => {
                    return Ok(refusal(StatusCode::BAD_REQUEST, &refused.to_string()));
                }
            }
            state.json()
        }
        _ => {
            let known = "no such path; known: GET /admin/state, GET /admin/received, \
                         POST /admin/set, POST /admin/restart";
            return Ok(refusal(StatusCode::NOT_FOUND, known));
        }
    };
    Ok(whole(StatusCode::OK, JSON, format!("{report}\n")))
}

fn head_json(request: &Request<Incoming>) -> Value {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    json!({
        "method": request.method().as_str(),
        "path": request.uri().path_and_query().map_or("", |path| path.as_str()),
        "authority": request.uri().authority().map(|authority| authority.as_str()),
        "version": format!("{:?}", request.version()),
        "headers": headers,
    })
}

/// `name=value` of each trailer, joined by commas.
fn trailer_list(trailers: &HeaderMap) -> String {
    let pairs: Vec<_> = trailers
        .iter()
        .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value.as_bytes())))
        .collect();
    pairs.join(", ")
}

fn text_value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("not a header value"))
}

fn sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
