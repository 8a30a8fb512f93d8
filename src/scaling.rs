//! The scaling core: from readings of the replicas to replica counts of the variants.
//!
//! Decides nothing by itself and never acts: everything below is a function of the values it is
//! given. Times are milliseconds of one clock, passed in; capacities, supply and demand are in the
//! unit of the analyzer that states them (KV tokens for `saturation`, tokens per second for
//! `throughput`).

pub mod analyzer;
pub mod engine_args;
pub mod input;
pub mod learned;
pub mod plan;
pub mod post_step;
