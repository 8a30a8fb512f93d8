//! What the scaling loop knows from earlier plans: the memory that goes in beside the input and comes
//! out beside the plan.
//!
//! Decides the shape only; who writes which field is said there. All times are milliseconds of the
//! loop's clock, capacities are KV tokens. Ordered maps throughout: written twice, it is the same
//! text.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::analyzer::Memory;

/// Everything remembered. Empty at a first start, and then nothing is taken for idle.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Learned {
    /// V2: compute-bound capacities seen under load, by model, accelerator, GPUs and output length.
    pub k2_history: BTreeMap<String, K2History>,
    /// V2: when a replica gave its last sample to that history, by `namespace/model/pod`.
    pub k2_sampled_millis: BTreeMap<String, u64>,
    /// V2: the last known capacity of a replica, by `namespace/model/variant`.
    pub capacities: BTreeMap<String, CapacityRecord>,
    /// What other analyzers remember, by name and `namespace/model`.
    pub analyzers: BTreeMap<String, BTreeMap<String, Memory>>,
    /// Readings of the last minute, by `namespace/model/pod/signal`.
    pub windows: BTreeMap<String, Window>,
    /// Targets as last published, by `namespace/model/variant`.
    pub published: BTreeMap<String, Published>,
    /// Falls that are wanted and not published yet, by `namespace/model/variant`.
    pub falls: BTreeMap<String, Fall>,
    /// Clocks of the last moves, by `namespace/model`.
    pub settle: BTreeMap<String, Settle>,
}

/// Compute-bound capacities of one bucket of similar work.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct K2History {
    /// The newest samples, oldest first; KV tokens.
    pub samples: VecDeque<f64>,
    /// When the newest came in.
    pub touched_millis: u64,
}

/// Where a capacity record comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LearnedFrom {
    /// Derived from the arguments of the model server.
    #[default]
    Deployment,
    /// Read from a running replica.
    Live,
}

/// The last known capacity of a replica of one variant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CapacityRecord {
    /// Model that the variant serves.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// GPU type.
    pub accelerator: String,
    /// GPUs of a replica.
    pub gpus_per_replica: u32,
    /// Tokens that the KV cache holds; 0: unknown.
    pub kv_tokens: f64,
    /// What a replica can carry, tokens; 0: unknown.
    pub effective: f64,
    /// Arguments of the model server at that time, if they were known.
    pub engine: Option<super::engine_args::EngineArgs>,
    /// Source.
    pub learned_from: LearnedFrom,
    /// When it was written.
    pub touched_millis: u64,
}

/// Means of one signal over single seconds, oldest first.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Window {
    /// One entry a second that had a reading.
    pub seconds: VecDeque<WindowSecond>,
}

/// The readings of one second.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WindowSecond {
    /// Whole seconds of the loop's clock.
    pub second: u64,
    /// Sum of the readings.
    pub sum: f64,
    /// Number of readings; >= 1.
    pub readings: u32,
}

/// A published target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Published {
    /// Replicas.
    pub target: u32,
    /// When the target last changed to this number.
    pub since_millis: u64,
    /// Replicas that were starting at the last plan.
    pub pending: u32,
    /// When that number last rose; it counts while `pending` is above 0.
    pub pending_since_millis: u64,
}

/// A lower target on its way to be published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Fall {
    /// What was wanted last; replicas.
    pub target: u32,
    /// Since when any lower target is wanted.
    pub since_millis: u64,
    /// When a still lower one was wanted for the first time.
    pub grown_millis: u64,
}

/// Clocks of one model's moves; `None`: never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settle {
    /// When a target of the model was last changed.
    pub moved_millis: Option<u64>,
    /// When the last change had arrived at every variant, or its time to start had run out.
    pub settled_millis: Option<u64>,
}
