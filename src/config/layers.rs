//! The layers of the line, merged: built-in, scaling `default`, params, `{modelID}#{namespace}`.
//!
//! Decides that a later layer wins field by field, which layer a broken cross-field rule costs, and
//! what counts as a conflict. Pure: the same layers give the same result, whenever each arrived.

use super::params::Params;
use super::scaling::{self, DEFAULT, Held, Layer, ZeroLayer};
use crate::policy::{Source, Sources};
use crate::scaling_entry::{
    AnalyzerEntry, SATURATION, ScaleToZero, ScalingEntry, ScalingScope, ScalingTable, Selection,
    ZeroEntry, model_key,
};
use crate::thresholds::{Draft, Thresholds};

/// Every layer that there is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Layers {
    /// The JSON params of this instance.
    pub params: Params,
    /// The scaling configuration, as far as it was ever valid.
    pub scaling: Held,
}

/// A layer that a broken cross-field rule has cost.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// The key of the entry, with its map's namespace where that is local, or `params`.
    pub layer: String,
    /// The rule, with its numbers.
    pub rule: String,
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "layer {:?} is left out: {}", self.layer, self.rule)
    }
}

/// The line of one model, and where each part of it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// What holds.
    pub entry: ScalingEntry,
    /// Sources of the thresholds.
    pub sources: Sources,
    /// Sources of the other values.
    pub others: Others,
    /// What a broken rule has cost.
    pub dropped: Vec<Dropped>,
}

/// Sources of what is no threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Others {
    /// Of `analyzerName`.
    pub analyzer_name: Source,
    /// Of `analyzers`.
    pub analyzers: Source,
    /// Of `priority`.
    pub priority: Source,
    /// Of `enableLimiter`.
    pub enable_limiter: Source,
    /// Of `enable_scale_to_zero`.
    pub scale_to_zero: Source,
    /// Of `retention_period`.
    pub retention: Source,
}

impl Default for Others {
    fn default() -> Self {
        Self {
            analyzer_name: Source::BuiltIn,
            analyzers: Source::BuiltIn,
            priority: Source::BuiltIn,
            enable_limiter: Source::BuiltIn,
            scale_to_zero: Source::BuiltIn,
            retention: Source::BuiltIn,
        }
    }
}

/// One layer of the merge.
#[derive(Clone, Copy)]
struct Part<'a> {
    source: Source,
    name: &'a str,
    numbers: [Option<f64>; 8],
    scaling: Option<&'a Layer>,
}

impl<'a> Part<'a> {
    fn of_entry(source: Source, name: &'a str, layer: &'a Layer) -> Self {
        let numbers = [
            layer.queue_length_threshold,
            layer.kv_cache_threshold,
            None,
            None,
            layer.kv_spare_trigger,
            layer.queue_spare_trigger,
            layer.scale_up_threshold,
            layer.scale_down_boundary,
        ];
        Self { source, name, numbers, scaling: Some(layer) }
    }

    fn of_params(params: &Params) -> Self {
        // Exact: the range check refuses what a float could not hold.
        let queue = params.queue_depth_threshold.map(|queue| queue as f64);
        let (kv, headroom) = (params.kv_cache_util_threshold, params.headroom);
        // The staleness is a duration; its place here only says whether it is set.
        let staleness = params.metrics_staleness_threshold.map(|age| age.as_secs_f64());
        let numbers = [queue, kv, staleness, headroom, None, None, None, None];
        Self { source: Source::Params, name: "params", numbers, scaling: None }
    }
}

/// The cross-field rules: two numbers each, in the order of [`crate::thresholds::NAMES`].
fn broken_rule(draft: &Draft) -> Option<([usize; 2], String)> {
    let spare = scaling::spare_rule(draft.kv_cache_util, draft.kv_spare_trigger);
    let pair = || scaling::pair_rule(draft.scale_up_threshold, draft.scale_down_boundary);
    spare.map(|rule| ([1, 4], rule)).or_else(|| Some(([6, 7], pair()?)))
}

