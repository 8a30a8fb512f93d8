//! The one task's view that turns what was observed of all servers into how fast each is.
//!
//! Decides when evidence is thrown away: with a server's restart and with its slot's next endpoint. The
//! arithmetic is `reckoning`'s.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Shared;
use crate::pool::Slot;
use crate::reckoning::learning::{Evidence, PoolSpeed};

/// The only writer of speeds.
pub struct Learner {
    shared: Arc<Shared>,
    known: HashMap<Slot, Known>,
    last: Instant,
}

struct Known {
    forgotten: u32,
    evidence: Evidence,
}

impl Learner {
    pub(super) fn new(shared: Arc<Shared>, now: Instant) -> Self {
        Self { shared, known: HashMap::new(), last: now }
    }

    /// Takes what was observed up to `now` and tells each member's cell how fast it is.
    pub fn learn(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.last).as_secs_f64();
        self.last = now;
        let pool = self.shared.pool.load();
        let nanos = self.shared.slab.nanos(now);
        let mut before = std::mem::take(&mut self.known);
        for member in &pool.members {
            let ledger = &self.shared.slab.cell(member.slot).ledger;
            let forgotten = ledger.forgotten.load(Ordering::Relaxed);
            let observed = ledger.observed(nanos);
            let known = before.remove(&member.slot).filter(|known| known.forgotten == forgotten);
            let mut evidence = known.map_or_else(|| Evidence::from(observed), |k| k.evidence);
            evidence.observe(observed, elapsed);
            self.known.insert(member.slot, Known { forgotten, evidence });
        }
        let mean = PoolSpeed::of(pool.members.iter().map(|m| &self.known[&m.slot].evidence));
        for member in &pool.members {
            let speed = mean.speed(&self.known[&member.slot].evidence);
            self.shared.slab.cell(member.slot).ledger.learn(speed);
        }
    }
}
