//! The universal post-step: from supply and demand to the capacity that is missing or could go.
//!
//! Decides required and spare capacity at model and role scope, for every analyzer alike, and is the
//! only place that can state them; also which pair of thresholds an analyzer has. Does not read a
//! configuration. Capacities are in the unit of the analyzer.

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

impl Pair {
    /// Whether it can be one: both in (0, 1], and between them a band in which nothing happens.
    pub fn holds(self) -> bool {
        let in_unit = |v: f64| v > 0.0 && v <= 1.0;
        in_unit(self.scale_up_threshold)
            && in_unit(self.scale_down_boundary)
            && self.scale_up_threshold > self.scale_down_boundary
    }

    /// The pair of one analyzer: its own threshold where it has one, else this one, the model's. An
    /// override that does not make a pair leaves the model's, and the second value says why.
    pub fn for_analyzer(
        self,
        name: &str,
        scale_up_threshold: Option<f64>,
        scale_down_boundary: Option<f64>,
    ) -> (Self, Option<String>) {
        let own = Self {
            scale_up_threshold: scale_up_threshold.unwrap_or(self.scale_up_threshold),
            scale_down_boundary: scale_down_boundary.unwrap_or(self.scale_down_boundary),
        };
        if own.holds() {
            return (own, None);
        }
        let warning = format!(
            "analyzer {name:?}: scaleUpThreshold ({:.2}) must be > scaleDownBoundary ({:.2}), both in \
             (0, 1]; the model's {:.2} and {:.2} count",
            own.scale_up_threshold,
            own.scale_down_boundary,
            self.scale_up_threshold,
            self.scale_down_boundary
        );
        (self, Some(warning))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn need(supply: f64, anticipated: f64, demand: f64, up: f64, down: f64) -> (f64, f64) {
        let result = AnalyzerResult {
            total_supply: supply,
            total_anticipated_supply: anticipated,
            total_demand: demand,
            ..AnalyzerResult::default()
        };
        let pair = Pair { scale_up_threshold: up, scale_down_boundary: down };
        let need = Calibrated::new(result, pair).need();
        (need.required(), need.spare())
    }

    /// Vectors 45 to 50 and 55. Mutants: supply for anticipated, up for down, no floor at zero.
    #[test]
    fn the_formula_is_the_seeds() {
        let near = |(rc, sc): (f64, f64), want: (f64, f64)| {
            assert!((rc - want.0).abs() < 0.005 && (sc - want.1).abs() < 0.005, "{rc} {sc}");
        };
        near(need(12_800.0, 12_800.0, 11_450.0, 0.85, 0.7), (670.59, 0.0));
        near(need(25_600.0, 25_600.0, 2_000.0, 0.85, 0.7), (0.0, 22_742.86));
        near(need(12_800.0, 12_800.0, 10_000.0, 0.85, 0.7), (0.0, 0.0));
        near(need(25_600.0, 38_400.0, 1_000.0, 0.85, 0.7), (0.0, 24_171.43));
        near(need(0.0, 0.0, 8_500.0, 0.85, 0.7), (10_000.0, 0.0));
        near(need(9_500.0, 9_500.0, 9_000.0, 0.9, 0.6), (500.0, 0.0));
        near(need(0.0, 0.0, 0.0, 0.85, 0.7), (0.0, 0.0));
    }

    /// Mutant: taking the override without asking whether it makes a pair.
    #[test]
    fn an_override_that_inverts_the_pair_falls_back_to_the_models() {
        let model = Pair { scale_up_threshold: 0.85, scale_down_boundary: 0.7 };
        assert_eq!(model.for_analyzer("saturation", Some(0.9), None).0.scale_up_threshold, 0.9);
        assert_eq!(model.for_analyzer("saturation", None, Some(0.5)).0.scale_down_boundary, 0.5);
        for (up, down) in [(Some(0.6), None), (None, Some(0.9)), (Some(f64::NAN), None)] {
            let (pair, warning) = model.for_analyzer("saturation", up, down);
            assert_eq!(pair, model);
            assert!(warning.is_some_and(|text| text.contains("\"saturation\"")));
        }
        assert_eq!(model.for_analyzer("saturation", None, None), (model, None));
    }
}
