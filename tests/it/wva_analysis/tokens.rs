//! V2: one replica, then whole models over several runs.

use plumbline::scaling::analyzer::{AnalyzerInput, AnalyzerResult};
use plumbline::scaling::input::{ModelInput, Replica, Role, SchedulerQueue, Variant};
use plumbline::scaling::learned::Learned;
use plumbline::scaling::post_step::{Calibrated, Pair};
use plumbline::scaling::tokens;
use plumbline::thresholds::{Draft, Thresholds};
use serde_json::{Value, json};

use super::{count, number, replay, text};

/// Time between two runs of a case; so far apart, each run's observations count.
const CYCLE_MILLIS: u64 = 30_000;

pub fn thresholds(config: &Value) -> Result<Thresholds, Vec<&'static str>> {
    let draft = Draft {
        kv_cache_util: number(&config["kv_cache_threshold"]).unwrap(),
        queue_depth: number(&config["queue_length_threshold"]).unwrap(),
        scale_up_threshold: number(&config["scale_up_threshold"]).unwrap(),
        scale_down_boundary: number(&config["scale_down_boundary"]).unwrap(),
        ..Draft::default()
    };
    Thresholds::try_new(draft).map_err(|broken| broken.iter().map(|v| v.field).collect())
}

pub fn role(value: &Value) -> Role {
    match value.as_str() {
        Some("prefill") => Role::Prefill,
        Some("decode") => Role::Decode,
        _ => Role::Both,
    }
}

pub fn replica(row: &Value) -> Replica {
    Replica {
        pod: text(&row["pod_name"]),
        variant: text(&row["variant_name"]),
        kv: number(&row["kv_cache_usage"]),
        queue: number(&row["queue_length"]),
        num_gpu_blocks: number(&row["num_gpu_blocks"]),
        block_size: number(&row["block_size"]),
        avg_input_tokens: number(&row["avg_input_tokens"]),
        avg_output_tokens: number(&row["avg_output_tokens"]),
        prefix_hit_rate: number(&row["prefix_cache_hit_rate"]),
        tokens_in_use: number(&row["tokens_in_use"]),
        ..Replica::default()
    }
}

pub fn variant(state: &Value) -> Variant {
    Variant {
        name: text(&state["variant_name"]),
        cost: number(&state["cost"]).unwrap(),
        accelerator: text(&state["accelerator_name"]),
        gpus_per_replica: count(&state["gpus_per_replica"]),
        role: role(&state["role"]),
        current: count(&state["current_replicas"]),
        desired: count(&state["desired_replicas"]),
        pending: count(&state["pending_replicas"]),
        min_replicas: count(&state["min_replicas"]),
        max_replicas: count(&state["max_replicas"]),
        engine_args: serde_json::from_value(state["engine_args"].clone()).unwrap(),
        ..Variant::default()
    }
}

pub fn model(replicas: Vec<Replica>, variants: Vec<Variant>, queue: &Value) -> ModelInput {
    ModelInput {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        replicas,
        variants,
        scheduler_queue: (!queue.is_null()).then(|| SchedulerQueue {
            size: queue["queue_size"].as_u64().unwrap(),
            bytes: queue["queue_bytes"].as_u64().unwrap(),
        }),
        ..ModelInput::default()
    }
}

fn replica_answer(input: &Value) -> Value {
    let line = match thresholds(&input["config"]) {
        Ok(line) => line,
        Err(refused) => return json!({ "refused": refused }),
    };
    let row = replica(&input["replica"]);
    let state = Variant {
        name: row.variant.clone(),
        gpus_per_replica: count(&input["gpus_per_replica"]),
        role: role(&input["role"]),
        current: 1,
        engine_args: serde_json::from_value(input["engine_args"].clone()).unwrap(),
        ..Variant::default()
    };
    let (name, pod) = (state.name.clone(), row.pod.clone());
    let model = model(vec![row], vec![state], &Value::Null);
    let run = AnalyzerInput { model: &model, line: &line, freshness_seconds: 30.0, now_millis: 0 };
    let mut learned = Learned::default();
    tokens::analyze(&run, &mut learned);
    let seen = tokens::replicas(&run, &name, &learned);
    let Some((of, seen)) = seen.first() else { return json!({ "ignored": true }) };
    assert_eq!(*of, pod);
    json!({
        "memory_bound_capacity": seen.memory_bound,
        "compute_bound_capacity": seen.compute_bound,
        "effective_capacity": seen.effective,
        "k2_source": seen.source,
        "replica_demand": seen.demand,
        "is_saturated": seen.demand >= seen.effective,
    })
}

