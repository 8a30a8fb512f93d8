//! One load cell per endpoint, whole cache lines, all atomic, in one contiguous slab.
//!
//! Decides how a reading is published so that no reader can take an old value for a fresh one: a
//! writer stores the value before its time, a reader loads the time before the value. The pair read
//! may then be a newer value under an older time, never the other way round.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Shared;
use super::ledger::{Begun, Ledger};
use crate::endpoint::{Load, Signal};
use crate::pool::Slot;
use crate::reckoning;

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

    #[inline]
    pub(super) fn load(&self, now: u64) -> Signal {
        self.load_by(now, &mut Age::default())
    }

    /// The same, where `age` may have reckoned the age of this time mark already.
    #[inline(always)]
    fn load_by(&self, now: u64, age: &mut Age) -> Signal {
        match self.at.load(Ordering::Acquire) {
            NEVER => Signal::Never,
            UNMAPPED => Signal::Unmapped,
            at => {
                let value = f64::from_bits(self.bits.load(Ordering::Relaxed));
                Signal::Read { value, age: age.of(at, now) }
            }
        }
    }
}

/// The age of the last time mark that was asked for. The signals of one page share theirs, and a pick
/// divides by a thousand million for each age that it reckons.
#[derive(Default)]
struct Age {
    at: u64,
    age: Duration,
}

impl Age {
    #[inline(always)]
    fn of(&mut self, at: u64, now: u64) -> Duration {
        // No reading is stamped with the mark that an empty value has.
        if at != self.at {
            *self = Self { at, age: Duration::from_nanos(now.saturating_sub(at)) };
        }
        self.age
    }
}

/// What was scraped of one endpoint, and how many requests of ours are there; exactly one cache line, so
/// that two endpoints never share one.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Scrape {
    waiting: Stamped,
    running: Stamped,
    kv: Stamped,
    pub(super) in_flight: AtomicU32,
    ranks: AtomicU32,
}

/// Everything about one endpoint that is read at every pick.
#[derive(Debug, Default)]
pub(super) struct Cell {
    pub(super) scrape: Scrape,
    pub(super) ledger: Ledger,
}

impl Cell {
    /// Counts as a scrape that begins now finds them.
    pub(super) fn begin(&self) -> Begun {
        self.ledger.advance();
        self.begun()
    }

    fn begun(&self) -> Begun {
        self.ledger.begun(self.in_flight())
    }

    /// The load as of `now`. What the ledger has of the newest scrape is read before the scrape: the
    /// pair may count a request twice for a moment, but never miss one.
    ///
    /// Written in place: moving a load costs a pick as much as reading it.
    #[inline(always)]
    pub(super) fn load_into(&self, now: u64, mean_tokens: f64, load: &mut Load) {
        load.in_flight = self.in_flight();
        self.ledger.load_into(now, mean_tokens, load);
        let (scrape, mut age) = (&self.scrape, Age::default());
        load.waiting = scrape.waiting.load_by(now, &mut age);
        load.running = scrape.running.load_by(now, &mut age);
        load.kv = scrape.kv.load_by(now, &mut age);
        load.ranks = scrape.ranks.load(Ordering::Relaxed);
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.scrape.in_flight.load(Ordering::Relaxed)
    }

    /// Forgets every reading and what was learned; requests in flight stay counted.
    pub(super) fn forget(&self) {
        for signal in [&self.scrape.waiting, &self.scrape.running, &self.scrape.kv] {
            signal.at.store(NEVER, Ordering::Release);
        }
        self.ledger.forget();
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
        self.cells.iter().map(|cell| u64::from(cell.in_flight())).sum()
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
    /// Tokens that the KV caches of all ranks hold together.
    pub capacity_tokens: Option<f64>,
}

/// The right to change one endpoint's load.
pub struct LoadWriter {
    shared: Arc<Shared>,
    slot: Slot,
    /// Time over which others' requests are smoothed.
    smoothing: Duration,
    begun: Begun,
    /// What the scrape under way should find.
    expected: Load,
    /// The readings published last, when, and since when they stand still.
    last: Option<Last>,
}

/// What was published last.
#[derive(Debug, Clone, Copy)]
struct Last {
    readings: [f64; 3],
    at: u64,
    frozen_since: u64,
    others: f64,
    others_waiting: f64,
}

/// How far the present was from the scrape that then came: expected less read. Absent where either was
/// not known.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Residual {
    /// Requests in the queue.
    pub waiting: Option<f64>,
    /// KV-cache use, a fraction.
    pub kv: Option<f64>,
}