/// Merges thresholds of `parts`, least specific first.
fn merged(parts: &[Part<'_>], params: &Params) -> (Draft, Sources) {
    let mut draft = Draft::default();
    let mut sources = [Source::BuiltIn; 8];
    for part in parts {
        let slots = [
            &mut draft.queue_depth,
            &mut draft.kv_cache_util,
            // Set below.
            &mut 0.0,
            &mut draft.headroom,
            &mut draft.kv_spare_trigger,
            &mut draft.queue_spare_trigger,
            &mut draft.scale_up_threshold,
            &mut draft.scale_down_boundary,
        ];
        for ((slot, source), number) in slots.into_iter().zip(&mut sources).zip(part.numbers) {
            if let Some(number) = number {
                (*slot, *source) = (number, part.source);
            }
        }
    }
    if let (Source::Params, Some(staleness)) = (sources[2], params.metrics_staleness_threshold) {
        draft.staleness = staleness;
    }
    if sources[4] == Source::BuiltIn {
        // Nobody asked for the built-in trigger, so it gives way to a lower KV line instead of
        // making a value that the detector's own rules allow a contradiction.
        draft.kv_spare_trigger = draft.kv_spare_trigger.min(draft.kv_cache_util);
    }
    (draft, sources)
}

/// Merges, and leaves out the most specific layer with a part in a broken rule until none is broken.
fn settled<'a>(
    mut parts: Vec<Part<'a>>,
    params: &Params,
) -> (Vec<Part<'a>>, Thresholds, Sources, Vec<Dropped>) {
    let mut dropped = Vec::new();
    loop {
        let (draft, sources) = merged(&parts, params);
        let (fields, rule) = match (Thresholds::try_new(draft), broken_rule(&draft)) {
            (Ok(thresholds), _) => return (parts, thresholds, sources, dropped),
            (Err(_), Some((fields, rule))) => (fields.to_vec(), rule),
            // Ranges are checked layer by layer, so this is a fault of ours: better without.
            (Err(broken), None) => {
                ((0..8).collect(), broken.iter().map(|v| v.to_string() + "; ").collect())
            }
        };
        let guilty = |part: &Part<'_>| fields.iter().any(|field| part.numbers[*field].is_some());
        let Some(index) = parts.iter().rposition(guilty) else {
            return (parts, Thresholds::default(), [Source::BuiltIn; 8], dropped);
        };
        let part = parts.remove(index);
        dropped.push(Dropped { layer: part.name.to_owned(), rule });
    }
}

/// Resolves one line of a scope; scale to zero is added by whoever knows the model.
fn line(
    params: &Params,
    scope: Option<&scaling::Entries>,
    key: Option<&str>,
    seeded: bool,
) -> Line {
    let entry = |source, key: &str| {
        let (key, layer) = scope?.get_key_value(key)?;
        Some(Part::of_entry(source, key, layer))
    };
    let parts = [
        entry(Source::ScalingDefault, DEFAULT),
        Some(Part::of_params(params)),
        key.filter(|key| *key != DEFAULT).and_then(|key| entry(Source::ScalingModel, key)),
    ];
    let (parts, thresholds, sources, dropped) =
        settled(parts.into_iter().flatten().collect(), params);
    let mut result = ScalingEntry { thresholds, analyzers: Vec::new(), ..ScalingEntry::default() };
    let mut others = Others::default();
    for (source, layer) in parts.iter().filter_map(|part| Some((part.source, part.scaling?))) {
        if let Some(name) = &layer.analyzer_name {
            (result.analyzer_name, others.analyzer_name) = (name.clone(), source);
        }
        if let Some(priority) = layer.priority {
            (result.priority, others.priority) = (priority, source);
        }
        if let Some(limiter) = layer.enable_limiter {
            (result.enable_limiter, others.enable_limiter) = (limiter, source);
        }
        if !layer.analyzers.is_empty() {
            (result.analyzers, others.analyzers) = (layer.analyzers.clone(), source);
        }
    }
    if result.analyzers.is_empty() && (seeded || result.analyzer_name == SATURATION) {
        result.analyzers.push(AnalyzerEntry::named(SATURATION));
    }
    Line { entry: result, sources, others, dropped }
}

impl Layers {
    /// Which arithmetic plans: the global `default` entry says so for all models. Without one it is
    /// V2, so that nobody gets V1 by forgetting a file.
    pub fn selection(&self) -> Selection {
        match self.scaling.global.as_ref().and_then(|map| map.get(DEFAULT)) {
            Some(layer)
                if layer.analyzers.is_empty()
                    && layer.analyzer_name.as_deref() != Some(SATURATION) =>
            {
                Selection::SpareCapacity
            }
            _ => Selection::TokenCapacity,
        }
    }

    /// The pipeline of an absent configuration is the saturation analyzer.
    fn seeded(&self) -> bool {
        !self.scaling.has_default() && self.selection() == Selection::TokenCapacity
    }

