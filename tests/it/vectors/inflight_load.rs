//! Part `inflight-load`: what a request counts as, from its dispatch to its end.
//!
//! The store's guards stand for the recorded producer. Loads are `[a requests, a tokens, b requests,
//! b tokens]` after each step.

use std::collections::HashMap;

use plumbline::endpoint::{Endpoint, Load};
use plumbline::store::{InFlight, MembershipWriter, Store, Weight};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Difference, close, replay};

struct World {
    store: Store,
    members: MembershipWriter,
    guards: HashMap<String, InFlight>,
}

impl World {
    fn new() -> Self {
        let (store, members) = Store::new(Instant::now().into_std());
        let mut world = Self { store, members, guards: HashMap::new() };
        world.set(&["a", "b"]);
        world
    }

    fn set(&mut self, names: &[&str]) {
        let address = |name: &str| ([127, 0, 0, 1], u16::from(name.as_bytes()[0])).into();
        let endpoints = names.iter().map(|name| Endpoint::new("ns", name, address(name)));
        self.members.apply(endpoints.collect());
    }

    fn step(&mut self, step: &Value) -> Value {
        let now = Instant::now().into_std();
        let request = step["req"].as_str().unwrap_or_default();
        match step["do"].as_str().unwrap() {
            "route" => {
                let id = format!("ns/{}", step["endpoint"].as_str().unwrap());
                let pool = self.store.pool();
                let member = pool.members.iter().find(|m| m.endpoint.id.as_str() == id).unwrap();
                let tokens = step["tokens"].as_u64().unwrap();
                let guard = self.store.begin(member.slot, Weight { tokens, watched: true }, now);
                self.guards.insert(request.to_owned(), guard);
            }
            "first-chunk" => self.guards.get_mut(request).unwrap().first_chunk(now),
            "end" | "unary-end" => drop(self.guards.remove(request)),
            "delete" => self.set(&["b"]),
            "recreate" => self.set(&["a", "b"]),
            "wait-janitor-7min" => {}
            other => panic!("no step {other}"),
        }
        let (pool, mut loads) = (self.store.pool(), Vec::new());
        self.store.read_loads(&pool, now, &mut loads);
        let of = |name: &str| {
            let at = pool.members.iter().position(|m| m.endpoint.id.as_str() == name);
            at.map_or_else(Load::default, |at| loads[at])
        };
        let (a, b) = (of("ns/a"), of("ns/b"));
        json!([a.in_flight, a.in_flight_tokens, b.in_flight, b.in_flight_tokens])
    }
}

fn ours(input: &Value) -> Value {
    let mut world = World::new();
    input["steps"].as_array().unwrap().iter().map(|step| world.step(step)).collect()
}

fn agrees(ours: &Value, recorded: &Value) -> bool {
    let loads = recorded["trace"].as_array().unwrap().iter().map(|after| {
        let load = |name: &str, what: &str| after["load"][name][what].clone();
        json!([
            load("a", "requests"),
            load("a", "tokens"),
            load("b", "requests"),
            load("b", "tokens")
        ])
    });
    close(ours, &loads.collect())
}

/// Mutants: tokens given back at the end only; a count that follows the slot instead of the id.
#[test]
fn inflight_load() {
    const PREFIX: &str = "a prefix match is 0 until there is a prefix cache";
    const OUTPUT: &str =
        "output tokens are nobody's to know in advance: the prompt alone is counted";
    const PREFILL: &str = "a second endpoint for the prompt comes with disaggregation";
    const OWN: &str = "a count hangs on its stream, never on a client's x-request-id";
    let row = |case, ours, why| Difference { case, ours, why };
    let differences = [
        row("inflight-load/prefix-discount", "[[1,8,0,0],[0,0,0,0]]", PREFIX),
        row("inflight-load/prefix-tail", "[[1,100,0,0],[0,0,0,0]]", PREFIX),
        row("inflight-load/prefix-partial-overcount", "[[1,5,0,0],[0,0,0,0]]", PREFIX),
        row("inflight-load/output-added", "[[1,8,0,0],[1,0,0,0],[0,0,0,0]]", OUTPUT),
        row("inflight-load/output-client-cap", "[[1,100,0,0],[0,0,0,0]]", OUTPUT),
        row("inflight-load/output-operator-cap", "[[1,100,0,0],[0,0,0,0]]", OUTPUT),
        row(
            "inflight-load/prefill-released-at-first-chunk",
            "[[1,8,0,0],[1,0,0,0],[0,0,0,0]]",
            PREFILL,
        ),
        row("inflight-load/prefill-same-endpoint", "[[1,8,0,0],[1,0,0,0],[0,0,0,0]]", PREFILL),
        row(
            "inflight-load/duplicate-request-id-leaks",
            "[[1,8,0,0],[2,16,0,0],[1,8,0,0],[0,0,0,0],[0,0,0,0]]",
            OWN,
        ),
        row(
            "inflight-load/duplicate-request-id-other-endpoint",
            "[[1,8,0,0],[1,8,1,8],[0,0,1,8],[0,0,0,0]]",
            OWN,
        ),
        row(
            "inflight-load/flap-late-release",
            "[[1,8,0,0],[0,0,0,0],[1,8,0,0],[2,12,0,0],[1,4,0,0],[0,0,0,0]]",
            "an endpoint that comes back under its id still works on what it had",
        ),
    ];
    replay("inflight-load", &differences, ours, agrees);
}
