//! Model rewrites through a real Envoy, which checks lengths: in every mode that shows a whole body.

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use plumbline::envoy::Modes;
use serde_json::Value;

use crate::harness::{Ask, Backend, Plan, World};

const REWRITE: &str = "x-llm-d-model-name-rewrite";
const SERVED: &str = "a-much-longer-name-of-the-model-that-serves";
const FDS: &str = "FULL_DUPLEX_STREAMED";

/// Tells in headers what it got and answers under the name that it was asked for, in events where the
/// client asked for those.
fn server() -> Backend {
    Backend::start(|request| async move {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
        let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
        let name = asked["model"].as_str().unwrap_or_default().to_owned();
        let length = head.headers.get("content-length").map(|v| v.to_str().unwrap().to_owned());
        let fits = length.is_none_or(|length| length == body.len().to_string());
        let stream = asked["stream"] == true;
        let json = format!("{{\"id\":1,\"model\":\"{name}\",\"n\":9007199254740993}}");
        let (kind, text) = match stream {
            true => {
                ("text/event-stream", format!("data: {json}\n\n").repeat(3) + "data: [DONE]\n\n")
            }
            false => ("application/json", json),
        };
        let response = Response::builder()
            .header("content-type", kind)
            .header("x-got-model", name)
            .header("x-length-fits", fits.to_string());
        Ok(response.body(Full::from(Bytes::from(text))).unwrap())
    })
}

/// The server gets the new name, the client sees its own, and every length is right. Mutants: no
/// content-length beside a BUFFERED body (Envoy answers 500), or a wrong one;
/// names restored in some modes only.
#[tokio::test]
async fn a_rewrite_passes_in_every_mode_that_shows_a_whole_body() {
    for (request, response) in [
        (FDS, FDS),
        ("BUFFERED", "BUFFERED"),
        (FDS, "STREAMED"),
        ("BUFFERED_PARTIAL", "BUFFERED_PARTIAL"),
    ] {
        let server = server();
        let modes = Modes { request, response, ..Modes::default() };
        let others = vec![server.at];
        let world = World::start(Plan { sims: 0, others, modes, ..Plan::default() }).await;
        for (kind, at) in world.gateway.listeners() {
            for stream in [false, true] {
                let what = format!("{kind} {request} {response} {stream}");
                let answer = Ask::completion(1, stream).with(REWRITE, SERVED).whole(at).await;
                assert_eq!(answer.status, 200, "{what}: {answer:?}");
                assert_eq!(answer.header("x-got-model"), SERVED, "{what}");
                assert_eq!(answer.header("x-length-fits"), "true", "{what}");
                let text = answer.text();
                let json = "{\"id\":1,\"model\":\"sim-model\",\"n\":9007199254740993}";
                let expected = match stream {
                    true => format!("data: {json}\n\n").repeat(3) + "data: [DONE]\n\n",
                    false => json.to_owned(),
                };
                assert_eq!(text, expected, "{what}");
                let length = answer.header("content-length");
                assert!(length.is_empty() || length == text.len().to_string(), "{what}: {length}");
            }
        }
        world.at_rest(&format!("{request} and {response}")).await;
    }
}

/// The real engine's events, one by one. Mutant: a name restored in the first event only.
#[tokio::test]
async fn every_event_says_the_name_that_was_asked_for() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let answer = Ask::completion(20, true).with(REWRITE, SERVED).whole(at).await;
        let text = answer.text();
        let events = text.matches("\"model\":\"sim-model\"").count();
        assert!(events >= 20, "{kind}: {text}");
        assert!(!text.contains(SERVED), "{kind}: {text}");
    }
    world.at_rest("events with restored names").await;
}

/// Trailers without a body, which a BUFFERED gateway does not show us: the client's own destination
/// must not decide. Mutant: removing it only with the pick.
#[tokio::test]
async fn a_request_that_is_never_shown_whole_is_not_steered_by_its_client() {
    let modes = Modes { request: "BUFFERED", response: "NONE", ..Modes::default() };
    let world = World::start(Plan { sims: 1, modes, ..Plan::default() }).await;
    let victim = server();
    let ask = Ask::post("/any", "")
        .http2()
        .with("te", "trailers")
        .with("x-gateway-destination-endpoint", &victim.at.to_string())
        .trailer("x-checksum", "42");
    let answer = ask.whole(world.gateway.original_dst).await;
    assert_eq!(answer.header("x-got-model"), "", "{answer:?}");
    assert!(!answer.headers.contains_key("x-length-fits"), "{answer:?}");
    world.at_rest("trailers without a body").await;
}
