//! The engines that a process knows, and which of them an endpoint runs.
//!
//! Decides the checks on `engineConfigs` entries and the choice by pod label. An
//! unknown label value is the default engine, as upstream: a typo must not take a server out.

mod built_in;
mod document;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::engine::{CacheInfo, Engine, Mapping};
use super::spec::{Spec, SpecError};

/// The label that names an endpoint's engine, unless configured otherwise.
pub const ENGINE_LABEL: &str = "llm-d.ai/engine-type";

/// The label that counts where the first is absent or empty.
pub const LEGACY_ENGINE_LABEL: &str = "inference.networking.k8s.io/engine-type";

pub(super) const DEFAULT_ENGINE: &str = "vllm";

pub use document::{DocumentError, read as read_document};

/// One entry of `engineConfigs`, as written; an empty text is an absent key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EngineConfig {
    /// `name`: the label value that chooses this engine. A built-in of that name is replaced whole.
    pub name: String,
    /// `queuedRequestsSpec`.
    pub queued_requests: String,
    /// `runningRequestsSpec`.
    pub running_requests: String,
    /// `kvUsageSpec`.
    pub kv_usage: String,
    /// `loraSpec`.
    pub lora: String,
    /// `cacheInfoSpec`.
    pub cache_info: String,
    /// `cacheBlockSizeLabelName`; empty means `block_size`.
    pub cache_block_size_label: String,
    /// `cacheNumBlocksLabelName`; empty means `num_gpu_blocks`.
    pub cache_num_blocks_label: String,
    /// `cacheBlockSizeSpec`.
    pub cache_block_size: String,
    /// `cacheNumBlocksSpec`.
    pub cache_num_blocks: String,
    /// `customMetrics`: pairs of `attributeKey` and `metricSpec`.
    pub custom_metrics: Vec<(String, String)>,
}

/// Why a list of engine configurations is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// An entry has no name.
    #[error("engineConfigs: name cannot be empty")]
    NoName,
    /// An entry takes the reserved name.
    #[error("engineConfigs: name cannot be \"default\" (reserved)")]
    Reserved,
    /// Two entries have one name.
    #[error("engineConfigs: name {0:?} is given twice")]
    Duplicate(String),
    /// The default is no engine.
    #[error("defaultEngine {0:?} is neither built in nor in engineConfigs")]
    UnknownDefault(String),
    /// A spec does not parse.
    #[error("engineConfigs {engine:?}: {key}")]
    Spec {
        /// The entry's name.
        engine: String,
        /// The key that holds the spec.
        key: &'static str,
        /// The spec and the rule it breaks.
        source: SpecError,
    },
    /// A custom metric is incomplete or given twice.
    #[error("engineConfigs {engine:?}: customMetrics: {rule}")]
    Custom {
        /// The entry's name.
        engine: String,
        /// The rule it breaks.
        rule: String,
    },
}

/// Every engine of a process.
#[derive(Debug, Clone)]
pub struct Engines {
    known: Vec<Arc<Engine>>,
    default: Arc<Engine>,
    label: String,
}

// === impl Engines ===

impl Default for Engines {
    /// The built-in engines, vLLM where nothing else is said.
    fn default() -> Self {
        let known: Vec<_> = built_in::engines().into_iter().map(Arc::new).collect();
        let default = Arc::clone(&known[0]);
        Self { known, default, label: ENGINE_LABEL.to_owned() }
    }
}

impl Engines {
    /// The built-in engines with `configs` over them. `default_engine` serves endpoints without a
    /// known engine label, `label` is that label's key; `None` keeps the built-in choice.
    ///
    /// # Errors
    /// [`EngineError`] for the first entry that breaks a rule.
    pub fn try_new(
        configs: &[EngineConfig],
        default_engine: Option<&str>,
        label: Option<&str>,
    ) -> Result<Self, EngineError> {
        let mut engines = Self::default();
        for (at, config) in configs.iter().enumerate() {
            if configs[..at].iter().any(|earlier| earlier.name == config.name) {
                return Err(EngineError::Duplicate(config.name.clone()));
            }
            let mapping = config.mapping()?;
            match engines.known.iter_mut().find(|known| known.name() == config.name) {
                // What upstream's schema has no key for is not replaced by leaving it out.
                Some(built_in) => {
                    let Mapping { vitals, capacity, .. } = built_in.mapping().clone();
                    let mapping = Mapping { vitals, capacity, ..mapping };
                    *built_in = Arc::new(Engine::new(&config.name, mapping));
                }
                None => engines.known.push(Arc::new(Engine::new(&config.name, mapping))),
            }
        }
        let default = default_engine.unwrap_or(DEFAULT_ENGINE);
        engines.default = engines
            .named(default)
            .cloned()
            .ok_or_else(|| EngineError::UnknownDefault(default.to_owned()))?;
        if let Some(label) = label {
            label.clone_into(&mut engines.label);
        }
        Ok(engines)
    }

