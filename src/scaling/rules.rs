//! The rules that a plan is made by: the scaling configuration as it holds for each model.
//!
//! Decides nothing; whoever reads a configuration fills it in. Times are milliseconds.

use std::collections::BTreeMap;

use super::input::ModelInput;
use super::plan::AnalyzerVersion;
use crate::thresholds::Thresholds;

/// How long a replica may take to start before nothing waits for it any longer.
pub const STARTUP_GRACE_MILLIS: u64 = 600_000;

/// How long a model must have been without a finished request before it may go to zero.
pub const RETENTION_MILLIS: u64 = 600_000;

/// The rules of one plan.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    /// Generation of the policy they are part of.
    pub generation: u64,
    /// Digest of that policy.
    pub digest: String,
    /// Nobody acts on the plan, so nothing is taken for published.
    pub advisory: bool,
    /// How long a replica may take to start.
    pub startup_grace_millis: u64,
    /// Rules of a model without rules of its own.
    pub default: ModelRules,
    /// Rules of single models, by [`ModelInput::key`].
    pub models: BTreeMap<String, ModelRules>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            generation: 1,
            digest: String::new(),
            advisory: false,
            startup_grace_millis: STARTUP_GRACE_MILLIS,
            default: ModelRules::default(),
            models: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// The rules of a model.
    pub fn of(&self, model: &ModelInput) -> &ModelRules {
        self.models.get(&model.key()).unwrap_or(&self.default)
    }
}

/// The rules of one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRules {
    /// The line, and the bounds of V1 and V2.
    pub line: Thresholds,
    /// The arithmetic.
    pub analyzer: AnalyzerVersion,
    /// Bounds of single analyzers, by name.
    pub overrides: BTreeMap<String, Override>,
    /// Urgency where GPUs are shared; >= 0.
    pub priority: f64,
    /// Growth is limited to the GPUs there are.
    pub enable_limiter: bool,
    /// The model may go to zero.
    pub scale_to_zero: bool,
    /// How far back the requests of [`ModelInput::request_count`] are counted.
    pub retention_millis: u64,
}

/// The bounds of one analyzer; `None` leaves the model's.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Override {
    /// In place of `scaleUpThreshold`.
    pub scale_up_threshold: Option<f64>,
    /// In place of `scaleDownBoundary`.
    pub scale_down_boundary: Option<f64>,
}

impl Default for ModelRules {
    fn default() -> Self {
        Self {
            line: Thresholds::default(),
            analyzer: AnalyzerVersion::V2,
            overrides: BTreeMap::new(),
            priority: 1.0,
            enable_limiter: false,
            scale_to_zero: false,
            retention_millis: RETENTION_MILLIS,
        }
    }
}
