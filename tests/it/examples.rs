//! What users copy works as it stands: the files of `config/` and `deploy/`.

use std::process::Command;

fn path(name: &str) -> String {
    format!("{}/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Mutant: a misspelt key in the file.
#[test]
fn the_endpoints_example_is_read_without_a_word() {
    let bytes = std::fs::read(path("config/endpoints.yaml")).unwrap();
    let parsed = plumbline::discovery::document::parse(&bytes).unwrap();
    assert_eq!(parsed.endpoints.len(), 2);
    assert!(parsed.rejected.is_empty() && parsed.warnings.is_empty(), "{parsed:?}");
}

/// Mutants: a misspelt key in the file; a maximum below its minimum.
#[test]
fn the_variants_example_is_read() {
    let bytes = std::fs::read(path("config/variants.yaml")).unwrap();
    let variants = plumbline::config::variants::read(&bytes).unwrap().unwrap();
    assert_eq!(variants.models().into_iter().collect::<Vec<_>>(), ["meta/llama-8b"]);
    let bounds = variants.list.iter().map(|spec| {
        let variant = &spec.variant;
        (variant.name.as_str(), variant.min_replicas, variant.max_replicas)
    });
    assert_eq!(bounds.collect::<Vec<_>>(), [("small", 1, 8), ("large", 0, 4)]);
}

/// The profiles and the production example are the tables of the specification, without a word of
/// doubt. Mutants: any number in a file; a misspelt key.
#[test]
fn the_scaling_examples_resolve_to_their_tables() {
    use plumbline::config::{LineSource, Model, Params, lint};
    // File, model and namespace; KV line and trigger, queue line and trigger.
    let table = [
        ("conservative", None, [0.8, 0.1, 5.0, 3.0]),
        ("aggressive", None, [0.9, 0.1, 15.0, 3.0]),
        ("strict", None, [0.7, 0.1, 3.0, 2.0]),
        ("production", None, [0.8, 0.1, 5.0, 3.0]),
        ("production", Some(("ibm/granite-13b", "production")), [0.7, 0.2, 3.0, 5.0]),
        ("production", Some(("meta/llama-70b", "development")), [0.9, 0.05, 15.0, 2.0]),
        ("production", Some(("meta/llama-70b", "elsewhere")), [0.8, 0.1, 5.0, 3.0]),
    ];
    for (name, model, expected) in table {
        let file = std::path::PathBuf::from(path(&format!("config/scaling-{name}.yaml")));
        let (id, namespace) = model.unzip();
        let model = Model {
            id: id.map(str::to_owned),
            namespace: namespace.unwrap_or("default").to_owned(),
        };
        let source = LineSource::open(Params::default(), model, Some(&file));
        let version = source.file.as_ref().map(|(_, version)| version.as_ref());
        let document = version.unwrap().as_ref().unwrap();
        assert!(document.rejected.is_empty() && document.warnings.is_empty(), "{document:?}");
        let (policy, dropped) = source.policy(plumbline::routing::Profile::default());
        assert_eq!(dropped, []);
        assert_eq!(lint::scaling(&policy.scaling), [""; 0]);
        let line = policy.thresholds.numbers();
        let numbers =
            [line.kv_cache_util, line.kv_spare_trigger, line.queue_depth, line.queue_spare_trigger];
        assert_eq!(numbers, expected, "{name} {id:?}");
        assert_eq!((line.scale_up_threshold, line.scale_down_boundary), (0.85, 0.7));
        assert_eq!(source.layers.selection().name(), "V2");
    }
}

/// Mutant: a misspelt key in the file.
#[test]
fn the_engines_example_is_read() {
    let text = std::fs::read_to_string(path("config/engines.yaml")).unwrap();
    let engines = plumbline::poller::engines::read_document(&text, None).unwrap();
    assert_eq!(engines.named("my-server").unwrap().mapping().custom[0].0, "temperature");
}

/// Mutant: a misspelt field in the file, which Envoy refuses.
#[test]
fn envoy_accepts_the_gateway_example() {
    let envoy = plumbline::envoy::find().unwrap();
    let output = Command::new(envoy)
        .args(["--mode", "validate", "-c", &path("deploy/envoy.yaml")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Mutant: a README that names a flag which is no more.
#[test]
fn the_readme_names_real_flags_and_files() {
    let pages = ["README.md", "docs/autoscaling.md"];
    let readme: String =
        pages.iter().map(|page| std::fs::read_to_string(path(page)).unwrap()).collect();
    let mut help = String::new();
    for command in [
        &["--help"][..],
        &["check", "--help"],
        &["demo", "--help"],
        &["plan", "--help"],
        &["sim", "--help"],
        &["conformance", "--help"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_plumbline")).args(command).output().unwrap();
        help += &String::from_utf8(output.stdout).unwrap();
    }
    let flags = readme.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'));
    for flag in
        flags.filter(|word| word.starts_with("--") && word.len() > 3 && *word != "--release")
    {
        assert!(help.contains(flag), "README names {flag}");
    }
    for link in readme.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
        let file = link.split('#').next().unwrap();
        let there = |file: &str| std::path::Path::new(&path(file)).exists();
        assert!(
            file.starts_with("http") || there(file) || there(&format!("docs/{file}")),
            "{link}"
        );
    }
}
