//! V2: supply and demand of a model in KV tokens.
//!
//! Decides the capacity of a replica by its two bounds, memory and compute, the demand that its KV
//! cache and its queue carry, and the sums over variants and roles. Required and spare capacity are
//! the post-step's. Capacities and demand are whole KV tokens. A reading that is missing, stale or no
//! number adds no demand and takes away no supply: what follows from that is for the guards.

mod bounds;
mod records;
mod workload;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::analyzer::{
    AnalyzerInput, AnalyzerResult, SATURATION, VariantCapacity, totals, totals_by_role,
};
use super::engine_args::EngineArgs;
use super::input::{ModelInput, Replica, Role, Variant, known};
use super::learned::Learned;
use super::plan::Step;
use bounds::{Bounds, Source};
pub use workload::Workload;

/// One replica as V2 sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReplicaCapacity {
    /// k1: what the memory holds below the KV threshold; tokens.
    pub memory_bound: f64,
    /// k2: what the engine computes without a queue; tokens.
    pub compute_bound: f64,
    /// The smaller of the two.
    pub effective: f64,
    /// Where k2 comes from: `P1-obs`, `P2-hist`, `P3-k2`, `P4-k1`, or `P0-store` where the capacity
    /// itself comes from a record.
    pub source: &'static str,
    /// What it carries and what waits for it; tokens.
    pub demand: f64,
}

/// What a variant is made of while it is analyzed.
struct Part<'a> {
    variant: &'a Variant,
    engine: Option<EngineArgs>,
    replicas: Vec<&'a Replica>,
}

/// The fixed surroundings of one model's analysis.
struct Scene<'a> {
    input: &'a AnalyzerInput<'a>,
    /// Mean work of the model's requests, where any finished.
    averages: Option<Workload>,
}

/// Analyzes one model, and keeps in `learned` what was seen of its capacities.
pub fn analyze(input: &AnalyzerInput<'_>, learned: &mut Learned) -> AnalyzerResult {
    let model = input.model;
    let scene = Scene { input, averages: Workload::mean_of(&model.replicas_in_order()) };
    let parts = parts(model);
    records::expire(learned, input.now_millis);
    for part in &parts {
        records::note_deployment(
            learned,
            model,
            part.variant,
            part.engine.as_ref(),
            input.now_millis,
        );
    }
    // Every sample of this run goes into the history before any of it is read, so that the order of
    // the replicas cannot matter.
    for part in &parts {
        note_samples(&scene, part, learned);
    }
    let mut steps = Vec::new();
    let variants: Vec<VariantCapacity> =
        parts.iter().map(|part| analyze_variant(&scene, part, learned, &mut steps)).collect();
    unlisted(model, &mut steps);
    let queue = workload::scheduler_queue(model.scheduler_queue, scene.averages);
    result(model, variants, queue, steps)
}

/// The capacities of the replicas of one variant, by their names; for who wants to look closer.
pub fn replicas(
    input: &AnalyzerInput<'_>,
    variant: &str,
    learned: &Learned,
) -> Vec<(String, ReplicaCapacity)> {
    let model = input.model;
    let scene = Scene { input, averages: Workload::mean_of(&model.replicas_in_order()) };
    let Some(part) = parts(model).into_iter().find(|part| part.variant.name == variant) else {
        return Vec::new();
    };
    let read = part.replicas.iter();
    read.filter_map(|r| Some((r.pod.clone(), capacity(&scene, &part, r, learned)?))).collect()
}

fn parts(model: &ModelInput) -> Vec<Part<'_>> {
    let replicas = model.replicas_in_order();
    let of = |name: &str| replicas.iter().copied().filter(|r| r.variant == name).collect();
    model
        .variants_in_order()
        .into_iter()
        .map(|variant| Part {
            variant,
            engine: variant
                .engine_args
                .as_ref()
                .map(|args| EngineArgs::parse(args, &variant.engine_env)),
            replicas: of(&variant.name),
        })
        .collect()
}

/// Adds to the history what replicas with a queue at the line hold.
fn note_samples(scene: &Scene<'_>, part: &Part<'_>, learned: &mut Learned) {
    let AnalyzerInput { model, now_millis, freshness_seconds, line } = *scene.input;
    for replica in &part.replicas {
        let Some(tokens) = replica.kv_tokens() else { continue };
        let bounds = Bounds::of(tokens, line);
        let Some(sample) = bounds.observed(replica, freshness_seconds, line) else { continue };
        if let Some(workload) = Workload::of(replica).or(scene.averages) {
            let key = bounds::history_key(model, part.variant, workload);
            bounds::note_sample(learned, model, &replica.pod, key, sample, now_millis);
        }
    }
}

/// One replica; `None` where nothing prices it.
fn capacity(
    scene: &Scene<'_>,
    part: &Part<'_>,
    replica: &Replica,
    learned: &Learned,
) -> Option<ReplicaCapacity> {
    let AnalyzerInput { model, freshness_seconds, line, .. } = *scene.input;
    let own = Workload::of(replica).or(scene.averages);
    let workload = own.unwrap_or(Workload::ASSUMED);
    let waiting = replica
        .queue_reading(freshness_seconds)
        .value()
        .map_or(0.0, |queue| workload.waiting(queue, part.variant.role));
    let kv = replica.kv_reading(freshness_seconds).value();
    let Some(tokens) = replica.kv_tokens().or_else(|| kv_tokens_elsewhere(part, model, learned))
    else {
        // Only the arguments of the server speak: tokens that it computes at once, not tokens that it
        // holds. Use of it is measured against the same number, so the number itself cancels out.
        let whole = records::estimate(learned, model, part.variant, scene.averages, line)?;
        let effective = (whole * line.kv_cache_util()).trunc().max(1.0);
        let used = (kv.unwrap_or(0.0) * whole).trunc();
        return Some(ReplicaCapacity {
            memory_bound: effective,
            compute_bound: effective,
            effective,
            source: Source::Record.label(),
            demand: used + waiting,
        });
    };
    let bounds = Bounds::of(tokens, line);
    let history = bounds::history(learned, &bounds::history_key(model, part.variant, workload));
    let observed = bounds.observed(replica, freshness_seconds, line);
    let (compute_bound, source) = bounds.compute(observed, history, part.engine.as_ref(), workload);
    Some(ReplicaCapacity {
        memory_bound: bounds.memory,
        compute_bound,
        effective: bounds.memory.min(compute_bound),
        source: source.label(),
        demand: bounds.used(replica, freshness_seconds).unwrap_or(0.0) + waiting,
    })
}

