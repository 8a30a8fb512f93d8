//! The engines that are known without configuration.
//!
//! Decides the family names: upstream's table for the load and the caches, and beside it what scaling
//! reads. Where an engine has no such family the signal is not mapped.

use super::DEFAULT_ENGINE;
use crate::poller::engine::{CacheInfo, Engine, Mapping};
use crate::poller::spec::Spec;
use crate::store::Vital;

/// The engines that upstream knows; the first is the default.
pub(super) fn engines() -> [Engine; 5] {
    [
        Engine::new(DEFAULT_ENGINE, vllm()),
        Engine::new("sglang", sglang()),
        Engine::new("trtllm-serve", trtllm_serve()),
        Engine::new("triton-tensorrt-llm", triton_tensorrt_llm()),
        Engine::new("triton", triton()),
    ]
}

/// The one number that every Prometheus client library exports.
pub(super) fn process_start() -> Vec<(Vital, Spec)> {
    vitals([(Vital::ProcessStart, "process_start_time_seconds")])
}

fn vitals<const N: usize>(families: [(Vital, &str); N]) -> Vec<(Vital, Spec)> {
    families.map(|(vital, family)| (vital, Spec::known(family, &[]))).into()
}

#[allow(clippy::unnecessary_wraps)] // A mapping's fields are optional.
fn plain(family: &str) -> Option<Spec> {
    Some(Spec::known(family, &[]))
}

fn labelled(family: &str, block_size: &str, num_blocks: &str) -> CacheInfo {
    CacheInfo {
        spec: Spec::known(family, &[]),
        block_size_label: block_size.to_owned(),
        num_blocks_label: num_blocks.to_owned(),
    }
}

fn vllm() -> Mapping {
    Mapping {
        waiting: plain("vllm:num_requests_waiting"),
        running: plain("vllm:num_requests_running"),
        kv: plain("vllm:kv_cache_usage_perc"),
        lora: plain("vllm:lora_requests_info"),
        cache_info: Some(labelled("vllm:cache_config_info", "block_size", "num_gpu_blocks")),
        vitals: vitals([
            (Vital::PromptTokens, "vllm:prompt_tokens"),
            (Vital::GenerationTokens, "vllm:generation_tokens"),
            (Vital::RequestPromptTokensSum, "vllm:request_prompt_tokens_sum"),
            (Vital::RequestPromptTokensCount, "vllm:request_prompt_tokens_count"),
            (Vital::RequestGenerationTokensSum, "vllm:request_generation_tokens_sum"),
            (Vital::RequestGenerationTokensCount, "vllm:request_generation_tokens_count"),
            (Vital::PrefixQueries, "vllm:prefix_cache_queries"),
            (Vital::PrefixHits, "vllm:prefix_cache_hits"),
            (Vital::Succeeded, "vllm:request_success"),
            (Vital::ProcessStart, "process_start_time_seconds"),
        ]),
        ..Mapping::default()
    }
}

fn sglang() -> Mapping {
    Mapping {
        waiting: plain("sglang:num_queue_reqs"),
        running: plain("sglang:num_running_reqs"),
        kv: plain("sglang:token_usage"),
        cache_info: Some(labelled("sglang:cache_config_info", "page_size", "num_pages")),
        capacity: plain("sglang:max_total_num_tokens"),
        vitals: vitals([
            (Vital::PromptTokens, "sglang:prompt_tokens"),
            (Vital::GenerationTokens, "sglang:generation_tokens"),
            (Vital::RequestPromptTokensSum, "sglang:prompt_tokens_histogram_sum"),
            (Vital::RequestPromptTokensCount, "sglang:prompt_tokens_histogram_count"),
            (Vital::RequestGenerationTokensSum, "sglang:generation_tokens_histogram_sum"),
            (Vital::RequestGenerationTokensCount, "sglang:generation_tokens_histogram_count"),
            // Every prompt token is looked up in the radix cache.
            (Vital::PrefixQueries, "sglang:prompt_tokens"),
            (Vital::PrefixHits, "sglang:cached_tokens"),
            (Vital::Succeeded, "sglang:num_requests"),
            (Vital::ProcessStart, "process_start_time_seconds"),
        ]),
        ..Mapping::default()
    }
}

fn trtllm_serve() -> Mapping {
    Mapping {
        waiting: plain("trtllm_num_requests_waiting"),
        running: plain("trtllm_num_requests_running"),
        kv: plain("trtllm_kv_cache_utilization"),
        block_size: plain("trtllm_kv_cache_tokens_per_block"),
        num_blocks: plain("trtllm_kv_cache_max_blocks"),
        vitals: process_start(),
        ..Mapping::default()
    }
}

fn triton_tensorrt_llm() -> Mapping {
    let requests =
        |kind| Some(Spec::known("nv_trt_llm_request_metrics", &[("request_type", kind)]));
    let blocks = |kind| {
        let family = "nv_trt_llm_kv_cache_block_metrics";
        Some(Spec::known(family, &[("kv_cache_block_type", kind)]))
    };
    Mapping {
        waiting: requests("waiting"),
        running: requests("scheduled"),
        kv: blocks("fraction"),
        block_size: blocks("tokens_per"),
        num_blocks: blocks("max"),
        vitals: process_start(),
        ..Mapping::default()
    }
}

fn triton() -> Mapping {
    Mapping {
        waiting: plain("nv_inference_pending_request_count"),
        // It only ever grows. It is upstream's choice and kept for equal answers.
        running: plain("nv_inference_exec_count"),
        vitals: process_start(),
        ..Mapping::default()
    }
}
