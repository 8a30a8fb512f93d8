//! The utilization detectors of a foreign `EndpointPickerConfig`, read for comparison.
//!
//! Decides which instance gates and that every further one is a second source. Reads nothing else of
//! the document; lines count from 1.

use serde_json::{Map, Value as Json};
use serde_saphyr::Spanned;

use super::params::{FIELDS, Params};
use crate::yaml::{self, Node, Value};

/// The type of plugin that is looked for, and the name that gates where nothing refers to another.
pub const DETECTOR: &str = "utilization-detector";

/// One detector.
#[derive(Debug, Clone, PartialEq)]
pub struct Detector {
    /// Name of the instance, or where its numbers stand.
    pub name: String,
    /// Its numbers, as far as they are set.
    pub params: Params,
    /// Where it stands in the file.
    pub line: u64,
}

/// The detectors of a document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Detectors {
    /// The one whose numbers gate; `None`: the built-in numbers do, or another kind of detector.
    pub gate: Option<Detector>,
    /// Further ones: they filter with numbers of their own.
    pub others: Vec<Detector>,
    /// What is odd and changes the comparison.
    pub warnings: Vec<String>,
}

type Pairs = [(Spanned<String>, Node)];

fn find<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a Node> {
    pairs.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
}

fn map(node: Option<&Node>) -> &Pairs {
    match node.map(|node| &node.value) {
        Some(Value::Map(pairs)) => pairs,
        _ => &[],
    }
}

