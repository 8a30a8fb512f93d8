//! One model server, as vLLM's V1 scheduler behaves: step by step.
//!
//! Decides which sequences a step computes and how long it takes. Running sequences come first, in
//! order; then waiting ones while budget, a seat and cache blocks are left; prompts are read in chunks;
//! when blocks run out the youngest running sequence loses its own and starts again. Gauges change only
//! when a step ends. Knows no router. Sizes are tokens, times of steps milliseconds in the model and
//! nanoseconds outside.

use std::collections::VecDeque;

/// Tokens in a block of the KV cache.
const BLOCK: u32 = 16;

/// What a step costs and what a server holds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hardware {
    /// Any step, ms.
    pub(crate) base: f64,
    /// Each decoding sequence, ms.
    pub(crate) sequence: f64,
    /// Each thousand tokens of context that decoding sequences have, ms.
    pub(crate) context: f64,
    /// Each prompt token, ms.
    pub(crate) prefill: f64,
    /// Each pair of a prompt token and a token before it, ms.
    pub(crate) attention: f64,
    /// Sequences that run at once.
    pub(crate) seats: usize,
    /// Tokens that the KV cache holds.
    pub(crate) cache: u32,
    /// Tokens that one step computes at most.
    pub(crate) budget: u32,
}

impl Hardware {
    /// A large GPU with a model of 8 billion parameters.
    pub(crate) const H100: Self = Self {
        base: 8.0,
        sequence: 0.02,
        context: 0.05,
        prefill: 0.032,
        attention: 1.3e-6,
        seats: 256,
        cache: 430_000,
        budget: 8192,
    };
    /// The same with so little cache that sequences lose theirs.
    pub(crate) const KV_TIGHT: Self = Self { cache: 80_000, ..Self::H100 };
    /// The same with few seats.
    pub(crate) const SLOTS: Self = Self { seats: 48, ..Self::H100 };
}

/// A request at a server.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    job: usize,
    prompt: u32,
    output: u32,
    computed: u32,
    generated: u32,
    blocks: u32,
    /// Tokens that the step under way computes.
    planned: u32,
}

impl Sequence {
    /// Tokens still to compute before the next one comes out; 1 while decoding.
    fn missing(&self) -> u32 {
        self.prompt + self.generated - self.computed
    }
}

/// What `/metrics` shows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Gauges {
    /// Requests queued.
    pub(crate) waiting: f64,
    /// Requests running.
    pub(crate) running: f64,
    /// KV-cache use, a fraction.
    pub(crate) kv: f64,
}

/// What a step brought for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Its first token.
    First(usize),
    /// Its last token; after its first, also within one step.
    Last(usize),
}

/// The server.
#[derive(Debug)]
pub(crate) struct Server {
    hardware: Hardware,
    slowness: f64,
    /// Arrived during the step under way; the scheduler has not seen them.
    inbox: Vec<Sequence>,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    free: u32,
    gauges: Gauges,
    stepping: bool,
    /// Sequences that lost their blocks so far.
    pub(crate) preemptions: u64,
}

/// The work of one step.
#[derive(Default)]
struct Work {
    decodes: f64,
    context: f64,
    prefill: f64,
    pairs: f64,
}

impl Server {
    /// An idle server, each of whose steps takes `slowness` times as long.
    pub(crate) fn new(hardware: Hardware, slowness: f64) -> Self {
        Self {
            hardware,
            slowness,
            inbox: Vec::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            free: hardware.cache / BLOCK,
            gauges: Gauges::default(),
            stepping: false,
            preemptions: 0,
        }
    }

    /// A request arrives. One that no cache of this size could hold is cut to fit.
    pub(crate) fn accept(&mut self, job: usize, prompt: u32, output: u32) {
        let output = output.clamp(1, self.hardware.cache / 4);
        let prompt = prompt.clamp(1, self.hardware.cache / 2);
        let fresh =
            Sequence { job, prompt, output, computed: 0, generated: 0, blocks: 0, planned: 0 };
        self.inbox.push(fresh);
    }

    /// What a scrape reads now: as the last step left it.
    pub(crate) fn gauges(&self) -> Gauges {
        self.gauges
    }

    /// Requests here, seen by the scheduler or not.
    pub(crate) fn outstanding(&self) -> usize {
        self.inbox.len() + self.waiting.len() + self.running.len()
    }

