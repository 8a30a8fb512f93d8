//! The debug pages as JSON values; others script against these names.
//!
//! Decides field names and that an unknown value is `null`, never zero. Ages are milliseconds,
//! durations Go duration strings.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::config::scaling_file::ScalingState;
use crate::discovery::file::ReloadState;
use crate::endpoint::{Load, Signal, Suspicion};
use crate::flow_control::FlowControl;
use crate::manifests::LoadState;
use crate::policy::{Number, Policy};
use crate::poller::Scrapes;
use crate::pool::PoolView;
use crate::reckoning;
use crate::routing::rewrite::{InForce, Target};
use crate::saturation;
use crate::scaling_entry::{ScalingEntry, ScalingTable};
use crate::thresholds::Thresholds;
use crate::units::GoDuration;

/// `/debug/pool`.
pub(super) fn pool(
    view: &PoolView<'_>,
    generation: u64,
    thresholds: &Thresholds,
    scrapes: &Scrapes,
) -> Value {
    let endpoints: Vec<Value> = view
        .members
        .iter()
        .zip(view.loads)
        .map(|(member, load)| {
            let age = oldest(load).map(|age| age.as_secs_f64() * 1e3);
            let now = present(load);
            json!({
                "id": member.endpoint.id.as_str(),
                "address": &*member.destination,
                "waiting": number(load.waiting),
                "running": number(load.running),
                "kv": load.kv.value(),
                "score": saturation::endpoint_score(load, thresholds),
                "age_ms": age,
                "stale": saturation::is_stale(load, thresholds),
                "in_flight": load.in_flight,
                "in_flight_tokens": load.in_flight_tokens,
                // What the detector, the gate and the filter go by.
                "now": {
                    "waiting": number(now.waiting.map(|waiting| waiting + now.ahead.waiting)),
                    "kv": now.kv_now().value(),
                    "score": saturation::endpoint_score(&now, thresholds),
                },
                "others": load.others,
                "kv_capacity_tokens": (load.capacity > 0.0).then_some(load.capacity),
                "prefill_tokens_per_second": load.speed.prefill,
                "pace": load.speed.pace,
                "suspect": load.suspicion != Suspicion::None,
                "last_error": scrapes.last_error(member.slot),
            })
        })
        .collect();
    let now: Vec<Load> = view.loads.iter().map(present).collect();
    json!({
        "generation": generation,
        "saturation": saturation::pool_saturation(view.loads, thresholds),
        "saturation_now": saturation::pool_saturation(&now, thresholds),
        "endpoints": endpoints,
    })
}

/// The load with what no scrape has shown yet.
fn present(load: &Load) -> Load {
    Load { ahead: reckoning::ahead(load, 1), ..*load }
}

/// The state of the endpoints file in `/debug/pool`; zeros without one.
pub(super) fn discovery(state: &ReloadState) -> Value {
    json!({
        "loads_ok": state.ok,
        "loads_failed": state.failed,
        "entries_rejected": state.rejected,
        "last_error": state.last_error,
    })
}

/// `/debug/flow`: what waits for an endpoint, and the limits; without a waiting room they are `null`.
pub(super) fn flow(flow: Option<&FlowControl>) -> Value {
    let held = flow.map(FlowControl::held).unwrap_or_default();
    json!({
        "waiting_room": flow.is_some(),
        "requests": held.requests,
        "bytes": held.bytes,
        "oldest_ms": held.oldest.map(|age| age.as_secs_f64() * 1e3),
        "limits": flow.map(FlowControl::limits).map(|limits| json!({
            "requests": limits.requests,
            "bytes": limits.bytes,
            "wait": GoDuration::from(limits.wait).to_string(),
        })),
    })
}

/// `/debug/policy`.
pub(super) fn policy(policy: &Policy) -> Value {
    json!({
        "generation": policy.generation,
        "digest": policy.digest,
        "thresholds": thresholds(policy),
        "scaling": scaling(&policy.scaling),
        "rewrites": rewrites(policy),
        "objectives": objectives(policy),
    })
}