    /// The engine called `name`, case and all.
    pub fn named(&self, name: &str) -> Option<&Arc<Engine>> {
        self.known.iter().find(|engine| engine.name() == name)
    }

    /// The engine of an endpoint with `labels`.
    pub fn of(&self, labels: &BTreeMap<String, String>) -> &Arc<Engine> {
        [self.label.as_str(), LEGACY_ENGINE_LABEL]
            .iter()
            .find_map(|key| labels.get(*key).filter(|value| !value.is_empty()))
            .and_then(|name| self.named(name))
            .unwrap_or(&self.default)
    }
}

// === impl EngineConfig ===

impl EngineConfig {
    /// The specs of this entry, parsed; what it leaves out is not exported.
    fn mapping(&self) -> Result<Mapping, EngineError> {
        match self.name.as_str() {
            "" => return Err(EngineError::NoName),
            "default" => return Err(EngineError::Reserved),
            _ => {}
        }
        let or = |text: &str, otherwise: &str| {
            if text.is_empty() { otherwise.to_owned() } else { text.to_owned() }
        };
        Ok(Mapping {
            waiting: self.spec("queuedRequestsSpec", &self.queued_requests)?,
            running: self.spec("runningRequestsSpec", &self.running_requests)?,
            kv: self.spec("kvUsageSpec", &self.kv_usage)?,
            lora: self.spec("loraSpec", &self.lora)?,
            cache_info: self.spec("cacheInfoSpec", &self.cache_info)?.map(|spec| CacheInfo {
                spec,
                block_size_label: or(&self.cache_block_size_label, "block_size"),
                num_blocks_label: or(&self.cache_num_blocks_label, "num_gpu_blocks"),
            }),
            block_size: self.spec("cacheBlockSizeSpec", &self.cache_block_size)?,
            num_blocks: self.spec("cacheNumBlocksSpec", &self.cache_num_blocks)?,
            capacity: None,
            vitals: built_in::process_start(),
            custom: self.custom()?,
        })
    }

    fn spec(&self, key: &'static str, text: &str) -> Result<Option<Spec>, EngineError> {
        Spec::parse(text).map_err(|source| EngineError::Spec {
            engine: self.name.clone(),
            key,
            source,
        })
    }

    fn custom(&self) -> Result<Vec<(String, Spec)>, EngineError> {
        let refuse = |rule| EngineError::Custom { engine: self.name.clone(), rule };
        let mut read: Vec<(String, Spec)> = Vec::new();
        for (key, text) in &self.custom_metrics {
            if key.is_empty() {
                return Err(refuse("attributeKey cannot be empty".to_owned()));
            }
            if read.iter().any(|(known, _)| known == key) {
                return Err(refuse(format!("attributeKey {key:?} is given twice")));
            }
            let spec = self.spec("customMetrics.metricSpec", text)?;
            let spec =
                spec.ok_or_else(|| refuse(format!("metricSpec of {key:?} cannot be empty")))?;
            read.push((key.clone(), spec));
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: asking the legacy label first, or falling to it behind an unknown value.
    #[test]
    fn the_label_chooses() {
        let engines = Engines::default();
        for (label, legacy, name) in [
            (None, None, "vllm"),
            (Some("vllm"), Some("sglang"), "vllm"),
            (None, Some("sglang"), "sglang"),
            (Some(""), Some("sglang"), "sglang"),
            (Some("unknown"), Some("sglang"), "vllm"),
            (Some("SGLang"), None, "vllm"),
            (Some("triton"), None, "triton"),
        ] {
            let labels = [(ENGINE_LABEL, label), (LEGACY_ENGINE_LABEL, legacy)]
                .into_iter()
                .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())))
                .collect();
            assert_eq!(engines.of(&labels).name(), name, "{label:?} {legacy:?}");
        }
    }

    /// Mutant: merging an entry into the built-in of its name keeps `kv`.
    #[test]
    fn an_entry_replaces_a_built_in_whole() {
        let config = EngineConfig {
            name: "vllm".to_owned(),
            queued_requests: "q".to_owned(),
            ..EngineConfig::default()
        };
        let engines = Engines::try_new(&[config], None, None).unwrap();
        let mapping = engines.named("vllm").unwrap().mapping();
        assert_eq!(mapping.waiting.as_ref().unwrap().family(), "q");
        assert_eq!((&mapping.kv, &mapping.lora, &mapping.cache_info), (&None, &None, &None));
        assert!(engines.named("sglang").unwrap().mapping().kv.is_some());
        assert_eq!(engines.of(&BTreeMap::new()).mapping(), mapping);
    }
}