    /// Blocks in use, and all there are.
    pub(crate) fn blocks(&self) -> (u32, u32) {
        let used = self.running.iter().chain(&self.waiting).map(|sequence| sequence.blocks).sum();
        (used, self.hardware.cache / BLOCK)
    }

    /// Starts a step and tells how long it takes, ns; `None` where one is under way or nothing is to do.
    pub(crate) fn start_step(&mut self) -> Option<u64> {
        if self.stepping || self.outstanding() == 0 {
            return None;
        }
        self.stepping = true;
        self.waiting.extend(self.inbox.drain(..));
        let mut work = Work::default();
        let mut budget = self.hardware.budget;
        if self.continue_running(&mut budget, &mut work) {
            self.admit_waiting(&mut budget, &mut work);
        }
        let Hardware { base, sequence, context, prefill, attention, .. } = self.hardware;
        let ms = base
            + sequence * work.decodes
            + context * work.context / 1000.0
            + prefill * work.prefill
            + attention * work.pairs;
        Some((ms * self.slowness * 1e6) as u64)
    }

    /// Plans the running sequences; `false` when one lost its blocks, and then nobody is admitted.
    fn continue_running(&mut self, budget: &mut u32, work: &mut Work) -> bool {
        let mut undisturbed = true;
        let mut at = 0;
        while at < self.running.len() && *budget > 0 {
            let sequence = self.running[at];
            let tokens = sequence.missing().min(*budget);
            let more = (sequence.computed + tokens).div_ceil(BLOCK).saturating_sub(sequence.blocks);
            while more > self.free && self.running.len() > at {
                undisturbed = false;
                self.preempt_youngest();
            }
            if at >= self.running.len() {
                break;
            }
            self.free -= more;
            self.running[at].blocks += more;
            plan(&mut self.running[at], tokens, budget, work);
            at += 1;
        }
        undisturbed
    }

    fn preempt_youngest(&mut self) {
        if let Some(mut youngest) = self.running.pop() {
            self.free += youngest.blocks;
            (youngest.blocks, youngest.computed, youngest.planned) = (0, 0, 0);
            self.waiting.push_front(youngest);
            self.preemptions += 1;
        }
    }

    fn admit_waiting(&mut self, budget: &mut u32, work: &mut Work) {
        while *budget > 0 && self.running.len() < self.hardware.seats {
            let Some(next) = self.waiting.front() else { break };
            let tokens = next.missing().min(*budget);
            let blocks = tokens.div_ceil(BLOCK);
            if blocks > self.free {
                break;
            }
            if let Some(mut next) = self.waiting.pop_front() {
                self.free -= blocks;
                next.blocks = blocks;
                plan(&mut next, tokens, budget, work);
                self.running.push(next);
            }
        }
    }

    /// Ends the step that is under way: tokens come out, and the gauges change.
    pub(crate) fn end_step(&mut self, outputs: &mut Vec<Output>) {
        self.stepping = false;
        let free = &mut self.free;
        self.running.retain_mut(|sequence| {
            let tokens = std::mem::take(&mut sequence.planned);
            sequence.computed += tokens;
            if tokens == 0 || sequence.missing() > 0 {
                return true;
            }
            sequence.generated += 1;
            if sequence.generated == 1 {
                outputs.push(Output::First(sequence.job));
            }
            if sequence.generated < sequence.output {
                return true;
            }
            outputs.push(Output::Last(sequence.job));
            *free += sequence.blocks;
            false
        });
        let blocks = self.hardware.cache / BLOCK;
        self.gauges = Gauges {
            waiting: self.waiting.len() as f64,
            running: self.running.len() as f64,
            kv: f64::from(blocks - self.free) / f64::from(blocks),
        };
    }
}

/// Enters `tokens` of a sequence into the step.
fn plan(sequence: &mut Sequence, tokens: u32, budget: &mut u32, work: &mut Work) {
    sequence.planned = tokens;
    *budget -= tokens;
    if sequence.generated > 0 && sequence.missing() == 1 {
        work.decodes += 1.0;
        work.context += f64::from(sequence.computed);
    } else {
        let tokens = f64::from(tokens);
        work.prefill += tokens;
        work.pairs += tokens * (f64::from(sequence.computed) + tokens / 2.0);
    }
}
