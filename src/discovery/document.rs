//! The endpoint file: YAML or JSON text to endpoints.
//!
//! Decides what a file may say, which faults cost one entry and which the whole file; does no I/O.
//! Mistakes of structure (a misspelt key would silently empty the pool) refuse the file whole, a bad
//! value costs its own entry. Sizes are bytes, lines count from 1.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::net::SocketAddr;

use super::{PORT_RULE, parse_ip, parse_port};
use crate::endpoint::{Endpoint, EndpointId};
use crate::yaml::{self, Node, Value};

/// The longest file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

const TOP_KEYS: [&str; 1] = ["endpoints"];
const ENTRY_KEYS: [&str; 5] = ["name", "namespace", "address", "port", "labels"];

/// What a good file says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Parsed {
    /// The valid entries, ordered by id, so that reordering a file changes nothing.
    pub endpoints: Vec<Endpoint>,
    /// The entries that were left out, in the order of the file.
    pub rejected: Vec<EntryError>,
    /// What is used as it stands but is hardly meant.
    pub warnings: Vec<Warning>,
}

/// Why a file is refused whole.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Longer than [`MAX_BYTES`].
    #[error("the file has {0} bytes, the limit is {MAX_BYTES}")]
    TooLarge(usize),
    /// Not text.
    #[error("the file is not UTF-8 (first bad byte at offset {0})")]
    NotUtf8(usize),
    /// No value at all: nothing, blanks, comments or `null`.
    #[error("the file is empty; an empty pool is written `endpoints: []`")]
    Empty,
    /// Neither YAML nor JSON.
    #[error("the file cannot be parsed as YAML or JSON")]
    Syntax(#[source] Box<serde_saphyr::Error>),
    /// The top level is no mapping.
    #[error("the file must be a mapping with the key \"endpoints\", it is {0}")]
    NotAMapping(&'static str),
    /// Keys that are unknown or given twice, all of them.
    #[error("{}", joined(.0))]
    Keys(Vec<KeyError>),
    /// A mapping without `endpoints`.
    #[error("the key \"endpoints\" is missing; an empty pool is written `endpoints: []`")]
    MissingEndpoints,
    /// `endpoints` is something else than a list.
    #[error("line {line}: endpoints must be a list, it is {found}")]
    NotAList {
        /// Where the value stands.
        line: u64,
        /// What it is.
        found: &'static str,
    },
    /// There are entries, and each has a fault.
    #[error("no entry is valid: {}", joined(.0))]
    NoneValid(Vec<EntryError>),
}

/// A key that cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {place}: key {key:?} {rule}")]
pub struct KeyError {
    /// As written.
    pub key: String,
    /// Where it stands.
    pub line: u64,
    place: String,
    rule: String,
}

/// An entry that is left out, with all its faults.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: endpoints[{index}] {}: {}", name.as_deref().unwrap_or("without a name"), faults.join("; "))]
pub struct EntryError {
    /// Position in the list, from 0.
    pub index: usize,
    /// Its name in quotes, where it has one.
    name: Option<String>,
    line: u64,
    /// Field and broken rule, at least one.
    pub faults: Vec<String>,
}

/// Something in a good file that is hardly meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// Only the first YAML document counts.
    SecondDocument,
    /// Two valid entries of one name; the later one counts.
    DuplicateName {
        /// The name.
        id: EndpointId,
        /// Position of the entry that counts, from 0.
        index: usize,
    },
    /// Two names for one server, which is then counted twice.
    SharedAddress {
        /// The address.
        address: SocketAddr,
        /// The names, in order.
        ids: [EndpointId; 2],
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SecondDocument => f.write_str("only the first YAML document is used"),
            Self::DuplicateName { id, index } => {
                write!(f, "endpoint {id} is given more than once, endpoints[{index}] counts")
            }
            Self::SharedAddress { address, ids: [first, second] } => {
                write!(f, "{first} and {second} share the address {address}: it counts twice")
            }
        }
    }
}

/// Reads an endpoint file.
///
/// # Errors
/// [`DocumentError`] where the file as a whole cannot be trusted; a bad entry beside good ones is no
/// error but stands in [`Parsed::rejected`].
pub fn parse(bytes: &[u8]) -> Result<Parsed, DocumentError> {
    if bytes.len() > MAX_BYTES {
        return Err(DocumentError::TooLarge(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|e| DocumentError::NotUtf8(e.valid_up_to()))?;
    let document = yaml::first_document(text).map_err(|e| DocumentError::Syntax(Box::new(e)))?;
    let (root, another) = document.ok_or(DocumentError::Empty)?;
    let Value::Map(top) = &root.value else {
        return Err(DocumentError::NotAMapping(root.value.kind()));
    };

    let mut keys = Vec::new();
    let [endpoints] = pick(top, TOP_KEYS, "top level", &mut keys);
    let entries = match endpoints.map(|node| (&node.value, node)) {
        Some((Value::List(entries), _)) => entries.as_slice(),
        // A misspelt key explains a missing one, so it is reported first.
        _ if !keys.is_empty() => return Err(DocumentError::Keys(keys)),
        None => return Err(DocumentError::MissingEndpoints),
        Some((other, node)) => {
            return Err(DocumentError::NotAList { line: line(node), found: other.kind() });
        }
    };
    let read: Vec<_> =
        entries.iter().enumerate().map(|(index, node)| entry(index, node, &mut keys)).collect();
    if !keys.is_empty() {
        keys.sort_by_key(|key| key.line);
        return Err(DocumentError::Keys(keys));
    }
    let mut parsed = gather(read);
    if parsed.endpoints.is_empty() && !parsed.rejected.is_empty() {
        return Err(DocumentError::NoneValid(parsed.rejected));
    }
    if another {
        parsed.warnings.push(Warning::SecondDocument);
    }
    Ok(parsed)
}

/// One set out of the entries: the last of a name counts, shared addresses stay.
fn gather(entries: Vec<Result<Endpoint, EntryError>>) -> Parsed {
    let mut parsed = Parsed::default();
    let mut by_id = BTreeMap::new();
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            Err(error) => parsed.rejected.push(error),
            Ok(endpoint) => {
                let id = endpoint.id.clone();
                if by_id.insert(id.clone(), endpoint).is_some() {
                    parsed.warnings.push(Warning::DuplicateName { id, index });
                }
            }
        }
    }
    let mut owners: BTreeMap<SocketAddr, EndpointId> = BTreeMap::new();
    for endpoint in by_id.into_values() {
        match owners.entry(endpoint.address) {
            Entry::Vacant(free) => {
                free.insert(endpoint.id.clone());
            }
            Entry::Occupied(owner) => parsed.warnings.push(Warning::SharedAddress {
                address: endpoint.address,
                ids: [owner.get().clone(), endpoint.id.clone()],
            }),
        }
        parsed.endpoints.push(endpoint);
    }
    parsed
}

