//! The scaling core: from readings of the replicas to replica counts of the variants.
//!
//! Decides nothing by itself and never acts: everything below is a function of the values it is
//! given. Times are milliseconds of one clock, passed in; capacities, supply and demand are in the
//! unit of the analyzer that states them (KV tokens for `saturation`, tokens per second for
//! `throughput`).

pub mod allotment;
pub mod analyzer;
pub mod cost_aware;
pub mod enforcer;
pub mod engine_args;
pub mod greedy;
pub mod guards;
pub mod input;
pub mod learned;
pub mod limiter;
pub mod plan;
pub mod planning;
pub mod post_step;
pub mod registry;
pub mod rules;
pub mod settle;
pub mod spare;
pub mod throughput;
pub mod tokens;
pub mod v1_targets;
pub mod window;

pub use planning::plan;
