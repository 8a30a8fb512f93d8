//! The throughput analyzer, run as the loop runs it.

use plumbline::scaling::analyzer::AnalyzerInput;
use plumbline::scaling::input::{ModelInput, Replica, SchedulerQueue, Variant};
use plumbline::scaling::registry::run;
use plumbline::scaling::throughput::Throughput;
use plumbline::thresholds::{Draft, Thresholds};
use serde_json::{Value, json};

use super::{count, number, replay, text};

fn replica(row: &Value) -> Replica {
    Replica {
        pod: text(&row["pod_name"]),
        variant: text(&row["variant_name"]),
        kv: number(&row["kv_cache_usage"]),
        queue: number(&row["queue_length"]),
        num_gpu_blocks: number(&row["total_kv_capacity_tokens"]),
        block_size: Some(1.0),
        avg_input_tokens: number(&row["avg_input_tokens"]),
        avg_output_tokens: number(&row["avg_output_tokens"]),
        prefix_hit_rate: number(&row["prefix_cache_hit_rate"]),
        itl_seconds: number(&row["avg_itl"]),
        kv_instant: number(&row["kv_usage_instant"]),
        request_rate: number(&row["request_rate"]),
        arrival_rate: number(&row["arrival_rate"]),
        ..Replica::default()
    }
}

fn answer(input: &Value) -> Value {
    // The recorded release fixes the use at which a replica is full; here it is the KV threshold.
    let line = Thresholds::try_new(Draft { kv_cache_util: 0.85, ..Draft::default() }).unwrap();
    let mut memory = Value::Null;
    let cycles = input["cycles"].as_array().unwrap().iter().zip(0..).map(|(cycle, n)| {
        let variants = input["variants"].as_array().unwrap().iter().map(|state| Variant {
            name: text(&state["variant_name"]),
            current: count(&state["current_replicas"]),
            pending: count(&state["pending_replicas"]),
            ..Variant::default()
        });
        let queue = &cycle["scheduler_queue"];
        let model = ModelInput {
            model_id: "m".to_owned(),
            namespace: "ns".to_owned(),
            replicas: cycle["replicas"].as_array().unwrap().iter().map(replica).collect(),
            variants: variants.collect(),
            arrival_rate: number(&cycle["arrival_rate"]),
            scheduler_queue: (!queue.is_null()).then(|| SchedulerQueue {
                size: queue["queue_size"].as_u64().unwrap(),
                bytes: queue["queue_bytes"].as_u64().unwrap(),
            }),
            ..ModelInput::default()
        };
        let now_millis = n * 30_000;
        let input =
            AnalyzerInput { model: &model, line: &line, freshness_seconds: 30.0, now_millis };
        let result = run(&Throughput, &input, &mut memory).unwrap();
        let variants = result.variant_capacities.iter().map(|variant| {
            json!({
                "variant_name": variant.name,
                "replica_count": variant.replica_count,
                "pending_replicas": variant.pending_replicas,
                "per_replica_capacity": variant.per_replica_capacity,
                "total_demand": variant.total_demand,
                "reason": variant.reason,
            })
        });
        json!({
            "total_supply": result.total_supply,
            "total_anticipated_supply": result.total_anticipated_supply,
            "total_demand": result.total_demand,
            "utilization": result.utilization,
            "variant_capacities": variants.collect::<Vec<_>>(),
        })
    });
    json!({ "cycles": cycles.collect::<Vec<_>>() })
}

fn recorded(output: &Value) -> Value {
    let mut output = output.clone();
    for cycle in output["cycles"].as_array_mut().unwrap() {
        if cycle["variant_capacities"].is_null() {
            cycle["variant_capacities"] = json!([]);
        }
    }
    output
}

/// Mutant: the whole output in what a request holds; the intercept left out of the slope.
#[test]
fn throughput_is_what_was_recorded() {
    replay("throughput", answer, recorded);
}