/// One entry; key mistakes go to `keys`, since they concern the whole file.
fn entry(index: usize, node: &Node, keys: &mut Vec<KeyError>) -> Result<Endpoint, EntryError> {
    let reject = |name: Option<&str>, faults| EntryError {
        index,
        name: name.map(|name| format!("{name:?}")),
        line: line(node),
        faults,
    };
    let Value::Map(map) = &node.value else {
        return Err(reject(None, vec![format!("must be a mapping, it is {}", node.value.kind())]));
    };
    let place = format!("endpoints[{index}]");
    let [name, namespace, address, port, labels] = pick(map, ENTRY_KEYS, &place, keys);

    let mut faults = Vec::new();
    let name = required("name", name, &mut faults);
    let namespace = text("namespace", namespace, &mut faults).filter(|text| !text.is_empty());
    let address = required("address", address, &mut faults).and_then(|written| {
        parse_ip(written).map_err(|rule| faults.push(format!("address {written:?} {rule}"))).ok()
    });
    let port = read_port(port).map_err(|fault| faults.push(fault)).ok();
    let labels = read_labels(labels, &mut faults);

    match (name, address, port) {
        (Some(name), Some(ip), Some(port)) if faults.is_empty() => {
            let address = SocketAddr::new(ip, port);
            Ok(Endpoint { labels, ..Endpoint::new(namespace.unwrap_or("default"), name, address) })
        }
        _ => Err(reject(name, faults)),
    }
}

/// A port as text, as upstream writes it, or as a number, as everybody does at first.
fn read_port(node: Option<&Node>) -> Result<u16, String> {
    match node.map(|node| &node.value) {
        None | Some(Value::Null) => Err("port is missing".to_owned()),
        Some(Value::Text(text)) => parse_port(text).map_err(|rule| format!("port {text:?} {rule}")),
        Some(Value::Int(number)) => u16::try_from(*number)
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("port {number} {PORT_RULE}")),
        Some(other) => Err(format!("port must be text or a whole number, it is {}", other.kind())),
    }
}

fn read_labels(node: Option<&Node>, faults: &mut Vec<String>) -> BTreeMap<String, String> {
    let entries = match node.map(|node| &node.value) {
        None | Some(Value::Null) => return BTreeMap::new(),
        Some(Value::Map(entries)) => entries,
        Some(other) => {
            faults.push(format!("labels must be a mapping, it is {}", other.kind()));
            return BTreeMap::new();
        }
    };
    let mut labels = BTreeMap::new();
    for (key, value) in entries {
        let field = format!("labels[{:?}]", key.value);
        let value = text(&field, Some(value), faults).unwrap_or_default();
        labels.insert(key.value.clone(), value.to_owned());
    }
    labels
}

/// The text of a field; `null` is as good as absent, anything else is a fault.
fn text<'a>(field: &str, node: Option<&'a Node>, faults: &mut Vec<String>) -> Option<&'a str> {
    match &node?.value {
        Value::Null => None,
        Value::Text(text) => Some(text),
        other => {
            faults.push(format!("{field} must be text, it is {} (quote it)", other.kind()));
            None
        }
    }
}

/// As [`text`], but absent and empty are faults too.
fn required<'a>(field: &str, node: Option<&'a Node>, faults: &mut Vec<String>) -> Option<&'a str> {
    let before = faults.len();
    let found = text(field, node, faults).filter(|text| !text.is_empty());
    if found.is_none() && faults.len() == before {
        faults.push(format!("{field} is missing or empty"));
    }
    found
}

/// The values of the `known` keys, whose case does not count, as in Go's JSON.
fn pick<'a, const N: usize>(
    map: &'a [(serde_saphyr::Spanned<String>, Node)],
    known: [&str; N],
    place: &str,
    wrong: &mut Vec<KeyError>,
) -> [Option<&'a Node>; N] {
    let mut found = [None; N];
    for (key, value) in map {
        let rule = match known.iter().position(|known| known.eq_ignore_ascii_case(&key.value)) {
            Some(at) if found[at].is_none() => {
                found[at] = Some(value);
                continue;
            }
            Some(_) => "is given twice".to_owned(),
            None => yaml::unknown(&key.value, &known),
        };
        let (key, line) = (key.value.clone(), key.referenced.line());
        wrong.push(KeyError { key, line, place: place.to_owned(), rule });
    }
    found
}

fn line(node: &Node) -> u64 {
    node.referenced.line()
}

fn joined<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
