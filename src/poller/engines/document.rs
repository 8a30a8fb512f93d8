//! The engines file: the parameters of upstream's `core-metrics-extractor`, as YAML or JSON.
//!
//! Decides keys and kinds of values, as strictly as upstream, and names all mistakes at once; does no
//! I/O. Whether specs and names are good is the parent's. Lines count from 1.

use super::{EngineConfig, EngineError, Engines};
use crate::yaml::{self, Node, Value};

const TOP_KEYS: [&str; 3] = ["engineLabelKey", "defaultEngine", "engineConfigs"];
const ENGINE_KEYS: [&str; 11] = [
    "name",
    "queuedRequestsSpec",
    "runningRequestsSpec",
    "kvUsageSpec",
    "loraSpec",
    "cacheInfoSpec",
    "cacheBlockSizeLabelName",
    "cacheNumBlocksLabelName",
    "cacheBlockSizeSpec",
    "cacheNumBlocksSpec",
    "customMetrics",
];
const CUSTOM_KEYS: [&str; 2] = ["attributeKey", "metricSpec"];

/// Why an engines file is refused.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Neither YAML nor JSON.
    #[error("the file cannot be parsed as YAML or JSON")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// Unknown or repeated keys and values of the wrong kind, all of them.
    #[error("{}", .0.join("; "))]
    Shape(Vec<String>),
    /// A spec, a name or the default engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The engines that `text` describes, the built-in ones included. `default_engine`, where given,
/// stands in place of the file's.
///
/// # Errors
/// [`DocumentError`], with lines.
pub fn read(text: &str, default_engine: Option<&str>) -> Result<Engines, DocumentError> {
    let document = yaml::first_document(text).map_err(|e| DocumentError::Syntax(Box::new(e)))?;
    let mut faults = Vec::new();
    if matches!(&document, Some((_, true))) {
        faults.push("the file must be one document".to_owned());
    }
    let [label, default, configs] = match &document {
        None => [None; 3],
        Some((root, _)) => pick(root, TOP_KEYS, "the file", &mut faults),
    };
    let label = text_of(label, "engineLabelKey", &mut faults);
    let default = text_of(default, "defaultEngine", &mut faults);
    let configs: Vec<EngineConfig> = list(configs, "engineConfigs", &mut faults)
        .iter()
        .enumerate()
        .map(|(at, node)| config(node, &format!("engineConfigs[{at}]"), &mut faults))
        .collect();
    if !faults.is_empty() {
        return Err(DocumentError::Shape(faults));
    }
    let given = |text: String| (!text.is_empty()).then_some(text);
    let (label, default) = (given(label), given(default));
    Ok(Engines::try_new(&configs, default_engine.or(default.as_deref()), label.as_deref())?)
}

fn config(node: &Node, place: &str, faults: &mut Vec<String>) -> EngineConfig {
    let nodes = pick(node, ENGINE_KEYS, place, faults);
    let mut texts = ENGINE_KEYS.iter().zip(nodes).map(|(key, node)| match *key {
        "customMetrics" => String::new(),
        key => text_of(node, &format!("{place}.{key}"), faults),
    });
    let mut next = || texts.next().unwrap_or_default();
    let mut config = EngineConfig {
        name: next(),
        queued_requests: next(),
        running_requests: next(),
        kv_usage: next(),
        lora: next(),
        cache_info: next(),
        cache_block_size_label: next(),
        cache_num_blocks_label: next(),
        cache_block_size: next(),
        cache_num_blocks: next(),
        custom_metrics: Vec::new(),
    };
    drop(texts);
    let place = format!("{place}.customMetrics");
    let custom = list(nodes[ENGINE_KEYS.len() - 1], &place, faults).iter().enumerate();
    config.custom_metrics = custom
        .map(|(at, node)| {
            let place = format!("{place}[{at}]");
            let [key, spec] = pick(node, CUSTOM_KEYS, &place, faults);
            let key = text_of(key, &format!("{place}.attributeKey"), faults);
            (key, text_of(spec, &format!("{place}.metricSpec"), faults))
        })
        .collect();
    config
}

/// The values of the `known` keys, whose case does not count, as in Go's JSON.
fn pick<'a, const N: usize>(
    node: &'a Node,
    known: [&str; N],
    place: &str,
    faults: &mut Vec<String>,
) -> [Option<&'a Node>; N] {
    let mut found = [None; N];
    let line = node.referenced.line();
    let Value::Map(map) = &node.value else {
        faults.push(format!("line {line}: {place} must be a mapping, it is {}", node.value.kind()));
        return found;
    };
    for (key, value) in map {
        let rule = match known.iter().position(|known| known.eq_ignore_ascii_case(&key.value)) {
            Some(at) if found[at].is_none() => {
                found[at] = Some(value);
                continue;
            }
            Some(_) => "is given twice".to_owned(),
            None => yaml::unknown(&key.value, &known),
        };
        let line = key.referenced.line();
        faults.push(format!("line {line}: {place}: key {:?} {rule}", key.value));
    }
    found
}

