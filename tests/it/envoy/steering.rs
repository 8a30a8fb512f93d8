//! Where requests go: to the endpoint that the detector would choose, and nowhere that a client says.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::{Ask, Plan, World, soon, wait_for};

/// Exactly one server is below the line: all requests go there, and follow when the pins are flipped.
/// Mutants: no filter; a filter that keeps the saturated; a header that one cluster kind cannot read.
#[tokio::test]
async fn completions_reach_the_one_endpoint_below_the_line() {
    let world = World::start(Plan::default()).await;
    // Scorers alone would prefer the empty queues.
    let (over, below) = ((0, 0.81), (4, 0.75));
    for (expected, pins) in [("sim-1", [over, below, over]), ("sim-2", [over, over, below])] {
        world.pin(&pins).await;
        for (kind, at) in world.gateway.listeners() {
            for _ in 0..20 {
                let answer = Ask::completion(2, false).whole(at).await;
                assert_eq!(answer.endpoint(), expected, "{kind}");
                assert_eq!(answer.header("x-gateway-destination-endpoint"), "", "{kind}");
                let body: Value = serde_json::from_slice(&answer.body).unwrap();
                assert_eq!(body["usage"]["completion_tokens"], 2, "{body}");
            }
        }
    }
    world.at_rest("completions").await;
}

/// All over the line: the filter fails open, 200. Mutant: an empty candidate list.
#[tokio::test]
async fn a_pool_over_the_line_still_serves() {
    let world = World::start(Plan::default()).await;
    world.pin(&[(9, 0.5); 3]).await;
    for (_, at) in world.gateway.listeners() {
        for _ in 0..5 {
            Ask::completion(1, false).whole(at).await.endpoint();
        }
    }
    world.at_rest("failing open").await;
}

/// Equal idle servers share a burst: nobody is left out. Mutant: an in-flight scorer of weight 0 with
/// a picker that takes the first of equals.
#[tokio::test]
async fn a_burst_spreads_over_equal_endpoints() {
    let world = World::start(Plan::default()).await;
    for (kind, at) in world.gateway.listeners() {
        let burst = (0..12).map(|_| Ask::completion(20, false).whole(at));
        let answers = futures_util::future::join_all(burst).await;
        let used: BTreeSet<_> = answers.iter().map(|answer| answer.endpoint()).collect();
        assert_eq!(used.len(), 3, "{kind}: {used:?}");
    }
    world.at_rest("a burst").await;
}

/// A client's own destination is overwritten, its other control headers never reach a server, and all
/// the rest does. Mutants: `append` for overwrite; any name not removed.
#[tokio::test]
async fn what_a_client_forges_steers_nothing() {
    let world = World::start(Plan { sims: 1, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let answer = Ask::post("/echo", "x")
            .with("x-gateway-destination-endpoint", "6.6.6.6:80")
            .with("x-prefiller-host-port", "6.6.6.6:80")
            .with("x-gateway-destination-endpoint-subset", "6.6.6.6")
            .with("x-harmless", kind)
            .whole(at)
            .await;
        assert_eq!(answer.endpoint(), "sim-0", "{kind}");
    }
    let received = world.sims[0].received().to_string();
    assert!(received.contains("x-harmless") && !received.contains("6.6.6.6"), "{received}");
    let own = world.sims[0].addr().to_string();
    assert!(received.contains(&own), "the destination header names the endpoint: {received}");
    world.at_rest("forged headers").await;
}

/// An empty pool: 503 with a reason for the client and one for the operator's log. Mutant: no
/// `details`, which leaves the log with Envoy's own words.
#[tokio::test]
async fn no_endpoints_is_503_with_a_reason() {
    let world = World::start(Plan { sims: 0, ..Plan::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        for ask in [Ask::get("/v1/models"), Ask::completion(1, false)] {
            let answer = ask.whole(at).await;
            assert_eq!(answer.status, 503, "{kind}: {answer:?}");
            let reason = answer.header("x-llm-d-request-dropped-reason");
            assert_eq!(reason, "rejected-no-endpoints", "{kind}");
        }
    }
    let line = world.gateway.logged(|line| line["code"] == 503).await;
    let details = line["details"].as_str().unwrap();
    assert!(details.contains("rejected-no-endpoints"), "{line}");
    world.at_rest("refusals").await;
}

/// The self-signed certificate of the default works through Envoy, and so does a pool of one.
/// Mutant: no ALPN, or TLS 1.3 alone.
#[tokio::test]
async fn tls_with_a_self_signed_certificate_works() {
    let security = plumbline::app::Security::SelfSigned;
    let world = World::start(Plan { sims: 1, security, ..Plan::default() }).await;
    for (_, at) in world.gateway.listeners() {
        assert_eq!(Ask::completion(1, false).whole(at).await.endpoint(), "sim-0");
    }
    world.at_rest("TLS").await;
}

/// U137: a killed server goes stale within the limit and gets nothing more; restarted, it comes back.
/// Mutants: a failed scrape that refreshes the age; a loop that ends with its connection.
#[tokio::test]
async fn a_killed_endpoint_is_left_out_and_comes_back() {
    let mut world = World::start(Plan { staleness: "1s", ..Plan::default() }).await;
    let address = world.kill_sim(0).await;
    let stale = async |world: &World, expected: bool| {
        wait_for(&format!("{address} stale: {expected}"), async || {
            let pool = world.picker.pool().await;
            let entry = pool.iter().find(|e| e["address"] == address.to_string()).cloned();
            let entry = entry.ok_or("not in the pool")?;
            // The others must be fresh too: a pool that is stale altogether fails open.
            let others =
                pool.iter().all(|e| e["address"] == entry["address"] || e["stale"] == false);
            if entry["stale"] == expected && others { Ok(entry) } else { Err(format!("{pool:?}")) }
        })
        .await
    };
    let entry = stale(&world, true).await;
    assert_eq!(entry["score"], 1.0, "stale counts as exactly full: {entry}");
    assert!(entry["last_error"].is_string(), "{entry}");
    for (kind, at) in world.gateway.listeners() {
        for _ in 0..10 {
            let answer = Ask::completion(1, false).whole(at).await;
            assert_ne!(answer.endpoint(), "sim-0", "{kind}");
        }
    }
    world.restart_sim(0, address);
    stale(&world, false).await;
    // The only one below the line now, so it must be the one that serves.
    world.pin(&[(0, 0.5), (9, 0.5), (9, 0.5)]).await;
    for (kind, at) in world.gateway.listeners() {
        let answer =
            soon("a pick of the endpoint that came back", Ask::get("/v1/models").whole(at));
        assert_eq!(answer.await.endpoint(), "sim-0", "{kind}");
    }
    world.at_rest("a restart").await;
}
