//! What is known of the pool right now: a membership snapshot and a load cell per endpoint.
//!
//! Decides who may write what: one [`MembershipWriter`] changes the members, one [`LoadWriter`] per
//! endpoint changes its load, [`InFlight`] guards count requests, and everybody reads. Reads take no
//! lock and wait for no writer. Times inside are nanoseconds since the store was made.

mod cell;
mod held;
mod inflight;
mod learner;
mod ledger;
mod membership;
mod vitals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption};

use crate::endpoint::Load;
use crate::pool::{Pool, Slot};
use crate::reckoning;

pub use cell::{LoadWriter, Page, Residual, Scraped};
pub use held::HeldBytes;
pub use inflight::{InFlight, Weight};
pub use learner::Learner;
pub use membership::{Change, MembershipWriter};
pub use vitals::{Lora, RankCache, Told, Vital, Vitals, VitalsView, VitalsWriter};

/// Endpoints that one store can hold, members and those that still finish requests together. The slab
/// of cells is made once, so that a cell never moves: 4 MiB, touched as endpoints come.
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
    /// Mean prompt of a request, tokens, as the bits of an `f64`; zero before the first.
    mean_tokens: AtomicU64,
    /// By slot; made when an endpoint's poller starts.
    records: Box<[ArcSwapOption<vitals::Record>]>,
}

impl Store {
    /// An empty store and its only membership writer. `now` is the zero of its times.
    pub fn new(now: Instant) -> (Self, MembershipWriter) {
        let shared = Arc::new(Shared {
            pool: ArcSwap::default(),
            slab: cell::Slab::new(CAPACITY, now),
            mean_tokens: AtomicU64::new(0),
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
        let mean = f64::from_bits(self.shared.mean_tokens.load(Ordering::Relaxed));
        loads.clear();
        loads.extend(pool.members.iter().map(|m| self.shared.slab.cell(m.slot).load(now, mean)));
    }

    /// Counts one request to `slot` until the guard ends.
    pub fn begin(&self, slot: Slot, weight: Weight, now: Instant) -> InFlight {
        self.meet(weight);
        InFlight::begin(Arc::clone(&self.shared), slot, weight, now)
    }

    /// The same, if `slot` still has the `seen` requests in flight that its choice was made by, and, a
    /// suspect, its probe. `None` when another request was faster: the choice is to be made anew.
    pub fn reserve(&self, slot: Slot, seen: u32, weight: Weight, now: Instant) -> Option<InFlight> {
        let shared = &self.shared;
        if !shared.slab.cell(slot).ledger.take_probe(shared.slab.nanos(now)) {
            return None;
        }
        let guard = InFlight::reserve(shared, (slot, seen), weight, now)?;
        self.meet(weight);
        Some(guard)
    }

    /// Counts a request's prompt into the mean. Two at once may cost one of them its hundredth.
    fn meet(&self, weight: Weight) {
        let mean = &self.shared.mean_tokens;
        let old = f64::from_bits(mean.load(Ordering::Relaxed));
        let new = reckoning::mean_tokens((old > 0.0).then_some(old), weight.tokens);
        mean.store(new.to_bits(), Ordering::Relaxed);
    }

    /// The only writer of how fast endpoints are.
    pub fn learner(&self, now: Instant) -> Learner {
        Learner::new(Arc::clone(&self.shared), now)
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
