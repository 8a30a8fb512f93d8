//! What passes through: bodies, chunks, trailers and headers arrive as they were sent.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{Method, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use plumbline::envoy::Modes;
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Ask, Backend, Plan, World, soon};

fn sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}

/// The first event arrives while the server still computes the last. At 10 ms a token the server needs
/// two seconds for the stream, so an answer that was held would find it idle. Mutant: holding chunks.
#[tokio::test]
async fn events_arrive_while_the_server_still_writes() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let ask = Ask::completion(200, true);
        let mut answer = soon("headers", ask.send(at)).await.unwrap();
        assert_eq!(answer.status(), 200, "{kind}");
        let first = soon("an event", answer.chunk()).await.unwrap().unwrap();
        assert!(first.starts_with(b"data: "), "{first:?}");
        assert_eq!(world.sims[0].state()["running"], 1, "{kind}: the server is done already");
        assert_eq!(world.picker.in_flight().await, 1, "{kind}");
        let mut text = first.to_vec();
        let mut chunks = 1;
        while let Some(chunk) = soon("an event", answer.chunk()).await {
            text.extend(chunk.unwrap());
            chunks += 1;
        }
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with("data: [DONE]\n\n"), "{kind}: {text}");
        assert!(text.matches("data: ").count() > 200, "{kind}: {text}");
        assert!(chunks > 20, "{kind}: {chunks} chunks");
    }
    world.at_rest("event streams").await;
}

/// Ten megabytes come back as they went, over both protocols. Mutants: a lost or doubled piece; an
/// early end.
#[tokio::test]
async fn ten_megabytes_pass_unchanged() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    let body: Bytes = (0_u32..10_000_000).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
    let hash = sha256(&body);
    for (kind, at) in world.gateway.listeners() {
        for ask in [Ask::post("/echo", body.clone()), Ask::post("/echo", body.clone()).http2()] {
            let answer = ask.whole(at).await;
            assert_eq!(answer.endpoint(), "sim-0", "{kind}");
            assert_eq!(answer.header("x-body-sha256"), hash, "{kind}: on the way in");
            assert_eq!(sha256(&answer.body), hash, "{kind}: on the way out");
        }
    }
    world.at_rest("large bodies").await;
}