fn model_answer(input: &Value) -> Value {
    let line = match thresholds(&input["config"]) {
        Ok(line) => line,
        Err(refused) => return json!({ "refused": refused }),
    };
    let pair = Pair {
        scale_up_threshold: line.numbers().scale_up_threshold,
        scale_down_boundary: line.numbers().scale_down_boundary,
    };
    let mut learned = Learned::default();
    let cycles: Vec<Value> = input["cycles"]
        .as_array()
        .unwrap()
        .iter()
        .zip(0..)
        .map(|(cycle, n)| {
            let variants = input["variants"].as_array().unwrap().iter().map(variant).collect();
            let replicas = cycle["replicas"].as_array().unwrap().iter().map(replica).collect();
            let model = model(replicas, variants, &cycle["scheduler_queue"]);
            let run = AnalyzerInput {
                model: &model,
                line: &line,
                freshness_seconds: 30.0,
                now_millis: n * CYCLE_MILLIS,
            };
            written(&Calibrated::new(tokens::analyze(&run, &mut learned), pair))
        })
        .collect();
    json!(cycles)
}

/// A calibrated result in the words of the records.
fn written(calibrated: &Calibrated) -> Value {
    let result: &AnalyzerResult = calibrated.result();
    let variants: serde_json::Map<String, Value> = result
        .variant_capacities
        .iter()
        .map(|variant| {
            let value = json!({
                "n": [variant.replica_count, variant.pending_replicas],
                "prc": variant.per_replica_capacity,
                "capacity": variant.total_capacity,
                "demand": variant.total_demand,
                "utilization": variant.utilization,
                "reason": variant.reason,
                "cost": variant.cost,
                "accelerator": variant.accelerator,
            });
            (variant.name.clone(), value)
        })
        .collect();
    let roles: serde_json::Map<String, Value> = result
        .role_capacities
        .iter()
        .map(|(role, scope)| {
            let need = calibrated.roles()[role];
            let value = json!({
                "supply": [scope.total_supply, scope.total_anticipated_supply],
                "demand": scope.total_demand,
                "rc": need.required(),
                "sc": need.spare(),
            });
            (role.as_str().to_owned(), value)
        })
        .collect();
    json!({
        "supply": [result.total_supply, result.total_anticipated_supply],
        "demand": result.total_demand,
        "utilization": result.utilization,
        "rc": calibrated.need().required(),
        "sc": calibrated.need().spare(),
        "variants": variants,
        "roles": roles,
    })
}

/// A recorded answer in the same words, without its targets and actions.
fn recorded(output: &Value) -> Value {
    let empty = Vec::new();
    let cycles = output["cycles"].as_array().unwrap().iter().map(|cycle| {
        let variants: serde_json::Map<String, Value> = cycle["variant_capacities"]
            .as_array()
            .unwrap_or(&empty)
            .iter()
            .map(|variant| {
                let value = json!({
                    "n": [variant["replica_count"], variant["pending_replicas"]],
                    "prc": variant["per_replica_capacity"],
                    "capacity": variant["total_capacity"],
                    "demand": variant["total_demand"],
                    "utilization": variant["utilization"],
                    "reason": variant["reason"],
                    "cost": variant["cost"],
                    "accelerator": variant["accelerator_name"],
                });
                (text(&variant["variant_name"]), value)
            })
            .collect();
        let mut roles = serde_json::Map::new();
        for (role, scope) in cycle["role_capacities"].as_object().into_iter().flatten() {
            let value = json!({
                "supply": [scope["total_supply"], scope["total_anticipated_supply"]],
                "demand": scope["total_demand"],
                "rc": scope["required_capacity"],
                "sc": scope["spare_capacity"],
            });
            roles.insert(role.clone(), value);
        }
        json!({
            "supply": [cycle["total_supply"], cycle["total_anticipated_supply"]],
            "demand": cycle["total_demand"],
            "utilization": cycle["utilization"],
            "rc": cycle["required_capacity"],
            "sc": cycle["spare_capacity"],
            "variants": variants,
            "roles": roles,
        })
    });
    json!(cycles.collect::<Vec<_>>())
}

/// Mutant: P2 before P1; k1 rounded up; the queue's demand not truncated.
#[test]
fn a_replica_has_the_recorded_bounds() {
    replay("saturation_v2_replica", replica_answer, Value::clone);
}

/// Mutant: current for ready replicas; the queue counted once a variant; a mean for the median.
#[test]
fn models_have_the_recorded_supply_and_demand() {
    replay("saturation_v2", model_answer, recorded);
}
