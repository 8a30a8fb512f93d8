//! The house rules that a compiler does not know: imports point down, core is pure, files are short.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each top-level module may name of the crate, itself aside. `ARCHITECTURE.md` draws it.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    // Vocabulary.
    ("units", &[]),
    ("causes", &[]),
    ("endpoint", &["units"]),
    ("thresholds", &["units"]),
    ("scaling_entry", &["thresholds"]),
    ("request", &["units"]),
    ("pool", &["endpoint", "units"]),
    ("response", &["units"]),
    // Core.
    ("flow", &[]),
    ("saturation", &["endpoint", "pool", "thresholds", "units"]),
    ("reckoning", &["endpoint", "saturation", "thresholds", "units"]),
    ("routing", &["endpoint", "pool", "reckoning", "saturation", "thresholds", "units"]),
    ("scaling", &["pool", "scaling_entry", "thresholds", "units"]),
    // State.
    ("policy", &["routing", "scaling_entry", "thresholds", "units"]),
    ("store", &["endpoint", "pool", "reckoning", "units"]),
    ("lifecycle", &[]),
    ("flow_control", &["flow", "lifecycle", "store"]),
    // Adapters in.
    ("watched_file", &["units"]),
    ("yaml", &[]),
    ("manifests", &["routing", "watched_file", "yaml"]),
    (
        "config",
        &[
            "causes",
            "endpoint",
            "policy",
            "routing",
            "scaling",
            "scaling_entry",
            "thresholds",
            "units",
            "watched_file",
            "yaml",
        ],
    ),
    ("discovery", &["causes", "endpoint", "units", "watched_file", "yaml"]),
    (
        "poller",
        &[
            "causes",
            "endpoint",
            "lifecycle",
            "pool",
            "store",
            "telemetry",
            "units",
            "watched_file",
            "yaml",
        ],
    ),
    ("http_port", &[]),
    ("peers", &["policy", "poller", "telemetry"]),
    // Adapters out.
    (
        "telemetry",
        &[
            "endpoint",
            "policy",
            "pool",
            "response",
            "saturation",
            "scaling",
            "store",
            "thresholds",
            "units",
        ],
    ),
    ("tls", &["causes", "telemetry", "watched_file"]),
    (
        "autoscaler",
        &[
            "config",
            "endpoint",
            "flow_control",
            "lifecycle",
            "peers",
            "policy",
            "pool",
            "saturation",
            "scaling",
            "store",
            "telemetry",
            "thresholds",
        ],
    ),
    ("keda", &["autoscaler", "scaling"]),
    ("external_metrics", &["autoscaler", "http_port", "scaling"]),
    (
        "ext_proc",
        &[
            "causes",
            "endpoint",
            "flow",
            "flow_control",
            "policy",
            "pool",
            "reckoning",
            "request",
            "response",
            "routing",
            "store",
            "telemetry",
            "units",
            "watched_file",
        ],
    ),
    (
        "admin",
        &[
            "autoscaler",
            "config",
            "discovery",
            "endpoint",
            "flow_control",
            "http_port",
            "lifecycle",
            "manifests",
            "policy",
            "poller",
            "pool",
            "reckoning",
            "routing",
            "saturation",
            "scaling_entry",
            "store",
            "telemetry",
            "thresholds",
            "units",
        ],
    ),
    // Surroundings: they stand beside the product and know little of it.
    ("sim", &["units"]),
    ("envoy", &[]),
    ("conformance", &["units"]),
    ("demo", &["config", "envoy", "keda", "sim", "units"]),
    // Shell.
    (
        "app",
        &[
            "admin",
            "autoscaler",
            "config",
            "discovery",
            "ext_proc",
            "external_metrics",
            "flow",
            "flow_control",
            "keda",
            "lifecycle",
            "manifests",
            "peers",
            "policy",
            "poller",
            "pool",
            "scaling",
            "store",
            "telemetry",
            "tls",
            "units",
        ],
    ),
    (
        "cli",
        &[
            "admin",
            "app",
            "autoscaler",
            "causes",
            "config",
            "conformance",
            "demo",
            "discovery",
            "envoy",
            "ext_proc",
            "flow",
            "manifests",
            "policy",
            "poller",
            "pool",
            "routing",
            "scaling",
            "scaling_entry",
            "sim",
            "telemetry",
            "thresholds",
            "tls",
            "units",
            "yaml",
        ],
    ),
];

