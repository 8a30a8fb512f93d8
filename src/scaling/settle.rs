//! Clocks: when a model may move again, and which pending replicas are still worth waiting for.
//!
//! Decides how long a move holds back the next; the first move is never held back. Times are
//! milliseconds of the loop's clock, counts are replicas.

use super::allotment::Allotment;
use super::input::ModelInput;
use super::learned::{Learned, Published, Settle};

/// V1 moves a model at most once in this time.
pub const V1_PAUSE_MILLIS: u64 = 30_000;

/// No target falls for this long after the last change has arrived.
pub const FALL_PAUSE_MILLIS: u64 = 60_000;

/// What the clocks of one model allow now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    /// A published target has not arrived and still has time to.
    pub underway: bool,
    /// A target may fall.
    pub may_fall: bool,
    /// V1 may move the model.
    pub v1_may_move: bool,
}

/// Reads the clocks of a model and notes when its last change has arrived.
pub fn read(model: &ModelInput, learned: &mut Learned, grace: u64, now: u64) -> Clocks {
    let arrived = model.variants.iter().all(|variant| {
        let published = learned.published.get(&key(model, &variant.name));
        published.is_none_or(|p| p.target == variant.current && variant.pending == 0)
    });
    let Some(settle) = learned.settle.get_mut(&model.key()) else {
        return Clocks { underway: false, may_fall: true, v1_may_move: true };
    };
    let Some(moved) = settle.moved_millis else {
        return Clocks { underway: false, may_fall: true, v1_may_move: true };
    };
    if settle.settled_millis.is_none() {
        let expired = moved.saturating_add(grace);
        settle.settled_millis =
            if arrived { Some(now) } else { (now >= expired).then_some(expired) };
    }
    let quiet = |settled: u64| now >= settled.saturating_add(FALL_PAUSE_MILLIS);
    Clocks {
        underway: settle.settled_millis.is_none(),
        may_fall: settle.settled_millis.is_some_and(quiet),
        v1_may_move: now >= moved.saturating_add(V1_PAUSE_MILLIS),
    }
}

/// How many of a variant's pending replicas are still waited for: all of them, until none has been
/// added for the time that a start may take.
pub fn awaited(
    model: &ModelInput,
    variant: &str,
    pending: u32,
    learned: &Learned,
    grace: u64,
    now: u64,
) -> u32 {
    let seen = learned.published.get(&key(model, variant)).filter(|p| p.pending > 0);
    match seen {
        Some(p) if pending <= p.pending && now >= p.pending_since_millis.saturating_add(grace) => 0,
        _ => pending,
    }
}

/// The target last published for a variant, where it is known.
pub fn published(model: &ModelInput, variant: &str, learned: &Learned) -> Option<u32> {
    learned.published.get(&key(model, variant)).map(|p| p.target)
}

/// Whether a published target that differs from what there is may still be reached: its time to start
/// has not run out, or nobody knows when it began.
pub fn on_its_way(
    model: &ModelInput,
    variant: &str,
    learned: &Learned,
    grace: u64,
    now: u64,
) -> bool {
    let published = learned.published.get(&key(model, variant));
    published.is_none_or(|p| now < p.since_millis.saturating_add(grace))
}

/// Notes what a plan publishes: the targets, and a move if one of them changed.
pub fn publish(
    model: &ModelInput,
    variants: &[Allotment],
    pending: impl Fn(&str) -> u32,
    learned: &mut Learned,
    now: u64,
) {
    let mut moved = false;
    for variant in variants {
        let before = learned.published.get(&key(model, &variant.name)).copied();
        // What was never published stands where the variant stands.
        let stood = before.map_or(variant.current, |p| p.target);
        let changed = stood != variant.target;
        moved |= changed;
        let pending = pending(&variant.name);
        let rose = before.is_none_or(|p| pending > p.pending);
        let after = Published {
            target: variant.target,
            since_millis: if changed { now } else { before.map_or(now, |p| p.since_millis) },
            pending,
            pending_since_millis: if rose {
                now
            } else {
                before.map_or(now, |p| p.pending_since_millis)
            },
        };
        learned.published.insert(key(model, &variant.name), after);
    }
    if moved {
        let settle = Settle { moved_millis: Some(now), settled_millis: None };
        learned.settle.insert(model.key(), settle);
    }
}

pub(super) fn key(model: &ModelInput, variant: &str) -> String {
    format!("{}/{variant}", model.key())
}
