//! How many tokens a waiting request stands for.
//!
//! Decides the mean work of a request and the demand of queues, at a replica and before all of them.
//! Means are tokens a request, queues are requests, demand is whole tokens.

use super::super::input::{Replica, Role, SchedulerQueue, known, positive};

/// Bytes of a body that make a token, where no request has told better.
const BYTES_PER_TOKEN: f64 = 4.0;

/// Mean tokens of a request; not both 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workload {
    /// Prompt tokens.
    pub input: f64,
    /// Output tokens.
    pub output: f64,
    /// Share of the prompt found in a prefix cache, fraction.
    pub hit_rate: f64,
}

impl Workload {
    /// What a request is taken for before any has finished: a queue must not weigh nothing.
    pub const ASSUMED: Self = Self { input: 512.0, output: 128.0, hit_rate: 0.0 };

    /// From the requests that one replica has finished.
    pub fn of(replica: &Replica) -> Option<Self> {
        let input = positive(replica.avg_input_tokens);
        let output = positive(replica.avg_output_tokens);
        if input.is_none() && output.is_none() {
            return None;
        }
        Some(Self {
            input: input.unwrap_or(0.0),
            output: output.unwrap_or(0.0),
            hit_rate: known(replica.prefix_hit_rate).filter(|rate| *rate <= 1.0).unwrap_or(0.0),
        })
    }

    /// The plain mean over the replicas that have finished any. They must be in their one order.
    pub fn mean_of(replicas: &[&Replica]) -> Option<Self> {
        let seen: Vec<Self> = replicas.iter().filter_map(|replica| Self::of(replica)).collect();
        if seen.is_empty() {
            return None;
        }
        let n = seen.len() as f64;
        let mean = |of: fn(&Self) -> f64| seen.iter().map(of).sum::<f64>() / n;
        Some(Self {
            input: mean(|w| w.input),
            output: mean(|w| w.output),
            hit_rate: mean(|w| w.hit_rate),
        })
    }

    /// Demand of `queue` requests that wait at a replica: prompts where only prompts are served, else
    /// the output too, because the replica will hold both. The prefix cache counts for nothing here.
    pub fn waiting(&self, queue: f64, role: Role) -> f64 {
        let each = match role {
            Role::Prefill => self.input,
            Role::Decode | Role::Both => self.input + self.output,
        };
        known(Some(queue * each)).unwrap_or(0.0).trunc()
    }
}

/// Demand that no replica has yet.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct QueueDemand {
    /// Prompt tokens still to be computed.
    pub(super) input: f64,
    /// Output tokens.
    pub(super) output: f64,
}

impl QueueDemand {
    pub(super) fn total(self) -> f64 {
        self.input + self.output
    }
}

/// Demand of the requests held before all replicas: the longer of what their bytes and their number
/// say of the prompts, without the part that a prefix cache will hold, and the usual output.
pub(super) fn scheduler_queue(
    queue: Option<SchedulerQueue>,
    averages: Option<Workload>,
) -> QueueDemand {
    let Some(queue) = queue.filter(|q| q.size > 0 || q.bytes > 0) else {
        return QueueDemand::default();
    };
    let each = averages.unwrap_or(Workload::ASSUMED);
    let (size, bytes) = (queue.size as f64, queue.bytes as f64);
    let prompts = (bytes / BYTES_PER_TOKEN).max(size * each.input);
    QueueDemand {
        input: (prompts * (1.0 - each.hit_rate)).trunc(),
        output: (size * each.output).trunc(),
    }
}