impl LoadWriter {
    pub(super) fn new(shared: Arc<Shared>, slot: Slot) -> Self {
        let begun = shared.slab.cell(slot).begun();
        let expected = Load::default();
        Self { shared, slot, smoothing: reckoning::OTHERS, begun, expected, last: None }
    }

    /// Smooths others' requests over ten of these intervals, where that is longer than usual.
    #[must_use]
    pub fn every(self, interval: Duration) -> Self {
        Self { smoothing: reckoning::OTHERS.max(interval * 10), ..self }
    }

    /// A scrape begins now: what is assigned from here on cannot be in it.
    pub fn begin(&mut self) {
        self.begun = self.cell().begin();
        let mut expected = Load::default();
        self.cell().load_into(0, 0.0, &mut expected);
        expected.ahead = reckoning::ahead(&expected, 1);
        self.expected = expected;
    }

    /// Publishes the scrape that was begun last and ended at `at`.
    pub fn publish(&mut self, page: &Page, at: Instant) -> Residual {
        let at = self.shared.slab.nanos(at);
        let expected = self.expected;
        let cell = self.cell();
        let scrape = &cell.scrape;
        // Before the sums, so that a fresh sum never meets the number of ranks of an older page.
        scrape.ranks.store(page.ranks, Ordering::Relaxed);
        for (signal, scraped) in [
            (&scrape.waiting, page.waiting),
            (&scrape.running, page.running),
            (&scrape.kv, page.kv),
        ] {
            match scraped {
                Scraped::Unmapped => signal.at.store(UNMAPPED, Ordering::Release),
                Scraped::Missing => {}
                Scraped::Value(value) => signal.store(value, at),
            }
        }
        cell.ledger.capacity.store(page.capacity_tokens.unwrap_or(0.0));
        // A page without readings shows none of the requests that the older ones missed.
        if page.waiting.value().or(page.kv.value()).is_some() {
            cell.ledger.publish(&self.begun);
        }
        self.judge(page, at);
        let past = |signal: Signal, scraped: Scraped| Some(signal.value()? - scraped.value()?);
        let waiting = expected.waiting.map(|value| value + expected.ahead.waiting);
        Residual { waiting: past(waiting, page.waiting), kv: past(expected.kv_now(), page.kv) }
    }

    /// The server behind the endpoint is another one now: what was learned of the old one goes.
    pub fn restarted(&mut self) {
        self.last = None;
        self.cell().ledger.forget();
    }

    fn cell(&self) -> &Cell {
        self.shared.slab.cell(self.slot)
    }

    /// What of the page is others' doing, and whether the server still moves.
    fn judge(&mut self, page: &Page, at: u64) {
        if [page.waiting, page.running].contains(&Scraped::Missing) {
            // Unknown is not zero: what was thought of others stays.
            return;
        }
        let [waiting, running, kv] =
            [page.waiting, page.running, page.kv].map(|read| read.value().unwrap_or(0.0));
        let others = waiting + running - f64::from(self.begun.in_flight);
        let others_waiting = (waiting - f64::from(self.begun.unanswered)).max(0.0);
        let readings = [waiting, running, kv];
        let last = self.last;
        let since = Duration::from_nanos(at.saturating_sub(last.map_or(at, |last| last.at)));
        let smooth =
            |old: Option<f64>, now: f64| reckoning::smooth(old, now, since, self.smoothing);
        let moved = last.is_none_or(|last| last.readings != readings);
        let now = Last {
            readings,
            at,
            frozen_since: last.filter(|_| !moved).map_or(at, |last| last.frozen_since),
            others: smooth(last.map(|last| last.others), others),
            others_waiting: smooth(last.map(|last| last.others_waiting), others_waiting),
        };
        self.last = Some(now);
        let cell = self.cell();
        cell.ledger.others.store(now.others.max(0.0));
        cell.ledger.others_waiting.store(now.others_waiting);
        if moved {
            cell.ledger.clear();
        } else if Duration::from_nanos(at - now.frozen_since) >= reckoning::FROZEN
            && waiting + running > 0.0
            && cell.in_flight() == 0
        {
            cell.ledger.suspect();
        }
    }
}

impl Scraped {
    fn value(self) -> Option<f64> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }
}
