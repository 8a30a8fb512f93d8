//! The rules that a plan is made by: the resolved scaling configuration and who acts on the plan.
//!
//! Decides nothing; whoever reads a configuration fills it in. Times are milliseconds.

use std::sync::Arc;

use crate::scaling_entry::ScalingTable;

/// How long a replica may take to start before nothing waits for it any longer.
pub const STARTUP_GRACE_MILLIS: u64 = 600_000;

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
    /// What holds for each model.
    pub table: Arc<ScalingTable>,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            generation: 1,
            digest: String::new(),
            advisory: false,
            startup_grace_millis: STARTUP_GRACE_MILLIS,
            table: Arc::default(),
        }
    }
}
