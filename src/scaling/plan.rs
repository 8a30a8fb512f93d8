//! What a plan says: a target for every variant, the numbers behind it and the steps that led there.
//!
//! Decides the form that `plumbline plan`, `/debug/plan` and its history share. Fields that the
//! chosen analyzer does not state are absent. Capacities and demand are KV tokens, utilisation and
//! spare KV are fractions, spare queue is requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::input::Role;

/// One decision over all models.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plan {
    /// Generation of the policy that it was made with.
    pub generation: u64,
    /// Digest of that policy.
    pub digest: String,
    /// By namespace and name.
    pub models: Vec<ModelPlan>,
}

/// The arithmetic behind a model's plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnalyzerVersion {
    /// Spare capacity in percent.
    V1,
    /// Tokens.
    #[default]
    V2,
}

/// The decision for one model.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ModelPlan {
    /// Name of the model.
    #[serde(rename = "modelID")]
    pub model_id: String,
    /// Its namespace.
    pub namespace: String,
    /// The arithmetic that was used.
    pub analyzer: AnalyzerVersion,
    /// V2: supply of the ready replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_supply: Option<f64>,
    /// V2: the same, pending replicas included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_anticipated_supply: Option<f64>,
    /// V2: demand, queues included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_demand: Option<f64>,
    /// V2: demand over supply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// V2: capacity that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_capacity: Option<f64>,
    /// V2: capacity that could go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spare_capacity: Option<f64>,
    /// V1: replicas below the line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_saturated: Option<u32>,
    /// V1: mean distance to the KV threshold over these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_spare_kv: Option<f64>,
    /// V1: mean distance to the queue threshold over these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avg_spare_queue: Option<f64>,
    /// V1: whether a replica is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<bool>,
    /// V1: whether one could go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scale_down_safe: Option<bool>,
    /// V2: the sums by role; empty unless a variant serves one phase only.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, RolePlan>,
    /// Results of further analyzers; shown, not deciding.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherPlan>,
    /// By name.
    pub variants: Vec<VariantPlan>,
    /// What led to the targets, in order.
    pub steps: Vec<Step>,
}

/// Supply and demand of one role.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RolePlan {
    /// Supply of the ready replicas.
    pub total_supply: f64,
    /// The same, pending replicas included.
    pub total_anticipated_supply: f64,
    /// Demand, its share of the queue included.
    pub total_demand: f64,
    /// Capacity that is missing.
    pub required_capacity: f64,
    /// Capacity that could go.
    pub spare_capacity: f64,
}

/// What a further analyzer says, in its own unit.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OtherPlan {
    /// Its name.
    pub name: String,
    /// Supply of the ready replicas.
    pub total_supply: f64,
    /// The same, pending replicas included.
    pub total_anticipated_supply: f64,
    /// Demand.
    pub total_demand: f64,
    /// Demand over supply.
    pub utilization: f64,
    /// Capacity that is missing.
    pub required_capacity: f64,
    /// Capacity that could go.
    pub spare_capacity: f64,
    /// The sums by role.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub roles: BTreeMap<Role, RolePlan>,
}

/// What is to become of a variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// More replicas.
    ScaleUp,
    /// Fewer.
    ScaleDown,
    /// As many.
    #[default]
    NoChange,
}

impl Action {
    /// The action that leads from `current` to `target`.
    pub fn between(current: u32, target: u32) -> Self {
        match target.cmp(&current) {
            std::cmp::Ordering::Greater => Self::ScaleUp,
            std::cmp::Ordering::Less => Self::ScaleDown,
            std::cmp::Ordering::Equal => Self::NoChange,
        }
    }
}

/// The decision for one variant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VariantPlan {
    /// Its name.
    pub name: String,
    /// Phase it serves.
    pub role: Role,
    /// Price of a replica.
    pub cost: f64,
    /// GPU type.
    pub accelerator: String,
    /// V2: what one replica can carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_replica_capacity: Option<f64>,
    /// V2: the same of all ready replicas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_capacity: Option<f64>,
    /// V2: what they carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_demand: Option<f64>,
    /// V2: demand over capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilization: Option<f64>,
    /// Replicas that exist.
    pub current: u32,
    /// Those of them that are not ready.
    pub pending: u32,
    /// Replicas that should exist.
    pub target: u32,
    /// From current to target.
    pub action: Action,
    /// Why, in a line.
    pub reason: String,
}

/// One line of the way to a plan, with its numbers.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Step {
    /// Part of the planner that speaks: `analyzer`, `post-step`, `optimizer`, `enforcer`, `limiter`,
    /// `guard` or `bounds`.
    pub stage: String,
    /// What it found.
    pub text: String,
    /// The numbers of the text, by name.
    #[serde(flatten)]
    pub numbers: BTreeMap<String, f64>,
}

impl Step {
    /// A step with its numbers.
    pub fn new<const N: usize>(stage: &str, text: String, numbers: [(&str, f64); N]) -> Self {
        let numbers = numbers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Self { stage: stage.to_owned(), text, numbers }
    }
}