/// Requests without a body, and what has no content: GET, HEAD and an empty POST. Mutant: waiting for
/// a body.
#[tokio::test]
async fn requests_without_a_body_pass() {
    let server = Backend::start(|request| async move {
        let method = request.method().to_string();
        Ok(Response::builder().header("x-method", method).body(Full::from("content")).unwrap())
    });
    let world = World::start(Plan { sims: 0, others: vec![server.at], ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        for (method, body) in
            [(Method::GET, "content"), (Method::HEAD, ""), (Method::POST, "content")]
        {
            for ask in
                [Ask::new(method.clone(), "/any", ""), Ask::new(method.clone(), "/any", "").http2()]
            {
                let answer = ask.whole(at).await;
                assert_eq!(answer.status, 200, "{kind} {method}: {answer:?}");
                assert_eq!(answer.header("x-method"), method.as_str(), "{kind}");
                assert_eq!(answer.body, body, "{kind} {method}");
            }
        }
    }
    world.at_rest("requests without a body").await;
}

/// Trailers reach the server and come back. Mutants: an end marked before the trailers; no answer to
/// them.
#[tokio::test]
async fn trailers_pass_in_both_directions() {
    let plan = Plan { sims: 1, http2_upstream: true, ..Plan::default() };
    let world = World::start(plan).await;
    for (kind, at) in world.gateway.listeners() {
        let ask = Ask::post("/echo", "with trailers")
            .http2()
            .with("te", "trailers")
            .with("x-want-trailers", "1")
            .trailer("x-checksum", "42");
        let answer = ask.whole(at).await;
        assert_eq!(answer.endpoint(), "sim-0", "{kind}");
        assert_eq!(answer.body, "with trailers", "{kind}");
        assert_eq!(answer.header("x-request-trailers"), "x-checksum=42", "{kind}");
        assert_eq!(answer.trailers["x-sim-trailer"], "done", "{kind}");
    }
    world.at_rest("trailers").await;
}

/// Two cookies stay two, and no header is set twice. U004. Mutant: mirroring response headers.
#[tokio::test]
async fn response_headers_are_not_touched() {
    let server = Backend::start(|_| async {
        let response = Response::builder()
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("x-once", "1");
        Ok(response.body(Full::from("x")).unwrap())
    });
    let world = World::start(Plan { sims: 0, others: vec![server.at], ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let answer = Ask::get("/any").whole(at).await;
        let cookies: Vec<_> = answer.headers.get_all("set-cookie").iter().collect();
        assert_eq!(cookies, ["a=1", "b=2"], "{kind}");
        assert_eq!(answer.headers.get_all("x-once").iter().count(), 1, "{kind}");
        let ours = answer.headers.keys().find(|name| name.as_str().starts_with("x-gateway"));
        assert_eq!(ours, None, "{kind}");
    }
    world.at_rest("response headers").await;
}

/// The same through Envoy's other body modes. Mutant: any of them answered in full-duplex frames.
#[tokio::test]
async fn every_body_mode_serves() {
    let modes = [
        ("BUFFERED", "BUFFERED"),
        ("BUFFERED_PARTIAL", "STREAMED"),
        ("STREAMED", "NONE"),
        ("NONE", "NONE"),
        ("FULL_DUPLEX_STREAMED", "NONE"),
    ];
    for (request, response) in modes {
        let plan = Plan {
            sims: 1,
            modes: Modes { request, response, ..Modes::default() },
            ..Plan::default()
        };
        let world = World::start(plan).await;
        for (kind, at) in world.gateway.listeners() {
            // Below Envoy's buffer limit, which BUFFERED does not exceed.
            let answer = Ask::post("/echo", "y".repeat(20_000)).whole(at).await;
            assert_eq!(answer.endpoint(), "sim-0", "{kind} {request} {response}");
            assert_eq!(answer.body, "y".repeat(20_000), "{kind} {request} {response}");
            let answer = Ask::get("/v1/models").whole(at).await;
            assert_eq!(answer.endpoint(), "sim-0", "{kind} {request} {response}");
        }
        world.at_rest(&format!("{request} and {response}")).await;
    }
}

/// A WebSocket handshake has no body to wait for, and bytes then flow both ways (U029). Mutant: waiting
/// for the end of a tunnel.
#[tokio::test]
async fn an_upgrade_passes() {
    let server = Backend::start(|request| async move {
        if !request.headers().contains_key("upgrade") {
            return Ok(Response::builder().status(404).body(Full::default()).unwrap());
        }
        tokio::spawn(async move {
            let mut tunnel = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
            let mut ping = [0; 4];
            tunnel.read_exact(&mut ping).await.unwrap();
            tunnel.write_all(b"pong").await.unwrap();
            // Until the client leaves: Envoy drops what it has not passed on when the server does.
            let _ = tunnel.read(&mut ping).await;
        });
        let response = Response::builder().status(101);
        let response = response.header("connection", "upgrade").header("upgrade", "websocket");
        Ok(response.body(Full::default()).unwrap())
    });
    let world = World::start(Plan { sims: 0, others: vec![server.at], ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let ask = Ask::get("/chat").with("connection", "upgrade").with("upgrade", "websocket");
        let answer = soon("the handshake", ask.send(at)).await.unwrap();
        assert_eq!(answer.status(), 101, "{kind}");
        let (mut tunnel, _connection) = answer.upgraded().await;
        tunnel.write_all(b"ping").await.unwrap();
        let mut pong = [0; 4];
        soon("the tunnel", tunnel.read_exact(&mut pong)).await.unwrap();
        assert_eq!(&pong, b"pong", "{kind}");
    }
    world.at_rest("tunnels").await;
}
