//! One load cell per endpoint: 64 bytes, all atomic, in one contiguous slab.
//!
//! Decides how a reading is published so that no reader can take an old value for a fresh one: a
//! writer stores the value before its time, a reader loads the time before the value. The pair read
//! may then be a newer value under an older time, never the other way round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use crate::endpoint::{Load, Signal};
use crate::pool::Slot;

/// Time mark of a signal that was not read yet.
const NEVER: u64 = 0;
/// Time mark of a signal that the engine does not export.
const UNMAPPED: u64 = u64::MAX;

/// A value and when it was read; the writer is one, the readers are many.
#[derive(Debug, Default)]
pub(super) struct Stamped {
    bits: AtomicU64,
    at: AtomicU64,
}

impl Stamped {
    /// A signal that the engine does not export.
    pub(super) fn unmapped() -> Self {
        Self { bits: AtomicU64::default(), at: AtomicU64::new(UNMAPPED) }
    }

    pub(super) fn store(&self, value: f64, at: u64) {
        self.bits.store(value.to_bits(), Ordering::Relaxed);
        self.at.store(at, Ordering::Release);
    }

    pub(super) fn load(&self, now: u64) -> Signal {
        match self.at.load(Ordering::Acquire) {
            NEVER => Signal::Never,
            UNMAPPED => Signal::Unmapped,
            at => Signal::Read {
                value: f64::from_bits(self.bits.load(Ordering::Relaxed)),
                age: Duration::from_nanos(now.saturating_sub(at)),
            },
        }
    }
}

/// The load of one endpoint; exactly one cache line, so that two endpoints never share one.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Cell {
    waiting: Stamped,
    running: Stamped,
    kv: Stamped,
    pub(super) in_flight: AtomicU32,
    ranks: AtomicU32,
}

impl Cell {
    /// The load as of `now`.
    pub(super) fn load(&self, now: u64) -> Load {
        Load {
            waiting: self.waiting.load(now),
            running: self.running.load(now),
            kv: self.kv.load(now),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            ranks: self.ranks.load(Ordering::Relaxed),
        }
    }

    /// Forgets every reading; requests in flight stay counted.
    pub(super) fn forget(&self) {
        for signal in [&self.waiting, &self.running, &self.kv] {
            signal.at.store(NEVER, Ordering::Release);
        }
    }
}

/// All cells of a store.
#[derive(Debug)]
pub(super) struct Slab {
    cells: Box<[Cell]>,
    /// One nanosecond before the first instant, so that no reading is stamped [`NEVER`].
    zero: Instant,
}

impl Slab {
    pub(super) fn new(capacity: usize, now: Instant) -> Self {
        Self { cells: std::iter::repeat_with(Cell::default).take(capacity).collect(), zero: now }
    }

    /// `now` as a time mark; instants before the store was made count as its first.
    pub(super) fn nanos(&self, now: Instant) -> u64 {
        let nanos = now.saturating_duration_since(self.zero).as_nanos();
        u64::try_from(nanos).unwrap_or(UNMAPPED - 2) + 1
    }

    pub(super) fn cell(&self, slot: Slot) -> &Cell {
        &self.cells[slot.0 as usize]
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.cells.iter().map(|cell| u64::from(cell.in_flight.load(Ordering::Relaxed))).sum()
    }
}

/// What one scrape brought for one signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scraped {
    /// The engine does not export it.
    Unmapped,
    /// It should have been there and was not: the old reading stays and ages.
    Missing,
    /// A finite value that is not negative.
    Value(f64),
}

/// What one scrape brought for one endpoint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Page {
    /// Requests queued, summed over the ranks.
    pub waiting: Scraped,
    /// Requests running, summed over the ranks.
    pub running: Scraped,
    /// KV-cache use of the fullest rank, a fraction.
    pub kv: Scraped,
    /// Ranks behind the address.
    pub ranks: u32,
}

/// The right to change one endpoint's load.
pub struct LoadWriter {
    shared: Arc<Shared>,
    slot: Slot,
}

impl LoadWriter {
    pub(super) fn new(shared: Arc<Shared>, slot: Slot) -> Self {
        Self { shared, slot }
    }

    /// Publishes one scrape that ended at `at`.
    pub fn publish(&self, page: &Page, at: Instant) {
        let at = self.shared.slab.nanos(at);
        let cell = self.shared.slab.cell(self.slot);
        // Before the sums, so that a fresh sum never meets the number of ranks of an older page.
        cell.ranks.store(page.ranks, Ordering::Relaxed);
        for (signal, scraped) in
            [(&cell.waiting, page.waiting), (&cell.running, page.running), (&cell.kv, page.kv)]
        {
            match scraped {
                Scraped::Unmapped => signal.at.store(UNMAPPED, Ordering::Release),
                Scraped::Missing => {}
                Scraped::Value(value) => signal.store(value, at),
            }
        }
    }
}
