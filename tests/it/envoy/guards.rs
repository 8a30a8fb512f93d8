//! How long a request counts, by what the gateway shows of its response.
//!
//! A full-duplex or buffered response is seen to its end, and the count ends there. Without a response
//! body Envoy ends the stream at the response headers, without those at dispatch; then the count
//! outlives its stream for as long as scrapes need to show the request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Full};
use plumbline::envoy::Modes;
use tokio::sync::Semaphore;

use crate::harness::{Ask, Backend, Plan, World, soon, wait_for};

const FDS: &str = "FULL_DUPLEX_STREAMED";

/// Waits for this many streams and requests in flight at once.
async fn level(world: &World, streams: u64, requests: u64, what: &str) {
    wait_for(&format!("{streams} streams and {requests} requests: {what}"), async || {
        let seen = (world.picker.streams().await, world.picker.in_flight().await);
        if seen == (streams, requests) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

/// A server that answers each POST when the test lets it.
fn gated() -> (Backend, Arc<Semaphore>) {
    let gate = Arc::new(Semaphore::new(0));
    let opened = Arc::clone(&gate);
    let server = Backend::start(move |request| {
        let gate = Arc::clone(&opened);
        async move {
            if request.method() == http::Method::GET {
                return Ok(Response::new(Full::default()));
            }
            request.into_body().collect().await.map_err(std::io::Error::other)?;
            gate.acquire().await.map_err(std::io::Error::other)?.forget();
            Ok(Response::new(Full::from(Bytes::from_static(b"{\"done\":true}"))))
        }
    });
    (server, gate)
}

/// Full duplex and BUFFERED: the stream and the count last as long as the server works. Mutants: a
/// guard that ends at dispatch or at the response headers; one that lingers although the end was seen.
#[tokio::test]
async fn a_response_that_is_shown_is_counted_to_its_end() {
    for (request, response) in [(FDS, FDS), ("BUFFERED", "BUFFERED")] {
        let (server, gate) = gated();
        let modes = Modes { request, response, ..Modes::default() };
        // A guard that lingers here would do so for longer than any wait.
        let scrape = Duration::from_secs(60);
        let others = vec![server.at];
        let world = World::start(Plan { sims: 0, others, modes, scrape, ..Plan::default() }).await;
        world.at_rest("the gateway's probes").await;
        for (kind, at) in world.gateway.listeners() {
            let what = format!("{kind} {request} {response}");
            let asked = tokio::spawn(Ask::completion(1, false).whole(at));
            level(&world, 1, 1, &what).await;
            gate.add_permits(1);
            let answer = soon("the answer", asked).await.unwrap();
            assert_eq!((answer.status, answer.text().as_str()), (200, "{\"done\":true}"), "{what}");
            level(&world, 0, 0, &what).await;

            let left = tokio::spawn(Ask::completion(1, false).whole(at));
            level(&world, 1, 1, &what).await;
            left.abort();
            level(&world, 0, 0, &format!("the client of {what} left")).await;
        }
    }
}

/// FDS requests whose response is not shown: the stream ends at the response headers (NONE) or at
/// dispatch (no headers either), and the count lives on beyond it, while the server still works, but
/// not for ever. Mutants: a guard that ends with its stream; one that waits for a response's end.
#[tokio::test]
async fn a_response_that_is_not_shown_lingers() {
    for response_headers in ["SEND", "SKIP"] {
        let (server, gate) = gated();
        let modes = Modes { response: "NONE", response_headers, ..Modes::default() };
        // Two of these is how long a count lingers: time to look at it on a busy machine.
        let scrape = Duration::from_millis(1500);
        let others = vec![server.at];
        let world = World::start(Plan { sims: 0, others, modes, scrape, ..Plan::default() }).await;
        level(&world, 0, 0, "the gateway's probes").await;
        let at = world.gateway.override_host;
        let asked = tokio::spawn(Ask::completion(1, false).whole(at));
        if response_headers == "SEND" {
            level(&world, 1, 1, "before the response headers").await;
            gate.add_permits(1);
        }
        level(&world, 0, 1, response_headers).await;
        level(&world, 0, 0, response_headers).await;
        gate.add_permits(1);
        assert_eq!(soon("the answer", asked).await.unwrap().status, 200);
    }
}

/// A client that leaves amid a stream of events: the server hears of it at once, whatever is shown of
/// the response. So does the count, where it still depends on it. Mutants: reading the stream only when
/// there is something to say; a guard that waits for the response's end.
#[tokio::test]
async fn an_abort_amid_events_ends_all_of_it() {
    for response in [FDS, "STREAMED", "NONE"] {
        let modes = Modes { response, ..Modes::default() };
        let world = World::start(Plan { sims: 1, modes, ..Plan::default() }).await;
        world.at_rest("the gateway's probes").await;
        for (kind, at) in world.gateway.listeners() {
            let mut events = soon("headers", Ask::completion(4000, true).send(at)).await.unwrap();
            soon("an event", events.chunk()).await.unwrap().unwrap();
            let streams = u64::from(response != "NONE");
            if streams == 1 {
                level(&world, 1, 1, kind).await;
            }
            assert_eq!(world.sims[0].state()["running"], 1, "{kind} {response}");
            drop(events);
            world.at_rest("a client that left").await;
            wait_for("the server is idle", async || {
                let running = world.sims[0].state()["running"].clone();
                if running == 0 { Ok(()) } else { Err(running.to_string()) }
            })
            .await;
        }
    }
}

/// An upload that breaks off while it is held: the sum of held bytes shows it come and go, and no
/// server ever hears of it. Mutants: held bytes that outlive their stream; a pick for half a body.
#[tokio::test]
async fn an_aborted_upload_leaves_nothing_held() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let (ask, body) = Ask::upload("/v1/completions");
        let upload = tokio::spawn(async move { ask.send(at).await.map(drop) });
        body.send(Bytes::from_static(b"{\"model\":\"m\",\"prompt\":\"")).await.unwrap();
        let held = async || world.picker.metric("plumbline_held_bytes").await;
        wait_for(&format!("{kind}: 23 bytes are held"), async || {
            let seen = held().await;
            if seen == 23 { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
        upload.abort();
        drop(body);
        world.at_rest("an upload that broke off").await;
        assert_eq!(held().await, 0, "{kind}");
    }
    let received = world.sims[0].received().to_string();
    assert!(!received.contains("completions"), "{received}");
}
