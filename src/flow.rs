//! Flow control: whether a request that cannot be placed now waits, and how its wait ends.
//!
//! Decides on events and the time it is told, alone: an [`Arrival`] comes in, and exactly one
//! [`Verdict`] goes out for it, unless it left before. Knows no stream, no endpoint and no clock. What
//! is inside is a waiting room for an empty pool; the words here are those of any flow control, so that
//! bands, fairness and an order of their own can take its place. Sizes are bytes.

mod room;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub use room::Room;

/// Names one request. Drawn in the order of first arrivals, and kept by a request that has to come
/// back, so that it finds its place again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request that asks to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Its name.
    pub ticket: Ticket,
    /// What its body takes while it waits.
    pub bytes: u64,
    /// Its objective's priority; higher is more important.
    pub priority: i32,
    /// Whose traffic it is; `None` is the flow of those who do not say.
    pub fairness: Option<Arc<str>>,
    /// When it must be answered, at the latest.
    pub deadline: Instant,
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Decide it now, by the policy of now. If there is still no place for it, it may arrive again.
    Dispatch,
    /// Answer it without an endpoint.
    Reject(Reason),
}

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// As many requests, or bytes, wait as may.
    Full,
    /// Its deadline came, and no endpoint.
    Expired,
    /// The process is on its way out.
    ShuttingDown,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request arrived. One that is held already gets its new numbers and keeps its place.
    Arrival(Arrival),
    /// The client or the gateway gave the request up; no verdict follows.
    Left(Ticket),
    /// The pool has this many endpoints now.
    Pool(usize),
    /// The process drains; there is no way back.
    Drain,
}

/// How much may wait, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Longest wait of one request. Must stay below the gateway's `stream_idle_timeout`, 300 s in Envoy
    /// unless it is told otherwise, or the gateway answers in our place.
    pub wait: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { requests: 1_000, bytes: 256 << 20, wait: Duration::from_secs(290) }
    }
}

/// What waits now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// When the one that waits longest arrived.
    pub oldest: Option<Instant>,
}

#[cfg(test)]
mod tests;