/// Tokens that a replica of this variant holds, from its other replicas or from a live record.
fn kv_tokens_elsewhere(part: &Part<'_>, model: &ModelInput, learned: &Learned) -> Option<f64> {
    median(part.replicas.iter().filter_map(|replica| replica.kv_tokens()))
        .or_else(|| records::kv_tokens(learned, model, part.variant))
}

fn analyze_variant(
    scene: &Scene<'_>,
    part: &Part<'_>,
    learned: &mut Learned,
    steps: &mut Vec<Step>,
) -> VariantCapacity {
    let AnalyzerInput { model, now_millis, line, .. } = *scene.input;
    let variant = part.variant;
    let priced: Vec<ReplicaCapacity> = part
        .replicas
        .iter()
        .filter_map(|replica| capacity(scene, part, replica, learned))
        .collect();
    let effective = median(priced.iter().map(|replica| replica.effective));
    let without = part.replicas.iter().filter(|replica| replica.kv_tokens().is_none()).count();
    if without > 0 {
        steps.push(unpriced_step(variant, without, part.replicas.len(), effective));
    }
    let (per_replica, reason) = match effective {
        Some(effective) => (effective, most_common(&priced)),
        None => match records::estimate(learned, model, variant, scene.averages, line) {
            Some(effective) => (effective, Source::Record.label()),
            None => (0.0, Source::Nothing.label()),
        },
    };
    let demand = if priced.is_empty() {
        unpriced_demand(scene, part)
    } else {
        sum(priced.iter().map(|replica| replica.demand))
    };
    if let Some(tokens) = median(part.replicas.iter().filter_map(|replica| replica.kv_tokens())) {
        let engine = part.engine.as_ref();
        records::note_live(learned, model, variant, engine, tokens, per_replica, now_millis);
    }
    VariantCapacity::of(variant, per_replica, demand, reason)
}

/// What waits for replicas that nothing prices. It is known, and so it may make others grow.
fn unpriced_demand(scene: &Scene<'_>, part: &Part<'_>) -> f64 {
    let waiting = part.replicas.iter().map(|replica| {
        let workload = Workload::of(replica).or(scene.averages).unwrap_or(Workload::ASSUMED);
        let queue = replica.queue_reading(scene.input.freshness_seconds).value().unwrap_or(0.0);
        workload.waiting(queue, part.variant.role)
    });
    sum(waiting)
}

fn unpriced_step(variant: &Variant, without: usize, all: usize, price: Option<f64>) -> Step {
    let name = &variant.name;
    let (how, price) = match price {
        Some(price) if without < all => ("priced from its other replicas", price),
        Some(price) => ("priced from the capacity store", price),
        None => ("nothing prices them", 0.0),
    };
    let text = format!("{name}: {without} of {all} replicas with unknown capacity, {how}");
    Step::new("analyzer", text, [("replicas", without as f64), ("perReplicaCapacity", price)])
}

/// Says which replicas belong to no variant; their load is nobody's.
fn unlisted(model: &ModelInput, steps: &mut Vec<Step>) {
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for replica in &model.replicas {
        if !model.variants.iter().any(|variant| variant.name == replica.variant) {
            *names.entry(&replica.variant).or_default() += 1;
        }
    }
    for (name, count) in names {
        let text = format!("{count} replicas of {name:?}, which is no variant, are left out");
        steps.push(Step::new("analyzer", text, [("replicas", f64::from(count))]));
    }
}

fn result(
    model: &ModelInput,
    variants: Vec<VariantCapacity>,
    queue: workload::QueueDemand,
    steps: Vec<Step>,
) -> AnalyzerResult {
    let sums = totals(&variants);
    let demand = sums.total_demand + queue.total();
    let mut roles = BTreeMap::new();
    if model.is_disaggregated() {
        roles = totals_by_role(&variants);
        for (role, scope) in &mut roles {
            scope.total_demand += match role {
                Role::Prefill => queue.input,
                Role::Decode | Role::Both => queue.total(),
            };
        }
    }
    AnalyzerResult {
        name: SATURATION.to_owned(),
        total_supply: sums.total_supply,
        total_anticipated_supply: sums.total_anticipated_supply,
        total_demand: demand,
        utilization: if sums.total_supply > 0.0 { demand / sums.total_supply } else { 0.0 },
        variant_capacities: variants,
        role_capacities: roles,
        steps,
    }
}

/// The sum in order; of nothing it is 0, where the standard sum of floats is -0.
fn sum(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |sum, value| sum + value)
}

/// The middle value, or the whole part of the mean of the middle two.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.filter(|v| known(Some(*v)).is_some()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some(f64::midpoint(lower, upper).trunc())
}

/// The source that most replicas share; of equals the first by name.
fn most_common(replicas: &[ReplicaCapacity]) -> &'static str {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for replica in replicas {
        *counts.entry(replica.source).or_default() += 1;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map_or(Source::Nothing.label(), |(source, _)| source)
}
