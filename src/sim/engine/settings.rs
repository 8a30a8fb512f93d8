//! The engine's knobs: what each may be, and which contradict each other.
//!
//! Decides ranges and defaults. Lengths are tokens, rates tokens per second.

use std::time::Duration;

/// The knobs of one engine.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// Sequences that run together at most; at least 1.
    pub max_num_seqs: usize,
    /// Tokens one step computes at most, prefill and decode together; at least `max_num_seqs`.
    pub max_num_batched_tokens: u64,
    /// Tokens per KV block; at least 1.
    pub block_size: u64,
    /// KV blocks; at least 1. Times `block_size` it is also the longest request (prompt plus output).
    pub num_gpu_blocks: u64,
    /// Prompt tokens per second; finite and above 0.
    pub prefill_tokens_per_second: f64,
    /// Length of a decode step with one sequence.
    pub time_per_output_token: Duration,
    /// How much longer a decode step takes with a full batch: 0.5 is half as long again; finite, not
    /// negative.
    pub batch_slowdown: f64,
    /// Whether prompts that begin alike are computed once.
    pub prefix_caching: bool,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            max_num_seqs: 256,
            max_num_batched_tokens: 2048,
            block_size: 16,
            num_gpu_blocks: 8192,
            prefill_tokens_per_second: 10_000.0,
            time_per_output_token: Duration::from_millis(10),
            batch_slowdown: 0.5,
            prefix_caching: true,
        }
    }
}

impl EngineSettings {
    /// # Errors
    /// A sentence that names the setting and its rule.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("max_num_seqs", self.max_num_seqs as u64),
            ("block_size", self.block_size),
            ("num_gpu_blocks", self.num_gpu_blocks),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        if self.max_num_batched_tokens < self.max_num_seqs as u64 {
            return Err(format!(
                "max_num_batched_tokens {} must be at least max_num_seqs {}: a full batch decodes one token each",
                self.max_num_batched_tokens, self.max_num_seqs
            ));
        }
        let rate = self.prefill_tokens_per_second;
        // Below one token in a thousand seconds a step could outlast what a duration can hold.
        if !rate.is_finite() || rate < 0.001 {
            return Err(format!(
                "prefill_tokens_per_second {rate} must be finite and at least 0.001"
            ));
        }
        if !(0.0..=1e6).contains(&self.batch_slowdown) {
            return Err(format!("batch_slowdown {} must be in [0, 1e6]", self.batch_slowdown));
        }
        if self.time_per_output_token > Duration::from_secs(3600) {
            return Err("time_per_output_token must be at most 1h".to_owned());
        }
        Ok(())
    }
}
