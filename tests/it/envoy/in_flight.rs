//! The ledger: on every path by which a request ends, its count goes back and its stream closes.

use bytes::Bytes;
use plumbline::sim::{Change, Fault, FaultKind};

use crate::harness::{Ask, Plan, World, soon, wait_for};

async fn counted(world: &World, expected: u64) {
    wait_for(&format!("{expected} in flight"), async || {
        let seen = world.picker.in_flight().await;
        if seen == expected { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
}

async fn streams(world: &World, expected: u64) {
    wait_for(&format!("{expected} streams"), async || {
        let seen = world.picker.streams().await;
        if seen == expected { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
}

/// Mutants: a guard that ends only with the response's end, or only with the stream's.
#[tokio::test]
async fn every_ending_gives_the_count_back() {
    let world = World::start(Plan { max_body: 1 << 20, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        Ask::completion(2, false).whole(at).await.endpoint();
        world.at_rest("a completion").await;

        let mut events = soon("headers", Ask::completion(4000, true).send(at)).await.unwrap();
        soon("an event", events.chunk()).await.unwrap().unwrap();
        counted(&world, 1).await;
        drop(events);
        world.at_rest("a client that left amid a stream of events").await;

        let (ask, body) = Ask::upload("/echo");
        let upload = tokio::spawn(async move { ask.send(at).await.map(drop) });
        body.send(Bytes::from_static(b"half of it")).await.unwrap();
        streams(&world, 1).await;
        assert_eq!(world.picker.in_flight().await, 0, "{kind}: nothing is picked before the end");
        upload.abort();
        drop(body);
        world.at_rest("a client that left amid its upload").await;

        let answer = Ask::post("/echo", vec![b'x'; (1 << 20) + 1]).whole(at).await;
        assert_eq!(answer.status, 413, "{kind}: {answer:?}");
        assert!(answer.text().contains("--max-body-bytes"), "{kind}: {answer:?}");
        world.at_rest("413").await;
    }
    let line = world.gateway.logged(|line| line["code"] == 413).await;
    assert!(line["details"].as_str().unwrap().contains("body-too-large"), "{line}");
}

/// U061: a server that answers badly or not at all. Mutant: a guard that waits for response headers.
#[tokio::test]
async fn a_failing_server_gives_the_count_back() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    let fault = |kind| {
        let fault = Some(Fault { kind, ratio: 1.0 });
        world.sims[0].set(&Change { fault: Some(fault), ..Change::default() });
    };
    for (kind, at) in world.gateway.listeners() {
        fault(FaultKind::Drop);
        assert_eq!(Ask::completion(1, false).whole(at).await.status, 503, "{kind}");
        world.at_rest("a dropped connection").await;

        fault(FaultKind::Status { code: 500 });
        assert_eq!(Ask::completion(1, false).whole(at).await.status, 500, "{kind}");
        world.at_rest("a server's own 500").await;

        fault(FaultKind::Hang);
        let hanging = tokio::spawn(Ask::completion(1, false).send(at));
        counted(&world, 1).await;
        hanging.abort();
        world.at_rest("a client that gave a hanging server up").await;
    }
}

/// Many at once, all ending differently. Mutant: any path that loses a guard under load.
#[tokio::test]
async fn a_mixed_crowd_leaves_nothing_behind() {
    let world = World::start(Plan::default()).await;
    let mut crowd = tokio::task::JoinSet::new();
    for index in 0..60 {
        let (_, at) = world.gateway.listeners()[index % 2];
        crowd.spawn(async move {
            match index % 3 {
                0 => assert_eq!(Ask::completion(5, false).whole(at).await.status, 200),
                1 => {
                    let mut events = Ask::completion(500, true).http2().send(at).await.unwrap();
                    events.chunk().await.unwrap().unwrap();
                }
                _ => {
                    let (ask, body) = Ask::upload("/echo");
                    body.send(Bytes::from_static(b"never ended")).await.unwrap();
                    let upload = tokio::spawn(async move { ask.send(at).await.map(drop) });
                    // Taken once the first piece is on its way.
                    let _ = body.send(Bytes::from_static(b"!")).await;
                    upload.abort();
                }
            }
        });
    }
    while let Some(one) = soon("the crowd", crowd.join_next()).await {
        one.unwrap();
    }
    world.at_rest("a mixed crowd").await;
}
