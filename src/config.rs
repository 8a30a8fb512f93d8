//! Configuration: from what users write to one validated [`Policy`].
//!
//! Decides how layers merge and what is refused; reads a file only where it is told to, starts nothing.
//! Every layer reports all of its violations at once.

pub mod epp;
pub mod go_json;
pub mod layers;
pub mod lint;
pub mod params;
pub mod scaling;
pub mod scaling_file;
pub mod variants;
pub mod variants_file;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::policy::{Policy, Source, Sources};
use crate::routing::Profile;
use crate::thresholds::Thresholds;

pub use layers::{Dropped, Layers};
pub use params::Params;
pub use scaling_file::{ScalingFile, Version};

/// The line by params alone.
///
/// # Errors
/// One text per violated rule.
pub fn resolve(params: &Params) -> Result<(Thresholds, Sources), Vec<String>> {
    let layers = Layers { params: params.clone(), ..Layers::default() };
    let line = layers.line(None, "");
    if line.dropped.is_empty() {
        Ok((line.entry.thresholds, line.sources))
    } else {
        Err(line.dropped.iter().map(|dropped| dropped.rule.clone()).collect())
    }
}

/// The policy of a start: resolved thresholds and this profile.
///
/// # Errors
/// As [`resolve`].
pub fn policy(params: &Params, profile: Profile) -> Result<Policy, Vec<String>> {
    resolve(params)?;
    Ok(LineSource::open(params.clone(), Model::default(), None).policy(profile).0)
}

/// Whose line routing takes: one process serves one model.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Model {
    /// As the scaling configuration calls it; `None`: no entry of a single model counts.
    pub id: Option<String>,
    /// Its namespace.
    pub namespace: String,
}

impl Layers {
    /// `policy` with the line of these layers, and what broken rules have cost.
    pub fn applied(&self, policy: Policy, model: &Model) -> (Policy, Vec<Dropped>) {
        let line = self.line(model.id.as_deref(), &model.namespace);
        let (table, dropped) = self.table();
        (policy.with_line(line.entry.thresholds, line.sources, Arc::new(table)), dropped)
    }
}

/// Where the line of a process comes from.
#[derive(Debug, Clone, Default)]
pub struct LineSource {
    /// The layers as they were at start.
    pub layers: Layers,
    /// Whose line routing takes.
    pub model: Model,
    /// The watched scaling configuration, with what it said at start.
    pub file: Option<(ScalingFile, Arc<Version>)>,
}

impl LineSource {
    /// Layers of params and of the file at `scaling`, which is read once; blocks.
    pub fn open(params: Params, model: Model, scaling: Option<&Path>) -> Self {
        let mut layers = Layers { params, ..Layers::default() };
        let file = scaling.map(|path| {
            let (file, version) = ScalingFile::open(path);
            if let Ok(document) = &version {
                layers.scaling = layers.scaling.next(document).0;
            }
            (file, Arc::new(version))
        });
        Self { layers, model, file }
    }

    /// The policy of a start with this profile, and what broken rules have cost.
    pub fn policy(&self, profile: Profile) -> (Policy, Vec<Dropped>) {
        let base = Policy::new(Thresholds::default(), [Source::BuiltIn; 8], profile);
        self.layers.applied(base, &self.model)
    }
}

/// What the lint needs to know beside the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Surroundings {
    /// Time between two scrapes of one endpoint.
    pub scrape_interval: Duration,
    /// Endpoints at start; `None` when they come from a source that is not read yet.
    pub endpoints: Option<usize>,
}
