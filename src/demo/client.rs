//! The demo's HTTP client: sends one planned request, or reads one of Plumbline's pages.
//!
//! Decides what the client of a request sees: its status, when its stream began, whether the answer
//! was whole. Judges nothing.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, timeout};

use super::access_log;
use super::observed::{Answer, Outcome};
use super::traffic::Planned;

/// Longest time for one answer: far above anything the simulated servers take.
const ANSWER_LIMIT: Duration = Duration::from_secs(15);
/// The same for one that may be held until a server has started.
const HELD_LIMIT: Duration = Duration::from_secs(60);
/// Longest time for a page.
const PAGE_LIMIT: Duration = Duration::from_secs(1);
/// The last event of a whole stream.
const DONE: &[u8] = b"data: [DONE]";

/// Cheap to clone; connections are shared.
#[derive(Clone)]
pub(super) struct Client(Pool<HttpConnector, Full<Bytes>>);

impl Client {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        Self(Pool::builder(TokioExecutor::new()).build(connector))
    }

    /// The body of a page that answers 200; `None` when it does not, or not in time.
    pub(super) async fn page(&self, at: SocketAddr, path: &str) -> Option<Bytes> {
        let request =
            Request::get(format!("http://{at}{path}")).body(Full::new(Bytes::new())).ok()?;
        let fetch = async {
            let response = self.0.request(request).await.ok()?;
            let whole = response.status() == StatusCode::OK;
            let body = response.into_body().collect().await.ok()?.to_bytes();
            whole.then_some(body)
        };
        timeout(PAGE_LIMIT, fetch).await.ok()?
    }

    /// Sends a completion to the gateway at `to`; its status, 0 without an answer.
    pub(super) async fn ask(&self, to: SocketAddr, body: Bytes) -> u16 {
        let request = Request::post(format!("http://{to}/v1/completions"))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body));
        let Ok(request) = request else { return 0 };
        let follow = async {
            let response = self.0.request(request).await.ok()?;
            let status = response.status().as_u16();
            response.into_body().collect().await.ok()?;
            Some(status)
        };
        timeout(HELD_LIMIT, follow).await.ok().flatten().unwrap_or(0)
    }

    /// Sends a request to the gateway at `to` and follows it to its end. `start` is the start of the
    /// traffic.
    pub(super) async fn send(self, to: SocketAddr, planned: Planned, start: Instant) -> Outcome {
        let mut outcome = Outcome {
            number: planned.number,
            kind: planned.kind,
            sent: start.elapsed(),
            ended: Duration::ZERO,
            first: None,
            answer: Answer::Nothing(format!("none within {ANSWER_LIMIT:?}")),
            served_by: None,
            gateway: None,
        };
        // Out of time leaves what was known until then.
        let _ = timeout(ANSWER_LIMIT, self.follow(to, planned, start, &mut outcome)).await;
        outcome.ended = start.elapsed();
        outcome
    }

    async fn follow(
        &self,
        to: SocketAddr,
        planned: Planned,
        start: Instant,
        outcome: &mut Outcome,
    ) {
        let method = if planned.body.is_empty() { Method::GET } else { Method::POST };
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{to}{}", planned.kind.path()))
            .header("x-request-id", access_log::id(planned.number))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(planned.body));
        let response = match request {
            Ok(request) => self.0.request(request).await,
            Err(error) => {
                outcome.answer = Answer::Nothing(error.to_string());
                return;
            }
        };
        let response = match response {
            Ok(response) => response,
            Err(error) => {
                outcome.answer = Answer::Nothing(error.to_string());
                return;
            }
        };
        let status = response.status().as_u16();
        outcome.served_by = response
            .headers()
            .get("x-sim-address")
            .and_then(|address| address.to_str().ok()?.parse().ok());
        // Holds until the end has been seen.
        outcome.answer = Answer::Cut(status);
        let is_stream = response
            .headers()
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let Some(tail) = read_body(response.into_body(), || {
            outcome.first = is_stream.then(|| start.elapsed().saturating_sub(outcome.sent));
        })
        .await
        else {
            return;
        };
        if !is_stream || tail.windows(DONE.len()).any(|window| window == DONE) {
            outcome.answer = Answer::Whole(status);
        }
    }
}

/// Reads to the end and returns the last bytes; `None` when the body broke off.
async fn read_body(mut body: Incoming, mut on_first: impl FnMut()) -> Option<Vec<u8>> {
    let mut tail = Vec::new();
    let mut begun = false;
    while let Some(frame) = body.frame().await {
        let frame = frame.ok()?;
        let Some(data) = frame.data_ref().filter(|data| !data.is_empty()) else { continue };
        if !begun {
            on_first();
            begun = true;
        }
        tail.extend_from_slice(data);
        let surplus = tail.len().saturating_sub(2 * DONE.len());
        tail.drain(..surplus);
    }
    Some(tail)
}
