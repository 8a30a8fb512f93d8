//! One decision: what the request says, one reading of the pool, a choice, a reservation.
//!
//! Decides that a choice holds only for the pool that it was made by: it is made anew when another
//! request was faster at the same endpoint, and after three such losses it stands and is counted.

use std::cell::RefCell;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng};
use tokio::time::Instant;

use super::Picking;
use super::rejection::Rejection;
use super::request_side::RequestSide;
use super::session::Session;
use crate::endpoint::Load;
use crate::policy::Policy;
use crate::pool::{Pool, PoolView};
use crate::response::Restore;
use crate::routing::{self, Ask, Refusal, Scratch};
use crate::store::{InFlight, Weight};

/// Choices that are made before one stands although another request was faster.
const TRIES: usize = 3;

/// Pickers that share the endpoints without seeing each other's requests.
const REPLICAS: u32 = 1;

/// Buffers and chance of one thread, reused by all its decisions.
struct Desk {
    loads: Vec<Load>,
    scratch: Scratch,
    rng: SmallRng,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk {
        loads: Vec::new(),
        scratch: Scratch::default(),
        rng: SmallRng::from_os_rng(),
    });
}

/// Where a request goes, and the count that it holds there.
pub(super) struct Pick {
    /// The endpoint that is meant to serve.
    pub(super) destination: Arc<str>,
    /// It and its fallbacks as the gateway is told, commas between; the same where there are none.
    pub(super) told: Arc<str>,
    pub(super) guard: InFlight,
    /// Destination and total score of every candidate; empty unless they are to be emitted.
    pub(super) scores: Vec<(Arc<str>, f64)>,
}

/// What was chosen, by one reading of the pool.
struct Choice {
    index: usize,
    told: Arc<str>,
    scores: Vec<(Arc<str>, f64)>,
}

impl Picking {
    /// Reads what the complete request says and, unless it is `held`, edits its model; see
    /// [`RequestSide::rewrite`].
    pub(super) fn understand(
        &self,
        policy: &Policy,
        request: &mut RequestSide,
        session: &mut Session,
        held: bool,
    ) -> Result<Option<Restore>, Rejection> {
        DESK.with_borrow_mut(|desk| {
            request.read(session, self.max_body)?;
            request.rewrite(session, &policy.rewrites, &mut desk.rng, self.max_body, held)
        })
    }

    /// One decision on the pool of this instant, for a request of this weight.
    pub(super) fn pick(
        &self,
        policy: &Policy,
        ask: &Ask<'_>,
        weight: Weight,
    ) -> Result<Pick, Refusal> {
        #[cfg(test)]
        assert_ne!(ask.priority, tests::FAULT, "the fault that a test asks for");
        let start = Instant::now();
        let picked = DESK.with_borrow_mut(|desk| {
            let mut tries = 0;
            loop {
                tries += 1;
                let pool = self.store.pool();
                let now = start.into_std();
                let choice = self.choose(policy, ask, &pool, start, desk)?;
                let (member, load) = (&pool.members[choice.index], &desk.loads[choice.index]);
                let guard = match self.store.reserve(member.slot, load.in_flight, weight, now) {
                    Some(guard) => guard,
                    None if tries < TRIES => continue,
                    None => {
                        self.metrics.pick_races.inc();
                        self.store.begin(member.slot, weight, now)
                    }
                };
                let Choice { told, scores, .. } = choice;
                let destination = Arc::clone(&member.destination);
                return Ok(Pick { destination, told, guard, scores });
            }
        });
        self.metrics.decision_seconds.observe(start.elapsed().as_secs_f64());
        if picked.is_ok() {
            self.metrics.picked.inc();
        }
        picked
    }

    /// The best endpoint by the loads of this instant.
    fn choose(
        &self,
        policy: &Policy,
        ask: &Ask<'_>,
        pool: &Pool,
        now: Instant,
        desk: &mut Desk,
    ) -> Result<Choice, Refusal> {
        let Desk { loads, scratch, rng } = desk;
        match self.options.correct_in_flight {
            true => self.store.read_present(pool, now.into_std(), REPLICAS, loads),
            false => self.store.read_loads(pool, now.into_std(), loads),
        }
        let view = PoolView { members: &pool.members, loads };
        let destination = |index: usize| Arc::clone(&pool.members[index].destination);
        let mut order =
            routing::schedule(&view, ask, &policy.profile, &policy.thresholds, rng, scratch)?;
        // A schedule never succeeds empty; were it ever to, no endpoint is the true answer.
        let index = order.next().ok_or(Refusal::NoEndpoints)?;
        let told = order
            .map(destination)
            .fold(destination(index), |told, next| Arc::from([&*told, &*next].join(",")));
        let emitted = if self.options.emit_scores { usize::MAX } else { 0 };
        let totals = scratch.totals().take(emitted);
        let scores = totals.map(|(index, total)| (destination(index), total)).collect();
        Ok(Choice { index, told, scores })
    }
}

/// A random UUID (version 4) for a request that came without an id.
pub(super) fn new_request_id() -> String {
    let bits: u128 = DESK.with_borrow_mut(|desk| desk.rng.random());
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
pub(super) mod tests;
