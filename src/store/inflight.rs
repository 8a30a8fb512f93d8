//! The in-flight guard: one request at one endpoint, counted once and given back once.
//!
//! Decides what each stage of a request gives back: its first chunk the prompt that the server had to
//! read, its end everything, its failure everything but the count, which the holder keeps for a while.
//! The sum of the guards equals the sum of the cells, always. Sizes are tokens.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shared;
use super::cell::Cell;
use crate::pool::Slot;

/// What a request weighs, as far as it is known when it is assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Weight {
    /// Prompt tokens that the server has to compute.
    pub tokens: u64,
    /// The first chunk of the answer will be seen when it is made: the request streams, and the gateway
    /// shows response bodies. Only such requests teach how fast a server is.
    pub watched: bool,
}

/// Counts one request until it is dropped, on whatever path that happens.
#[must_use = "the count falls when the guard is dropped"]
pub struct InFlight {
    shared: Arc<Shared>,
    slot: Slot,
    weight: Weight,
    stage: Stage,
}

/// What the request still counts as, beside being in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its prompt waits, or is being read. Assigned in this epoch of its slot.
    Unanswered { epoch: u32 },
    /// The first chunk came at this time.
    Answering { first: u64 },
    /// Only the count is left.
    Failed,
}

impl InFlight {
    /// Counts a request at `slot`.
    pub(super) fn begin(shared: Arc<Shared>, slot: Slot, weight: Weight, now: Instant) -> Self {
        shared.slab.cell(slot).scrape.in_flight.fetch_add(1, Ordering::Relaxed);
        Self::book(shared, slot, weight, now)
    }

    /// The same, if `slot` still has the `seen` requests in flight by which it was chosen.
    pub(super) fn reserve(
        shared: &Arc<Shared>,
        (slot, seen): (Slot, u32),
        weight: Weight,
        now: Instant,
    ) -> Option<Self> {
        let count = &shared.slab.cell(slot).scrape.in_flight;
        count.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        Some(Self::book(Arc::clone(shared), slot, weight, now))
    }

    /// Enters everything but the count.
    fn book(shared: Arc<Shared>, slot: Slot, weight: Weight, now: Instant) -> Self {
        let ledger = &shared.slab.cell(slot).ledger;
        ledger.tokens.fetch_add(weight.tokens, Ordering::Relaxed);
        ledger.unanswered_tokens.fetch_add(weight.tokens, Ordering::Relaxed);
        ledger.unanswered.fetch_add(1, Ordering::Relaxed);
        if weight.watched {
            ledger.watch(true, shared.slab.nanos(now));
        }
        let epoch = ledger.enter();
        Self { shared, slot, weight, stage: Stage::Unanswered { epoch } }
    }

    /// The endpoint's slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The first chunk of the answer came: the prompt was read. Later ones change nothing.
    pub fn first_chunk(&mut self, now: Instant) {
        let Stage::Unanswered { .. } = self.stage else { return };
        self.answered(now);
        let ledger = &self.cell().ledger;
        if self.weight.watched {
            ledger.prefilled.fetch_add(self.weight.tokens, Ordering::Relaxed);
        }
        // Whatever its readings say, it works.
        ledger.clear();
        self.stage = Stage::Answering { first: self.shared.slab.nanos(now) };
    }

    /// The request ended well, after so many output tokens where they were counted.
    pub fn end(self, output_tokens: Option<u64>, now: Instant) {
        if let (Stage::Answering { first }, Some(tokens @ 2..), true) =
            (self.stage, output_tokens, self.weight.watched)
        {
            let ledger = &self.cell().ledger;
            let took = self.shared.slab.nanos(now).saturating_sub(first);
            ledger.decoding.fetch_add(took, Ordering::Relaxed);
            ledger.decoded.fetch_add(tokens - 1, Ordering::Relaxed);
        }
        drop(self);
    }

    /// The request failed: what it weighs is given back, its count stays until the guard is dropped.
    pub fn fail(&mut self, now: Instant) {
        self.answered(now);
        if self.stage != Stage::Failed {
            self.give_tokens_back();
            self.stage = Stage::Failed;
        }
    }

    /// Another endpoint serves the request: it counts there from now on, as if it had been sent there.
    pub fn move_to(&mut self, slot: Slot, now: Instant) {
        if slot != self.slot {
            *self = Self::begin(Arc::clone(&self.shared), slot, self.weight, now);
        }
    }

    fn cell(&self) -> &Cell {
        self.shared.slab.cell(self.slot)
    }

    /// Gives back what counts until the first chunk.
    fn answered(&self, now: Instant) {
        let Stage::Unanswered { epoch } = self.stage else { return };
        let ledger = &self.cell().ledger;
        ledger.leave(epoch);
        ledger.unanswered.fetch_sub(1, Ordering::Relaxed);
        ledger.unanswered_tokens.fetch_sub(self.weight.tokens, Ordering::Relaxed);
        if self.weight.watched {
            ledger.watch(false, self.shared.slab.nanos(now));
        }
    }

    fn give_tokens_back(&self) {
        self.cell().ledger.tokens.fetch_sub(self.weight.tokens, Ordering::Relaxed);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.answered(tokio::time::Instant::now().into_std());
        if self.stage != Stage::Failed {
            self.give_tokens_back();
        }
        // Release: who sees zero and reuses the slot also sees all that this request did before.
        self.cell().scrape.in_flight.fetch_sub(1, Ordering::Release);
    }
}
