//! The variants of a model: which endpoints are replicas of what, at which price.
//!
//! Decides how the document reads (strict keys, every broken rule named) and which variant an endpoint
//! belongs to: the first that matches it. Reads no file. Costs have no unit, bounds are replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use serde::Deserialize;

use crate::endpoint::Endpoint;
use crate::scaling::input::{DEFAULT_COST, Role, Variant};
use crate::yaml::{self, Value};

/// One variant and the endpoints that are its replicas.
#[derive(Debug, Clone, PartialEq)]
pub struct VariantSpec {
    /// The model that it names, if it names one.
    pub model_id: Option<String>,
    /// The namespace that it names, if it names one.
    pub namespace: Option<String>,
    /// What planning is told; its counts are zero.
    pub variant: Variant,
    /// Its replicas.
    pub members: Members,
}

/// Which endpoints belong to a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// All that no variant before it has.
    Rest,
    /// Those with each of these labels.
    Labels(BTreeMap<String, String>),
    /// Those at these addresses.
    Addresses(BTreeSet<SocketAddr>),
}

impl Members {
    fn have(&self, endpoint: &Endpoint) -> bool {
        match self {
            Self::Rest => true,
            Self::Labels(wanted) => {
                wanted.iter().all(|(key, value)| endpoint.labels.get(key) == Some(value))
            }
            Self::Addresses(addresses) => addresses.contains(&endpoint.address),
        }
    }
}

/// A document of variants.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Variants {
    /// In the order of the document.
    pub list: Vec<VariantSpec>,
    /// GPUs of each type, where the document counts them.
    pub gpus: Option<BTreeMap<String, u64>>,
}

impl Variants {
    /// What holds without any document: every endpoint is a replica of one variant of this name.
    pub fn one(name: &str) -> Self {
        let variant = Variant { name: name.to_owned(), ..Variant::default() };
        let spec = VariantSpec { model_id: None, namespace: None, variant, members: Members::Rest };
        Self { list: vec![spec], gpus: None }
    }

    /// The variant that `endpoint` is a replica of.
    pub fn of(&self, endpoint: &Endpoint) -> Option<&VariantSpec> {
        self.list.iter().find(|spec| spec.members.have(endpoint))
    }

    /// The models that the variants name, each once.
    pub fn models(&self) -> BTreeSet<&str> {
        self.list.iter().filter_map(|spec| spec.model_id.as_deref()).collect()
    }
}

/// The document as written. In a ConfigMap it stands beside `data`, so the other keys of one pass.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written {
    variants: Option<Vec<WrittenVariant>>,
    gpus: Option<BTreeMap<String, u64>>,
    #[serde(rename = "apiVersion")]
    _api_version: Option<serde::de::IgnoredAny>,
    #[serde(rename = "kind")]
    _kind: Option<serde::de::IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<serde::de::IgnoredAny>,
    #[serde(rename = "data")]
    _data: Option<serde::de::IgnoredAny>,
    #[serde(rename = "binaryData")]
    _binary_data: Option<serde::de::IgnoredAny>,
    #[serde(rename = "immutable")]
    _immutable: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct WrittenVariant {
    name: String,
    #[serde(rename = "modelID")]
    model_id: Option<String>,
    namespace: Option<String>,
    selector: Option<BTreeMap<String, String>>,
    endpoints: Option<BTreeSet<SocketAddr>>,
    #[serde(default = "default_cost")]
    cost: f64,
    #[serde(default)]
    accelerator: String,
    #[serde(default = "one")]
    gpus_per_replica: u32,
    #[serde(default)]
    role: Role,
    #[serde(default)]
    min_replicas: u32,
    #[serde(default)]
    max_replicas: u32,
    engine_args: Option<Vec<String>>,
}

fn default_cost() -> f64 {
    DEFAULT_COST
}

fn one() -> u32 {
    1
}

