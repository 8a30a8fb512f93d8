//! Every flag of the Go picker, through the real binary: taken, taken with a warning, or refused.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::harness::picker::command;
use crate::harness::soon;

/// What `check` says of a flag.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// Nothing.
    Works,
    /// Exactly one warning, which names the flag and contains this.
    Warns(&'static str),
    /// An error that contains this.
    Fails(&'static str),
}
use Outcome::{Fails, Warns, Works};

/// A flag, a value (`true` may be left out at a boolean), and the outcome. Further flags may follow the
/// value, after spaces.
const TABLE: &[(&str, &str, Outcome)] = &[
    ("--grpc-port", "9102", Works),
    ("--grpc-port", "65536", Fails("not in 0..=65535")),
    ("--grpc-health-port", "9103", Works),
    ("--metrics-port", "9190", Works),
    ("--drain-timeout", "1m30s", Works),
    ("--drain-timeout", "-1s", Fails("negative")),
    ("--grpc-max-recv-msg-size", "", Works),
    ("--grpc-max-recv-msg-size", "0", Works),
    ("--grpc-max-recv-msg-size", "64MiB", Works),
    ("--grpc-max-recv-msg-size", "20MB", Warns("--max-body-bytes")),
    ("--grpc-max-recv-msg-size", "10Ei", Fails("no size")),
    ("--grpc-max-recv-msg-size", "-10Mi", Fails("no size")),
    ("--grpc-max-send-msg-size", "10Mi", Works),
    ("--grpc-max-send-msg-size", "1k", Warns("may not fit")),
    ("--grpc-max-send-msg-size", "abc", Fails("no size")),
    ("--pool-group", "inference.networking.x-k8s.io", Works),
    ("--pool-namespace", "models", Works),
    ("--pool-name", "llama", Works),
    ("--pool-name", "", Works),
    (
        "--pool-name",
        "llama --endpoint-selector=app=vllm --endpoint-target-ports=1",
        Fails("exclude"),
    ),
    ("--endpoint-selector", "app=vllm", Fails("1 to 8 different --endpoint-target-ports, got 0")),
    ("--endpoint-selector", "app=vllm --endpoint-target-ports=8000", Warns("--endpoints-file")),
    (
        "--endpoint-selector",
        "app=vllm --endpoint-target-ports=1,2,3,4,5,6,7,8,8,1",
        Warns("--endpoints-file"),
    ),
    (
        "--endpoint-selector",
        "app=vllm --endpoint-target-ports=1,2,3,4,5,6,7,8 --endpoint-target-ports=9",
        Fails("got 9"),
    ),
    ("--endpoint-target-ports", "8000,9090", Warns("--endpoint-selector")),
    ("--endpoint-target-ports", "65536", Fails("not in 0..=65535")),
    ("--disable-endpoint-subset-filter", "true", Works),
    ("--emit-endpoint-scores", "true", Works),
    ("--refresh-metrics-interval", "60ms", Works),
    ("--refresh-metrics-interval", "10ms", Warns("50ms")),
    ("--refresh-prometheus-metrics-interval", "5s", Warns("every scrape")),
    ("--metrics-staleness-threshold", "2s", Warns("metricsStalenessThreshold")),
    ("--v", "4", Works),
    ("--zap-devel", "false", Warns("--log-format")),
    ("--zap-encoder", "json", Works),
    ("--zap-encoder", "console", Works),
    ("--zap-encoder", "xml", Fails("possible values: json, console")),
    ("--zap-log-level", "debug", Works),
    ("--zap-log-level", "5", Works),
    ("--zap-log-level", "loud", Fails("debug, info, error, panic")),
    ("--zap-stacktrace-level", "error", Warns("causes")),
    ("--zap-time-encoding", "epoch", Warns("RFC 3339")),
    ("--tracing", "true", Warns("no traces")),
    ("--tracing", "false", Works),
    ("--ha-enable-leader-election", "true", Warns("every replica serves")),
    ("--health-checking", "true", Warns("always")),
    ("--enable-pprof", "true", Warns("perf")),
    ("--enable-pprof", "false", Works),
    ("--cert-path", "/nowhere", Fails("reading /nowhere/tls.crt")),
    ("--cert-path", "", Works),
    ("--enable-cert-reload", "true", Warns("--cert-path")),
    ("--enable-cert-reload", "false", Works),
    ("--enable-grpc-stream-metrics", "true", Warns("plumbline_ext_proc_streams")),
    ("--secure-serving", "true", Works),
    ("--secure-serving", "false", Works),
    ("--tls-min-version", "VersionTLS10", Warns("VersionTLS12")),
    ("--tls-min-version", "VersionTLS11", Warns("VersionTLS12")),
    ("--tls-min-version", "VersionTLS12", Works),
    ("--tls-min-version", "VersionTLS13", Works),
    ("--tls-min-version", "1.3", Fails("VersionTLS13")),
    (
        "--tls-cipher-suites",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        Works,
    ),
    ("--tls-cipher-suites", "TLS_AES_128_GCM_SHA256", Warns("only TLS 1.3")),
    ("--tls-cipher-suites", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", Warns("self-signed")),
    (
        "--tls-cipher-suites",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 --tls-min-version=VersionTLS13",
        Warns("TLS 1.2 alone"),
    ),
    (
        "--tls-cipher-suites",
        "TLS_RSA_WITH_AES_128_CBC_SHA",
        Fails("known are TLS_AES_256_GCM_SHA384"),
    ),
    ("--metrics-endpoint-auth", "true", Warns("network policy")),
    ("--metrics-endpoint-auth", "false", Works),
    ("--metrics-client-ca-file", "ca.crt", Fails("needs --metrics-cert-dir")),
    ("--metrics-client-ca-file", "ca.crt --metrics-cert-dir=/certs", Warns("network policy")),
    ("--metrics-cert-dir", "/certs", Warns("network policy")),
    (
        "--metrics-cert-dir",
        "/certs --metrics-endpoint-auth=false",
        Fails("--metrics-endpoint-auth"),
    ),
    ("--config-file", "epp.yaml", Fails("--params")),
    ("--config-file", "epp.yaml --config-text=x", Fails("exclude each other")),
    ("--config-text", "kind: EndpointPickerConfig", Fails("--params")),
    ("--allow-experimental-plugins", "true", Warns("no plugin configuration")),
    ("--total-queued-requests-metric", "x", Fails("upstream refuses it too")),
    ("--total-running-requests-metric", "x", Fails("upstream refuses it too")),
    ("--kv-cache-usage-percentage-metric", "x", Fails("upstream refuses it too")),
    ("--lora-info-metric", "x", Fails("upstream refuses it too")),
    ("--cache-info-metric", "x", Fails("upstream refuses it too")),
];

const LIST: &str = include_str!("../../data/upstream-flags.txt");
const DOCS: &str = include_str!("../../../docs/flags.md");

fn listed() -> BTreeSet<&'static str> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split('\t').next().unwrap()).collect()
}

/// Errors and warnings. Where the flags cannot even be read, what was printed is the one error.
async fn check(arguments: &[&str]) -> (Vec<String>, Vec<String>) {
    let base = ["check", "--output", "json"];
    let mut command = command(&[&base[..], arguments].concat());
    let output = soon("check", command.env_remove("NAMESPACE").output()).await.unwrap();
    match serde_json::from_slice::<Value>(&output.stdout) {
        Ok(report) => {
            let texts = |key: &str| {
                let texts = report[key].as_array().unwrap();
                texts.iter().map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
            };
            let code = i32::from(!texts("errors").is_empty());
            assert_eq!(output.status.code(), Some(code), "{arguments:?}");
            (texts("errors"), texts("warnings"))
        }
        Err(_) => {
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
            (vec![String::from_utf8(output.stderr).unwrap()], Vec::new())
        }
    }
}

async fn judge(name: &str, arguments: &[&str], outcome: Outcome) {
    let (errors, warnings) = check(&[&["--endpoints=127.0.0.1:1"], arguments].concat()).await;
    let seen = format!("{arguments:?}: errors {errors:?}, warnings {warnings:?}");
    match outcome {
        Works => assert!(errors.is_empty() && warnings.is_empty(), "{seen}"),
        Warns(text) => {
            assert!(errors.is_empty() && warnings.len() == 1, "{seen}");
            assert!(warnings[0].contains(name) && warnings[0].contains(text), "{seen}");
        }
        Fails(text) => assert!(errors.iter().any(|error| error.contains(text)), "{seen}"),
    }
}

/// Every spelling that Go takes: `--flag=value`, `--flag value`, and a boolean alone for true.
/// Mutants: any flag taken away; a warning that becomes silent, double or an error; a rule dropped.
#[tokio::test]
async fn every_flag_of_upstream_has_its_outcome() {
    for (name, value, outcome) in TABLE {
        let mut words = value.split(' ');
        let (first, more) = match name {
            // A YAML text has spaces of its own.
            &"--config-text" => (*value, Vec::new()),
            _ => (words.next().unwrap(), words.collect::<Vec<_>>()),
        };
        let joined = format!("{name}={first}");
        judge(name, &[&[joined.as_str()], &more[..]].concat(), *outcome).await;
        match first {
            "true" => judge(name, &[&[*name], &more[..]].concat(), *outcome).await,
            "false" => {}
            // pflag takes a value that looks like a flag, clap asks for `=` there.
            minus if minus.starts_with('-') => {}
            _ => judge(name, &[&[*name, first], &more[..]].concat(), *outcome).await,
        }
    }
}

/// Mutants: a flag missing in the table, in the documentation, or described as what it is not.
#[test]
fn no_flag_is_forgotten() {
    let tried: BTreeSet<_> = TABLE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(tried, listed());
    for name in listed() {
        let row = format!("| `{name}` |");
        let rows: Vec<_> = DOCS.lines().filter(|line| line.starts_with(&row)).collect();
        assert_eq!(rows.len(), 1, "docs/flags.md on {name}");
        let outcomes = || TABLE.iter().filter(|(n, ..)| *n == name).map(|(.., outcome)| outcome);
        // What a well-meant value meets: a flag that works may also have values that do not.
        let kind = if outcomes().all(|outcome| matches!(outcome, Fails(_))) {
            "refused"
        } else if outcomes().any(|outcome| matches!(outcome, Warns(_))) {
            "warns"
        } else {
            "works"
        };
        let said = rows[0].split('|').nth(3).unwrap().trim();
        assert!(said.split(", ").any(|word| word == kind), "docs/flags.md on {name}: {kind}");
    }
    let documented = DOCS.lines().filter(|line| line.starts_with("| `--")).count();
    assert_eq!(documented, listed().len(), "docs/flags.md has rows for other flags");
}

/// Twelve spellings of two values, and nothing else. Mutants: a spelling left out; `yes` taken.
#[tokio::test]
async fn booleans_are_spelled_as_in_go() {
    for spelling in ["1", "t", "T", "true", "TRUE", "True"] {
        let flag = format!("--tracing={spelling}");
        judge("--tracing", &[&flag], Warns("no traces")).await;
    }
    for spelling in ["0", "f", "F", "false", "FALSE", "False"] {
        let flag = format!("--tracing={spelling}");
        judge("--tracing", &[&flag], Works).await;
    }
    for wrong in ["yes", "tRUE", ""] {
        let flag = format!("--tracing={wrong}");
        judge("--tracing", &[&flag], Fails("true or false")).await;
    }
}

/// Upstream's default of texts is the empty one, and charts write it out. Mutant: an empty text that
/// counts as given.
#[tokio::test]
async fn an_empty_text_is_none() {
    for name in [
        "--config-file",
        "--config-text",
        "--pool-name",
        "--pool-namespace",
        "--endpoint-selector",
        "--metrics-cert-dir",
        "--metrics-client-ca-file",
        "--cert-path",
        "--tls-min-version",
        "--tls-cipher-suites",
        "--grpc-max-send-msg-size",
    ] {
        judge(name, &[&format!("{name}=")], Works).await;
    }
}

/// As in Go the last one counts, for a chart that appends what its user wants. Mutant: a conflict.
#[tokio::test]
async fn a_repeated_flag_overrides() {
    judge("--tracing", &["--tracing=true", "--tracing=false"], Works).await;
    judge("--grpc-port", &["--grpc-port=1", "--grpc-port", "2"], Works).await;
    let late = ["--refresh-metrics-interval=60ms", "--refresh-metrics-interval=1ms"];
    judge("--refresh-metrics-interval", &late, Warns("50ms")).await;
}

/// Without a list or a file, a pool or a selector asks for a cluster. Mutant: an empty pool instead.
#[tokio::test]
async fn a_cluster_is_asked_for_in_vain() {
    for arguments in [
        &["--pool-name=llama"][..],
        &["--endpoint-selector=app=vllm", "--endpoint-target-ports=8000"],
    ] {
        let (errors, _) = check(arguments).await;
        assert_eq!(errors.len(), 1, "{errors:?}");
        let name = arguments[0].split('=').next().unwrap();
        assert!(
            errors[0].starts_with(name) && errors[0].contains("--endpoints-file"),
            "{errors:?}"
        );
        // The process says the same and does not start.
        let output = soon("serve", command(arguments).output()).await.unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&output.stderr).contains(&errors[0]), "{output:?}");
    }
}

/// Mutant: stopping at the first error.
#[tokio::test]
async fn mistakes_of_several_kinds_are_reported_at_once() {
    let flags = ["--tls-min-version=9", "--config-file=x", "--params={\"headroom\":-1}"];
    let (errors, _) = check(&flags).await;
    for word in ["--tls-min-version", "--config-file", "headroom"] {
        assert!(errors.iter().any(|error| error.contains(word)), "{word}: {errors:?}");
    }
}
