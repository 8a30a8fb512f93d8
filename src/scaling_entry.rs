//! What scaling is told about one model: the line, the analyzers, priority, limiter, scale to zero.
//!
//! Decides which analyzer family a selection means and which bounds an analyzer gets. Does not know
//! layers, documents or keys (that is `config`) nor what an analyzer does. Bounds are fractions of
//! supply, priority and score are factors, the retention is a duration.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::thresholds::Thresholds;

/// Name of the analyzer that always runs.
pub const SATURATION: &str = "saturation";

/// Idle time before a model may go to zero where nobody says otherwise.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(600);

/// Which arithmetic plans: one choice for all models, made by the global `default` entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// V1, spare capacity in percent.
    SpareCapacity,
    /// V2, token capacity; also what an absent configuration means.
    #[default]
    TokenCapacity,
}

impl Selection {
    /// Its short name, `V1` or `V2`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SpareCapacity => "V1",
            Self::TokenCapacity => "V2",
        }
    }
}

/// One analyzer of the pipeline, as configured.
#[derive(Debug, Clone, PartialEq)]
pub struct AnalyzerEntry {
    /// As it is registered.
    pub name: String,
    /// Whether its result counts; [`SATURATION`] runs in any case. Default true.
    pub enabled: bool,
    /// Its weight, > 0. Default 1.
    pub score: f64,
    /// Its own bound instead of the model's; in (0, 1].
    pub scale_up_threshold: Option<f64>,
    /// Its own boundary instead of the model's; in (0, 1].
    pub scale_down_boundary: Option<f64>,
}

impl AnalyzerEntry {
    /// An enabled analyzer of score 1 without bounds of its own.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            enabled: true,
            score: 1.0,
            scale_up_threshold: None,
            scale_down_boundary: None,
        }
    }
}

/// When a model may go to zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScaleToZero {
    /// Whether it may at all. Default false.
    pub enabled: bool,
    /// How long it must have been idle; > 0. Default [`DEFAULT_RETENTION`].
    pub retention: Duration,
}

impl Default for ScaleToZero {
    fn default() -> Self {
        Self { enabled: false, retention: DEFAULT_RETENTION }
    }
}

/// The resolved configuration of one model in one namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingEntry {
    /// The line, for routing and scaling alike.
    pub thresholds: Thresholds,
    /// The older selector of V2; kept for those who print it.
    pub analyzer_name: String,
    /// Factor of this model's urgency when GPUs are shared out; > 0. Default 1.
    pub priority: f64,
    /// Whether a limiter caps this model's targets. Default false.
    pub enable_limiter: bool,
    /// The pipeline in configured order; empty where V1 is meant.
    pub analyzers: Vec<AnalyzerEntry>,
    /// When it may go to zero.
    pub scale_to_zero: ScaleToZero,
}

impl Default for ScalingEntry {
    /// What holds without any configuration: V2 with the built-in line.
    fn default() -> Self {
        Self {
            thresholds: Thresholds::default(),
            analyzer_name: String::new(),
            priority: 1.0,
            enable_limiter: false,
            analyzers: vec![AnalyzerEntry::named(SATURATION)],
            scale_to_zero: ScaleToZero::default(),
        }
    }
}

impl ScalingEntry {
    /// Scale-up threshold and scale-down boundary of one analyzer: its own where set, else the
    /// model's. A pair that its own bounds turn upside down is the model's pair.
    pub fn bounds(&self, analyzer: &str) -> (f64, f64) {
        let line = self.thresholds.numbers();
        let model = (line.scale_up_threshold, line.scale_down_boundary);
        let Some(own) = self.analyzers.iter().find(|entry| entry.name == analyzer) else {
            return model;
        };
        let pair =
            (own.scale_up_threshold.unwrap_or(model.0), own.scale_down_boundary.unwrap_or(model.1));
        if pair.0 > pair.1 { pair } else { model }
    }
}

/// Entries of one saturation map: what holds for all models and for single ones.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingScope {
    /// For a model without an entry of its own.
    pub default: ScalingEntry,
    /// By `{modelID}#{namespace}`.
    pub models: BTreeMap<String, ScalingEntry>,
}

