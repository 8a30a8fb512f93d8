//! The in-flight guard: one request at one endpoint, counted once and given back once.
//!
//! Decides nothing; its life is the count. The sum of the guards equals the sum of the cells, always.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use crate::pool::Slot;

/// Counts one request until it is dropped, on whatever path that happens.
#[must_use = "the count falls when the guard is dropped"]
pub struct InFlight {
    shared: Arc<Shared>,
    slot: Slot,
}

impl InFlight {
    pub(super) fn begin(shared: Arc<Shared>, slot: Slot) -> Self {
        shared.slab.cell(slot).in_flight.fetch_add(1, Ordering::Relaxed);
        Self { shared, slot }
    }

    /// The endpoint's slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        // Release: who sees zero and reuses the slot also sees all that this request did before.
        self.shared.slab.cell(self.slot).in_flight.fetch_sub(1, Ordering::Release);
    }
}
