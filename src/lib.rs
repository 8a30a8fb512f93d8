//! Plumbline: an endpoint picker and scaling loop for LLM inference pools.
//!
//! The modules stand in reading order, from the shell down to the adapters; `ARCHITECTURE.md` draws
//! the picture. Imports point down only, and `tests/it/layering.rs` fails on one that does not.

// Shell: flags, wiring, start and end.
pub mod app;
pub mod cli;
pub mod demo;
pub mod lifecycle;

// Vocabulary: plain values.
pub mod causes;
pub mod endpoint;
pub mod pool;
pub mod request;
pub mod response;
pub mod scaling_entry;
pub mod thresholds;
pub mod units;

// Core: pure decisions.
pub mod flow;
pub mod reckoning;
pub mod routing;
pub mod saturation;
pub mod scaling;

// State: lock-free snapshots, one writer each.
pub mod flow_control;
pub mod policy;
pub mod store;

// Adapters in.
pub mod config;
pub mod discovery;
pub mod manifests;
pub mod peers;
pub mod poller;
pub mod watched_file;
pub mod yaml;

// Adapters out.
pub mod admin;
pub mod autoscaler;
pub mod ext_proc;
pub mod external_metrics;
pub mod http_port;
pub mod keda;
pub mod telemetry;
pub mod tls;

// Surroundings: a judge of pickers, a real gateway and a model server for the demo and for tests.
pub mod conformance;
pub mod envoy;
pub mod sim;

/// Properties run 64 fixed cases; `PLUMBLINE_PROPERTY_CASES` asks for more, with a new seed each time.
#[cfg(test)]
fn fixed_seed() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let base = Config { failure_persistence: None, ..Config::default() };
    match std::env::var("PLUMBLINE_PROPERTY_CASES").ok().and_then(|cases| cases.parse().ok()) {
        Some(cases) => Config { cases, ..base },
        None => Config { cases: 64, rng_seed: RngSeed::Fixed(7), ..base },
    }
}
