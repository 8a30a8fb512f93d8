//! What this picker knows of its own requests at one endpoint: counts and tokens, all atomic.
//!
//! Decides which of them the newest scrape cannot show. Each scrape begins an epoch; a request is
//! remembered under the epoch in which it was assigned, and those without a first chunk whose epoch is
//! not older than the newest published scrape are what it missed. Times are the store's nanoseconds,
//! sizes are tokens.
//!
//! Kept beside the scraped readings because together they are read at every pick: three cache lines an
//! endpoint.

use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};

use crate::endpoint::{Load, Since, Speed, Suspicion};
use crate::reckoning::{self, learning::Observed};

/// Epochs that are told apart: the published one and those begun since, of which failed scrapes may
/// leave some behind. Must be a power of two.
const EPOCHS: u32 = 4;

/// A number that is no count.
#[derive(Debug, Default)]
pub(super) struct Real(AtomicU64);

impl Real {
    pub(super) fn load(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn store(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

/// The ledger of one endpoint.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Ledger {
    /// Requests without a first chunk, and their tokens.
    pub(super) unanswered: AtomicU32,
    pub(super) unanswered_tokens: AtomicU64,
    /// Tokens of all requests in flight.
    pub(super) tokens: AtomicU64,
    /// Unanswered requests by the epoch of their assignment: epoch above, count below.
    recent: [AtomicU64; EPOCHS as usize],
    epoch: AtomicU32,
    /// Epoch that the newest published scrape began.
    published: AtomicU32,
    tokens_at_begin: AtomicU64,
    pub(super) others: Real,
    pub(super) others_waiting: Real,
    pub(super) capacity: Real,
    /// [`Speed`], two `f32`; zero before anything was learned.
    speed: AtomicU64,
    /// Time of the last probe of a suspect, [`CLEAR`] for one that is none.
    probed: AtomicU64,
    /// Unanswered requests whose first chunk will be seen as it comes.
    watched: AtomicU32,
    /// Rises when what was learned is to be forgotten.
    pub(super) forgotten: AtomicU32,
    /// See [`Observed`]; nanoseconds and tokens. `busy` lacks the stretch that is under way.
    busy: AtomicI64,
    pub(super) prefilled: AtomicU64,
    pub(super) decoding: AtomicU64,
    pub(super) decoded: AtomicU64,
}

const CLEAR: u64 = 0;

/// Counts at the beginning of a scrape, and the epoch that it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    epoch: u32,
    tokens: u64,
    pub(super) in_flight: u32,
    pub(super) unanswered: u32,
}

impl Ledger {
    /// Begins an epoch. Where too many scrapes have failed to tell all epochs apart the old one goes on,
    /// so that more is counted as new than is, never less.
    pub(super) fn advance(&self) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch.wrapping_sub(self.published.load(Ordering::Relaxed)) < EPOCHS - 1 {
            let next = epoch.wrapping_add(1);
            self.recent(next).store(u64::from(next) << 32, Ordering::Release);
            self.epoch.store(next, Ordering::Release);
        }
    }

    pub(super) fn begun(&self, in_flight: u32) -> Begun {
        Begun {
            epoch: self.epoch.load(Ordering::Acquire),
            tokens: self.tokens.load(Ordering::Relaxed),
            in_flight,
            unanswered: self.unanswered.load(Ordering::Relaxed),
        }
    }

    /// The scrape that began so is readable now; its values were stored before.
    pub(super) fn publish(&self, begun: &Begun) {
        self.tokens_at_begin.store(begun.tokens, Ordering::Relaxed);
        self.published.store(begun.epoch, Ordering::Release);
    }

    fn recent(&self, epoch: u32) -> &AtomicU64 {
        &self.recent[(epoch % EPOCHS) as usize]
    }

    /// Remembers a request that is assigned now; answers its epoch.
    pub(super) fn enter(&self) -> u32 {
        loop {
            let epoch = self.epoch.load(Ordering::Acquire);
            if self.count(epoch, 1) {
                return epoch;
            }
        }
    }

    /// The request of `epoch` has its first chunk, or ended without one.
    pub(super) fn leave(&self, epoch: u32) {
        // Of an epoch that is over nothing is remembered.
        self.count(epoch, -1);
    }

    /// Changes the count of `epoch`; false where it is over.
    fn count(&self, epoch: u32, by: i64) -> bool {
        let change =
            |now: u64| (now >> 32 == u64::from(epoch)).then(|| now.wrapping_add_signed(by));
        self.recent(epoch).fetch_update(Ordering::AcqRel, Ordering::Relaxed, change).is_ok()
    }

