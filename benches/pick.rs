//! What one pick costs: one reading of the pool, the present, the default profile, a reservation.
//!
//! Prints microseconds for pools of several sizes: the reading alone, and the whole in the fastest tenth
//! of many rounds, in the median and in the slowest. The budget is 20 us for 1,000 endpoints. No socket, one thread.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use plumbline::endpoint::{Endpoint, Load};
use plumbline::pool::PoolView;
use plumbline::routing::{self, Ask, Profile, Scratch};
use plumbline::store::{InFlight, Page, Scraped, Store, Weight};
use plumbline::thresholds::Thresholds;
use rand::SeedableRng;
use rand::rngs::SmallRng;

/// Pool sizes, endpoints.
const SIZES: [u16; 4] = [10, 100, 1_000, 4_000];
/// Rounds of a measurement, picks of a round: short, so that the median round was not interrupted.
const ROUNDS: usize = 1_001;
const PICKS: u32 = 4;
/// Requests in flight for each endpoint.
const IN_FLIGHT: usize = 8;
/// Budget of the default profile for 1,000 endpoints, microseconds.
const BUDGET: f64 = 20.0;

/// A pool under load, and everything that a thread keeps for its decisions.
struct Desk {
    store: Store,
    loads: Vec<Load>,
    scratch: Scratch,
    rng: SmallRng,
    flying: VecDeque<InFlight>,
    now: Instant,
}

impl Desk {
    #[allow(clippy::disallowed_methods)] // The zero of the store's arithmetic.
    fn new(size: u16) -> Self {
        let now = Instant::now();
        let (store, mut members) = Store::new(now);
        let endpoints = (0..size).map(|n| {
            Endpoint::new(
                "ns",
                &format!("e{n:04}"),
                ([10, 0, (n >> 8) as u8, n as u8], 8000).into(),
            )
        });
        members.apply(endpoints.collect());
        for (n, member) in store.pool().members.iter().enumerate() {
            let mut load = store.load_writer(member.slot);
            load.begin();
            let page = Page {
                waiting: Scraped::Value((n % 4) as f64),
                running: Scraped::Value((n % 32) as f64),
                kv: Scraped::Value((n % 70) as f64 / 100.0),
                ranks: 1,
                capacity_tokens: Some(430_000.0),
            };
            load.publish(&page, now);
        }
        let mut desk = Self {
            store,
            loads: Vec::new(),
            scratch: Scratch::default(),
            rng: SmallRng::seed_from_u64(1),
            flying: VecDeque::new(),
            now,
        };
        for _ in 0..usize::from(size) * IN_FLIGHT {
            desk.pick(&Profile::default(), &Thresholds::default());
        }
        desk
    }

    /// Reads the pool as a decision does.
    fn read(&mut self) {
        let pool = self.store.pool();
        self.store.read_present(&pool, self.now, 1, &mut self.loads);
    }

    /// Reads, chooses and reserves; answers whether the reservation held.
    fn pick(&mut self, profile: &Profile, thresholds: &Thresholds) -> bool {
        self.read();
        let pool = self.store.pool();
        let view = PoolView { members: &pool.members, loads: &self.loads };
        let ask = Ask { prompt_tokens: 700, ..Ask::default() };
        let picked =
            routing::schedule(&view, &ask, profile, thresholds, &mut self.rng, &mut self.scratch);
        let Some(index) = picked.ok().and_then(|mut order| order.next()) else { return false };
        let weight = Weight { tokens: 700, watched: true };
        let (slot, seen) = (pool.members[index].slot, self.loads[index].in_flight);
        let Some(mut guard) = self.store.reserve(slot, seen, weight, self.now) else {
            return false;
        };
        guard.first_chunk(self.now);
        self.flying.push_back(guard);
        true
    }

    /// The oldest request ends, so that the pool stays as full as it is.
    fn end_one(&mut self) {
        self.flying.pop_front();
    }
}

/// Microseconds of one call: the fastest tenth of the rounds, the median and the slowest.
#[allow(clippy::disallowed_methods)] // A measurement of real time is the point.
fn measure(mut call: impl FnMut()) -> [f64; 3] {
    let mut rounds: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            let begin = Instant::now();
            (0..PICKS).for_each(|_| call());
            begin.elapsed() / PICKS
        })
        .collect();
    rounds.sort_unstable();
    let micros = |round: Duration| round.as_secs_f64() * 1e6;
    [ROUNDS / 10, ROUNDS / 2, ROUNDS - 1].map(|at| micros(rounds[at]))
}

fn main() {
    let thresholds = Thresholds::default();
    println!("endpoints  profile       read us  pick us: fast   median  slowest");
    let mut over = false;
    for size in SIZES {
        for (name, profile) in
            [("prefill-load", Profile::default()), ("upstream", Profile::upstream())]
        {
            let mut desk = Desk::new(size);
            let [_, read, _] = measure(|| desk.read());
            let mut held = true;
            let [fast, pick, slowest] = measure(|| {
                held &= desk.pick(&profile, &thresholds);
                desk.end_one();
            });
            assert!(held, "nobody else picks: every reservation holds");
            println!("{size:>9}  {name:<12} {read:>8.2} {fast:>14.2} {pick:>8.2} {slowest:>8.2}");
            over |= name == "prefill-load" && size == 1_000 && pick > BUDGET;
        }
    }
    println!("budget: {BUDGET} us for 1,000 endpoints by prefill-load: {}", verdict(over));
}

fn verdict(over: bool) -> &'static str {
    if over { "missed" } else { "kept" }
}
