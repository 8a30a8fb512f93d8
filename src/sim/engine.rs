//! The continuous-batching engine: which sequences run in a step, how long the step takes, who waits.
//!
//! A pure state machine after the scheduler of vLLM V1: it is told `now` and answers with events. It
//! reads no clock, draws no random number and knows no HTTP. Lengths are tokens, memory is KV blocks,
//! rates are tokens per second. A sequence pays for its whole prompt in blocks even where the prefix
//! cache spares it the prefill: blocks are never shared, so the sum over sequences is the use.

mod event;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) use event::{Event, FinishReason, Job, Load, SequenceId, TooLong};
pub use settings::EngineSettings;

use super::prefix::PrefixCache;

#[derive(Debug)]
struct Sequence {
    id: SequenceId,
    job: Job,
    arrived: Instant,
    last_token: Option<Instant>,
    blocks: u64,
    generated: u64,
    /// Tokens still to compute before the next one can be sampled.
    prefill_left: u64,
    /// Tokens computed by the step in flight.
    scheduled: u64,
}

impl Sequence {
    fn context(&self) -> u64 {
        self.job.prompt_tokens + self.generated
    }
}

/// One engine.
#[derive(Debug)]
pub(super) struct Engine {
    settings: EngineSettings,
    /// Arrived while a step was in flight: the scheduler, and so the gauges, see them at its end.
    inbox: VecDeque<Sequence>,
    waiting: VecDeque<Sequence>,
    /// In order of admission; the last is the newest.
    running: Vec<Sequence>,
    free_blocks: u64,
    prefix: PrefixCache,
    step_ends: Option<Instant>,
    published: Load,
    next_id: SequenceId,
    events: Vec<Event>,
}

impl Engine {
    /// An idle engine. The settings must have passed [`EngineSettings::check`].
    pub(super) fn new(settings: EngineSettings) -> Self {
        Self {
            free_blocks: settings.num_gpu_blocks,
            prefix: PrefixCache::new(settings.num_gpu_blocks),
            settings,
            inbox: VecDeque::new(),
            waiting: VecDeque::new(),
            running: Vec::new(),
            step_ends: None,
            published: Load::default(),
            next_id: 0,
            events: Vec::new(),
        }
    }

    /// The settings it was made with.
    pub(super) fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// When the step in flight ends; `None` when there is nothing to do.
    pub(super) fn next_step(&self) -> Option<Instant> {
        self.step_ends
    }

    /// The load as the gauges show it: as of the last step's end.
    pub(super) fn published(&self) -> &Load {
        &self.published
    }

    /// The load as it is.
    pub(super) fn live(&self) -> Load {
        let waiting = self.waiting.iter().chain(&self.inbox);
        Load {
            waiting: self.waiting.len() + self.inbox.len(),
            running: self.running.len(),
            used_blocks: self.settings.num_gpu_blocks - self.free_blocks,
            waiting_adapters: adapters(waiting),
            running_adapters: adapters(self.running.iter()),
        }
    }

    /// Queues a request. An idle engine starts a step at once. Call [`Engine::advance`] with the same
    /// `now` first, so that no step older than the request admits it.
    ///
    /// # Errors
    /// [`TooLong`] when it could never run.
    pub(super) fn submit(&mut self, now: Instant, mut job: Job) -> Result<SequenceId, TooLong> {
        job.prompt_tokens = job.prompt_tokens.max(1);
        job.output_tokens = job.output_tokens.max(1);
        let capacity = self.settings.num_gpu_blocks.saturating_mul(self.settings.block_size);
        if job.prompt_tokens.saturating_add(job.output_tokens) > capacity {
            return Err(TooLong { capacity, prompt: job.prompt_tokens, output: job.output_tokens });
        }
        let id = self.next_id;
        self.next_id += 1;
        self.inbox.push_back(Sequence {
            id,
            job,
            arrived: now,
            last_token: None,
            blocks: 0,
            generated: 0,
            prefill_left: 0,
            scheduled: 0,
        });
        if self.step_ends.is_none() {
            self.start_step(now);
        }
        Ok(id)
    }

    /// Takes a sequence out at once, wherever it is; its slot and blocks are free for the next step.
    /// `None` when there is no such sequence (any more). Call [`Engine::advance`] first, or its end is
    /// told before what led to it.
    pub(super) fn abort(&mut self, id: SequenceId) -> Option<Event> {
        let gone = if let Some(at) = self.running.iter().position(|s| s.id == id) {
            self.running.remove(at)
        } else if let Some(at) = self.waiting.iter().position(|s| s.id == id) {
            self.waiting.remove(at)?
        } else {
            let at = self.inbox.iter().position(|s| s.id == id)?;
            self.inbox.remove(at)?
        };
        self.free_blocks += gone.blocks;
        Some(finished(&gone, FinishReason::Abort))
    }

    /// Ends every step that is over by `now` and starts the ones that follow. Each begins where the
    /// one before ended, so a late caller does not slow the engine down.
    pub(super) fn advance(&mut self, now: Instant) -> Vec<Event> {
        while let Some(end) = self.step_ends.filter(|end| *end <= now) {
            self.finish_step(end);
            self.start_step(end);
        }
        std::mem::take(&mut self.events)
    }

