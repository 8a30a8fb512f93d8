//! A completion from body to answer: through the engine, whole or as a stream of events.
//!
//! Decides the model and the order of events; the engine decides when.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};

use super::http::{Body, Cut, refusal, whole};
use super::openai::{Answer, Api, Ask};
use super::state::{InFlight, Progress, State};

/// Serves one request. Dropping the future, or the body of its answer, aborts it in the engine.
pub(super) async fn answer(
    state: &Arc<State>,
    api: Api,
    head: &Parts,
    body: &[u8],
) -> Result<Response<Body>, Cut> {
    let ask = match Ask::parse(api, body) {
        Ok(ask) => ask,
        Err(rule) => return Ok(refusal(StatusCode::BAD_REQUEST, &rule)),
    };
    let settings = &state.settings;
    let model = ask.model.clone().unwrap_or_else(|| settings.model.clone());
    let adapter = settings.loras.iter().find(|name| **name == model);
    if settings.check_model && adapter.is_none() && model != settings.model {
        let message = format!("The model `{model}` does not exist.");
        return Ok(refusal(StatusCode::NOT_FOUND, &message));
    }
    let job = ask.job(settings.engine.block_size, adapter.map(String::as_str));
    let mut in_flight = match state.submit(job) {
        Ok(in_flight) => in_flight,
        Err(too_long) => return Ok(refusal(StatusCode::BAD_REQUEST, &too_long.to_string())),
    };
    let answer =
        Answer { api, id: request_id(state, api, head), model, created: state.unix_now() as u64 };
    if ask.stream {
        return Ok(events(answer, in_flight, ask.include_usage));
    }
    loop {
        match in_flight.next().await {
            Some(Progress::Token) => {}
            Some(Progress::Done(usage, reason)) => {
                let json = HeaderValue::from_static("application/json");
                return Ok(whole(StatusCode::OK, json, answer.whole(usage, reason)));
            }
            None => return Err(Cut),
        }
    }
}

/// The client's own id where it sent one, as vLLM does.
fn request_id(state: &State, api: Api, head: &Parts) -> String {
    let prefix = match api {
        Api::Completion => "cmpl",
        Api::Chat => "chatcmpl",
    };
    match head.headers.get("x-request-id").and_then(|id| id.to_str().ok()) {
        Some(id) => format!("{prefix}-{id}"),
        None => format!("{prefix}-{}-{}", state.name, state.next_request()),
    }
}

/// The events of a streamed answer. Its head goes out at once, as vLLM's does, before any token.
fn events(answer: Answer, in_flight: InFlight, include_usage: bool) -> Response<Body> {
    let streaming = Streaming { answer, in_flight, include_usage, sent: 0, over: false };
    let frames = stream::unfold(streaming, |mut streaming| async move {
        let frame = streaming.next().await?.map(Frame::data);
        Some((frame, streaming))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

struct Streaming {
    answer: Answer,
    in_flight: InFlight,
    include_usage: bool,
    /// Tokens sent.
    sent: u64,
    over: bool,
}

impl Streaming {
    /// The next bytes; an error where the server restarted underneath, `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes, Cut>> {
        if self.over {
            return None;
        }
        let progress = self.in_flight.next().await;
        self.over = !matches!(progress, Some(Progress::Token));
        let index = self.sent;
        self.sent += 1;
        Some(match progress {
            Some(Progress::Token) => Ok(self.answer.token(index, None)),
            Some(Progress::Done(usage, reason)) => {
                let usage = self.include_usage.then_some(usage);
                Ok([self.answer.token(index, Some(reason)), self.answer.end(usage)].concat().into())
            }
            None => Err(Cut),
        })
    }
}
