//! What the arguments of a vLLM server say about its capacity.
//!
//! Decides how a command line reads, as vLLM itself reads it: `--key=value` and `--key value`, `-` and
//! `_` alike, `8k` and `8K`, the short `-tp`, scripts behind `sh -c`. What it cannot read it leaves at
//! vLLM's default, because an argument of no concern must not cost a capacity. Sizes are tokens,
//! blocks or sequences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Tokens a step of an engine that prefills in chunks, when no argument says so.
const CHUNKED_V1: u64 = 8192;
/// The same of the older engine; also the least of one that does not prefill in chunks.
const CHUNKED_V0: u64 = 2048;

/// The settings that capacity depends on; the default is vLLM's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EngineArgs {
    /// Share of the GPU's memory that the engine takes, fraction.
    pub gpu_memory_utilization: f64,
    /// Tokens a KV block.
    pub block_size: u64,
    /// Number format of the KV cache.
    pub kv_cache_dtype: String,
    /// GPUs that share a layer.
    pub tensor_parallel_size: u64,
    /// KV blocks instead of those that fit; 0: those that fit.
    pub num_gpu_blocks_override: u64,
    /// Tokens a step as given; 0: left to the engine.
    pub max_num_batched_tokens: u64,
    /// Sequences that run at once.
    pub max_num_seqs: u64,
    /// Longest sequence, tokens; 0: left to the model.
    pub max_model_len: u64,
    /// No CUDA graphs.
    pub enforce_eager: bool,
    /// The engine of vLLM's V1.
    pub is_v1_engine: bool,
    /// Prompts are prefilled in chunks.
    pub chunked_prefill: bool,
}

impl Default for EngineArgs {
    fn default() -> Self {
        Self {
            gpu_memory_utilization: 0.9,
            block_size: 16,
            kv_cache_dtype: "auto".to_owned(),
            tensor_parallel_size: 1,
            num_gpu_blocks_override: 0,
            max_num_batched_tokens: 0,
            max_num_seqs: 256,
            max_model_len: 0,
            enforce_eager: false,
            is_v1_engine: true,
            chunked_prefill: true,
        }
    }
}

impl EngineArgs {
    /// Reads a whole command line, program and shell included, and the server's environment.
    pub fn parse<S: AsRef<str>>(line: &[S], env: &BTreeMap<String, String>) -> Self {
        let v1 = env.get("VLLM_USE_V1").is_none_or(|value| value.trim() != "0");
        let mut args = Self { is_v1_engine: v1, chunked_prefill: v1, ..Self::default() };
        let words = words(line);
        let mut at = 0;
        while let Some(word) = words.get(at) {
            at += 1;
            let Some(flag) = word.strip_prefix('-') else { continue };
            let (key, inline) = match flag.split_once('=') {
                Some((key, value)) => (key, Some(value)),
                None => (flag, None),
            };
            let key = key.trim_start_matches('-').replace('_', "-");
            if args.set_switch(&key, inline) {
                continue;
            }
            let value = inline.or_else(|| words.get(at).map(String::as_str));
            if let Some(value) = value
                && args.set_value(&key, value)
                && inline.is_none()
            {
                at += 1;
            }
        }
        // V1 has no other way to prefill, whatever a flag says.
        args.chunked_prefill |= v1;
        args
    }

    /// Tokens that one step of the engine takes at most.
    pub fn effective_max_batched_tokens(&self) -> u64 {
        match (self.max_num_batched_tokens, self.chunked_prefill, self.is_v1_engine) {
            (given, _, _) if given > 0 => given,
            (_, true, true) => CHUNKED_V1,
            (_, true, false) => CHUNKED_V0,
            (_, false, _) => self.max_model_len.max(CHUNKED_V0),
        }
    }

    /// Whether `key` is a flag without a value.
    fn set_switch(&mut self, key: &str, inline: Option<&str>) -> bool {
        let on = !inline.is_some_and(|value| value.eq_ignore_ascii_case("false"));
        match key {
            "enforce-eager" => self.enforce_eager = on,
            "no-enforce-eager" => self.enforce_eager = !on,
            "enable-chunked-prefill" => self.chunked_prefill = on,
            "no-enable-chunked-prefill" => self.chunked_prefill = !on,
            _ => return false,
        }
        true
    }

    /// Whether `key` is a flag of ours with a value that reads; if not, nothing changes.
    fn set_value(&mut self, key: &str, value: &str) -> bool {
        let plain = value.parse::<u64>().ok();
        let target = match key {
            "block-size" => (&mut self.block_size, plain),
            "tensor-parallel-size" | "tp" => (&mut self.tensor_parallel_size, plain),
            "num-gpu-blocks-override" => (&mut self.num_gpu_blocks_override, plain),
            "max-num-seqs" => (&mut self.max_num_seqs, plain),
            "max-num-batched-tokens" => (&mut self.max_num_batched_tokens, human(value)),
            "max-model-len" => (&mut self.max_model_len, human(value)),
            "kv-cache-dtype" => {
                value.clone_into(&mut self.kv_cache_dtype);
                return true;
            }
            "gpu-memory-utilization" => {
                let Some(share) = value.parse::<f64>().ok().filter(|v| v.is_finite()) else {
                    return false;
                };
                self.gpu_memory_utilization = share;
                return true;
            }
            _ => return false,
        };
        let (field, Some(number)) = target else { return false };
        *field = number;
        true
    }
}

/// A whole number as vLLM's length flags accept it: `8192`, `8k` (thousands), `8K` (1024s), `25.6k`.
fn human(text: &str) -> Option<u64> {
    let Some(unit) = text.chars().last().filter(|c| c.is_ascii_alphabetic()) else {
        return text.parse().ok();
    };
    let power = "kmgt".find(unit.to_ascii_lowercase())? as i32 + 1;
    let base: f64 = if unit.is_ascii_lowercase() { 1000.0 } else { 1024.0 };
    let number: f64 = text[..text.len() - 1].parse().ok()?;
    let whole = number * base.powi(power);
    // Above 2^53 a count of tokens is a slip of the pen, and no longer exact.
    (whole >= 0.0 && whole <= 9.0e15).then_some(whole as u64)
}

/// The words of a command line; a script is split as a shell does, a plain argument stays whole.
fn words<S: AsRef<str>>(line: &[S]) -> Vec<String> {
    let mut words = Vec::new();
    let mut shell = false;
    let mut script_next = false;
    for word in line.iter().map(AsRef::as_ref) {
        let looks_like_line = word.split_whitespace().skip(1).any(|part| part.starts_with("--"));
        if script_next || looks_like_line {
            words.extend(split_script(word));
        } else {
            words.push(word.to_owned());
        }
        script_next =
            shell && word.starts_with('-') && !word.starts_with("--") && word.ends_with('c');
        shell |= word.rsplit('/').next().is_some_and(|name| name.ends_with("sh"));
    }
    words
}

/// Splits at blanks and line ends outside quotes; a backslash keeps the next character, or joins two
/// lines.
fn split_script(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match chars.next() {
                Some('\n') | None => {}
                Some(kept) => word.get_or_insert_default().push(kept),
            },
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
