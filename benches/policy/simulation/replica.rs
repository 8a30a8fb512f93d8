//! One picking replica: the crate's own store under virtual time, and one rule.
//!
//! Decides how scrapes, picks, first chunks and ends reach the store; the store, the reckoning and the
//! routing decide everything else. Times are nanoseconds since the run began.

use std::time::{Duration, Instant};

use plumbline::endpoint::{Endpoint, Load};
use plumbline::routing::Scratch;
use plumbline::store::{
    InFlight, Learner, LoadWriter, MembershipWriter, Page, Scraped, Store, Weight,
};
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::MILLI;
use super::rule::{self, Request, Rule};
use super::server::Gauges;

/// Time between two scrapes of a server.
pub(crate) const INTERVAL: u64 = 50 * MILLI;

/// The replica.
pub(crate) struct Replica {
    zero: Instant,
    store: Store,
    membership: MembershipWriter,
    writers: Vec<LoadWriter>,
    learner: Learner,
    rule: Rule,
    replicas: u32,
    rng: SmallRng,
    loads: Vec<Load>,
    scratch: Scratch,
    picks: usize,
    /// Estimated prompt tokens of requests in flight, by server.
    held: Vec<u64>,
}

impl Replica {
    /// One of `replicas` pickers for the first `servers` servers. `zero` is the instant of time 0; its
    /// value does not matter.
    pub(crate) fn new(
        zero: Instant,
        rule: &Rule,
        replicas: u32,
        servers: usize,
        seed: u64,
    ) -> Self {
        let (store, membership) = Store::new(zero);
        let learner = store.learner(zero);
        let mut replica = Self {
            zero,
            store,
            membership,
            writers: Vec::new(),
            learner,
            rule: rule.clone(),
            replicas,
            rng: SmallRng::seed_from_u64(seed),
            loads: Vec::new(),
            scratch: Scratch::default(),
            picks: 0,
            held: Vec::new(),
        };
        replica.members(servers);
        replica
    }

    /// Makes the first `servers` servers the pool. Ids sort by number, so a member's index is its number.
    pub(crate) fn members(&mut self, servers: usize) {
        let endpoint = |n: usize| {
            let address = ([127, 0, 0, 1], 8000 + n as u16).into();
            Endpoint::new("pool", &format!("server-{n:04}"), address)
        };
        self.membership.apply((0..servers).map(endpoint).collect());
        for member in self.store.pool().members.iter().skip(self.writers.len()) {
            let writer = self.store.load_writer(member.slot);
            self.writers.push(writer.every(Duration::from_nanos(INTERVAL)));
        }
        self.held.resize(servers, 0);
    }

    fn instant(&self, at: u64) -> Instant {
        self.zero + Duration::from_nanos(at)
    }

    /// A scrape of `server` begins.
    pub(crate) fn begin_scrape(&mut self, server: usize) {
        self.writers[server].begin();
    }

    /// What the scrape of `server` that began last brought.
    pub(crate) fn end_scrape(&mut self, server: usize, gauges: Gauges, cache: u32, at: u64) {
        let page = Page {
            waiting: Scraped::Value(gauges.waiting),
            running: Scraped::Value(gauges.running),
            kv: Scraped::Value(gauges.kv),
            ranks: 1,
            capacity_tokens: Some(f64::from(cache)),
        };
        let at = self.instant(at);
        self.writers[server].publish(&page, at);
    }

    /// Speeds are learned from what was observed.
    pub(crate) fn learn(&mut self, at: u64) {
        self.learner.learn(self.instant(at));
    }

    /// Picks a server for a prompt of estimated `tokens` and reserves it; `None` for an empty pool.
    pub(crate) fn pick(&mut self, tokens: u64, at: u64) -> Option<(usize, InFlight)> {
        let now = self.instant(at);
        let pool = self.store.pool();
        if self.rule.reads_present() {
            self.store.read_present(&pool, now, self.replicas, &mut self.loads);
        } else {
            self.store.read_loads(&pool, now, &mut self.loads);
        }
        let request = Request { tokens, number: self.picks, held: &self.held };
        // Read before the rule, which may be one that forgets what is in flight.
        let seen: Vec<u32> = self.loads.iter().map(|load| load.in_flight).collect();
        let (rng, scratch) = (&mut self.rng, &mut self.scratch);
        let server =
            rule::choose(&self.rule, &pool.members, &mut self.loads, &request, rng, scratch)?;
        self.picks += 1;
        self.held[server] += tokens;
        let (slot, weight) = (pool.members[server].slot, Weight { tokens, watched: true });
        let guard = self.store.reserve(slot, seen[server], weight, now);
        Some((server, guard.unwrap_or_else(|| self.store.begin(slot, weight, now))))
    }

    /// A request of estimated `tokens` at `server` ended after `output` tokens, well.
    pub(crate) fn end(
        &mut self,
        server: usize,
        tokens: u64,
        output: u32,
        guard: InFlight,
        at: u64,
    ) {
        self.held[server] -= tokens;
        guard.end(Some(u64::from(output)), self.instant(at));
    }

    /// The first chunk of a request came.
    pub(crate) fn first_chunk(&self, guard: &mut InFlight, at: u64) {
        guard.first_chunk(self.instant(at));
    }

    /// A request of estimated `tokens` failed; the caller keeps the guard for the time that failures count.
    pub(crate) fn fail(&mut self, server: usize, tokens: u64, guard: &mut InFlight, at: u64) {
        self.held[server] -= tokens;
        guard.fail(self.instant(at));
    }
}
