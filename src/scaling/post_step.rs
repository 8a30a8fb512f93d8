//! The universal post-step: from supply and demand to the capacity that is missing or could go.
//!
//! Decides required and spare capacity at model and role scope, for every analyzer alike, and is the
//! only place that can state them. Does not choose the pair of thresholds. Capacities are in the unit
//! of the analyzer.

use std::collections::BTreeMap;

use super::analyzer::{AnalyzerResult, RoleCapacity};
use super::input::Role;

/// Two thresholds on demand over supply, as they hold for one analyzer and model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    /// Above it capacity is missing; in (0, 1], above `scale_down_boundary`.
    pub scale_up_threshold: f64,
    /// Below it capacity could go; in (0, 1].
    pub scale_down_boundary: f64,
}

/// Capacity that is missing and capacity that could go. Only this module makes one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Need {
    required: f64,
    spare: f64,
}

impl Need {
    /// RC: capacity that is missing; >= 0.
    pub fn required(self) -> f64 {
        self.required
    }

    /// SC: capacity that could go; >= 0.
    pub fn spare(self) -> f64 {
        self.spare
    }

    fn of(scope: &RoleCapacity, pair: Pair) -> Self {
        let required =
            scope.total_demand / pair.scale_up_threshold - scope.total_anticipated_supply;
        let spare = scope.total_supply - scope.total_demand / pair.scale_down_boundary;
        Self { required: required.max(0.0), spare: spare.max(0.0) }
    }
}

/// A result with its needs. Only the post-step makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibrated {
    result: AnalyzerResult,
    pair: Pair,
    need: Need,
    roles: BTreeMap<Role, Need>,
}

impl Calibrated {
    /// Applies one pair at model scope and at every role.
    pub fn new(result: AnalyzerResult, pair: Pair) -> Self {
        let model = RoleCapacity {
            total_supply: result.total_supply,
            total_anticipated_supply: result.total_anticipated_supply,
            total_demand: result.total_demand,
        };
        let need = Need::of(&model, pair);
        let roles = result
            .role_capacities
            .iter()
            .map(|(role, scope)| (*role, Need::of(scope, pair)))
            .collect();
        Self { result, pair, need, roles }
    }

    /// Supply and demand.
    pub fn result(&self) -> &AnalyzerResult {
        &self.result
    }

    /// The pair that was applied.
    pub fn pair(&self) -> Pair {
        self.pair
    }

    /// At model scope.
    pub fn need(&self) -> Need {
        self.need
    }

    /// By role; empty unless a variant serves one phase only.
    pub fn roles(&self) -> &BTreeMap<Role, Need> {
        &self.roles
    }
}
