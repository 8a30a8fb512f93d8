//! What one engine exports: which families stand for which signal, compiled for one pass over a page.
//!
//! Decides under which names a family is looked up, older names included. Decides not what the
//! values are worth, nor which engine an endpoint runs.

use super::exposition::Wanted;
use super::spec::Spec;
use crate::store::{Vital, Vitals};

/// Families that an engine has renamed: the name of today, then the one that older releases export.
const RENAMED: [(&str, &str); 3] = [
    ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    ("vllm:prefix_cache_queries", "vllm:gpu_prefix_cache_queries"),
    ("vllm:prefix_cache_hits", "vllm:gpu_prefix_cache_hits"),
];

/// Which family an engine exports for each signal; `None` where it has no such metric.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mapping {
    /// Requests queued at the server.
    pub waiting: Option<Spec>,
    /// Requests that the server is running.
    pub running: Option<Spec>,
    /// KV-cache use, a fraction.
    pub kv: Option<Spec>,
    /// LoRA adapters, in the labels of the series with the largest value.
    pub lora: Option<Spec>,
    /// Cache configuration in labels.
    pub cache_info: Option<CacheInfo>,
    /// Cache configuration as gauges: tokens in a block.
    pub block_size: Option<Spec>,
    /// Cache configuration as gauges: blocks in the cache.
    pub num_blocks: Option<Spec>,
    /// Tokens that the KV cache of one rank holds, where the engine tells that itself.
    pub capacity: Option<Spec>,
    /// Numbers beside the load; a page need not have them.
    pub vitals: Vec<(Vital, Spec)>,
    /// Further values by the key under which they are published.
    pub custom: Vec<(String, Spec)>,
}

/// A family whose labels hold the cache configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheInfo {
    /// The family.
    pub spec: Spec,
    /// Label that holds the tokens in a block.
    pub block_size_label: String,
    /// Label that holds the blocks in the cache.
    pub num_blocks_label: String,
}

/// One engine's mapping, ready for [`super::reading::read_page`].
#[derive(Debug, Clone)]
pub struct Engine {
    name: String,
    pub(crate) mapping: Mapping,
    pub(crate) wanted: Wanted,
    /// Number of names in `wanted`.
    pub(crate) families: usize,
    pub(crate) targets: Vec<Target>,
    /// By family: the targets that a series of it can answer, and how good its name is for each.
    pub(crate) answers: Vec<Vec<(usize, usize)>>,
}

/// What a target's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    Waiting,
    Running,
    Kv,
    Lora,
    CacheInfo,
    BlockSize,
    NumBlocks,
    Capacity,
    Vital(Vital),
    /// Index among the mapping's custom metrics.
    Custom(usize),
}

/// One spec of an engine and the families that can answer it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) slot: Slot,
    pub(crate) spec: Spec,
    /// Indices among the wanted names, best first.
    pub(crate) names: Vec<usize>,
}

// === impl Engine ===

impl Engine {
    /// Compiles `mapping` under `name`.
    pub fn new(name: &str, mapping: Mapping) -> Self {
        let mut families: Vec<String> = Vec::new();
        let specs = [
            (Slot::Waiting, mapping.waiting.as_ref()),
            (Slot::Running, mapping.running.as_ref()),
            (Slot::Kv, mapping.kv.as_ref()),
            (Slot::Lora, mapping.lora.as_ref()),
            (Slot::CacheInfo, mapping.cache_info.as_ref().map(|info| &info.spec)),
            (Slot::BlockSize, mapping.block_size.as_ref()),
            (Slot::NumBlocks, mapping.num_blocks.as_ref()),
            (Slot::Capacity, mapping.capacity.as_ref()),
        ];
        let vitals = mapping.vitals.iter().map(|(vital, spec)| (Slot::Vital(*vital), Some(spec)));
        let custom = mapping.custom.iter().enumerate();
        let targets: Vec<Target> = specs
            .into_iter()
            .chain(vitals)
            .chain(custom.map(|(at, (_, spec))| (Slot::Custom(at), Some(spec))))
            .filter_map(|(slot, spec)| Some((slot, spec?)))
            .map(|(slot, spec)| {
                let names = spellings(spec.family());
                let names = names.into_iter().map(|name| index(&mut families, name)).collect();
                Target { slot, spec: spec.clone(), names }
            })
            .collect();
        let mut answers = vec![Vec::new(); families.len()];
        for (at, target) in targets.iter().enumerate() {
            for (preference, family) in target.names.iter().enumerate() {
                answers[*family].push((at, preference));
            }
        }
        Self {
            name: name.to_owned(),
            answers,
            wanted: Wanted::new(families.iter().map(String::as_str)),
            families: families.len(),
            targets,
            mapping,
        }
    }

    /// The name that a pod's engine label gives.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Which signals the engine exports.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Which numbers beside the load the engine exports or lets us reckon.
    pub fn vitals(&self) -> Vitals<bool> {
        let mapping = &self.mapping;
        let in_labels = mapping.cache_info.is_some();
        let block_size = in_labels || mapping.block_size.is_some();
        let num_blocks = in_labels || mapping.num_blocks.is_some();
        let capacity = (block_size && num_blocks) || mapping.capacity.is_some();
        Vital::ALL.map(|vital| match vital {
            Vital::BlockSize => block_size,
            Vital::NumBlocks => num_blocks,
            Vital::KvCapacity => capacity,
            Vital::KvUsed => capacity && mapping.kv.is_some(),
            told => mapping.vitals.iter().any(|(vital, _)| *vital == told),
        })
    }
}

/// The sample names that can stand for `family`: its own, the older one, and both with the suffix
/// that OpenMetrics puts on a counter's samples.
fn spellings(family: &str) -> Vec<String> {
    let older = RENAMED.iter().filter(|(new, _)| *new == family).map(|(_, old)| (*old).to_owned());
    let mut names: Vec<String> = std::iter::once(family.to_owned()).chain(older).collect();
    names.extend(names.clone().into_iter().map(|name| name + "_total"));
    names
}

/// The index of `name` in `families`, where it is added if new.
fn index(families: &mut Vec<String>, name: String) -> usize {
    families.iter().position(|known| *known == name).unwrap_or_else(|| {
        families.push(name);
        families.len() - 1
    })
}
