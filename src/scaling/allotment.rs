//! A variant on its way through one plan: what is known of it, and the target so far.
//!
//! Decides how far a variant may grow or shrink at all and in which order variants are taken; not
//! whether they should. Counts are replicas, capacity is tokens per replica, cost has no unit.

use std::cmp::Ordering;

use super::input::Role;

/// Without `maxReplicas` one plan adds at most as many replicas as there are, but always this many.
pub const FREE_GROWTH: u32 = 4;

/// One variant and its target so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Allotment {
    /// Name, unique within the model.
    pub name: String,
    /// What its replicas do.
    pub role: Role,
    /// Cost of a replica; > 0 in practice, any number is ordered.
    pub cost: f64,
    /// GPU type; empty when unknown.
    pub accelerator: String,
    /// GPUs that a replica takes, >= 1.
    pub gpus_per_replica: u32,
    /// Effective capacity of a replica in tokens; 0 when unknown.
    pub per_replica: f64,
    /// Replicas, pending ones included.
    pub current: u32,
    /// Replicas that are starting and still block what waits for them.
    pub pending: u32,
    /// Lower bound of the target.
    pub min: u32,
    /// Upper bound of the target; 0 for none.
    pub max: u32,
    /// The target so far.
    pub target: u32,
}

impl Allotment {
    /// How many replicas may still be added in this plan.
    pub fn headroom(&self) -> u32 {
        let top = if self.max > 0 {
            self.max
        } else {
            self.current.saturating_add(self.current.max(FREE_GROWTH))
        };
        top.saturating_sub(self.target)
    }

    /// Cost of a unit of capacity; infinite when the capacity is unknown.
    pub fn cost_per_capacity(&self) -> f64 {
        if self.per_replica > 0.0 { self.cost / self.per_replica } else { f64::INFINITY }
    }
}

/// Cheapest replica first, then by name.
pub fn by_cost(a: &Allotment, b: &Allotment) -> Ordering {
    a.cost.total_cmp(&b.cost).then_with(|| a.name.cmp(&b.name))
}

/// Cheapest capacity first, then by name.
pub fn by_cost_per_capacity(a: &Allotment, b: &Allotment) -> Ordering {
    a.cost_per_capacity().total_cmp(&b.cost_per_capacity()).then_with(|| a.name.cmp(&b.name))
}

/// Dearest replica first; of equal ones the smallest capacity, then by name.
pub fn by_release(a: &Allotment, b: &Allotment) -> Ordering {
    b.cost
        .total_cmp(&a.cost)
        .then_with(|| a.per_replica.total_cmp(&b.per_replica))
        .then_with(|| a.name.cmp(&b.name))
}

/// Whole replicas of `per_replica` that cover `need`. The smallest positive need takes one.
pub fn replicas_for(need: f64, per_replica: f64) -> u32 {
    whole((need / per_replica).ceil())
}

/// Whole replicas of `per_replica` within `spare`.
pub fn replicas_within(spare: f64, per_replica: f64) -> u32 {
    whole((spare / per_replica).floor())
}

/// A count from a number that is whole; what no count can be is 0, what is too large is the largest.
fn whole(number: f64) -> u32 {
    // A cast of a float saturates and turns NaN into 0.
    number as u32
}

/// Indices of the allotments that `keep`, ordered.
pub fn ordered(
    variants: &[Allotment],
    keep: impl Fn(&Allotment) -> bool,
    order: impl Fn(&Allotment, &Allotment) -> Ordering,
) -> Vec<usize> {
    let mut indices: Vec<usize> = (0..variants.len()).filter(|i| keep(&variants[*i])).collect();
    indices.sort_by(|a, b| order(&variants[*a], &variants[*b]));
    indices
}