    /// The line of `model` in `namespace`; without a model, what holds for every model there.
    pub fn line(&self, model: Option<&str>, namespace: &str) -> Line {
        let key = model.map(|model| model_key(model, namespace));
        let scope = self.scaling.scope(namespace);
        let mut line = line(&self.params, scope, key.as_deref(), self.seeded());
        let default = self.scaling.zero.get(DEFAULT);
        let own = model.and_then(|model| self.own_zero(model, namespace));
        let layers = [(Source::ScalingDefault, default), (Source::ScalingModel, own)];
        for (source, layer) in layers {
            let Some(layer) = layer else { continue };
            if let Some(enabled) = layer.enabled {
                (line.entry.scale_to_zero.enabled, line.others.scale_to_zero) = (enabled, source);
            }
            if let Some(retention) = layer.retention {
                (line.entry.scale_to_zero.retention, line.others.retention) = (retention, source);
            }
        }
        line
    }

    fn own_zero(&self, model: &str, namespace: &str) -> Option<&ZeroLayer> {
        let of_model = || {
            let entries = self.scaling.zero.iter().filter(|(key, _)| *key != DEFAULT);
            entries.map(|(_, layer)| layer).filter(|layer| layer.model.as_deref() == Some(model))
        };
        let here = of_model().find(|layer| layer.namespace.as_deref() == Some(namespace));
        here.or_else(|| of_model().find(|layer| layer.namespace.is_none()))
    }

    /// Every resolved entry, and what broken rules have cost.
    pub fn table(&self) -> (ScalingTable, Vec<Dropped>) {
        let mut dropped = Vec::new();
        let mut scope = |namespace: Option<&str>, entries: Option<&scaling::Entries>| {
            let mut resolved = |key: Option<&str>| {
                let line = line(&self.params, entries, key, self.seeded());
                let named = |mut lost: Dropped| {
                    if let Some(namespace) = namespace
                        && lost.layer != "params"
                    {
                        lost.layer = format!("{namespace}/{}", lost.layer);
                    }
                    lost
                };
                dropped.extend(line.dropped.into_iter().map(named));
                line.entry
            };
            let default = resolved(None);
            let keys = entries.iter().flat_map(|map| map.keys()).filter(|key| *key != DEFAULT);
            let models = keys.map(|key| (key.clone(), resolved(Some(key)))).collect();
            ScalingScope { default, models }
        };
        let global = scope(None, self.scaling.global.as_ref());
        let local = self.scaling.local.iter();
        let local = local.map(|(name, map)| (name.clone(), scope(Some(name), Some(map)))).collect();
        let default = self.scaling.zero.get(DEFAULT);
        let zero = zero(default, ScaleToZero::default());
        let table = ScalingTable {
            selection: self.selection(),
            global,
            local,
            zero,
            zero_models: self.zero_models(zero),
        };
        dropped.sort();
        dropped.dedup();
        (table, dropped)
    }

    fn zero_models(&self, default: ScaleToZero) -> Vec<ZeroEntry> {
        let entries = self.scaling.zero.iter().filter(|(key, _)| *key != DEFAULT);
        let entry = |(_, layer): (&String, &ZeroLayer)| {
            let (model, namespace) = (layer.model.clone()?, layer.namespace.clone());
            Some(ZeroEntry { model, namespace, zero: zero(Some(layer), default) })
        };
        entries.filter_map(entry).collect()
    }

    /// Params that contradict the less specific scaling layer of `namespace`, one text each.
    pub fn conflicts(&self, namespace: &str) -> Vec<String> {
        let Some(layer) = self.scaling.scope(namespace).and_then(|map| map.get(DEFAULT)) else {
            return Vec::new();
        };
        let params = Part::of_params(&self.params).numbers;
        let pairs = [
            (
                "queueDepthThreshold",
                params[0],
                "queueLengthThreshold",
                layer.queue_length_threshold,
            ),
            ("kvCacheUtilThreshold", params[1], "kvCacheThreshold", layer.kv_cache_threshold),
        ];
        let conflict = |(routing, ours, name, theirs): (&str, Option<f64>, &str, Option<f64>)| {
            let (ours, theirs) = (ours?, theirs?);
            (ours != theirs).then(|| {
                format!(
                    "params set {routing} to {ours}, the scaling entry `default` sets {name} to \
                     {theirs}; params win over it"
                )
            })
        };
        pairs.into_iter().filter_map(conflict).collect()
    }
}

fn zero(layer: Option<&ZeroLayer>, below: ScaleToZero) -> ScaleToZero {
    ScaleToZero {
        enabled: layer.and_then(|layer| layer.enabled).unwrap_or(below.enabled),
        retention: layer.and_then(|layer| layer.retention).unwrap_or(below.retention),
    }
}

#[cfg(test)]
mod tests;
