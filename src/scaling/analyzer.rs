//! What an analyzer is and what it says: supply and demand of every variant, in one unit of its own.
//!
//! Decides the shape of a result and the sums over it. Required and spare capacity are no part of a
//! result: only the post-step states them. Supply and demand are in the unit of the analyzer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::input::{ModelInput, Role, Variant};
use super::plan::Step;
use crate::thresholds::Thresholds;

/// Name of the analyzer that always runs and alone decides.
pub use crate::scaling_entry::SATURATION;

/// What every analyzer reads of one model.
#[derive(Debug, Clone, Copy)]
pub struct AnalyzerInput<'a> {
    /// Replicas, variants and the queue before them.
    pub model: &'a ModelInput,
    /// The line, as it holds for this model.
    pub line: &'a Thresholds,
    /// Oldest reading that counts, seconds.
    pub freshness_seconds: f64,
    /// The present, milliseconds of the clock that all of a loop's times are in.
    pub now_millis: u64,
}

/// What an analyzer remembers of one model between two runs; `null` at first. It is kept with what is
/// learned, so that a recorded run can be repeated.
pub type Memory = serde_json::Value;

/// Supply and demand by a model of its own, in a unit of its own. Pure: the same input and memory
/// give the same result.
pub trait Analyzer: Send + Sync {
    /// The name that a configuration uses; unique in a registry.
    fn name(&self) -> &str;

    /// Analyzes one model and leaves in `memory` what the next run needs.
    ///
    /// # Errors
    /// Why this model has no result now; the plan shows the text and goes on without.
    fn analyze(
        &self,
        input: &AnalyzerInput<'_>,
        memory: &mut Memory,
    ) -> Result<AnalyzerResult, String>;
}

/// Supply and demand of a whole model by one analyzer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AnalyzerResult {
    /// Name of the analyzer.
    pub name: String,
    /// Σ replicas · capacity of a replica.
    pub total_supply: f64,
    /// Σ (replicas + pending) · capacity of a replica.
    pub total_anticipated_supply: f64,
    /// Σ demand of the variants, and what waits before all of them.
    pub total_demand: f64,
    /// Demand over supply; 0 without supply.
    pub utilization: f64,
    /// By name.
    #[serde(rename = "variants")]
    pub variant_capacities: Vec<VariantCapacity>,
    /// The same sums by role; empty unless a variant serves one phase only.
    #[serde(rename = "roles")]
    pub role_capacities: BTreeMap<Role, RoleCapacity>,
    /// How the numbers came about, where that is worth a line.
    pub steps: Vec<Step>,
}

impl AnalyzerResult {
    /// Whether any variant has a known capacity; without one nothing follows from the demand.
    pub fn has_capacity(&self) -> bool {
        self.variant_capacities.iter().any(|variant| variant.per_replica_capacity > 0.0)
    }
}

/// Supply and demand of one variant.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VariantCapacity {
    /// Name of the variant.
    pub name: String,
    /// Phase it serves.
    pub role: Role,
    /// Price of a replica.
    pub cost: f64,
    /// GPU type, empty where unknown.
    pub accelerator: String,
    /// Ready replicas.
    #[serde(rename = "replicas")]
    pub replica_count: u32,
    /// Replicas that are not ready.
    #[serde(rename = "pending")]
    pub pending_replicas: u32,
    /// What one replica can carry; 0: unknown, so it is never picked to grow.
    pub per_replica_capacity: f64,
    /// Ready replicas · capacity of a replica.
    pub total_capacity: f64,
    /// What its replicas carry now.
    pub total_demand: f64,
    /// Demand over capacity; 0 without capacity.
    pub utilization: f64,
    /// Where the capacity comes from.
    pub reason: String,
}

impl VariantCapacity {
    /// What the ready replicas of `variant` carry, where each can carry `per_replica`.
    pub fn of(variant: &Variant, per_replica: f64, demand: f64, reason: &str) -> Self {
        let total = f64::from(variant.ready()) * per_replica;
        Self {
            name: variant.name.clone(),
            role: variant.role,
            cost: variant.cost,
            accelerator: variant.accelerator.clone(),
            replica_count: variant.ready(),
            pending_replicas: variant.pending,
            per_replica_capacity: per_replica,
            total_capacity: total,
            total_demand: demand,
            utilization: if total > 0.0 { demand / total } else { 0.0 },
            reason: reason.to_owned(),
        }
    }
}

/// Supply and demand of one scope: a model, or one role of it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleCapacity {
    /// Σ replicas · capacity of a replica.
    pub total_supply: f64,
    /// Σ (replicas + pending) · capacity of a replica.
    pub total_anticipated_supply: f64,
    /// Σ demand.
    pub total_demand: f64,
}

impl RoleCapacity {
    /// Adds one variant.
    pub fn add(&mut self, variant: &VariantCapacity) {
        let replicas = f64::from(variant.replica_count);
        let anticipated = replicas + f64::from(variant.pending_replicas);
        self.total_supply += replicas * variant.per_replica_capacity;
        self.total_anticipated_supply += anticipated * variant.per_replica_capacity;
        self.total_demand += variant.total_demand;
    }
}

/// The sums over all variants, in their order.
pub fn totals(variants: &[VariantCapacity]) -> RoleCapacity {
    variants.iter().fold(RoleCapacity::default(), |mut sum, variant| {
        sum.add(variant);
        sum
    })
}

/// The same sums by role.
pub fn totals_by_role(variants: &[VariantCapacity]) -> BTreeMap<Role, RoleCapacity> {
    let mut roles: BTreeMap<Role, RoleCapacity> = BTreeMap::new();
    for variant in variants {
        roles.entry(variant.role).or_default().add(variant);
    }
    roles
}