/// Reads a document: YAML or JSON with `variants`, alone or in a ConfigMap beside `data`. `None`: it
/// says nothing of variants, whatever else it is.
///
/// # Errors
/// Every broken rule, the first with its place where the text itself is bad.
pub fn read(bytes: &[u8]) -> Result<Option<Variants>, Vec<String>> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        vec![format!("the file is not UTF-8 (first bad byte at offset {})", error.valid_up_to())]
    })?;
    let mut found = None;
    for (before, piece) in yaml::documents(text) {
        if !names_variants(piece) {
            continue;
        }
        let written: Written = serde_saphyr::from_str(piece).map_err(|error| {
            let place = error.location();
            let line = place.as_ref().map_or(1, |at| at.line()) + before;
            let column = place.as_ref().map_or(1, |at| at.column());
            vec![format!("line {line}, column {column}: {}", yaml::cause(&error))]
        })?;
        if let Some(list) = written.variants {
            found = Some(checked(list, written.gpus)?);
        }
    }
    Ok(found)
}

/// Whether a document has the list, bad or good. One that cannot be parsed has it if its text does: a
/// scaling configuration is another reader's, and so are its faults.
fn names_variants(text: &str) -> bool {
    match yaml::first_document(text) {
        Ok(Some((node, _))) => match &node.value {
            Value::Map(pairs) => pairs.iter().any(|(key, _)| key.value == "variants"),
            _ => false,
        },
        Ok(None) => false,
        Err(_) => text.lines().any(|line| line.starts_with("variants:")),
    }
}

fn checked(
    written: Vec<WrittenVariant>,
    gpus: Option<BTreeMap<String, u64>>,
) -> Result<Variants, Vec<String>> {
    let (mut list, mut errors, mut names) = (Vec::new(), Vec::new(), BTreeSet::new());
    for (n, variant) in written.into_iter().enumerate() {
        let at = format!("variants[{n}]");
        let mut refuse = |rule: String| errors.push(format!("{at}{rule}"));
        if variant.name.is_empty() {
            refuse(".name must not be empty".to_owned());
        }
        if !names.insert(variant.name.clone()) {
            refuse(format!(".name: {:?} stands twice", variant.name));
        }
        if !(variant.cost > 0.0 && variant.cost.is_finite()) {
            refuse(format!(".cost must be > 0, got {}", variant.cost));
        }
        if variant.gpus_per_replica == 0 {
            refuse(".gpusPerReplica must be >= 1, got 0".to_owned());
        }
        let (min, max) = (variant.min_replicas, variant.max_replicas);
        if max > 0 && min > max {
            refuse(format!(".minReplicas must be <= maxReplicas ({max}), got {min}"));
        }
        let members = match (variant.selector, variant.endpoints) {
            (Some(_), Some(_)) => {
                refuse(": selector and endpoints exclude each other".to_owned());
                Members::Rest
            }
            (Some(labels), None) if labels.is_empty() => {
                refuse(
                    ".selector must name a label; leave it out to match every endpoint".to_owned(),
                );
                Members::Rest
            }
            (Some(labels), None) => Members::Labels(labels),
            (None, Some(addresses)) => Members::Addresses(addresses),
            (None, None) => Members::Rest,
        };
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        list.push(VariantSpec {
            model_id: given(variant.model_id),
            namespace: given(variant.namespace),
            variant: Variant {
                name: variant.name,
                cost: variant.cost,
                accelerator: variant.accelerator,
                gpus_per_replica: variant.gpus_per_replica,
                role: variant.role,
                min_replicas: min,
                max_replicas: max,
                engine_args: variant.engine_args,
                ..Variant::default()
            },
            members,
        });
    }
    if list.is_empty() {
        errors.push("variants must not be empty".to_owned());
    }
    for (n, spec) in list.iter().enumerate().rev().skip(1) {
        if spec.members == Members::Rest {
            errors.push(format!(
                "variants[{n}] has neither selector nor endpoints, so it takes every endpoint from \
                 those after it; only the last may"
            ));
        }
    }
    one_of(&list, "modelID", |spec| spec.model_id.as_deref(), &mut errors);
    one_of(&list, "namespace", |spec| spec.namespace.as_deref(), &mut errors);
    if errors.is_empty() { Ok(Variants { list, gpus }) } else { Err(errors) }
}

