//! What a plan is made from: readings of the replicas, the variants, and what waits in front of them.
//!
//! Decides how the document reads (strictly, unknown keys are refused) and which reading counts as
//! known: finite, not negative and fresh. Does not know where the numbers come from. KV use and hit
//! rates are fractions, queues are requests, ages are seconds, token counts are tokens.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::analyzer::AnalyzerResult;

/// Oldest reading, in seconds, that scaling still believes, unless a document says otherwise. The
/// router's 200 ms would freeze scaling exactly under overload.
pub const FRESHNESS_SECONDS: f64 = 30.0;

/// Cost of a replica of a variant that names none; per replica, no unit.
pub const DEFAULT_COST: f64 = 10.0;

/// Everything that one plan reads, memory aside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Input {
    /// Every model whose variants are scaled.
    pub models: Vec<ModelInput>,
    /// GPUs of each type in the cluster; absent: the inventory is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<BTreeMap<String, u64>>,
    /// Oldest reading that counts, seconds; > 0.
    #[serde(default = "freshness")]
    pub freshness_seconds: f64,
}

fn freshness() -> f64 {
    FRESHNESS_SECONDS
}

impl Default for Input {
    fn default() -> Self {
        Self { models: Vec::new(), gpus: None, freshness_seconds: FRESHNESS_SECONDS }
    }
}

impl Input {
    /// Puts every list in its one order, so that an input and any permutation of it are one value and
    /// sums run the same way: models by namespace and name, variants by name, replicas by variant,
    /// name and readings.
    #[must_use]
    pub fn in_order(mut self) -> Self {
        self.models.sort_by(|a, b| (&a.namespace, &a.model_id).cmp(&(&b.namespace, &b.model_id)));
        for model in &mut self.models {
            model.sort();
        }
        self
    }
}

/// One model in one namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelInput {
    /// Name under which clients ask for the model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Namespace of its variants.
    pub namespace: String,
    /// One row a replica that is known to exist, read or not.
    #[serde(default)]
    pub replicas: Vec<Replica>,
    /// The scalable parts of the model.
    #[serde(default)]
    pub variants: Vec<Variant>,
    /// Requests held before any replica; absent: nothing is known to wait there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_queue: Option<SchedulerQueue>,
    /// Requests finished at the engines over the retention period; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_count: Option<f64>,
    /// Requests that pickers hold in flight for this model; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u64>,
    /// Requests per second that arrive for the model; absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival_rate: Option<f64>,
    /// The newest results of the analyzers besides `saturation`; shown, not deciding.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<AnalyzerResult>,
}

impl ModelInput {
    /// `namespace/modelID`, the key of what is learned about the model.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.model_id)
    }

    /// Puts variants and replicas in their one order; see [`Input::in_order`].
    pub fn sort(&mut self) {
        self.variants.sort_by(|a, b| a.name.cmp(&b.name));
        self.replicas.sort_by(Replica::order);
    }

    /// The replicas in their one order, whatever the order of the list.
    pub fn replicas_in_order(&self) -> Vec<&Replica> {
        let mut replicas: Vec<&Replica> = self.replicas.iter().collect();
        replicas.sort_by(|a, b| a.order(b));
        replicas
    }

    /// The variants by name, whatever the order of the list.
    pub fn variants_in_order(&self) -> Vec<&Variant> {
        let mut variants: Vec<&Variant> = self.variants.iter().collect();
        variants.sort_by(|a, b| a.name.cmp(&b.name));
        variants
    }

    /// Whether any variant serves one phase only, so that supply and demand exist per role as well.
    pub fn is_disaggregated(&self) -> bool {
        self.variants.iter().any(|variant| variant.role != Role::Both)
    }
}

/// The phase of a request that a variant serves.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Both phases; also what an empty role means.
    #[default]
    #[serde(alias = "")]
    Both,
    /// Output tokens.
    Decode,
    /// Prompt tokens.
    Prefill,
}

impl Role {
    /// The lower-case name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Both => "both",
            Self::Decode => "decode",
            Self::Prefill => "prefill",
        }
    }
}

/// One scalable part of a model: replicas of one kind at one price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Variant {
    /// Unique within the model.
    pub name: String,
    /// Price of a replica, no unit; > 0.
    pub cost: f64,
    /// GPU type, empty where unknown.
    pub accelerator: String,
    /// GPUs that one replica takes; >= 1.
    pub gpus_per_replica: u32,
    /// Phase that the variant serves.
    pub role: Role,
    /// Replicas that exist, ready or not.
    pub current: u32,
    /// Target published last; 0: none.
    pub desired: u32,
    /// Replicas of `current` that are not ready.
    pub pending: u32,
    /// Hard floor.
    pub min_replicas: u32,
    /// Hard cap; 0: none.
    pub max_replicas: u32,
    /// Arguments of the model server; absent: unknown, so nothing is derived from them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_args: Option<Vec<String>>,
    /// Environment of the model server, as far as its engine settings depend on it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub engine_env: BTreeMap<String, String>,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            name: String::new(),
            cost: DEFAULT_COST,
            accelerator: String::new(),
            gpus_per_replica: 1,
            role: Role::Both,
            current: 0,
            desired: 0,
            pending: 0,
            min_replicas: 0,
            max_replicas: 0,
            engine_args: None,
            engine_env: BTreeMap::new(),
        }
    }
}

