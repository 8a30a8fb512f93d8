//! `plumbline check` and `--help`: the answers that people script against.

use serde_json::{Value, json};

use crate::harness::picker::command;
use crate::harness::soon;

/// Exit code, standard output and standard error.
async fn run(arguments: &[&str], params: Option<&str>) -> (i32, String, String) {
    let mut command = command(arguments);
    command.envs(params.map(|text| ("PLUMBLINE_PARAMS", text)));
    let output = soon("the binary", command.output()).await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

const ENDPOINT: [&str; 3] = ["check", "--endpoints", "127.0.0.1:1"];

async fn report(flags: &[&str], params: Option<&str>) -> (i32, Value) {
    let arguments = [&ENDPOINT[..], &["--output", "json"], flags].concat();
    let (code, out, err) = run(&arguments, params).await;
    (code, serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {err}")))
}

/// Mutants: a threshold left out; a wrong source; a duration as a number.
#[tokio::test]
async fn every_threshold_has_a_value_and_a_source() {
    let (code, report) = report(&["--params", r#"{"headroom":0.25}"#], None).await;
    assert_eq!(code, 0, "{report}");
    let built_in = |value: Value| json!({ "value": value, "source": "built-in" });
    let expected = json!({
        "thresholds": {
            "queueDepthThreshold": built_in(json!(5)),
            "kvCacheUtilThreshold": built_in(json!(0.8)),
            "metricsStalenessThreshold": built_in(json!("200ms")),
            "headroom": { "value": 0.25, "source": "params" },
            "kvSpareTrigger": built_in(json!(0.1)),
            "queueSpareTrigger": built_in(json!(3)),
            "scaleUpThreshold": built_in(json!(0.85)),
            "scaleDownBoundary": built_in(json!(0.7)),
        },
        "rewrites": [],
        "objectives": {},
        "scaling": {
            "model": null,
            "namespace": "default",
            "selection": "V2",
            "analyzerName": built_in(json!("")),
            "analyzers": built_in(json!([{ "name": "saturation", "enabled": true, "score": 1.0 }])),
            "priority": built_in(json!(1.0)),
            "enableLimiter": built_in(json!(false)),
            "enable_scale_to_zero": built_in(json!(false)),
            "retention_period": built_in(json!("10m0s")),
        },
        "conflicts": [],
        "notes": [],
        "errors": [],
        "warnings": ["headroom 0.25: requests are routed to replicas that scaling counts as saturated"],
    });
    assert_eq!(report, expected);
}

/// Mutants: stopping at the first violation; not naming the known keys; exit 0.
#[tokio::test]
async fn all_violations_are_reported_at_once() {
    let params = r#"{"queueDepthThreshold":0,"kvCacheUtilThreshold":1.5,"headroom":-1,
                     "metricsStalenessThreshold":"soon","queueDepth":3}"#;
    let (code, found) = report(&["--params", params], None).await;
    assert_eq!(code, 1);
    assert_eq!(found["thresholds"], Value::Null);
    let errors: Vec<_> =
        found["errors"].as_array().unwrap().iter().map(|e| e.as_str().unwrap()).collect();
    assert_eq!(errors.len(), 5, "{errors:?}");
    for field in
        ["queueDepthThreshold", "kvCacheUtilThreshold", "headroom", "metricsStalenessThreshold"]
    {
        assert!(errors.iter().any(|error| error.starts_with(field)), "{field}: {errors:?}");
    }
    let unknown = errors.iter().find(|error| error.contains("\"queueDepth\"")).unwrap();
    assert!(unknown.contains("known are queueDepthThreshold"), "{unknown}");

    let (code, out, _) = run(&[&ENDPOINT[..], &["--params", params]].concat(), None).await;
    assert_eq!(code, 1);
    assert_eq!(out.lines().filter(|line| line.starts_with("error: ")).count(), 5, "{out}");
}

/// Mutants: warnings that fail without `--strict`, or pass with it.
#[tokio::test]
async fn warnings_fail_only_when_strict() {
    let stale = ["--params", r#"{"metricsStalenessThreshold":"60ms"}"#];
    let (code, found) = report(&stale, None).await;
    assert_eq!(code, 0, "{found}");
    assert_eq!(found["errors"], json!([]));
    let warning = found["warnings"][0].as_str().unwrap();
    assert!(warning.contains("metricsStalenessThreshold 60ms"), "{warning}");
    let (code, _) = report(&[&stale[..], &["--strict"]].concat(), None).await;
    assert_eq!(code, 2);
    let (code, out, _) = run(&[&ENDPOINT[..], &["--strict"]].concat(), None).await;
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("queueDepthThreshold") && out.contains("built-in"), "{out}");
    assert!(out.ends_with("good\n"), "{out}");
    let (code, out, _) = run(&["check", "--strict"], None).await;
    assert_eq!(code, 2);
    assert!(out.contains("warning: no endpoints"), "{out}");
}

/// The flag replaces the environment's params whole. Mutants: merging them; the environment winning;
/// reading neither under a sub-command.
#[tokio::test]
async fn the_flag_wins_over_the_environment() {
    let environment = Some(r#"{"headroom":0.5,"queueDepthThreshold":7}"#);
    let value = |report: &Value, name: &str| report["thresholds"][name]["value"].clone();
    let (_, alone) = report(&[], environment).await;
    assert_eq!(value(&alone, "headroom"), 0.5);
    assert_eq!(value(&alone, "queueDepthThreshold"), 7);
    let (_, flag) = report(&["--params", r#"{"headroom":0.1}"#], environment).await;
    assert_eq!(value(&flag, "headroom"), 0.1);
    assert_eq!(value(&flag, "queueDepthThreshold"), 5, "not merged");
    let (code, _) = report(&[], Some("{")).await;
    assert_eq!(code, 1, "broken params of the environment are not skipped");
}

/// Mutant: a sub-command without examples.
#[tokio::test]
async fn every_help_has_examples() {
    let (code, help, _) = run(&["--help"], None).await;
    assert_eq!(code, 0);
    let commands = help.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let names: Vec<_> = commands
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(names.contains(&"check") && names.contains(&"serve"), "{names:?}");
    for name in std::iter::once(None).chain(names.into_iter().map(Some)) {
        let arguments: Vec<_> = name.into_iter().chain(["--help"]).collect();
        let (code, help, _) = run(&arguments, None).await;
        assert_eq!(code, 0);
        let examples = help.split("Examples:").nth(1).unwrap_or_default();
        assert!(examples.contains("  plumbline"), "{arguments:?}: {help}");
    }
}

/// Unknown flags and flags that exclude each other are refused with 2, as clap does. Mutant: ignoring.
#[tokio::test]
async fn unknown_flags_are_refused() {
    let (code, _, err) = run(&["check", "--endpoint", "127.0.0.1:1"], None).await;
    assert_eq!(code, 2);
    assert!(err.contains("--endpoints"), "the nearest known flag is named: {err}");
    let both = ["check", "--endpoints", "127.0.0.1:1", "--endpoints-file", "x.yaml"];
    let (code, _, err) = run(&both, None).await;
    assert_eq!(code, 2);
    assert!(err.contains("cannot be used with"), "{err}");
}

/// An example of `config/`.
fn example(name: &str) -> String {
    format!("{}/config/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Mutants: the model's entry not found; a source of the wrong layer; a warning about a file that is
/// as the specification has it.
#[tokio::test]
async fn the_production_example_is_clean_and_shows_the_whole_line() {
    let file = example("scaling-production.yaml");
    let (code, out, _) = run(&["check", "--scaling-config", &file, "--strict"], None).await;
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("good\n") && out.contains("note: entries of single models"), "{out}");

    let flags = ["--scaling-config", &file, "--model-id=ibm/granite-13b", "--strict"];
    let flags = [&flags[..], &["--namespace=production", "--params", r#"{"headroom":0}"#]].concat();
    let (code, found) = report(&flags, None).await;
    assert_eq!(code, 0, "{found}");
    let of = |name: &str| {
        (found["thresholds"][name]["value"].clone(), &found["thresholds"][name]["source"])
    };
    assert_eq!(of("kvCacheUtilThreshold"), (json!(0.7), &json!("scaling-model")));
    assert_eq!(of("queueDepthThreshold"), (json!(3), &json!("scaling-model")));
    assert_eq!(of("scaleUpThreshold"), (json!(0.85), &json!("scaling-default")));
    assert_eq!(of("headroom"), (json!(0), &json!("params")));
    assert_eq!(of("metricsStalenessThreshold"), (json!("200ms"), &json!("built-in")));
    assert_eq!(found["scaling"]["selection"], "V2");
    assert_eq!(found["scaling"]["analyzers"]["source"], "scaling-default");
    assert_eq!(found["notes"], json!([]));
    let (_, out, _) = run(&[&["check"], &flags[..]].concat(), None).await;
    for row in [
        "kvCacheUtilThreshold       0.7      scaling-model\n",
        "priority                   1.0      built-in\n",
        "analyzers                  saturation scaling-default\n",
        "model ibm/granite-13b in production, planned by V2\n",
    ] {
        assert!(out.contains(row), "{row}{out}");
    }
}

/// Every lint, each with the entry it is about. Mutants: any of them left out; a lint for V1 on V2;
/// a later key that counts as a warning.
#[tokio::test]
async fn lint_and_conflicts_fail_when_strict() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("scaling.yaml");
    let content = "\
default:
  kvCacheThreshold: 0.8
  enableRescale: true
m#default:
  queueLengthThreshold: 3
  queueSpareTrigger: 5
  kvCacheThreshold: 0.3
  kvSpareTrigger: 0.3
  analyzers: [{name: throughput}, {name: saturation, scaleUpThreshold: 0.6, type: saturation}]
  urgency: 1
n#default:
  scaleUpThreshold: 0.5
bad#default:
  kvCacheThreshold: 2
";
    std::fs::write(&file, content).unwrap();
    let file = file.display().to_string();
    let params = r#"{"kvCacheUtilThreshold":0.7,"headroom":0.2}"#;
    let flags = ["--scaling-config", &file, "--params", params, "--strict"];
    let (code, found) = report(&flags, None).await;
    assert_eq!(code, 1, "an entry that is left out is an error: {found}");
    let texts = |kind: &str| {
        let list = found[kind].as_array().unwrap().iter();
        list.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let errors = texts("errors");
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert!(
        errors[0].contains("line 13: entry \"bad#default\": kvCacheThreshold must be"),
        "{errors:?}"
    );
    assert!(errors[1].contains("\"n#default\" is left out: scaleUpThreshold (0.50)"), "{errors:?}");
    assert_eq!(texts("conflicts").len(), 1, "{found}");
    assert_eq!(texts("notes").len(), 2, "{found}");
    assert!(
        texts("notes")[0].contains("known, not used: analyzers[].type, enableRescale"),
        "{found}"
    );
    let warnings = texts("warnings");
    for expected in [
        "headroom 0.2",
        "entry \"m#default\": queueSpareTrigger 5 reaches queueLengthThreshold 3",
        "entry \"m#default\": kvSpareTrigger 0.3 reaches kvCacheThreshold 0.3",
        "entry \"m#default\": analyzer \"throughput\" is unknown",
        "entry \"m#default\": analyzer \"saturation\" has scaleUpThreshold 0.6",
        "line 10, column 3: key \"urgency\" is unknown",
    ] {
        assert_eq!(
            warnings.iter().filter(|w| w.contains(expected)).count(),
            1,
            "{expected} {found}"
        );
    }
    assert_eq!(warnings.len(), 6, "{warnings:?}");

    // A conflict alone is as good as a warning, and a later key alone is none.
    std::fs::write(&file, "default:\n  kvCacheThreshold: 0.8\n  limiters: []\n").unwrap();
    let agreeing = r#"{"kvCacheUtilThreshold":0.8}"#;
    for (params, expected) in [(r#"{"kvCacheUtilThreshold":0.7}"#, 2), (agreeing, 0)] {
        let flags = ["--scaling-config", &file, "--params", params, "--strict"];
        assert_eq!(report(&flags, None).await.0, expected, "{params}");
    }
}

/// Mutants: only the first disagreement; the numbers that the file sets instead of those in effect; a
/// second detector passed over.
#[tokio::test]
async fn a_foreign_pair_is_compared() {
    let folder = tempfile::tempdir().unwrap();
    let epp = folder.path().join("epp.yaml");
    let content = "\
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- {type: utilization-detector, parameters: {queueDepthThreshold: 5, kvCacheUtilThreshold: 0.75}}
- {type: utilization-detector, name: filter, parameters: {queueDepthThreshold: 9}}
schedulingProfiles:
- {name: default, plugins: [{pluginRef: filter}]}
";
    std::fs::write(&epp, content).unwrap();
    let (epp, wva) = (epp.display().to_string(), example("scaling-production.yaml"));
    let flags = ["check", "--epp-config", &epp, "--wva-config", &wva, "--output=json"];
    let disagreements = async |more: &[&str]| {
        let (code, out, _) = run(&[&flags[..], more].concat(), None).await;
        let report: Value = serde_json::from_str(&out).unwrap();
        let list = report["conflicts"].as_array().unwrap().clone();
        (code, list.iter().map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    let (code, found) = disagreements(&["--strict"]).await;
    assert_eq!(code, 2, "{found:?}");
    assert_eq!(found.len(), 6, "{found:#?}");
    assert!(found[0].contains("filters by detector \"filter\" (line 5)"), "{found:?}");
    assert!(found[0].contains("kvCacheUtilThreshold 0.8 instead of 0.75"), "{found:?}");
    assert!(
        found.iter().any(|text| text.contains(
            "entry \"meta/llama-70b#development\": scaling uses queueLengthThreshold 15, detector \
             \"utilization-detector\" (line 4) uses queueDepthThreshold 5"
        )),
        "{found:#?}"
    );
    let one = ["--model-id=x", "--namespace=y"];
    let (code, found) = disagreements(&one).await;
    assert_eq!((code, found.len()), (0, 2), "{found:?}");

    // The inline form, equal to a bare entry; and a file that cannot be read.
    std::fs::write(
        &epp,
        "saturationDetector: {queueDepthThreshold: 15, kvCacheUtilThreshold: 0.9}",
    )
    .unwrap();
    let aggressive = example("scaling-aggressive.yaml");
    let equal = ["check", "--epp-config", &epp, "--wva-config", &aggressive, "--strict"];
    let (code, out, _) = run(&equal, None).await;
    assert_eq!((code, out.as_str()), (0, "good\n"));
    std::fs::write(&epp, "kind: ConfigMap").unwrap();
    assert_eq!(run(&equal, None).await.0, 1);
    assert_eq!(run(&["check", "--wva-config", "/nowhere"], None).await.0, 1);
}
