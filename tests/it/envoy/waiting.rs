//! An empty pool behind a real Envoy: requests wait for the first endpoint, and whoever does not want to
//! wait any longer is not waited for.

use std::time::Duration;

use plumbline::flow::Limits;
use plumbline::sim;

use crate::harness::{Ask, Gateway, Picker, Plan, PoolFile, free_port, soon, wait_for};

/// A server that is no member yet, the picker of the empty pool, and Envoy before it.
struct World {
    sim: sim::Handle,
    picker: Picker,
    gateway: Gateway,
    pool: PoolFile,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(limits: Limits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind(free_port()).unwrap();
        let sim = sim::Server::start("sim-0".to_owned(), listener, sim::Settings::default());
        let (sim, pool) = (sim.unwrap(), PoolFile::empty());
        let plan = Plan { waiting_room: Some(limits), ..Plan::default() };
        let picker = Picker::inside(pool.source(plan.settings(""))).await;
        picker.ready().await;
        let gateway = Gateway::start(&plan, &picker, vec![sim.addr()], folder.path()).await;
        Self { sim, picker, gateway, pool, _folder: folder }
    }

    async fn at_rest(&self) {
        self.picker.waiting(0, 0).await;
        wait_for("no stream and nothing in flight", async || {
            let seen = (self.picker.streams().await, self.picker.in_flight().await);
            if seen == (0, 0) { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }
}

/// Length of the body of [`Ask::completion`] of one token.
const BODY: u64 = 76;

/// Mutants: a refusal at once; a wait that no endpoint ends; a body that arrives changed.
#[tokio::test]
async fn a_request_waits_for_an_endpoint_and_is_served() {
    let world = World::start(Limits::default()).await;
    let address = world.sim.addr().to_string();
    for (kind, at) in world.gateway.listeners() {
        let asked: Vec<_> =
            (0..3).map(|_| tokio::spawn(Ask::completion(1, false).whole(at))).collect();
        world.picker.waiting(3, 3 * BODY).await;
        world.pool.set(&world.picker, &[&address]).await;
        for asked in asked {
            assert_eq!(soon(kind, asked).await.unwrap().endpoint(), "sim-0", "{kind}");
        }
        world.pool.set(&world.picker, &[]).await;
        world.at_rest().await;
    }
}

/// The client leaves: Envoy resets or closes the stream, and the room is empty although no endpoint ever
/// came. Mutant: a stream that is not read while its request is held.
#[tokio::test]
async fn a_client_that_leaves_is_not_waited_for() {
    let world = World::start(Limits::default()).await;
    for (kind, at) in world.gateway.listeners() {
        let asked = tokio::spawn(Ask::completion(1, false).whole(at));
        let staying = tokio::spawn(Ask::completion(1, false).whole(at));
        world.picker.waiting(2, 2 * BODY).await;
        asked.abort();
        world.picker.waiting(1, BODY).await;
        staying.abort();
        world.at_rest().await;
        assert!(!world.sim.received().to_string().contains("completions"), "{kind}");
    }
}

/// Mutants: 429, as if somebody were busy; Envoy's own timeout before ours.
#[tokio::test]
async fn a_wait_that_is_over_is_503() {
    let wait = Duration::from_millis(50);
    let world = World::start(Limits { wait, ..Limits::default() }).await;
    for (kind, at) in world.gateway.listeners() {
        let answer = Ask::completion(1, false).with("x-request-id", kind).whole(at).await;
        assert_eq!(answer.status, 503, "{kind}");
        assert_eq!(answer.header("x-llm-d-request-dropped-reason"), "rejected-no-endpoints");
        world.gateway.logged(|line| line.to_string().contains("waiting-expired")).await;
        world.at_rest().await;
    }
}
