//! The picker dies: requests fail at once, none hangs, and all is well again after its restart.

use crate::harness::{Ask, Plan, World, soon};

/// Mutant: `failure_mode_allow`, which sends requests to any endpoint while nobody picks.
#[tokio::test]
async fn a_killed_picker_fails_fast_and_recovers() {
    let mut world = World::start(Plan { process: true, ..Plan::default() }).await;
    let listeners = world.gateway.listeners();
    let mut running = Vec::new();
    for (kind, at) in listeners {
        let mut events = soon("headers", Ask::completion(4000, true).send(at)).await.unwrap();
        assert_eq!(events.status(), 200, "{kind}");
        soon("an event", events.chunk()).await.unwrap().unwrap();
        running.push((kind, events));
    }

    world.picker.signal("KILL");
    world.picker.exit().await;
    for (kind, mut events) in running {
        // Cut, not ended: an end would look like a whole answer.
        let cut = soon("the stream is cut", async {
            loop {
                match events.chunk().await {
                    Some(Ok(_)) => {}
                    Some(Err(_)) => return true,
                    None => return false,
                }
            }
        });
        assert!(cut.await, "{kind}");
    }
    for (kind, at) in listeners {
        for ask in [Ask::get("/v1/models"), Ask::completion(1, false)] {
            assert_eq!(ask.whole(at).await.status, 500, "{kind}");
        }
    }

    world.picker.restart().await;
    world.gateway.reaches_picker().await;
    for (kind, at) in listeners {
        for _ in 0..5 {
            let answer = Ask::completion(1, false).whole(at).await;
            assert!(answer.endpoint().starts_with("sim-"), "{kind}");
        }
    }
    world.at_rest("a restart of the picker").await;
}
