//! The clock of a run: events in order of time, and what each does to servers and replicas.
//!
//! Decides delays between picker and server (3 ms there, 1 ms back) and of a scrape (read as it begins,
//! known 5 ms later). Events of one time keep the order in which they were planned, so that a seed
//! decides everything.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use plumbline::reckoning::FAILURE_HOLD;
use plumbline::store::InFlight;

use super::figures::{Figures, Record};
use super::replica::{INTERVAL, Replica};
use super::rule::Rule;
use super::server::{Gauges, Output, Server};
use super::workload::{Event as Incident, Job, Workload};
use super::{MILLI, SECOND};

const UP: u64 = 3 * MILLI;
const DOWN: u64 = MILLI;
const SCRAPE: u64 = 5 * MILLI;
/// Between two looks at how evenly requests lie.
const LOOK: u64 = 10 * MILLI;
/// Time after the last arrival in which answers still count.
const DRAIN: u64 = 60 * SECOND;
/// Between two times that speeds are learned, as the picker does it.
const LEARN: u64 = SECOND;

#[derive(Debug, Clone, Copy)]
enum What {
    Arrive(usize),
    Reach(usize),
    Step(usize),
    First(usize),
    Last(usize),
    Failed(usize),
    Forget(usize),
    BeginScrape(usize, usize),
    EndScrape(usize, usize, Gauges),
    Learn,
    Join,
    Look,
}

/// Orders by time, then by when it was planned.
struct Planned(u64, u64, What);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

struct Run<'a> {
    workload: &'a Workload,
    jobs: &'a [Job],
    servers: Vec<Server>,
    replicas: Vec<Replica>,
    guards: Vec<Option<InFlight>>,
    records: Vec<Record>,
    queue: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    now: u64,
    open: usize,
    spread: Vec<u32>,
    outputs: Vec<Output>,
}

/// Runs `rule` on `jobs` and tells how it went.
pub(crate) fn run(workload: &Workload, jobs: &[Job], rule: &Rule, seed: u64) -> Figures {
    let mut run = Run::new(workload, jobs, rule, seed);
    let stop = workload.end + DRAIN;
    while let Some(Reverse(Planned(at, _, what))) = run.queue.pop() {
        if at > stop || run.open == 0 {
            break;
        }
        run.now = at;
        run.happen(what);
    }
    let preemptions = run.servers.iter().map(|server| server.preemptions).sum();
    Figures::of(&run.records, workload.warm_up, stop, &mut run.spread, preemptions)
}

/// Requests a second that one server of this workload finishes with a queue that never empties.
pub(crate) fn capacity(workload: &Workload) -> f64 {
    let mut alone = Workload { slowness: vec![1.0], burst: 0, load: 1.0, ..workload.clone() };
    alone.end = 400 * SECOND;
    let jobs = alone.jobs(40.0, 77);
    let mut server = Server::new(workload.hardware, 1.0);
    let (mut next, mut now, mut finished, mut outputs) = (0, 0, 0_u32, Vec::new());
    // The first 40 s fill the batch.
    let (from, to) = (40 * SECOND, 160 * SECOND);
    while now < to {
        while next < jobs.len() && server.outstanding() < 2 * workload.hardware.seats {
            server.accept(next, jobs[next].prompt, jobs[next].output);
            next += 1;
        }
        let Some(step) = server.start_step() else { break };
        now += step;
        outputs.clear();
        server.end_step(&mut outputs);
        let done = outputs.iter().filter(|output| matches!(output, Output::Last(_))).count();
        finished += if now >= from { done as u32 } else { 0 };
    }
    f64::from(finished) / ((to - from) as f64 / 1e9)
}

impl<'a> Run<'a> {
    #[allow(clippy::disallowed_methods)] // The zero of the store's arithmetic; its value does not matter.
    fn new(workload: &'a Workload, jobs: &'a [Job], rule: &Rule, seed: u64) -> Self {
        let zero = Instant::now();
        let all = workload.slowness.len();
        let members = all - usize::from(matches!(workload.event, Incident::Joins(_)));
        let replica = |n: u32| {
            let seed = seed.wrapping_mul(1009).wrapping_add(u64::from(n));
            Replica::new(zero, rule, workload.replicas, members, seed)
        };
        let servers = workload.slowness.iter().map(|slow| Server::new(workload.hardware, *slow));
        let mut run = Self {
            workload,
            jobs,
            servers: servers.collect(),
            replicas: (0..workload.replicas).map(replica).collect(),
            guards: std::iter::repeat_with(|| None).take(jobs.len()).collect(),
            records: jobs.iter().map(|job| Record::new(job.at, job.output)).collect(),
            queue: BinaryHeap::new(),
            planned: 0,
            now: 0,
            open: jobs.len(),
            spread: Vec::new(),
            outputs: Vec::new(),
        };
        for replica in 0..run.replicas.len() {
            for server in 0..members {
                let at = run.phase(replica, server);
                run.plan(at, What::BeginScrape(replica, server));
            }
        }
        for (job, of) in jobs.iter().enumerate() {
            run.plan(of.at, What::Arrive(job));
        }
        if let Incident::Joins(at) = workload.event {
            run.plan(at, What::Join);
        }
        run.plan(LEARN, What::Learn);
        run.plan(workload.warm_up, What::Look);
        run
    }

