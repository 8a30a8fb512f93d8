//! V1: means, signals, reasons and the safety of a removal.

use plumbline::scaling::input::{ModelInput, Replica, Role, Variant};
use plumbline::scaling::spare::{SpareAnalysis, SpareLine, analyze};
use serde_json::{Value, json};

use super::{count, number, replay, text};

pub fn model(input: &Value) -> ModelInput {
    let replicas = input["replicas"].as_array().unwrap().iter().map(|row| Replica {
        pod: text(&row["pod_name"]),
        variant: text(&row["variant_name"]),
        kv: number(&row["kv_cache_usage"]),
        queue: number(&row["queue_length"]),
        ..Replica::default()
    });
    let variants = input["variants"].as_array().unwrap().iter().map(|state| Variant {
        name: text(&state["variant_name"]),
        current: count(&state["current_replicas"]),
        desired: count(&state["desired_replicas"]),
        pending: count(&state["pending_replicas"]),
        ..Variant::default()
    });
    ModelInput {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        replicas: replicas.collect(),
        variants: variants.collect(),
        ..ModelInput::default()
    }
}

pub fn line(config: &Value) -> SpareLine {
    SpareLine {
        kv: number(&config["kv_cache_threshold"]).unwrap(),
        queue: number(&config["queue_length_threshold"]).unwrap(),
        kv_trigger: number(&config["kv_spare_trigger"]).unwrap(),
        queue_trigger: number(&config["queue_spare_trigger"]).unwrap(),
        endless_triggers: true,
    }
}

fn answer(input: &Value) -> Value {
    let scopes = analyze(&model(input), &line(&input["config"]), 30.0);
    let analysis: &SpareAnalysis = &scopes.get(&Role::Both).cloned().unwrap_or_default();
    let variants: Vec<Value> = analysis
        .variants
        .iter()
        .map(|variant| {
            json!({
                "variant_name": variant.name,
                "replica_count": variant.replicas,
                "non_saturated_count": variant.non_saturated,
                "avg_spare_kv_capacity": variant.avg_spare_kv,
                "avg_spare_queue_length": variant.avg_spare_queue,
                "max_kv_cache_usage": variant.max_kv,
                "max_queue_length": variant.max_queue,
                "saturated_replicas": variant.saturated,
            })
        })
        .collect();
    json!({
        "total_replicas": analysis.replicas,
        "non_saturated_count": analysis.non_saturated,
        "avg_spare_kv_capacity": analysis.avg_spare_kv,
        "avg_spare_queue_length": analysis.avg_spare_queue,
        "should_scale_up": analysis.scale_up,
        "scale_up_reason": analysis.reason,
        "scale_down_safe": analysis.scale_down_safe,
        "variant_analyses": variants,
    })
}

/// The part of a recorded answer that is analysis; the targets are another matter.
fn analysis(recorded: &Value) -> Value {
    let mut recorded = recorded.clone();
    if let Some(fields) = recorded.as_object_mut() {
        fields.remove("targets");
    }
    if recorded.get("total_replicas").is_some() && recorded["variant_analyses"].is_null() {
        recorded["variant_analyses"] = json!([]);
    }
    let variants = recorded.get_mut("variant_analyses").and_then(Value::as_array_mut);
    for variant in variants.into_iter().flatten() {
        let mut pods: Vec<String> =
            serde_json::from_value(variant["saturated_replicas"].clone()).unwrap_or_default();
        pods.sort();
        variant["saturated_replicas"] = json!(pods);
    }
    recorded
}

/// Mutant: `>` for `>=` at either threshold; a saturated replica in the means.
#[test]
fn spare_capacity_is_what_was_recorded() {
    replay("saturation_v1", answer, analysis);
}