/// The text of a field; absent and `null` are empty.
fn text_of(node: Option<&Node>, place: &str, faults: &mut Vec<String>) -> String {
    match node.map(|node| (&node.value, node)) {
        None | Some((Value::Null, _)) => String::new(),
        Some((Value::Text(text), _)) => text.clone(),
        Some((other, node)) => {
            let line = node.referenced.line();
            faults.push(format!("line {line}: {place} must be text, it is {}", other.kind()));
            String::new()
        }
    }
}

/// The items of a field; absent and `null` are none.
fn list<'a>(node: Option<&'a Node>, place: &str, faults: &mut Vec<String>) -> &'a [Node] {
    match node.map(|node| (&node.value, node)) {
        None | Some((Value::Null, _)) => &[],
        Some((Value::List(items), _)) => items,
        Some((other, node)) => {
            let line = node.referenced.line();
            faults.push(format!("line {line}: {place} must be a list, it is {}", other.kind()));
            &[]
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::causes;

    const FILE: &str = "\
engineLabelKey: engine
defaultEngine: mine
engineConfigs:
- name: mine
  queuedRequestsSpec: q
  runningRequestsSpec: r{kind=a}
  kvUsageSpec: kv
  loraSpec: lora
  cacheInfoSpec: info
  cacheBlockSizeLabelName: bs
  cacheNumBlocksLabelName: nb
  customMetrics:
  - {attributeKey: temp, metricSpec: gpu_temp}
- name: other
  cacheBlockSizeSpec: size
  cacheNumBlocksSpec: blocks
";

    /// Mutants: two keys of an entry exchanged; the flag losing against the file.
    #[test]
    fn every_key_reaches_its_field() {
        let engines = read(FILE, None).unwrap();
        let labels = |name: &str| BTreeMap::from([("engine".to_owned(), name.to_owned())]);
        let mapping = engines.of(&labels("mine")).mapping().clone();
        let spec = |spec: &Option<crate::poller::spec::Spec>| {
            spec.as_ref().map(ToString::to_string).unwrap_or_default()
        };
        let found = [&mapping.waiting, &mapping.running, &mapping.kv, &mapping.lora].map(spec);
        assert_eq!(found, ["q", "r{kind=\"a\"}", "kv", "lora"]);
        let info = mapping.cache_info.unwrap();
        let found = [info.spec.family(), &info.block_size_label, &info.num_blocks_label];
        assert_eq!(found, ["info", "bs", "nb"]);
        assert_eq!((mapping.custom.len(), mapping.custom[0].0.as_str()), (1, "temp"));
        let other = engines.of(&labels("other")).mapping();
        assert_eq!([&other.block_size, &other.num_blocks].map(spec), ["size", "blocks"]);
        assert_eq!(engines.of(&BTreeMap::new()).name(), "mine");
        assert_eq!(engines.of(&labels("sglang")).name(), "sglang", "built-ins stay");
        let flag = read(FILE, Some("sglang")).unwrap();
        assert_eq!(flag.of(&BTreeMap::new()).name(), "sglang");
        assert_eq!(read("", None).unwrap().of(&BTreeMap::new()).name(), "vllm");
    }

    /// Mutant: stopping at the first mistake; a misspelt key taken as absent.
    #[test]
    fn mistakes_are_named_with_their_lines() {
        let said = |text: &str| causes::in_one_line(&read(text, None).unwrap_err());
        let text = "engineConfigs:\n- {name: 7, queueSpec: q}\n- x\nengineconfigs: []\n";
        let error = said(text);
        for part in [
            "line 2: engineConfigs[0]: key \"queueSpec\" is unknown",
            "line 2: engineConfigs[0].name must be text, it is a number",
            "line 3: engineConfigs[1] must be a mapping, it is text",
            "line 4: the file: key \"engineconfigs\" is given twice",
        ] {
            assert!(error.contains(part), "{part}: {error}");
        }
        for (text, part) in [
            ("[", "cannot be parsed"),
            ("[]", "the file must be a mapping"),
            ("{}\n---\n{}", "one document"),
            ("defaultEngine: x", "defaultEngine \"x\""),
            ("engineConfigs: [{name: default}]", "reserved"),
            ("engineConfigs: [{name: a, kvUsageSpec: 'm{'}]", "kvUsageSpec"),
            ("engineConfigs: [{name: a, customMetrics: [{metricSpec: m}]}]", "attributeKey"),
        ] {
            assert!(said(text).contains(part), "{text}: {}", said(text));
        }
    }
}