    fn finish_step(&mut self, at: Instant) {
        for sequence in &mut self.running {
            let computed = std::mem::take(&mut sequence.scheduled);
            if computed == 0 {
                continue;
            }
            if sequence.prefill_left > 0 {
                sequence.prefill_left -= computed;
                if sequence.prefill_left > 0 {
                    continue;
                }
                if self.settings.prefix_caching {
                    self.prefix.insert(&sequence.job.prefix);
                }
            }
            sequence.generated += 1;
            let last = sequence.generated == sequence.job.output_tokens;
            self.events.push(match sequence.last_token.replace(at) {
                None => Event::FirstToken {
                    id: sequence.id,
                    prompt_tokens: sequence.job.prompt_tokens,
                    after: at - sequence.arrived,
                    last,
                },
                Some(before) => Event::Token { id: sequence.id, after: at - before, last },
            });
        }
        let (events, free) = (&mut self.events, &mut self.free_blocks);
        self.running.retain(|sequence| {
            let running = sequence.generated < sequence.job.output_tokens;
            if !running {
                *free += sequence.blocks;
                events.push(finished(sequence, sequence.job.end));
            }
            running
        });
        self.publish();
    }

    fn publish(&mut self) {
        self.published = Load {
            waiting: self.waiting.len(),
            waiting_adapters: adapters(self.waiting.iter()),
            ..self.live()
        };
    }

    /// Fills a step: the running sequences first, in order, then the queue's head while there is room.
    fn start_step(&mut self, at: Instant) {
        self.waiting.append(&mut self.inbox);
        let mut budget = self.settings.max_num_batched_tokens;
        let (mut prefill, mut decodes) = (0, 0);
        let mut preempted = false;
        let mut index = 0;
        while index < self.running.len() && budget > 0 {
            if self.running[index].prefill_left > 0 {
                prefill += self.schedule_prefill(index, &mut budget);
            } else {
                preempted |= self.make_room(index);
                if index >= self.running.len() {
                    break;
                }
                self.running[index].scheduled = 1;
                budget -= 1;
                decodes += 1;
            }
            index += 1;
        }
        while !preempted && budget > 0 && self.admit() {
            prefill += self.schedule_prefill(self.running.len() - 1, &mut budget);
        }
        // The queue's head fits an empty cache, so no batch means no work.
        let idle = prefill == 0 && decodes == 0;
        self.step_ends = (!idle).then(|| at + self.step_time(prefill, decodes));
    }

    fn schedule_prefill(&mut self, index: usize, budget: &mut u64) -> u64 {
        let sequence = &mut self.running[index];
        sequence.scheduled = sequence.prefill_left.min(*budget);
        *budget -= sequence.scheduled;
        sequence.scheduled
    }

    /// Gives the decoding sequence at `index` the block its next token needs, and takes it from the
    /// newest where none is free: in the end from that sequence itself, which then leaves the batch.
    /// Returns whether any was preempted.
    fn make_room(&mut self, index: usize) -> bool {
        let sequence = &self.running[index];
        let need = self.blocks_for(sequence.context()) - sequence.blocks;
        let mut preempted = false;
        while self.free_blocks < need {
            let Some(mut newest) = self.running.pop() else { break };
            preempted = true;
            self.free_blocks += std::mem::take(&mut newest.blocks);
            self.events.push(Event::Preempted { id: newest.id });
            self.waiting.push_front(newest);
        }
        if let Some(sequence) = self.running.get_mut(index) {
            sequence.blocks += need;
            self.free_blocks -= need;
        }
        preempted
    }

    /// Moves the queue's head into the batch if a slot and its blocks are free. A preempted sequence
    /// computes its own output again as part of its prompt.
    fn admit(&mut self) -> bool {
        let Some(head) = self.waiting.front() else { return false };
        let (context, need) = (head.context(), self.blocks_for(head.context()));
        if self.running.len() >= self.settings.max_num_seqs || need > self.free_blocks {
            return false;
        }
        let Some(mut sequence) = self.waiting.pop_front() else { return false };
        self.free_blocks -= need;
        sequence.blocks = need;
        let (mut queried, mut hit) = (0, 0);
        if self.settings.prefix_caching {
            queried = context;
            // The last token is always computed: its output is the next one.
            hit = (self.prefix.matched(&sequence.job.prefix) * self.settings.block_size)
                .min(context - 1);
        }
        sequence.prefill_left = context - hit;
        self.events.push(Event::Admitted { id: sequence.id, queried, hit });
        self.running.push(sequence);
        true
    }

    fn blocks_for(&self, tokens: u64) -> u64 {
        tokens.div_ceil(self.settings.block_size)
    }

    fn step_time(&self, prefill: u64, decodes: u64) -> Duration {
        let settings = &self.settings;
        let compute = Duration::from_secs_f64(prefill as f64 / settings.prefill_tokens_per_second);
        if decodes == 0 {
            return compute;
        }
        let fill = (decodes - 1) as f64 / (settings.max_num_seqs.max(2) - 1) as f64;
        compute + settings.time_per_output_token.mul_f64(1.0 + settings.batch_slowdown * fill)
    }
}

fn finished(sequence: &Sequence, reason: FinishReason) -> Event {
    Event::Finished {
        id: sequence.id,
        prompt_tokens: sequence.job.prompt_tokens,
        output_tokens: sequence.generated,
        reason,
    }
}

fn adapters<'a>(sequences: impl Iterator<Item = &'a Sequence>) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = sequences.filter_map(|s| s.job.adapter.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}
