//! The arguments of a vLLM server.

use std::collections::BTreeMap;

use plumbline::scaling::engine_args::EngineArgs;
use serde_json::{Value, json};

use super::replay;

fn answer(input: &Value) -> Value {
    let words = |key: &str| -> Vec<String> { serde_json::from_value(input[key].clone()).unwrap() };
    let line = [words("command"), words("args")].concat();
    let env: BTreeMap<String, String> = serde_json::from_value(input["env"].clone()).unwrap();
    let args = EngineArgs::parse(&line, &env);
    json!({
        "block_size": args.block_size,
        "chunked_prefill_enabled": args.chunked_prefill,
        "effective_max_batched_tokens": args.effective_max_batched_tokens(),
        "enforce_eager": args.enforce_eager,
        "gpu_memory_utilization": args.gpu_memory_utilization,
        "is_v1_engine": args.is_v1_engine,
        "kv_cache_dtype": args.kv_cache_dtype,
        "max_model_len": args.max_model_len,
        "max_num_batched_tokens": args.max_num_batched_tokens,
        "max_num_seqs": args.max_num_seqs,
        "num_gpu_blocks_override": args.num_gpu_blocks_override,
        "tensor_parallel_size": args.tensor_parallel_size,
    })
}

/// Mutant: `_` no longer read as `-`; a value taken from the next word left standing.
#[test]
fn arguments_read_as_recorded() {
    replay("engine_args", answer, Value::clone);
}
