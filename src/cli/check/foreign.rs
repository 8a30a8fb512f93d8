//! A foreign pair: the picker's `EndpointPickerConfig` and the autoscaler's ConfigMap, compared.
//!
//! Decides what counts as a disagreement: two places that, in effect, name different numbers for one
//! threshold. For people who run two copies and want to know whether they are equal.

use std::collections::BTreeSet;
use std::path::Path;

use super::line;
use crate::config::epp::{self, Detector, Detectors};
use crate::config::{LineSource, Model, Params, lint};
use crate::thresholds::{Draft, Thresholds};

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Pair {
    pub(super) errors: Vec<String>,
    pub(super) warnings: Vec<String>,
    pub(super) notes: Vec<String>,
    pub(super) disagreements: Vec<String>,
}

/// Compares the two files; either may be missing, its built-in values stand for it then.
pub(super) fn compare(epp: Option<&Path>, wva: Option<&Path>, model: &Model) -> Pair {
    let mut pair = Pair::default();
    let detectors = epp.and_then(|path| pair.detectors(path)).unwrap_or_default();
    // Params of the picker are no layer here: in a foreign pair the autoscaler knows nothing of them.
    let scaling = LineSource::open(Params::default(), model.clone(), wva);
    let found = line::findings(&scaling);
    pair.errors
        .extend(found.errors.iter().map(|e| e.replacen("--scaling-config", "--wva-config", 1)));
    pair.warnings.extend(found.warnings);
    // Which entry routing would take is no question here.
    pair.notes.extend(found.notes.into_iter().filter(|note| !note.contains("--model-id")));
    pair.warnings.extend(lint::scaling(&scaling.layers.table().0));
    if !pair.errors.is_empty() {
        return pair;
    }
    pair.second_sources(&detectors);
    pair.lines(&detectors, &scaling);
    pair
}

/// The numbers of a detector, with upstream's defaults where it sets none.
fn effective(detector: Option<&Detector>) -> [(&'static str, f64); 2] {
    let built_in = Draft::default();
    let params = detector.map(|detector| &detector.params);
    let queue = params.and_then(|p| p.queue_depth_threshold).map(|queue| queue as f64);
    let kv = params.and_then(|p| p.kv_cache_util_threshold);
    [
        ("queueDepthThreshold", queue.unwrap_or(built_in.queue_depth)),
        ("kvCacheUtilThreshold", kv.unwrap_or(built_in.kv_cache_util)),
    ]
}

fn name(detector: Option<&Detector>) -> String {
    detector.map_or_else(
        || "the built-in detector".to_owned(),
        |detector| format!("detector {:?} (line {})", detector.name, detector.line),
    )
}

impl Pair {
    fn detectors(&mut self, path: &Path) -> Option<Detectors> {
        let named = |text: &String| format!("{}: {text}", path.display());
        let content = match std::fs::read(path) {
            Ok(content) => content,
            Err(error) => {
                self.errors.push(format!("--epp-config: {}: {error}", path.display()));
                return None;
            }
        };
        match epp::read(&content) {
            Ok(detectors) => {
                self.warnings.extend(detectors.warnings.iter().map(named));
                Some(detectors)
            }
            Err(errors) => {
                self.errors.extend(errors.iter().map(named));
                None
            }
        }
    }

    /// Detectors beside the one that gates filter by their own numbers.
    fn second_sources(&mut self, detectors: &Detectors) {
        let gate = detectors.gate.as_ref();
        for other in &detectors.others {
            let pairs = effective(gate).into_iter().zip(effective(Some(other)));
            let differing: Vec<_> = pairs
                .filter(|((_, gate), (_, other))| gate != other)
                .map(|((field, gate), (_, other))| format!("{field} {other} instead of {gate}"))
                .collect();
            let numbers = if differing.is_empty() {
                "the same numbers, kept twice".to_owned()
            } else {
                differing.join(", ")
            };
            self.disagreements.push(format!(
                "the picker gates by {} and filters by {}: {numbers}",
                name(gate),
                name(Some(other)),
            ));
        }
    }

    /// The gate against what scaling resolves for every model that it has an entry for, or the one
    /// that was asked for.
    fn lines(&mut self, detectors: &Detectors, scaling: &LineSource) {
        let model = &scaling.model;
        let mut told = BTreeSet::new();
        let mut against = |entry: &str, thresholds: &Thresholds| {
            let numbers = [thresholds.queue_depth(), thresholds.kv_cache_util()];
            let names = ["queueLengthThreshold", "kvCacheThreshold"];
            let gate = effective(detectors.gate.as_ref());
            for (((routing, ours), theirs), name_there) in gate.into_iter().zip(numbers).zip(names)
            {
                if ours != theirs {
                    told.insert(format!(
                        "{entry}: scaling uses {name_there} {theirs}, {} uses {routing} {ours}",
                        name(detectors.gate.as_ref()),
                    ));
                }
            }
        };
        if let Some(id) = &model.id {
            let line = scaling.layers.line(Some(id), &model.namespace);
            against(&format!("model {id} in {}", model.namespace), &line.entry.thresholds);
        } else {
            let (table, _) = scaling.layers.table();
            let scopes = [(String::new(), &table.global)].into_iter();
            let local = table.local.iter().map(|(name, scope)| (format!("{name}/"), scope));
            for (prefix, scope) in scopes.chain(local) {
                against(&format!("entry \"{prefix}default\""), &scope.default.thresholds);
                for (key, entry) in &scope.models {
                    against(&format!("entry \"{prefix}{key}\""), &entry.thresholds);
                }
            }
        }
        self.disagreements.extend(told);
    }
}
