//! The scaling configuration: a file of ConfigMaps, or their bare content, to layers.
//!
//! Decides which document is which map, what costs one entry and what the whole file, and what an
//! older version leaves behind: an invalid entry keeps its last valid value, a map that is gone or
//! empty changes nothing. Reads no file; lines and columns count from 1.

mod entry;
mod place;
mod zero;

use std::collections::{BTreeMap, BTreeSet};

use self::place::Place;
use crate::yaml::{self, Node, Value};

pub use self::entry::Layer;
pub use self::zero::ZeroLayer;

/// Name of the saturation map.
pub const SATURATION_MAP: &str = "wva-saturation-scaling-config";

/// Name of the scale-to-zero map.
pub const ZERO_MAP: &str = "wva-model-scale-to-zero-config";

/// The entry that holds for every model.
pub const DEFAULT: &str = "default";

const TOP_KEYS: [&str; 8] =
    ["apiVersion", "kind", "metadata", "data", "binaryData", "immutable", "variants", "gpus"];

/// The rule between the KV line and its spare trigger.
pub(super) fn spare_rule(kv: f64, spare: f64) -> Option<String> {
    (kv < spare)
        .then(|| format!("kvCacheThreshold ({kv:.2}) should be >= kvSpareTrigger ({spare:.2})"))
}

/// The rule between the two bounds.
pub(super) fn pair_rule(up: f64, down: f64) -> Option<String> {
    (up <= down)
        .then(|| format!("scaleUpThreshold ({up:.2}) must be > scaleDownBoundary ({down:.2})"))
}

/// Entries of a saturation map by key.
pub type Entries = BTreeMap<String, Layer>;

/// Why the file as a whole changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScalingError {
    /// Not text.
    #[error("the file is not UTF-8 (first bad byte at offset {0})")]
    NotUtf8(usize),
    /// No value at all.
    #[error("the file is empty")]
    Empty,
    /// Neither YAML nor JSON, in one document at least.
    #[error("line {line}: cannot be parsed as YAML or JSON: {error}")]
    Syntax {
        /// Of the file.
        line: u64,
        /// The reader's words.
        error: String,
    },
    /// The content is of another shape.
    #[error("line {line}: {rule}")]
    Shape {
        /// Of the file.
        line: u64,
        /// What it must be and what it is.
        rule: String,
    },
    /// There are documents, and none is a map with entries.
    #[error(
        "the file has no entries: it needs a ConfigMap {SATURATION_MAP} or {ZERO_MAP} with data"
    )]
    NoEntries,
}

/// An entry that is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// Its key in the map.
    pub key: String,
    /// The line of its key.
    pub line: u64,
    /// All broken rules.
    pub error: String,
}

impl std::fmt::Display for Rejected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {}: entry {:?}: {}", self.line, self.key, self.error)
    }
}

/// A map of a document: entries that keep every rule, and keys of those that do not.
#[derive(Debug, Clone, PartialEq)]
struct Map<L> {
    entries: BTreeMap<String, L>,
    /// Keys that are there but bad; their last valid value stays.
    bad: BTreeSet<String>,
}

impl<L> Default for Map<L> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), bad: BTreeSet::new() }
    }
}

/// One version of the file, read.
#[derive(Debug, Default)]
pub struct Document {
    global: Option<Map<Layer>>,
    local: BTreeMap<String, Map<Layer>>,
    zero: Option<Map<ZeroLayer>>,
    /// Keys of zero entries whose retention alone is bad.
    bad_retentions: BTreeSet<String>,
    /// Entries that are left out.
    pub rejected: Vec<Rejected>,
    /// What is used as it stands, or ignored, but is hardly meant.
    pub warnings: Vec<String>,
    /// Keys that later upstream releases know and this one does not use.
    pub unused: BTreeSet<String>,
}

/// What is in force of all versions so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Held {
    /// The global saturation map.
    pub global: Option<Entries>,
    /// Maps of single namespaces; each replaces the global one whole.
    pub local: BTreeMap<String, Entries>,
    /// The scale-to-zero map.
    pub zero: BTreeMap<String, ZeroLayer>,
}

impl Held {
    /// What is in force after `document`. Also the maps that are gone from it and stay.
    pub fn next(&self, document: &Document) -> (Self, Vec<String>) {
        let mut gone = Vec::new();
        let global = match &document.global {
            Some(map) => Some(merged(self.global.as_ref(), map)),
            None => {
                gone.extend(self.global.iter().map(|_| SATURATION_MAP.to_owned()));
                self.global.clone()
            }
        };
        let mut local = self.local.clone();
        for namespace in self.local.keys().filter(|name| !document.local.contains_key(*name)) {
            gone.push(format!("{namespace}/{SATURATION_MAP}"));
        }
        for (namespace, map) in &document.local {
            local.insert(namespace.clone(), merged(self.local.get(namespace), map));
        }
        let zero = match &document.zero {
            Some(map) => {
                let mut zero = merged(Some(&self.zero), map);
                for key in &document.bad_retentions {
                    let last = self.zero.get(key).and_then(|old| old.retention);
                    if let Some(entry) = zero.get_mut(key) {
                        entry.retention = last;
                    }
                }
                zero
            }
            None => {
                gone.extend((!self.zero.is_empty()).then(|| ZERO_MAP.to_owned()));
                self.zero.clone()
            }
        };
        (Self { global, local, zero }, gone)
    }