/// What scaling is told about every model, by key; of a namespace's own map with its name before it.
fn scaling(table: &ScalingTable) -> Value {
    let local = table.local.iter().map(|(name, scope)| (format!("{name}/"), scope));
    let scopes = std::iter::once((String::new(), &table.global)).chain(local);
    let mut entries = Map::new();
    for (prefix, scope) in scopes {
        entries.insert(format!("{prefix}default"), entry(&scope.default));
        let models = scope.models.iter().map(|(key, of)| (format!("{prefix}{key}"), entry(of)));
        entries.extend(models);
    }
    json!({ "selection": table.selection.name(), "entries": entries })
}

fn entry(entry: &ScalingEntry) -> Value {
    let line = entry.thresholds.numbers();
    let analyzers = entry.analyzers.iter().map(|analyzer| {
        let (up, down) = entry.bounds(&analyzer.name);
        json!({
            "name": analyzer.name,
            "enabled": analyzer.enabled,
            "score": analyzer.score,
            "scaleUpThreshold": up,
            "scaleDownBoundary": down,
        })
    });
    json!({
        "kvCacheThreshold": line.kv_cache_util,
        "queueLengthThreshold": whole(line.queue_depth),
        "kvSpareTrigger": line.kv_spare_trigger,
        "queueSpareTrigger": whole(line.queue_spare_trigger),
        "scaleUpThreshold": line.scale_up_threshold,
        "scaleDownBoundary": line.scale_down_boundary,
        "priority": entry.priority,
        "enableLimiter": entry.enable_limiter,
        "analyzerName": entry.analyzer_name,
        "analyzers": analyzers.collect::<Value>(),
    })
}

/// The newest version of the scaling configuration in `/debug/policy`; nulls before the first.
pub(super) fn last_reload(state: &ScalingState) -> Value {
    let result = if state.last_error.is_none() { "ok" } else { "failed" };
    json!({
        "result": state.at.as_ref().map(|_| result),
        "error": state.last_error,
        "at": state.at,
        "loads_ok": state.ok,
        "loads_failed": state.failed,
        "entries_rejected": state.rejected,
    })
}

/// The state of the manifests in `/debug/policy`; zeros without any.
pub(super) fn manifests(state: &LoadState) -> Value {
    json!({
        "loads_ok": state.ok,
        "loads_failed": state.failed,
        "documents_rejected": state.rejected,
        "last_error": state.last_error,
    })
}

/// The rewrite rules in force, the same here and in `check --output json`. A `model` of `null` is the
/// rule for all others.
pub fn rewrites(policy: &Policy) -> Value {
    let rule = |(model, rule): (Option<&str>, &InForce)| {
        let target = |target: &Target| json!({ "model": target.model, "weight": target.weight });
        let targets: Vec<Value> = rule.targets.iter().map(target).collect();
        json!({ "model": model, "document": rule.document, "targets": targets })
    };
    policy.rewrites.rules().map(rule).collect()
}

/// Priorities by objective, the same here and in `check --output json`.
pub fn objectives(policy: &Policy) -> Value {
    let entries =
        policy.objectives.iter().map(|(name, priority)| (name.to_owned(), json!(priority)));
    Value::Object(entries.collect())
}

/// The thresholds object, the same here and in `check --output json`.
pub fn thresholds(policy: &Policy) -> Value {
    let entries = policy.table().map(|(name, number, source)| {
        let value = match number {
            Number::Plain(value) => whole(value),
            Number::Duration(_) => json!(number.to_string()),
        };
        (name.to_owned(), json!({ "value": value, "source": source.name() }))
    });
    Value::Object(entries.into_iter().collect::<Map<_, _>>())
}

/// An endpoint is as fresh as the older of the signals that its engine exports; one that was never
/// read makes that unknown.
fn oldest(load: &Load) -> Option<Duration> {
    let mapped = [load.waiting, load.kv].into_iter().filter(|signal| signal.is_mapped());
    let ages: Option<Vec<Duration>> = mapped.map(Signal::age).collect();
    ages?.into_iter().max()
}

fn number(signal: Signal) -> Value {
    signal.value().map_or(Value::Null, whole)
}

/// A count prints as `5`, not `5.0`; a fraction keeps its digits.
fn whole(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 9e15 { json!(value as i64) } else { json!(value) }
}
