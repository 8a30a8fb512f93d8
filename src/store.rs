//! What is known of the pool right now: a membership snapshot and a load cell per endpoint.
//!
//! Decides who may write what: one [`MembershipWriter`] changes the members, one [`LoadWriter`] per
//! endpoint changes its load, [`InFlight`] guards count requests, and everybody reads. Reads take no
//! lock and wait for no writer. Times inside are nanoseconds since the store was made.

mod cell;
mod held;
mod inflight;
mod membership;
mod vitals;

use std::sync::Arc;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::endpoint::Load;
use crate::pool::{Pool, Slot};

pub use cell::{LoadWriter, Page, Scraped};
pub use held::HeldBytes;
pub use inflight::InFlight;
pub use membership::{Change, MembershipWriter};
pub use vitals::{Lora, RankCache, Told, Vital, Vitals, VitalsView, VitalsWriter};

/// Endpoints that one store can hold, members and those that still finish requests together. The slab
/// of 64-byte cells is made once, so that a cell never moves: 1 MiB.
pub const CAPACITY: usize = 16_384;

/// Reading side of the store; cheap to clone and to share between threads.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

/// What all handles of one store share.
struct Shared {
    pool: ArcSwap<Pool>,
    slab: cell::Slab,
    /// By slot; made when an endpoint's poller starts.
    records: Box<[ArcSwapOption<vitals::Record>]>,
}

impl Store {
    /// An empty store and its only membership writer. `now` is the zero of its times.
    pub fn new(now: Instant) -> (Self, MembershipWriter) {
        let shared = Arc::new(Shared {
            pool: ArcSwap::default(),
            slab: cell::Slab::new(CAPACITY, now),
            records: std::iter::repeat_with(ArcSwapOption::empty).take(CAPACITY).collect(),
        });
        (Self { shared: Arc::clone(&shared) }, MembershipWriter::new(shared))
    }

    /// The membership now. Hold it for one decision, not longer.
    pub fn pool(&self) -> arc_swap::Guard<Arc<Pool>> {
        self.shared.pool.load()
    }

    /// Reads the load of every member of `pool` once, into `loads`, index by index.
    pub fn read_loads(&self, pool: &Pool, now: Instant, loads: &mut Vec<Load>) {
        let now = self.shared.slab.nanos(now);
        loads.clear();
        loads.extend(pool.members.iter().map(|m| self.shared.slab.cell(m.slot).load(now)));
    }

    /// Counts one request to `slot` until the guard ends.
    pub fn begin(&self, slot: Slot) -> InFlight {
        InFlight::begin(Arc::clone(&self.shared), slot)
    }

    /// The only writer of the load of `slot`; held by that endpoint's poller.
    pub fn load_writer(&self, slot: Slot) -> LoadWriter {
        LoadWriter::new(Arc::clone(&self.shared), slot)
    }

    /// What is known of the endpoint at `slot` beside its load, as of `now`; `None` before its poller
    /// has started.
    pub fn vitals(&self, slot: Slot, now: Instant) -> Option<VitalsView> {
        vitals::view(&self.shared, slot, now)
    }

    /// The only writer of what is known of `slot` beside its load, in a fresh record: `mapped` tells
    /// which values the engine exports, `custom` the keys of its custom metrics.
    pub fn vitals_writer(
        &self,
        slot: Slot,
        mapped: Vitals<bool>,
        custom: impl IntoIterator<Item = String>,
    ) -> VitalsWriter {
        VitalsWriter::new(Arc::clone(&self.shared), slot, mapped, custom)
    }

    /// Requests in flight over all endpoints, members or not.
    pub fn in_flight(&self) -> u64 {
        self.shared.slab.in_flight()
    }
}

#[cfg(test)]
mod tests;