    fn since(&self) -> Since {
        let published = self.published.load(Ordering::Acquire);
        let unanswered = self.recent.iter().map(|recent| {
            let recent = recent.load(Ordering::Relaxed);
            let age = ((recent >> 32) as u32).wrapping_sub(published);
            if age < EPOCHS { recent as u32 } else { 0 }
        });
        let tokens = self.tokens.load(Ordering::Relaxed) as i64;
        let begun = self.tokens_at_begin.load(Ordering::Relaxed) as i64;
        Since { unanswered: unanswered.sum(), tokens: tokens - begun }
    }

    /// A request that is watched waits for its first chunk from now on, or does not any more. Each
    /// stretch of work adds its end and subtracts its beginning, in whatever order that is seen.
    pub(super) fn watch(&self, begins: bool, now: u64) {
        let now = now as i64;
        if begins {
            if self.watched.fetch_add(1, Ordering::AcqRel) == 0 {
                self.busy.fetch_sub(now, Ordering::AcqRel);
            }
        } else if self.watched.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.busy.fetch_add(now, Ordering::AcqRel);
        }
    }

    pub(super) fn observed(&self, now: u64) -> Observed {
        let under_way = self.watched.load(Ordering::Acquire) > 0;
        let busy = self.busy.load(Ordering::Acquire);
        let busy = if under_way { busy.wrapping_add(now as i64) } else { busy };
        let seconds = |nanos: f64| nanos / 1e9;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        Observed {
            busy: seconds(busy.max(0) as f64),
            prefilled: count(&self.prefilled),
            decoding: seconds(count(&self.decoding)),
            decoded: count(&self.decoded),
        }
    }

    pub(super) fn learn(&self, speed: Speed) {
        let bits = |value: f64| u64::from((value as f32).to_bits());
        self.speed.store(bits(speed.prefill) << 32 | bits(speed.pace), Ordering::Relaxed);
    }

    fn speed(&self) -> Speed {
        let bits = self.speed.load(Ordering::Relaxed);
        if bits == 0 {
            return Speed::default();
        }
        let value = |bits: u64| f64::from(f32::from_bits(bits as u32));
        Speed { prefill: value(bits >> 32), pace: value(bits) }
    }

    /// Readings stand still: suspect from now on, and due for a probe.
    pub(super) fn suspect(&self) {
        // A suspect keeps the time of its last probe.
        let _ = self.probed.compare_exchange(CLEAR, 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// It moves.
    pub(super) fn clear(&self) {
        if self.probed.load(Ordering::Relaxed) != CLEAR {
            self.probed.store(CLEAR, Ordering::Relaxed);
        }
    }

    fn suspicion(&self, now: u64) -> Suspicion {
        match self.probed.load(Ordering::Relaxed) {
            CLEAR => Suspicion::None,
            probed if now.saturating_sub(probed) >= reckoning::PROBE.as_nanos() as u64 => {
                Suspicion::ProbeDue
            }
            _ => Suspicion::Suspect,
        }
    }

    /// The probe that is due, for one caller alone; true where none was needed.
    pub(super) fn take_probe(&self, now: u64) -> bool {
        let probed = self.probed.load(Ordering::Relaxed);
        if self.suspicion(now) != Suspicion::ProbeDue {
            return true;
        }
        self.probed.compare_exchange(probed, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Another server stands here: its readings and speed are not the old one's.
    pub(super) fn forget(&self) {
        for real in [&self.others, &self.others_waiting, &self.capacity] {
            real.store(0.0);
        }
        self.speed.store(0, Ordering::Relaxed);
        self.probed.store(CLEAR, Ordering::Relaxed);
        self.forgotten.fetch_add(1, Ordering::Relaxed);
    }

    /// The ledger's part of a load; `mean_tokens` is the mean length of a prompt.
    pub(super) fn load(&self, now: u64, mean_tokens: f64) -> Load {
        Load {
            since: self.since(),
            in_flight_tokens: self.unanswered_tokens.load(Ordering::Relaxed),
            others: self.others.load(),
            others_tokens: self.others_waiting.load() * mean_tokens,
            capacity: self.capacity.load(),
            speed: self.speed(),
            suspicion: self.suspicion(now),
            ..Load::default()
        }
    }
}