    /// The saturation map that holds in `namespace`.
    pub fn scope(&self, namespace: &str) -> Option<&Entries> {
        self.local.get(namespace).or(self.global.as_ref())
    }

    /// Entries of all saturation maps.
    pub fn len(&self) -> usize {
        self.global.iter().chain(self.local.values()).map(BTreeMap::len).sum()
    }

    /// Whether no map has an entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the global map has the entry that holds for every model.
    pub fn has_default(&self) -> bool {
        self.global.as_ref().is_some_and(|map| map.contains_key(DEFAULT))
    }
}

fn merged<L: Clone>(old: Option<&BTreeMap<String, L>>, new: &Map<L>) -> BTreeMap<String, L> {
    let mut entries = new.entries.clone();
    for key in &new.bad {
        if let Some(last) = old.and_then(|old| old.get(key)) {
            entries.insert(key.clone(), last.clone());
        }
    }
    entries
}

/// Reads a version of the file.
///
/// # Errors
/// [`ScalingError`] where the file as a whole cannot be trusted.
pub fn read(content: &[u8]) -> Result<Document, ScalingError> {
    let text = std::str::from_utf8(content).map_err(|e| ScalingError::NotUtf8(e.valid_up_to()))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut document = Document::default();
    let mut values = 0;
    for (before, piece) in yaml::documents(text) {
        let shape = |line, rule: &str| Err(ScalingError::Shape { line, rule: rule.to_owned() });
        match yaml::first_document(piece) {
            Ok(None) => {}
            Ok(Some((Node { value: Value::Null, .. }, false))) => {}
            Ok(Some((node, false))) => {
                values += 1;
                document.value(&node, before)?;
            }
            Ok(Some((_, true))) => {
                return shape(before + 1, "another document follows without a line `---`");
            }
            Err(error) => {
                let line = before + error.location().map_or(1, |at| at.line());
                let error = yaml::cause(&error);
                return Err(ScalingError::Syntax { line, error });
            }
        }
    }
    let Document { global, local, zero, .. } = &document;
    match (values, global, zero) {
        (0, ..) => Err(ScalingError::Empty),
        (_, None, None) if local.is_empty() => Err(ScalingError::NoEntries),
        _ => Ok(document),
    }
}

/// Reads maps that came without a file, as from a cluster; `None`: there is no such map.
pub fn from_data<'a>(
    global: Option<impl IntoIterator<Item = (&'a str, &'a str)>>,
    local: impl IntoIterator<Item = (&'a str, Vec<(&'a str, &'a str)>)>,
) -> Document {
    let mut document = Document::default();
    let mut map = |entries: Vec<(&str, &str)>| {
        let mut map = Map::default();
        for (key, text) in entries {
            document.take(key, 1, entry::text(text, &Place::default()), &mut map);
        }
        map
    };
    let global = global.map(|data| map(data.into_iter().collect()));
    let local = local.into_iter().map(|(name, data)| (name.to_owned(), map(data))).collect();
    Document { global, local, ..document }
}

type Pairs = [(serde_saphyr::Spanned<String>, Node)];

fn find<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a Node> {
    pairs.iter().find(|(key, _)| key.value == name).map(|(_, value)| value)
}