impl Variant {
    /// Replicas that are ready, read or not.
    pub fn ready(&self) -> u32 {
        self.current.saturating_sub(self.pending)
    }
}

/// Requests held before any replica.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SchedulerQueue {
    /// Requests.
    pub size: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
}

/// One replica and its last readings; a reading that is absent is unknown.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Replica {
    /// Unique within the model.
    pub pod: String,
    /// Name of its variant.
    pub variant: String,
    /// KV-cache use, fraction.
    pub kv: Option<f64>,
    /// Waiting requests, mean over a rank.
    pub queue: Option<f64>,
    /// Running requests.
    pub running: Option<f64>,
    /// Age of every reading without an age of its own, seconds.
    pub age_seconds: f64,
    /// Age of `kv`, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_age_seconds: Option<f64>,
    /// Age of `queue`, seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_age_seconds: Option<f64>,
    /// The engine exports no KV use: the signal takes no part, instead of being unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kv_unmapped: bool,
    /// The engine exports no queue: the signal takes no part, instead of being unknown.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub queue_unmapped: bool,
    /// Blocks of the KV cache.
    pub num_gpu_blocks: Option<f64>,
    /// Tokens a block.
    pub block_size: Option<f64>,
    /// Tokens in use, where they are known better than by `kv` times the capacity.
    pub tokens_in_use: Option<f64>,
    /// Mean prompt tokens of finished requests.
    pub avg_input_tokens: Option<f64>,
    /// Mean output tokens of finished requests.
    pub avg_output_tokens: Option<f64>,
    /// Share of prompt tokens found in the prefix cache, fraction.
    pub prefix_hit_rate: Option<f64>,
    /// Mean seconds between two output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itl_seconds: Option<f64>,
    /// KV-cache use at the moment of `itl_seconds`, fraction; absent: `kv`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_instant: Option<f64>,
    /// Requests per second that it finishes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_rate: Option<f64>,
    /// Requests per second that are sent to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arrival_rate: Option<f64>,
}

/// A number that can be believed: finite and not negative.
pub fn known(value: Option<f64>) -> Option<f64> {
    value.filter(|v| v.is_finite() && *v >= 0.0)
}

/// A mean or a size that says something: known and above zero.
pub fn positive(value: Option<f64>) -> Option<f64> {
    known(value).filter(|v| *v > 0.0)
}

/// What is known of a signal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reading {
    /// The engine does not export it.
    Unmapped,
    /// Missing, stale, or no number.
    Unknown,
    /// Fresh.
    Fresh(f64),
}

impl Reading {
    /// The value where there is a fresh one.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Fresh(value) => Some(value),
            _ => None,
        }
    }
}

impl Replica {
    /// KV-cache use as scaling sees it; a reading as old as `limit` seconds is still fresh.
    pub fn kv_reading(&self, limit: f64) -> Reading {
        reading(self.kv_unmapped, self.kv, self.kv_age_seconds.unwrap_or(self.age_seconds), limit)
    }

    /// Waiting requests as scaling sees them; a reading as old as `limit` seconds is still fresh.
    pub fn queue_reading(&self, limit: f64) -> Reading {
        let age = self.queue_age_seconds.unwrap_or(self.age_seconds);
        reading(self.queue_unmapped, self.queue, age, limit)
    }

    /// Running requests, where they are read freshly.
    pub fn running_reading(&self, limit: f64) -> Option<f64> {
        reading(false, self.running, self.age_seconds, limit).value()
    }

    /// Tokens that its KV cache holds, where both factors are known; > 0.
    pub fn kv_tokens(&self) -> Option<f64> {
        let tokens = positive(self.num_gpu_blocks)? * positive(self.block_size)?;
        positive(Some(tokens))
    }

    /// Order by variant and name; rows of one name by their readings, so that no order is left open.
    pub fn order(&self, other: &Self) -> Ordering {
        let names = (&self.variant, &self.pod).cmp(&(&other.variant, &other.pod));
        names.then_with(|| {
            let pairs = self.numbers().into_iter().zip(other.numbers());
            pairs.fold(Ordering::Equal, |order, (a, b)| order.then(a.total_cmp(&b)))
        })
    }

    fn numbers(&self) -> [f64; 18] {
        let n = |value: Option<f64>| value.unwrap_or(f64::NEG_INFINITY);
        let b = |value: bool| f64::from(u8::from(value));
        [
            n(self.kv),
            n(self.queue),
            n(self.running),
            self.age_seconds,
            n(self.kv_age_seconds),
            n(self.queue_age_seconds),
            b(self.kv_unmapped),
            b(self.queue_unmapped),
            n(self.num_gpu_blocks),
            n(self.block_size),
            n(self.tokens_in_use),
            n(self.avg_input_tokens),
            n(self.avg_output_tokens),
            n(self.prefix_hit_rate),
            n(self.itl_seconds),
            n(self.kv_instant),
            n(self.request_rate),
            n(self.arrival_rate),
        ]
    }
}

fn reading(unmapped: bool, value: Option<f64>, age: f64, limit: f64) -> Reading {
    match known(value) {
        _ if unmapped => Reading::Unmapped,
        // A NaN age is not fresh, so the comparison must be the one that NaN fails.
        Some(value) if age <= limit => Reading::Fresh(value),
        _ => Reading::Unknown,
    }
}
