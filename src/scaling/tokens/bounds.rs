//! The two bounds of a replica: what its memory holds and what its engine computes.
//!
//! Decides k1, the chain of sources for k2, and which observations enter the history that later
//! replicas of the same kind are judged by. Tokens throughout; times are milliseconds.

use super::super::engine_args::EngineArgs;
use super::super::input::{ModelInput, Replica, Variant, positive};
use super::super::learned::Learned;
use super::Workload;
use crate::thresholds::Thresholds;

/// Samples that the rolling mean is made of.
const HISTORY: usize = 10;
/// Time between two samples of one replica: a queue that stands for a minute is one observation.
const SAMPLE_MILLIS: u64 = 30_000;
/// Least share of k1 that a compute bound can be. A queue before a nearly empty cache (a burst of one
/// instant, a server that has just started) says nothing about what the engine can compute.
const LEAST_SHARE: f64 = 0.1;
/// Means of output tokens at which a request is medium, and long: they hold memory for that long.
const MEDIUM_OUTPUT: f64 = 100.0;
const LONG_OUTPUT: f64 = 500.0;

/// Where a capacity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A record, not a reading.
    Record,
    /// The queue is at the line now: what is in use is what the engine can do.
    Observed,
    /// The rolling mean of such observations.
    History,
    /// The arguments of the server.
    Derived,
    /// Nothing limits before the memory does.
    Memory,
    /// There is none.
    Nothing,
}

impl Source {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Record => "P0-store",
            Self::Observed => "P1-obs",
            Self::History => "P2-hist",
            Self::Derived => "P3-k2",
            Self::Memory => "P4-k1",
            Self::Nothing => "no-data",
        }
    }
}

/// A replica whose memory is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// Tokens that the memory holds.
    tokens: f64,
    /// k1: those below the KV threshold.
    pub(super) memory: f64,
}

impl Bounds {
    pub(super) fn of(tokens: f64, line: &Thresholds) -> Self {
        Self { tokens, memory: (tokens * line.kv_cache_util()).trunc() }
    }

    /// Tokens in use, where the KV use is known; the replica's own count if it gives one.
    pub(super) fn used(&self, replica: &Replica, freshness_seconds: f64) -> Option<f64> {
        let kv = replica.kv_reading(freshness_seconds).value()?;
        let used = positive(replica.tokens_in_use).unwrap_or((kv * self.tokens).round());
        Some(used.clamp(0.0, self.tokens))
    }

    /// P1: tokens in use at a replica whose queue is at the line, if they are enough to count.
    pub(super) fn observed(
        &self,
        replica: &Replica,
        freshness_seconds: f64,
        line: &Thresholds,
    ) -> Option<f64> {
        let queue = replica.queue_reading(freshness_seconds).value()?;
        let used = self.used(replica, freshness_seconds)?;
        let counts = queue >= line.queue_depth() && used > 0.0;
        (counts && used >= LEAST_SHARE * self.memory).then_some(used)
    }

    /// k2 and its source. What was observed is never taken for less than a tenth of k1.
    pub(super) fn compute(
        &self,
        observed: Option<f64>,
        history: Option<f64>,
        engine: Option<&EngineArgs>,
        workload: Workload,
    ) -> (f64, Source) {
        let least = (LEAST_SHARE * self.memory).trunc();
        match (observed, history) {
            (Some(used), _) => (used.max(least), Source::Observed),
            (None, Some(mean)) => (mean.max(least), Source::History),
            (None, None) => match engine.and_then(|engine| derived(engine, workload)) {
                Some(k2) => (k2, Source::Derived),
                None => (self.memory, Source::Memory),
            },
        }
    }
}

/// P3: sequences that fit a step at the usual mix of prompts and outputs, each holding its prompt and
/// half of its output on the mean.
pub(super) fn derived(engine: &EngineArgs, workload: Workload) -> Option<f64> {
    let batched = engine.effective_max_batched_tokens() as f64;
    let Workload { input, output, .. } = workload;
    if batched <= 0.0 || output <= 0.0 {
        return None;
    }
    let sequences = (batched * output / (input + output)).min(engine.max_num_seqs as f64);
    positive(Some((sequences * (input + output / 2.0)).trunc()))
}

/// Replicas of one key are alike: same model, hardware and length of output.
pub(super) fn history_key(model: &ModelInput, variant: &Variant, workload: Workload) -> String {
    let length = match workload.output {
        output if output < MEDIUM_OUTPUT => "short",
        output if output < LONG_OUTPUT => "medium",
        _ => "long",
    };
    let Variant { accelerator, gpus_per_replica, .. } = variant;
    format!("{}|{accelerator}|{gpus_per_replica}|{length}", model.key())
}

/// P2: the whole part of the rolling mean.
pub(super) fn history(learned: &Learned, key: &str) -> Option<f64> {
    let samples = &learned.k2_history.get(key)?.samples;
    let mean = samples.iter().sum::<f64>() / samples.len() as f64;
    positive(Some(mean.trunc()))
}

/// Adds a sample, unless this replica gave one within the last 30 s.
pub(super) fn note_sample(
    learned: &mut Learned,
    model: &ModelInput,
    pod: &str,
    key: String,
    sample: f64,
    now_millis: u64,
) {
    let replica = format!("{}/{pod}", model.key());
    let last = learned.k2_sampled_millis.get(&replica);
    if last.is_some_and(|last| now_millis.saturating_sub(*last) < SAMPLE_MILLIS) {
        return;
    }
    learned.k2_sampled_millis.insert(replica, now_millis);
    let history = learned.k2_history.entry(key).or_default();
    history.samples.push_back(sample);
    if history.samples.len() > HISTORY {
        history.samples.pop_front();
    }
    history.touched_millis = now_millis;
}