    /// Scrapes are spread over the interval, and replicas do not scrape together.
    fn phase(&self, replica: usize, server: usize) -> u64 {
        let places = self.replicas.len() * self.servers.len();
        INTERVAL * ((server * 7 + replica * 3) % places) as u64 / places as u64
    }

    fn plan(&mut self, at: u64, what: What) {
        self.planned += 1;
        self.queue.push(Reverse(Planned(at, self.planned, what)));
    }

    fn later(&mut self, delay: u64, what: What) {
        self.plan(self.now + delay, what);
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Arrive(job) => self.arrive(job),
            What::Reach(job) => self.reach(job),
            What::Step(server) => self.step(server),
            What::First(job) => {
                self.records[job].first = Some(self.now);
                let replica = &self.replicas[gateway(&self.jobs[job], self.workload)];
                if let Some(guard) = &mut self.guards[job] {
                    replica.first_chunk(guard, self.now);
                }
            }
            What::Last(job) => self.last(job),
            What::Failed(job) => self.failed(job),
            What::Forget(job) => self.guards[job] = None,
            What::BeginScrape(replica, server) => {
                self.replicas[replica].begin_scrape(server);
                let gauges = self.servers[server].gauges();
                self.later(SCRAPE, What::EndScrape(replica, server, gauges));
                self.later(INTERVAL, What::BeginScrape(replica, server));
            }
            What::EndScrape(replica, server, gauges) => {
                let cache = self.workload.hardware.cache;
                self.replicas[replica].end_scrape(server, gauges, cache, self.now);
            }
            What::Learn => {
                self.replicas.iter_mut().for_each(|replica| replica.learn(self.now));
                self.later(LEARN, What::Learn);
            }
            What::Join => self.join(),
            What::Look => self.look(),
        }
    }

    fn arrive(&mut self, job: usize) {
        let replica = gateway(&self.jobs[job], self.workload);
        let tokens = self.jobs[job].estimate;
        // An empty pool is no workload of ours; its request would stay unanswered and count as bad.
        if let Some((server, guard)) = self.replicas[replica].pick(tokens, self.now) {
            self.records[job].server = server;
            self.guards[job] = Some(guard);
            self.later(UP, What::Reach(job));
        }
    }

    fn reach(&mut self, job: usize) {
        let server = self.records[job].server;
        let now = self.now;
        if matches!(self.workload.event, Incident::FailsFast(from, to) if server == 0 && (from..to).contains(&now))
        {
            return self.later(DOWN, What::Failed(job));
        }
        self.servers[server].accept(job, self.jobs[job].prompt, self.jobs[job].output);
        self.start(server);
    }

    fn start(&mut self, server: usize) {
        if let Some(takes) = self.servers[server].start_step() {
            self.later(takes, What::Step(server));
        }
    }

    fn step(&mut self, server: usize) {
        let mut outputs = std::mem::take(&mut self.outputs);
        outputs.clear();
        self.servers[server].end_step(&mut outputs);
        for output in &outputs {
            match output {
                Output::First(job) => self.later(DOWN, What::First(*job)),
                Output::Last(job) => self.later(DOWN, What::Last(*job)),
            }
        }
        self.outputs = outputs;
        self.start(server);
    }

    fn last(&mut self, job: usize) {
        self.records[job].last = Some(self.now);
        self.open -= 1;
        if let Some(guard) = self.guards[job].take() {
            let Job { estimate, output, .. } = self.jobs[job];
            let server = self.records[job].server;
            let replica = &mut self.replicas[gateway(&self.jobs[job], self.workload)];
            replica.end(server, estimate, output, guard, self.now);
        }
    }

    fn failed(&mut self, job: usize) {
        self.records[job].failed = true;
        self.open -= 1;
        let (server, tokens) = (self.records[job].server, self.jobs[job].estimate);
        let replica = &mut self.replicas[gateway(&self.jobs[job], self.workload)];
        if let Some(guard) = &mut self.guards[job] {
            replica.fail(server, tokens, guard, self.now);
        }
        self.later(FAILURE_HOLD.as_nanos() as u64, What::Forget(job));
    }

    fn join(&mut self) {
        let newcomer = self.servers.len() - 1;
        for replica in 0..self.replicas.len() {
            self.replicas[replica].members(newcomer + 1);
            self.later(0, What::BeginScrape(replica, newcomer));
        }
    }

    fn look(&mut self) {
        let counts = || self.servers.iter().map(|server| server.outstanding() as u32);
        let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
        self.spread.push(most - least);
        for server in &self.servers {
            let (used, all) = server.blocks();
            assert!(used <= all, "a server uses {used} of {all} blocks");
        }
        if self.now < self.workload.end {
            self.later(LOOK, What::Look);
        }
    }
}

fn gateway(job: &Job, workload: &Workload) -> usize {
    (job.gateway % workload.replicas) as usize
}
