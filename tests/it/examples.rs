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
    let readme = std::fs::read_to_string(path("README.md")).unwrap();
    let mut help = String::new();
    for command in [
        &["--help"][..],
        &["check", "--help"],
        &["demo", "--help"],
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
        assert!(file.starts_with("http") || std::path::Path::new(&path(file)).exists(), "{link}");
    }
}
