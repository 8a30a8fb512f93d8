//! The one task that changes the policy while requests run.
//!
//! Decides that a change is put in force whole, and logged with the generation that it got; what is
//! valid was decided by whoever read it. Texts about the scaling configuration are the seed's.

use std::sync::Arc;

use tokio::sync::mpsc;

use crate::config::scaling::{Document, SATURATION_MAP};
use crate::config::scaling_file::{ScalingLoads, Version};
use crate::config::{Dropped, Layers, Model};
use crate::manifests::Content;
use crate::policy::{Policy, PolicyWriter};
use crate::telemetry;

/// The writer, and what the policy was made of when it was put in force last.
pub(super) struct Feed {
    pub(super) writer: PolicyWriter,
    pub(super) policy: Policy,
    pub(super) layers: Layers,
    pub(super) model: Model,
    pub(super) loads: Arc<ScalingLoads>,
}

/// Who sends changes.
pub(super) struct Changes {
    pub(super) documents: mpsc::Receiver<Content>,
    pub(super) scaling: mpsc::Receiver<Version>,
}

impl Feed {
    /// Puts every change in force until their sources are gone.
    pub(super) async fn run(mut self, Changes { mut documents, mut scaling }: Changes) {
        loop {
            tokio::select! {
                Some(Content { rewrites, objectives }) = documents.recv() => {
                    self.policy = self.policy.with_documents(rewrites, objectives);
                    self.publish();
                }
                Some(version) = scaling.recv() => self.scaling(version),
                else => return,
            }
        }
    }

    fn publish(&mut self) {
        let Some(generation) = self.writer.publish(self.policy.clone()) else { return };
        for (name, number, source) in self.policy.table() {
            tracing::info!(name, value = %number, source = source.name(), "threshold");
        }
        tracing::info!(
            generation,
            digest = self.policy.digest,
            rewrites = self.policy.rewrites.rules().count(),
            objectives = self.policy.objectives.iter().len(),
            "policy changed"
        );
        if self.writer.listeners() > 0 {
            tracing::info!("Triggering reconciliation for all VariantAutoscaling resources");
        }
    }

    fn scaling(&mut self, version: Version) {
        tracing::info!("Saturation scaling ConfigMap changed, reloading cache");
        let at = telemetry::timestamp();
        let document = match version {
            Ok(document) => document,
            Err(error) => {
                tracing::error!(%error, "scaling configuration is not usable, the old one stays");
                self.loads.took(Err(&error), at);
                return;
            }
        };
        let (held, gone) = self.layers.scaling.next(&document);
        for map in gone {
            tracing::warn!(map, "map is gone from the scaling configuration, its entries stay");
        }
        self.layers.scaling = held;
        let (policy, dropped) = self.layers.applied(self.policy.clone(), &self.model);
        self.policy = policy;
        report(&self.layers, &document, &dropped);
        let scaling = &self.layers.scaling;
        let (entries, has_default) = (scaling.len(), scaling.has_default());
        tracing::info!(entries, has_default, "Saturation scaling config cache updated");
        self.publish();
        disagree(&self.layers, &self.model, &self.loads);
        self.loads.took(Ok(&faults(&document, &dropped)), at);
    }
}

/// What is wrong with a version, and with what it was merged into.
fn faults(document: &Document, dropped: &[Dropped]) -> Vec<String> {
    let rejected = document.rejected.iter().map(ToString::to_string);
    rejected.chain(dropped.iter().map(ToString::to_string)).collect()
}

/// Tells operators what a version of the file has done.
fn report(layers: &Layers, document: &Document, dropped: &[Dropped]) {
    for rejected in &document.rejected {
        let (key, error) = (&rejected.key, &rejected.error);
        let line = rejected.line;
        tracing::warn!(%key, %error, line, "Invalid saturation scaling config entry, skipping");
    }
    for lost in dropped {
        let (key, error) = (&lost.layer, &lost.rule);
        tracing::warn!(%key, %error, "Invalid saturation scaling config entry, skipping");
    }
    for warning in &document.warnings {
        tracing::warn!(%warning, "scaling configuration is doubtful");
    }
    if !document.unused.is_empty() {
        tracing::info!(keys = ?document.unused, "keys of later releases are known, not used");
    }
    if layers.scaling.global.is_some() && !layers.scaling.has_default() {
        tracing::warn!(
            "No 'default' entry in saturation scaling ConfigMap, using hardcoded defaults"
        );
    }
}

/// Tells of conflicts that were not there before.
fn disagree(layers: &Layers, model: &Model, loads: &ScalingLoads) {
    let conflicts = layers.conflicts(&model.namespace);
    let known = loads.now().conflicts;
    for conflict in conflicts.iter().filter(|conflict| !known.contains(conflict)) {
        tracing::warn!(conflict, "two sources of one threshold");
    }
    loads.disagree(conflicts);
}

/// Tells and counts what the file said at start; `None`: there is no file to read.
pub(super) fn begin(
    version: Option<&Version>,
    layers: &Layers,
    model: &Model,
    loads: &ScalingLoads,
) {
    disagree(layers, model, loads);
    let Some(version) = version else { return };
    let at = telemetry::timestamp();
    match version {
        Ok(document) => {
            let (_, dropped) = layers.table();
            report(layers, document, &dropped);
            if layers.scaling.global.is_none() {
                tracing::warn!(
                    configmap = SATURATION_MAP,
                    namespace = model.namespace,
                    "Saturation scaling ConfigMap not found, using hardcoded defaults"
                );
            }
            let (entries, has_default) = (layers.scaling.len(), layers.scaling.has_default());
            tracing::info!(entries, has_default, "Saturation scaling configuration loaded");
            loads.took(Ok(&faults(document, &dropped)), at);
        }
        Err(error) => {
            tracing::warn!(
                error,
                "Failed to load initial saturation scaling config, will use defaults"
            );
            loads.took(Err(error), at);
        }
    }
}

#[cfg(test)]
mod tests;
