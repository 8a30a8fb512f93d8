//! The engine's vocabulary: what it is asked, and what it tells.
//!
//! Plain values; decides nothing. Lengths are tokens, memory is KV blocks.

use std::sync::Arc;
use std::time::Duration;

/// Name of a sequence within one engine; never used twice.
pub(in crate::sim) type SequenceId = u64;

/// What a request asks of the engine.
#[derive(Debug, Clone, Default)]
pub(in crate::sim) struct Job {
    /// Prompt length in tokens; 0 counts as 1.
    pub(in crate::sim) prompt_tokens: u64,
    /// Tokens to generate; 0 counts as 1.
    pub(in crate::sim) output_tokens: u64,
    /// Chained hashes of the prompt's full blocks, for the prefix cache.
    pub(in crate::sim) prefix: Vec<u64>,
    /// LoRA adapter, if any.
    pub(in crate::sim) adapter: Option<Arc<str>>,
    /// How a full output counts: cut at the client's limit, or ended by the model.
    pub(in crate::sim) end: FinishReason,
}

/// Why a sequence ended, in the words of vLLM's `finished_reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::sim) enum FinishReason {
    /// The model ended by itself.
    Stop,
    /// The client's token limit was reached.
    #[default]
    Length,
    /// The client went away.
    Abort,
}

impl FinishReason {
    /// All of them, in the order of the metrics page.
    pub(in crate::sim) const ALL: [Self; 3] = [Self::Stop, Self::Length, Self::Abort];

    /// The label's value.
    pub(in crate::sim) fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Abort => "abort",
        }
    }
}

/// What happened in a step.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::sim) enum Event {
    /// A sequence left the queue; the prefix cache was asked for its prompt.
    Admitted {
        /// Who.
        id: SequenceId,
        /// Tokens asked for.
        queried: u64,
        /// Tokens found.
        hit: u64,
    },
    /// A sequence lost its blocks and went back to the head of the queue.
    Preempted {
        /// Who.
        id: SequenceId,
    },
    /// A sequence produced its first token.
    FirstToken {
        /// Who.
        id: SequenceId,
        /// Length of its prompt, tokens.
        prompt_tokens: u64,
        /// Since its arrival.
        after: Duration,
        /// Whether it is also the last: `Finished` follows in the same step.
        last: bool,
    },
    /// A sequence produced a later token.
    Token {
        /// Who.
        id: SequenceId,
        /// Since the token before.
        after: Duration,
        /// Whether it is the last: `Finished` follows in the same step.
        last: bool,
    },
    /// A sequence is gone.
    Finished {
        /// Who.
        id: SequenceId,
        /// Length of its prompt, tokens.
        prompt_tokens: u64,
        /// Tokens it produced.
        output_tokens: u64,
        /// Why.
        reason: FinishReason,
    },
}

/// The load at one time. The gauges of a real engine show it as of the end of its last step.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::sim) struct Load {
    /// Sequences in the queue.
    pub(in crate::sim) waiting: usize,
    /// Sequences in the batch.
    pub(in crate::sim) running: usize,
    /// KV blocks in use.
    pub(in crate::sim) used_blocks: u64,
    /// Adapters of the waiting sequences: sorted, each once.
    pub(in crate::sim) waiting_adapters: Vec<Arc<str>>,
    /// Adapters of the running sequences: sorted, each once.
    pub(in crate::sim) running_adapters: Vec<Arc<str>>,
}

/// A request longer than the whole KV cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "maximum context length is {capacity} tokens, but prompt ({prompt}) and max_tokens ({output}) need {} tokens", 
    .prompt.saturating_add(*.output)
)]
pub(in crate::sim) struct TooLong {
    /// Tokens the KV cache holds.
    pub(in crate::sim) capacity: u64,
    /// Prompt tokens asked for.
    pub(in crate::sim) prompt: u64,
    /// Output tokens asked for.
    pub(in crate::sim) output: u64,
}