fn text(node: Option<&Node>) -> Option<&str> {
    match node.map(|node| &node.value) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// Reads the detectors of an `EndpointPickerConfig`.
///
/// # Errors
/// Every fault at once, each with its line where it has one.
pub fn read(content: &[u8]) -> Result<Detectors, Vec<String>> {
    let fault = |text: String| vec![text];
    let text = std::str::from_utf8(content).map_err(|_| fault("the file is not UTF-8".into()))?;
    let document = yaml::first_document(text)
        .map_err(|error| fault(format!("cannot be parsed as YAML: {}", error.without_snippet())))?;
    let Some((root, another)) = document else { return Err(fault("the file is empty".into())) };
    let Value::Map(top) = &root.value else {
        return Err(fault(format!("must be a mapping, it is {}", root.value.kind())));
    };
    let mut found = Found::default();
    if another {
        found.warnings.push("only the first YAML document is used".to_owned());
    }
    if let Some(kind) = self::text(find(top, "kind")).filter(|kind| *kind != "EndpointPickerConfig")
    {
        return Err(fault(format!("kind must be EndpointPickerConfig, it is {kind}")));
    }
    found.plugins(find(top, "plugins"));
    let inline = found.inline(top);
    found.chosen(top, inline)
}

#[derive(Default)]
struct Found {
    detectors: Vec<Detector>,
    /// Names of plugins of other types.
    other_types: Vec<(String, String)>,
    warnings: Vec<String>,
    errors: Vec<String>,
}

impl Found {
    fn plugins(&mut self, node: Option<&Node>) {
        let items = match node.map(|node| &node.value) {
            Some(Value::List(items)) => items.as_slice(),
            None | Some(Value::Null) => &[],
            Some(other) => {
                self.errors.push(format!("plugins must be a list, it is {}", other.kind()));
                &[]
            }
        };
        for (index, item) in items.iter().enumerate() {
            let pairs = map(Some(item));
            let line = item.referenced.line();
            let Some(kind) = text(find(pairs, "type")) else {
                self.errors.push(format!("line {line}: plugins[{index}]: type is missing"));
                continue;
            };
            let name = text(find(pairs, "name")).unwrap_or(kind).to_owned();
            if kind != DETECTOR {
                self.other_types.push((name, kind.to_owned()));
                continue;
            }
            if self.detectors.iter().any(|other| other.name == name) {
                self.errors.push(format!("line {line}: plugin name {name:?} is used twice"));
                continue;
            }
            let params = find(pairs, "parameters").map(|node| json(&node.value));
            self.detector(name, params.unwrap_or(Json::Null), line);
        }
    }

    fn detector(&mut self, name: String, params: Json, line: u64) {
        let text = if params.is_null() { "{}".to_owned() } else { params.to_string() };
        match Params::parse(&text) {
            Ok(params) => {
                let told = params.warnings.iter().map(|w| format!("line {line}: {name}: {w}"));
                self.warnings.extend(told);
                self.detectors.push(Detector { name, params, line });
            }
            Err(errors) => {
                let told = errors.iter().map(|error| format!("line {line}: {name}: {error}"));
                self.errors.extend(told);
            }
        }
    }

    /// Numbers that stand in `saturationDetector` itself, as before there were references.
    fn inline(&mut self, top: &Pairs) -> Option<Detector> {
        let node = find(top, "saturationDetector")?;
        let pairs = map(Some(node));
        let own: Map<String, Json> = pairs
            .iter()
            .filter(|(key, _)| FIELDS.iter().any(|field| field.eq_ignore_ascii_case(&key.value)))
            .map(|(key, node)| (key.value.clone(), json(&node.value)))
            .collect();
        for (key, _) in pairs {
            if !own.contains_key(&key.value) && key.value != "pluginRef" {
                let known = [&FIELDS[..], &["pluginRef"]].concat();
                let rule = yaml::unknown(&key.value, &known);
                let line = key.referenced.line();
                self.warnings
                    .push(format!("line {line}: saturationDetector: {:?} {rule}", key.value));
            }
        }
        if own.is_empty() {
            return None;
        }
        self.detector("saturationDetector".to_owned(), Json::Object(own), node.referenced.line());
        self.detectors.pop_if(|detector| detector.name == "saturationDetector")
    }

    fn chosen(mut self, top: &Pairs, inline: Option<Detector>) -> Result<Detectors, Vec<String>> {
        let of = |section: &Pairs| {
            let detector = find(section, "saturationDetector");
            detector.and_then(|node| text(find(map(Some(node)), "pluginRef")).map(str::to_owned))
        };
        // The section of flow control counts first, the older place at the top level after it.
        let reference = of(map(find(top, "flowControl"))).or_else(|| of(top));
        let named = reference.as_deref().unwrap_or(DETECTOR);
        let position = self.detectors.iter().position(|detector| detector.name == named);
        let mut gate = position.map(|position| self.detectors.remove(position));
        if gate.is_none() {
            let other = self.other_types.iter().find(|(name, _)| name == named);
            match (other, &reference) {
                (Some((name, kind)), _) => self.warnings.push(format!(
                    "the gate is {name:?} of type {kind}: it has no threshold that scaling shares"
                )),
                (None, Some(name)) if name != DETECTOR => {
                    self.errors.push(format!("pluginRef {name:?} names no plugin"));
                }
                _ => {}
            }
        }
        let mut others = self.detectors;
        match (inline, &reference) {
            (Some(inline), None) if gate.is_none() => gate = Some(inline),
            (Some(inline), _) => others.push(inline),
            (None, _) => {}
        }
        if self.errors.is_empty() {
            Ok(Detectors { gate, others, warnings: self.warnings })
        } else {
            Err(self.errors)
        }
    }
}

/// The same value as JSON, which is what parameters are checked as.
fn json(value: &Value) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::Bool(*truth),
        Value::Float(number) => Json::from(*number),
        Value::Int(number) => match i64::try_from(*number) {
            Ok(number) => Json::from(number),
            Err(_) => Json::from(*number as f64),
        },
        Value::Text(text) => Json::from(text.as_str()),
        Value::List(items) => items.iter().map(|item| json(&item.value)).collect(),
        Value::Map(pairs) => {
            let pairs = pairs.iter().map(|(key, node)| (key.value.clone(), json(&node.value)));
            Json::Object(pairs.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(text: &str) -> (Option<String>, Option<f64>, Vec<String>) {
        let found = read(text.as_bytes()).unwrap();
        let others = found.others.into_iter().map(|other| other.name).collect();
        let kv = found.gate.as_ref().and_then(|gate| gate.params.kv_cache_util_threshold);
        (found.gate.map(|gate| gate.name), kv, others)
    }

    const TWO: &str = "\
kind: EndpointPickerConfig
plugins:
- {type: queue-scorer}
- type: utilization-detector
  parameters: {kvCacheUtilThreshold: 0.7}
- {name: filter, type: utilization-detector, parameters: {KVCACHEUTILTHRESHOLD: 0.9}}
";

    /// Mutants: the first instance instead of the named one; the older place before flow control; an
    /// inline form that wins over a reference.
    #[test]
    fn the_referenced_instance_gates_and_the_rest_are_second_sources() {
        let named = |name: &str| Some(name.to_owned());
        let others = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert_eq!(gate("{}"), (None, None, vec![]));
        assert_eq!(gate(TWO), (named(DETECTOR), Some(0.7), others(&["filter"])));
        let referred = format!("{TWO}saturationDetector: {{pluginRef: filter}}\n");
        assert_eq!(gate(&referred), (named("filter"), Some(0.9), others(&[DETECTOR])));
        let both =
            format!("{referred}flowControl: {{saturationDetector: {{pluginRef: {DETECTOR}}}}}\n");
        assert_eq!(gate(&both), (named(DETECTOR), Some(0.7), others(&["filter"])));
        let inline = "saturationDetector: {queueDepthThreshold: 4, kvCacheUtilThreshold: 0.6}\n";
        assert_eq!(gate(inline), (named("saturationDetector"), Some(0.6), vec![]));
        let mixed = format!("{TWO}{inline}");
        let expected = others(&["filter", "saturationDetector"]);
        assert_eq!(gate(&mixed), (named(DETECTOR), Some(0.7), expected));
        // An instance of another name gates nothing unless it is referred to.
        let unnamed = "plugins: [{name: mine, type: utilization-detector}]\n";
        assert_eq!(gate(unnamed), (None, None, others(&["mine"])));
    }

    /// Mutants: the first fault alone; a bad reference passed over.
    #[test]
    fn faults_are_told_at_once() {
        let text = "\
plugins:
- {parameters: {}}
- {type: utilization-detector, parameters: {queueDepthThreshold: 0, headroom: -1}}
saturationDetector: {pluginRef: gone}
";
        let errors = read(text.as_bytes()).unwrap_err();
        assert_eq!(errors.len(), 4, "{errors:?}");
        assert!(errors[3].contains("\"gone\" names no plugin"), "{errors:?}");
        assert!(read(b"kind: ConfigMap").unwrap_err()[0].contains("EndpointPickerConfig"));
        let other =
            "plugins: [{name: c, type: concurrency-detector}]\nsaturationDetector: {pluginRef: c}";
        assert_eq!(read(other.as_bytes()).unwrap().warnings.len(), 1);
    }
}
