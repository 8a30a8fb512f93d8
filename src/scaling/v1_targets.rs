//! Targets of V1: one replica on one variant at a time.
//!
//! Decides which variant moves when V1's averages ask for a move; not whether they do. The scope is
//! one role of a model, or the whole model. Counts are replicas.

use super::allotment::{Allotment, by_cost, ordered};

/// What V1's averages say about a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// The spare capacity is below a trigger.
    Up,
    /// The load of one replica fits on the others.
    Down,
    /// Neither.
    Hold,
}

/// What V1 knows of a variant beside its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// A row of readings exists; a variant without one moves only when no other can.
    pub has_rows: bool,
    /// The target that was published and is still being reached.
    pub underway: Option<u32>,
}

/// Moves the targets of one scope by at most one replica. `standings` stands beside `variants`; only
/// `members` take part.
///
/// A target that is still being reached holds the scope where it was sent. A variant with a pending
/// replica does not grow, nor does one at its maximum: the next cheapest does. Nothing shrinks while
/// anything is pending. V1 alone never takes a variant's last replica.
pub fn allot(
    variants: &mut [Allotment],
    standings: &[Standing],
    members: &[usize],
    signal: Signal,
) {
    if members.iter().any(|i| standings[*i].underway.is_some()) {
        for i in members {
            if let Some(target) = standings[*i].underway {
                variants[*i].target = target;
            }
        }
        return;
    }
    let by_price: Vec<usize> =
        ordered(variants, |_| true, by_cost).into_iter().filter(|i| members.contains(i)).collect();
    match signal {
        Signal::Up => {
            let free = |i: &&usize| variants[**i].pending == 0 && variants[**i].headroom() > 0;
            let read = by_price.iter().filter(|i| standings[**i].has_rows).find(free);
            if let Some(i) = read.or_else(|| by_price.iter().find(free)) {
                variants[*i].target += 1;
            }
        }
        Signal::Down if members.iter().all(|i| variants[*i].pending == 0) => {
            let several = |i: &&usize| {
                standings[**i].has_rows && variants[**i].target > variants[**i].min.max(1)
            };
            if let Some(i) = by_price.iter().rev().find(several) {
                variants[*i].target -= 1;
            }
        }
        Signal::Down | Signal::Hold => {}
    }
}