fn text_of<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    match find(pairs, name).map(|node| &node.value) {
        Some(Value::Text(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

impl Document {
    fn value(&mut self, node: &Node, before: u64) -> Result<(), ScalingError> {
        let line = before + node.referenced.line();
        let Value::Map(pairs) = &node.value else {
            let rule = format!("must be a mapping, it is {}", node.value.kind());
            return Err(ScalingError::Shape { line, rule });
        };
        match (text_of(pairs, "kind"), find(pairs, "items").map(|items| &items.value)) {
            (Some("ConfigMap"), _) => self.config_map(pairs, before, line),
            (Some(list), Some(Value::List(items))) if list.ends_with("List") => {
                items.iter().try_for_each(|item| self.value(item, before))
            }
            (Some(kind), _) => {
                self.warnings.push(format!("line {line}: kind {kind} is ignored"));
                Ok(())
            }
            // An entry by itself is the one for every model.
            (None, _) if pairs.iter().any(|(key, _)| entry::FIELDS.contains(&&*key.value)) => {
                let mut map = Map::default();
                let place = Place::of(node, node.referenced.line(), before);
                self.take(DEFAULT, line, entry::node_of(node, &place), &mut map);
                self.saturation(None, map, line)
            }
            (None, _) => {
                let map = self.entries(pairs, before, true);
                self.saturation(None, map, line)
            }
        }
    }

    fn config_map(&mut self, pairs: &Pairs, before: u64, line: u64) -> Result<(), ScalingError> {
        for (key, _) in pairs.iter().filter(|(key, _)| !TOP_KEYS.contains(&&*key.value)) {
            let (line, column) = (before + key.referenced.line(), key.referenced.column());
            let rule = yaml::unknown(&key.value, &TOP_KEYS);
            self.warnings.push(format!("line {line}, column {column}: key {:?} {rule}", key.value));
        }
        let metadata = match find(pairs, "metadata").map(|node| &node.value) {
            Some(Value::Map(metadata)) => metadata.as_slice(),
            _ => &[],
        };
        let name = text_of(metadata, "name").unwrap_or_default();
        let data = match find(pairs, "data").map(|node| (&node.value, node)) {
            Some((Value::Map(data), _)) if !data.is_empty() => data.as_slice(),
            None | Some((Value::Null | Value::Map(_), _)) => {
                let text = "has no data; it changes nothing";
                self.warnings.push(format!("line {line}: ConfigMap {name:?} {text}"));
                return Ok(());
            }
            Some((other, node)) => {
                let line = before + node.referenced.line();
                let rule = format!("data must be a mapping, it is {}", other.kind());
                return Err(ScalingError::Shape { line, rule });
            }
        };
        if name == ZERO_MAP {
            self.zero_map(data, before, line);
            return Ok(());
        }
        if name != SATURATION_MAP {
            let text = format!("is not named {SATURATION_MAP}; it is read as if it were");
            self.warnings.push(format!("line {line}: ConfigMap {name:?} {text}"));
        }
        let map = self.entries(data, before, false);
        self.saturation(text_of(metadata, "namespace"), map, line)
    }

    /// The first saturation map is the global one, each later one that of its namespace.
    fn saturation(
        &mut self,
        namespace: Option<&str>,
        map: Map<Layer>,
        line: u64,
    ) -> Result<(), ScalingError> {
        let shape = |rule: String| Err(ScalingError::Shape { line, rule });
        if self.global.is_none() {
            self.global = Some(map);
            return Ok(());
        }
        let Some(namespace) = namespace else {
            return shape("a second saturation map needs metadata.namespace".to_owned());
        };
        if self.local.insert(namespace.to_owned(), map).is_some() {
            return shape(format!("a second saturation map of namespace {namespace:?}"));
        }
        Ok(())
    }

    fn entries(&mut self, data: &Pairs, before: u64, bare: bool) -> Map<Layer> {
        let mut map = Map::default();
        for (key, node) in data {
            let line = key.referenced.line();
            let place = Place::of(node, line, before);
            let read = match &node.value {
                Value::Text(text) => entry::text(text, &place),
                _ => entry::node_of(node, &place),
            };
            if !bare && matches!(node.value, Value::Map(_)) {
                let text = "is a mapping; a cluster takes text only (`|`)";
                self.warnings.push(format!("line {}: entry {:?} {text}", before + line, key.value));
            }
            self.take(&key.value, before + line, read, &mut map);
        }
        map
    }

    fn take(&mut self, key: &str, line: u64, read: entry::Read, map: &mut Map<Layer>) {
        self.warnings.extend(read.warnings);
        self.unused.extend(read.unused);
        if key != DEFAULT && !key.contains('#') {
            let text = "is no model's: keys are `default` or `{modelID}#{namespace}`";
            self.warnings.push(format!("line {line}: entry {key:?} {text}"));
        }
        if read.errors.is_empty() {
            map.entries.insert(key.to_owned(), read.layer);
        } else {
            map.bad.insert(key.to_owned());
            let error = read.errors.join("; ");
            self.rejected.push(Rejected { key: key.to_owned(), line, error });
        }
    }

    fn zero_map(&mut self, data: &Pairs, before: u64, line: u64) {
        if self.zero.is_some() {
            let text = format!("a second {ZERO_MAP} is ignored");
            self.warnings.push(format!("line {line}: {text}"));
            return;
        }
        let mut map = Map::default();
        for (key, node) in data {
            let line = before + key.referenced.line();
            let place = Place::of(node, key.referenced.line(), before);
            let read = zero::entry(&key.value, node, &place);
            self.warnings.extend(read.warnings);
            let key = key.value.clone();
            if let Some(error) = read.error {
                map.bad.insert(key.clone());
                self.rejected.push(Rejected { key, line, error });
                continue;
            }
            if let Some(error) = read.bad_retention {
                self.bad_retentions.insert(key.clone());
                self.rejected.push(Rejected { key: key.clone(), line, error });
            }
            map.entries.insert(key, read.layer);
        }
        for key in zero::duplicates(&map.entries) {
            let text = format!("entry {key:?} speaks for a model that an earlier one speaks for");
            self.warnings.push(format!("line {line}: {text}; it is ignored"));
            map.entries.remove(&key);
        }
        self.zero = Some(map);
    }
}

#[cfg(test)]
mod tests;
