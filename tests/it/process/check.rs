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