/// Scale to zero of one model, with the namespace that it is limited to, if any.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroEntry {
    /// The model.
    pub model: String,
    /// Only there; `None`: in every namespace that has no entry of its own.
    pub namespace: Option<String>,
    /// What holds.
    pub zero: ScaleToZero,
}

/// Every resolved entry; swaps with the policy as one value.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScalingTable {
    /// Which arithmetic plans, for all models.
    pub selection: Selection,
    /// The global map.
    pub global: ScalingScope,
    /// Namespace-local maps; each replaces the global one whole.
    pub local: BTreeMap<String, ScalingScope>,
    /// Scale to zero where no entry names the model.
    pub zero: ScaleToZero,
    /// Scale to zero of single models.
    pub zero_models: Vec<ZeroEntry>,
}

/// The key of a model's own entry.
pub fn model_key(model: &str, namespace: &str) -> String {
    format!("{model}#{namespace}")
}

impl ScalingTable {
    /// The resolved entry of `model` in `namespace`.
    pub fn entry(&self, model: &str, namespace: &str) -> ScalingEntry {
        let scope = self.local.get(namespace).unwrap_or(&self.global);
        let entry = scope.models.get(&model_key(model, namespace)).unwrap_or(&scope.default);
        ScalingEntry { scale_to_zero: self.zero(model, namespace), ..entry.clone() }
    }

    fn zero(&self, model: &str, namespace: &str) -> ScaleToZero {
        let of_model = || self.zero_models.iter().filter(|entry| entry.model == model);
        let here = of_model().find(|entry| entry.namespace.as_deref() == Some(namespace));
        let found = here.or_else(|| of_model().find(|entry| entry.namespace.is_none()));
        found.map_or(self.zero, |entry| entry.zero)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: the model's pair for an analyzer with its own; an inverted pair handed out.
    #[test]
    fn an_analyzer_keeps_its_own_bounds_unless_they_are_upside_down() {
        let own = AnalyzerEntry { scale_up_threshold: Some(0.9), ..AnalyzerEntry::named("a") };
        let inverted = AnalyzerEntry { scale_up_threshold: Some(0.5), ..AnalyzerEntry::named("b") };
        let entry = ScalingEntry { analyzers: vec![own, inverted], ..ScalingEntry::default() };
        assert_eq!(entry.bounds("a"), (0.9, 0.7));
        assert_eq!(entry.bounds("b"), (0.85, 0.7));
        assert_eq!(entry.bounds("other"), (0.85, 0.7));
    }

    /// Mutants: a local map that adds to the global one; a zero entry of another namespace applied.
    #[test]
    fn a_local_map_replaces_the_global_one_and_zero_keeps_to_its_namespace() {
        let prioritised = |priority| ScalingEntry { priority, ..ScalingEntry::default() };
        let zero = |seconds| ScaleToZero { enabled: true, retention: Duration::from_secs(seconds) };
        let entry = |namespace: Option<&str>, seconds| ZeroEntry {
            model: "m".to_owned(),
            namespace: namespace.map(str::to_owned),
            zero: zero(seconds),
        };
        let table = ScalingTable {
            global: ScalingScope {
                default: prioritised(1.0),
                models: [
                    (model_key("m", "a"), prioritised(2.0)),
                    (model_key("m", "b"), prioritised(3.0)),
                ]
                .into(),
            },
            local: [(
                "b".to_owned(),
                ScalingScope { default: prioritised(4.0), ..Default::default() },
            )]
            .into(),
            zero_models: vec![entry(None, 1), entry(Some("b"), 2)],
            ..ScalingTable::default()
        };
        assert_eq!(table.entry("m", "a").priority, 2.0);
        assert_eq!(table.entry("m", "b").priority, 4.0);
        assert_eq!(table.entry("n", "a").priority, 1.0);
        assert_eq!(table.entry("m", "a").scale_to_zero, zero(1));
        assert_eq!(table.entry("m", "b").scale_to_zero, zero(2));
        assert_eq!(table.entry("n", "b").scale_to_zero, ScaleToZero::default());
    }
}
