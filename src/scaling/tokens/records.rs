//! The capacity store: what a replica of a variant could carry when it was last seen.
//!
//! Decides what is written down, for how long it holds, and what it says about a variant of which no
//! replica can be read. Tokens throughout; times are milliseconds.

use super::super::engine_args::EngineArgs;
use super::super::input::{ModelInput, Variant, positive};
use super::super::learned::{CapacityRecord, Learned, LearnedFrom};
use super::{Workload, bounds};
use crate::thresholds::Thresholds;

/// A history without a new sample for this long is of another time of day, or another model version.
const HISTORY_MILLIS: u64 = 24 * 3_600_000;
/// A capacity that nobody has confirmed for this long is forgotten.
const RECORD_MILLIS: u64 = 7 * 24 * 3_600_000;

/// Forgets what is too old.
pub(super) fn expire(learned: &mut Learned, now_millis: u64) {
    let young = |touched: u64, limit: u64| now_millis.saturating_sub(touched) <= limit;
    learned.k2_history.retain(|_, history| young(history.touched_millis, HISTORY_MILLIS));
    learned.k2_sampled_millis.retain(|_, sampled| young(*sampled, HISTORY_MILLIS));
    learned.capacities.retain(|_, record| young(record.touched_millis, RECORD_MILLIS));
}

fn key(model: &ModelInput, variant: &Variant) -> String {
    format!("{}/{}", model.key(), variant.name)
}

fn same_hardware(record: &CapacityRecord, model: &ModelInput, variant: &Variant) -> bool {
    record.model_id == model.model_id
        && record.accelerator == variant.accelerator
        && record.gpus_per_replica == variant.gpus_per_replica
}

/// Whether two servers have the same memory and the same step; what else differs changes neither.
fn same_engine(a: Option<&EngineArgs>, b: Option<&EngineArgs>) -> bool {
    let what = |args: &EngineArgs| {
        (
            args.gpu_memory_utilization.to_bits(),
            args.block_size,
            args.kv_cache_dtype.clone(),
            args.tensor_parallel_size,
            args.num_gpu_blocks_override,
            args.effective_max_batched_tokens(),
        )
    };
    a.map(what) == b.map(what)
}

/// Writes down what the arguments of a variant's server say. What was read from a running server is
/// better and stays, as long as it is the same server on the same hardware.
pub(super) fn note_deployment(
    learned: &mut Learned,
    model: &ModelInput,
    variant: &Variant,
    engine: Option<&EngineArgs>,
    now_millis: u64,
) {
    let key = key(model, variant);
    if let Some(record) = learned.capacities.get(&key)
        && record.learned_from == LearnedFrom::Live
        && same_hardware(record, model, variant)
        && same_engine(record.engine.as_ref(), engine)
    {
        return;
    }
    let Some(engine) = engine else {
        learned.capacities.remove(&key);
        return;
    };
    let record = CapacityRecord {
        model_id: model.model_id.clone(),
        accelerator: variant.accelerator.clone(),
        gpus_per_replica: variant.gpus_per_replica,
        kv_tokens: engine.num_gpu_blocks_override as f64 * engine.block_size as f64,
        effective: engine.effective_max_batched_tokens() as f64,
        engine: Some(engine.clone()),
        learned_from: LearnedFrom::Deployment,
        touched_millis: now_millis,
    };
    learned.capacities.insert(key, record);
}

/// Writes down what running replicas show.
pub(super) fn note_live(
    learned: &mut Learned,
    model: &ModelInput,
    variant: &Variant,
    engine: Option<&EngineArgs>,
    kv_tokens: f64,
    effective: f64,
    now_millis: u64,
) {
    let record = CapacityRecord {
        model_id: model.model_id.clone(),
        accelerator: variant.accelerator.clone(),
        gpus_per_replica: variant.gpus_per_replica,
        kv_tokens,
        effective,
        engine: engine.cloned(),
        learned_from: LearnedFrom::Live,
        touched_millis: now_millis,
    };
    learned.capacities.insert(key(model, variant), record);
}

/// Tokens that a replica of the variant holds, if a record knows.
pub(super) fn kv_tokens(learned: &Learned, model: &ModelInput, variant: &Variant) -> Option<f64> {
    positive(Some(learned.capacities.get(&key(model, variant))?.kv_tokens))
}

/// What a replica of the variant could carry, if there were one to read: as read last; else from the
/// arguments of its server, but no more than its own memory or a running server like it; else as a
/// running server on the same hardware.
pub(super) fn estimate(
    learned: &Learned,
    model: &ModelInput,
    variant: &Variant,
    averages: Option<Workload>,
    line: &Thresholds,
) -> Option<f64> {
    let key = key(model, variant);
    let like_it = |engine: Option<&EngineArgs>| {
        let live = learned.capacities.iter().filter(|(other, record)| {
            **other != key
                && record.learned_from == LearnedFrom::Live
                && same_hardware(record, model, variant)
                && engine.is_none_or(|own| same_engine(Some(own), record.engine.as_ref()))
        });
        live.filter_map(|(_, record)| positive(Some(record.effective))).min_by(f64::total_cmp)
    };
    let Some(record) = learned.capacities.get(&key) else {
        // Without a type to compare by, everything would be alike.
        return if variant.accelerator.is_empty() { None } else { like_it(None) };
    };
    if record.learned_from == LearnedFrom::Live {
        return positive(Some(record.effective));
    }
    let engine = record.engine.as_ref();
    let derived = engine.zip(averages).and_then(|(e, averages)| bounds::derived(e, averages));
    let Some(derived) = derived else { return positive(Some(record.effective)) };
    let memory = positive(Some(record.kv_tokens)).map(|t| (t * line.kv_cache_util()).trunc());
    let bounds = [memory, like_it(engine)];
    Some(bounds.into_iter().flatten().fold(derived, f64::min))
}