/// Vocabulary and core: no clock, no chance of their own, no I/O, no log, no lock.
const PURE: &[&str] = &[
    "units",
    "endpoint",
    "thresholds",
    "scaling_entry",
    "pool",
    "request",
    "response",
    "flow",
    "saturation",
    "reckoning",
    "routing",
    "scaling",
];

/// What purity forbids. `Instant` and `Duration` as values are fine.
const IMPURE: &[&str] = &[
    "async ",
    "tokio",
    "tonic",
    "hyper",
    "::now()",
    "rand::rng(",
    "thread_rng",
    "tracing::",
    "std::fs",
    "std::net::Tcp",
    "std::env",
    "Mutex",
    "RwLock",
    "Atomic",
    "println!",
    "thread_local",
];

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut found);
    assert!(found.len() > 20, "src was not found");
    found
}

/// The top-level module that a file belongs to.
fn module(path: &Path) -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let first = path.strip_prefix(src).unwrap().components().next().unwrap();
    first.as_os_str().to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// The text before an inline test module, without comments.
fn code(text: &str) -> String {
    let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = production.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn is_test_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs")
        || path.parent().is_some_and(|folder| folder.ends_with("tests"))
}

/// Top-level modules that follow `crate::` in `text`, grouped imports included.
fn imported(text: &str) -> Vec<String> {
    let name = |text: &str| {
        text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
    };
    let mut names = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => names.push(name(rest)),
            Some(group) => {
                let mut depth = 0;
                let mut start = true;
                for (i, c) in group.char_indices() {
                    match c {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => start = true,
                        c if c.is_alphabetic() && start => {
                            names.push(name(&group[i..]));
                            start = false;
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    names
}

/// Mutant: `use crate::app` anywhere below the shell.
#[test]
fn imports_point_down() {
    let allowed: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let here = module(&path);
        if matches!(here.as_str(), "main" | "lib") || is_test_file(&path) {
            continue;
        }
        let Some(may) = allowed.get(here.as_str()) else {
            wrong.push(format!("{here} has no line in MAY_IMPORT"));
            continue;
        };
        for there in imported(&code(&text)) {
            if there != here && !may.contains(&there.as_str()) {
                wrong.push(format!("{} imports {there}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table itself has no cycle. Mutant: an edge from `units` to `app`.
#[test]
fn the_layers_have_an_order() {
    let mut left: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    while !left.is_empty() {
        let done: Vec<_> = left
            .iter()
            .filter(|(_, may)| may.iter().all(|there| !left.contains_key(there)))
            .map(|(name, _)| *name)
            .collect();
        assert!(!done.is_empty(), "a cycle among {:?}", left.keys());
        left.retain(|name, _| !done.contains(name));
    }
}

/// Mutant: a clock, a lock or a log line in `saturation.rs`.
#[test]
fn vocabulary_and_core_are_pure() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        if !PURE.contains(&module(&path).as_str()) || is_test_file(&path) {
            continue;
        }
        let code = code(&text);
        for word in IMPURE.iter().filter(|word| code.contains(**word)) {
            wrong.push(format!("{} contains {word:?}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Proto types stay in what speaks them. Mutant: a use of `envoy_types` elsewhere.
#[test]
fn proto_types_stay_at_the_edge() {
    for (path, text) in sources() {
        if !["ext_proc", "conformance"].contains(&module(&path).as_str()) {
            assert!(!code(&text).contains("envoy_types"), "{} names envoy_types", path.display());
        }
    }
}

/// Mutants: a file without its header, one that grew, a name that says nothing.
#[test]
fn files_say_what_they_decide_and_stay_short() {
    let mut wrong = Vec::new();
    for (path, text) in sources() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !text.starts_with("//!") {
            wrong.push(format!("{} does not open with //!", path.display()));
        }
        if text.lines().count() > 500 {
            wrong.push(format!("{} has more than 500 lines", path.display()));
        }
        if ["manager", "helper", "util", "common", "types", "service"]
            .iter()
            .any(|w| name.split('_').any(|part| part == *w))
        {
            wrong.push(format!("{} has a name that says nothing", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