/// One process serves one model of one namespace.
fn one_of<'a>(
    list: &'a [VariantSpec],
    field: &str,
    get: impl Fn(&'a VariantSpec) -> Option<&'a str>,
    errors: &mut Vec<String>,
) {
    let named: BTreeSet<&str> = list.iter().filter_map(get).collect();
    if named.len() > 1 {
        let named: Vec<_> = named.into_iter().collect();
        errors.push(format!(
            "variants: one process has one {field}, these name {}",
            named.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(port: u16, gpu: &str) -> Endpoint {
        let mut endpoint = Endpoint::new("d", &format!("e{port}"), ([127, 0, 0, 1], port).into());
        endpoint.labels.insert("gpu".to_owned(), gpu.to_owned());
        endpoint
    }

    /// Mutants: the last that matches; a label that is enough of several.
    #[test]
    fn an_endpoint_belongs_to_the_first_variant_that_matches() {
        let text = "variants:\n- {name: a, endpoints: ['127.0.0.1:1']}\n\
                    - {name: b, selector: {gpu: l4}}\n- {name: c, selector: {gpu: l4, zone: x}}\n";
        let variants = read(text.as_bytes()).unwrap().unwrap();
        let of = |endpoint| variants.of(&endpoint).map(|spec| spec.variant.name.as_str());
        assert_eq!(of(endpoint(1, "l4")), Some("a"));
        assert_eq!(of(endpoint(2, "l4")), Some("b"));
        assert_eq!(of(endpoint(2, "h100")), None);
    }

    /// Mutants: each rule left out; only the first reported; an unknown key passed.
    #[test]
    fn every_broken_rule_is_named() {
        let text = "variants:\n- {name: a, cost: 0, minReplicas: 3, maxReplicas: 2, modelID: m}\n\
                    - {name: a, gpusPerReplica: 0, selector: {a: b}, endpoints: [], modelID: n}\n";
        let errors = read(text.as_bytes()).unwrap_err();
        let expected = [
            "variants[0].cost must be > 0, got 0",
            "variants[0].minReplicas must be <= maxReplicas (2), got 3",
            "variants[1].name: \"a\" stands twice",
            "variants[1].gpusPerReplica must be >= 1, got 0",
            "variants[1]: selector and endpoints exclude each other",
            "variants[0] has neither selector nor endpoints, so it takes every endpoint from those \
             after it; only the last may",
            "variants: one process has one modelID, these name m, n",
        ];
        assert_eq!(errors, expected);
        let errors = read(b"variants:\n- {name: a, replicas: 2}\n").unwrap_err();
        assert!(errors[0].starts_with("line 2, column "), "{errors:?}");
        assert!(errors[0].contains("replicas"), "{errors:?}");
        assert_eq!(read(b"variants: []").unwrap_err(), ["variants must not be empty"]);
    }

    /// Mutant: variants of a ConfigMap passed over; a map without any refused.
    #[test]
    fn a_config_map_has_them_beside_its_data() {
        let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wva}\ndata:\n  default: 'a: 1'\n\
                    variants:\n- {name: a, role: prefill}\n---\nkind: ConfigMap\ndata: {}\n";
        let variants = read(text.as_bytes()).unwrap().unwrap();
        assert_eq!(variants.list[0].variant.role, Role::Prefill);
        assert_eq!(read(b"kind: ConfigMap\ndata: {}\n"), Ok(None));
    }

    /// A scaling configuration in any of its forms, good or torn, is no list of variants; its own reader
    /// tells what is wrong with it. Mutant: every text that begins with a brace read as one.
    #[test]
    fn other_documents_say_nothing_of_variants() {
        for text in [
            r#"{"default": {"kvCacheThreshold": 0.7}}"#,
            r#"{"kind": "ConfigMap", "data": {}}"#,
            r#"{"default": {"kvCache"#,
            "default: {kvCacheThreshold: 0.7}\nvariantsOf: x\n",
            "",
        ] {
            assert_eq!(read(text.as_bytes()), Ok(None), "{text}");
        }
        let json = br#"{"variants": [{"name": "a"}], "kind": "ConfigMap"}"#;
        assert_eq!(read(json).unwrap().unwrap().list.len(), 1);
        assert!(read(b"variants:\n- {name: a\n").is_err());
    }
}
