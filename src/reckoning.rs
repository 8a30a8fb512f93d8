//! The present between two scrapes: what our own requests have changed since.
//!
//! Decides what is added to a reading (W* and K* of the detector, the gate and the filter), what part
//! of a reading is others' doing, and how fast each server is. Pure: counts and times come in. Queues
//! are requests, KV-cache use is a fraction, sizes are tokens, times seconds unless they are
//! durations.
//!
//! ```text
//! W* = W + R * U      U: own requests assigned since the scrape began, without a first chunk
//! K* = K + A / C      A: prompt tokens of own requests assigned less finished since the scrape began
//! ```
//!
//! R is the number of picking replicas, which cannot see each other's requests; C is the capacity of
//! the KV cache. With nothing of ours since the scrape both are the scrape, bit for bit.

pub mod learning;

use std::time::Duration;

use crate::endpoint::{Ahead, Load};

/// Time over which others' requests are smoothed. Their share of a single scrape is noise: it holds
/// whatever of ours began or ended while the page was made.
pub const OTHERS: Duration = Duration::from_secs(5);

/// How long a failed request stays counted where it failed. A server that fails fast looks idle
/// otherwise, and attracts everyone.
pub const FAILURE_HOLD: Duration = Duration::from_secs(10);

/// Readings that stand still for so long, with work and none of it ours, are suspect.
pub const FROZEN: Duration = Duration::from_secs(5);

/// A suspect gets a request so often, to see whether it still lives.
pub const PROBE: Duration = Duration::from_secs(1);

/// Fewest prompt tokens that a request counts as: however short, it takes a step.
pub const LEAST_TOKENS: u64 = 16;

/// What the present adds to the newest scrape of `load`, with `replicas` pickers at work; at least 1.
pub fn ahead(load: &Load, replicas: u32) -> Ahead {
    let kv = if load.capacity > 0.0 && load.since.tokens != 0 {
        load.since.tokens as f64 / load.capacity
    } else {
        0.0
    };
    Ahead { waiting: f64::from(replicas.max(1)) * f64::from(load.since.unanswered), kv }
}

/// A smoothed value after `sample`, `since` the one before; `None` before the first.
pub fn smooth(old: Option<f64>, sample: f64, since: Duration, over: Duration) -> f64 {
    match old {
        None => sample,
        Some(old) => {
            let weight = -(-since.as_secs_f64() / over.as_secs_f64()).exp_m1();
            old + (sample - old) * weight
        }
    }
}

/// The mean length of a prompt after one of `tokens`: a hundredth of each new one.
pub fn mean_tokens(old: Option<f64>, tokens: u64) -> f64 {
    let tokens = tokens as f64;
    old.map_or(tokens, |old| old + (tokens - old) / 100.0)
}

#[cfg(test)]
mod tests;
