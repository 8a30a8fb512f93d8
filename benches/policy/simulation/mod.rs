//! A pool of simulated model servers, requests that arrive at it, and the rules that place them.
//!
//! Decides nothing about rules: ours and every rule that is a profile run through the crate's own store,
//! reckoning and routing, under virtual time. Equal seeds give equal runs. Times are nanoseconds since
//! the run began where they are integers and seconds where they are not; sizes are tokens.

pub(crate) mod drive;
pub(crate) mod figures;
pub(crate) mod replica;
pub(crate) mod rule;
pub(crate) mod server;
pub(crate) mod workload;

/// A second of virtual time.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// A millisecond of virtual time.
pub(crate) const MILLI: u64 = 1_000_000;
