//! `plumbline plan` through the real binary: what it prints and what it refuses.

use std::process::{Command, Output};

use serde_json::Value;

const DOCUMENT: &str = r#"models:
- modelID: m
  namespace: ns
  replicas:
  - {pod: p1, variant: v1, kv: 0.9, queue: 7, ageSeconds: 0, numGpuBlocks: 1000, blockSize: 16, avgInputTokens: 100, avgOutputTokens: 50, prefixHitRate: 0.0, tokensInUse: 14400}
  - {pod: p2, variant: v1, kv: 0.9, queue: 7, ageSeconds: 0, numGpuBlocks: 1000, blockSize: 16, avgInputTokens: 100, avgOutputTokens: 50, prefixHitRate: 0.0}
  variants:
  - {name: v1, cost: 5.0, accelerator: L4, gpusPerReplica: 1, role: both, current: 2, desired: 0, pending: 0, minReplicas: 0, maxReplicas: 0, engineArgs: ["--max-num-seqs=256"]}
  schedulerQueue: {size: 0, bytes: 0}
  requestCount: 12
gpus: {H100: 8}
learned: {}
"#;

fn run(document: &str, config: Option<&str>, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let (input, scaling) = (folder.path().join("input.yaml"), folder.path().join("scaling.yaml"));
    std::fs::write(&input, document).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    command.arg("plan").arg("--input").arg(&input).args(more);
    if let Some(config) = config {
        std::fs::write(&scaling, config).unwrap();
        command.arg("--scaling-config").arg(&scaling);
    }
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Mutant: a key of the documented form renamed.
#[test]
fn the_documented_form_plans_with_v2() {
    let plan = json(&run(DOCUMENT, None, &["--output", "json"]));
    assert_eq!(plan["generation"], 1);
    assert_eq!(plan["digest"].as_str().unwrap().len(), 16);
    let model = &plan["models"][0];
    assert_eq!((model["modelID"].as_str(), model["analyzer"].as_str()), (Some("m"), Some("v2")));
    assert_eq!(model["totalSupply"], 25_600.0);
    assert!(model.get("avgSpareKv").is_none(), "fields of V1 are absent");
    let variant = &model["variants"][0];
    assert_eq!(
        (variant["action"].as_str(), variant["current"].as_u64()),
        (Some("scale-up"), Some(2))
    );
    assert!(variant["target"].as_u64().unwrap() > 2);
    assert!(!variant["reason"].as_str().unwrap().is_empty());
    assert!(model["steps"].as_array().unwrap().iter().all(|step| step["stage"].is_string()));
}

/// Mutants: the file ignored; V1 chosen without one.
#[test]
fn a_scaling_file_without_analyzers_plans_with_v1_and_limits_gpus() {
    let config = "default: |\n  kvCacheThreshold: 0.8\n  queueLengthThreshold: 5\n  kvSpareTrigger: 0.1\n  queueSpareTrigger: 3\n  enableLimiter: true\n";
    let none_left = json(&run(DOCUMENT, Some(config), &["--output", "json"]));
    let model = &none_left["models"][0];
    assert_eq!((model["analyzer"].as_str(), model["scaleUp"].as_bool()), (Some("v1"), Some(true)));
    assert!(model.get("totalSupply").is_none(), "fields of V2 are absent");
    assert_eq!(model["variants"][0]["target"], 2, "no L4 is in the inventory");
    let bound = |step: &Value| step["text"].as_str().unwrap().contains("bound by: gpu");
    assert!(model["steps"].as_array().unwrap().iter().any(bound), "{}", model["steps"]);
    let enough = json(&run(&DOCUMENT.replace("H100", "L4"), Some(config), &["--output", "json"]));
    assert_eq!(enough["models"][0]["variants"][0]["target"], 3);
}

/// Mutant: an error without the field or the line.
#[test]
fn errors_name_the_field_and_the_line() {
    for (right, wrong, expected) in [
        ("numGpuBlocks", "numGpuBlock", ["line 5", "numGpuBlock"]),
        ("kv: 0.9, queue: 7", "kv: high, queue: 7", ["line 5", "kv: high"]),
        ("role: both", "role: encode", ["line 8", "encode"]),
        ("learned: {}", "learnt: {}", ["line 12", "learnt"]),
        ("gpusPerReplica: 1", "gpusPerReplica: 0", ["variants[0].gpusPerReplica", ">= 1"]),
    ] {
        let output = run(&DOCUMENT.replace(right, wrong), None, &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{wrong}: {error}");
        assert!(expected.iter().all(|part| error.contains(part)), "{wrong}: {error}");
        assert!(output.stdout.is_empty());
    }
}

/// Mutant: a variant, its target or its reason left out of the text.
#[test]
fn the_text_says_what_and_why() {
    let output = run(DOCUMENT, None, &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["model m in ns (V2", "v1", "tokens are missing", "post-step"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
