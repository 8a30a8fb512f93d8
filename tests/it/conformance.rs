//! `plumbline conformance`: ours passes, and a wrong server shows that cases can fail.

mod wrong;

use serde_json::Value;

use crate::harness::picker::command;
use crate::harness::{Picker, Plan};
use wrong::{Fault, Wrong};

/// Exit code and report of the real binary.
async fn conformance(flags: &[&str]) -> (i32, Value) {
    let output =
        command(&["conformance"]).args(flags).args(["--output", "json"]).output().await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{error}"));
    (output.status.code().unwrap(), report)
}

/// Names of the cases with this verdict.
fn with_verdict(report: &Value, verdict: &str) -> Vec<String> {
    let cases = report["cases"].as_array().unwrap();
    let cases = cases.iter().filter(|case| case["verdict"] == verdict);
    cases.map(|case| case["case"].as_str().unwrap().to_owned()).collect()
}

/// Ours passes every case, with and without endpoints, plaintext and TLS; each run skips exactly the
/// cases of the other kind of pool. Mutants: any rule of the protocol broken, see [`Fault`].
#[tokio::test]
async fn ours_passes_every_case() {
    let secure = Plan { security: plumbline::app::Security::SelfSigned, ..Plan::default() };
    for (plan, pool, flags) in [
        (Plan::default(), "127.0.0.1:1,127.0.0.1:2", &[][..]),
        (secure.clone(), "127.0.0.1:1", &["--tls"]),
        (secure, "", &["--tls", "--expect-empty"]),
    ] {
        let picker = Picker::inside(plan.settings(pool)).await;
        picker.ready().await;
        let (target, health) = (picker.grpc.to_string(), picker.health.to_string());
        let all = [&["--target", &target, "--health", &health], flags].concat();
        let (code, report) = conformance(&all).await;
        assert_eq!(with_verdict(&report, "fail"), [""; 0], "{report:#}");
        assert_eq!(code, 0, "{report:#}");
        let skipped = with_verdict(&report, "skipped");
        if pool.is_empty() {
            assert!(report["passed"].as_u64().unwrap() > 8, "{report:#}");
        } else {
            assert_eq!(skipped, ["empty-pool-post", "empty-pool-get"]);
        }
    }
}

/// Each fault is seen by the cases that are about it, and the exit code says so. Mutant: a rule of
/// `expect` that always holds.
#[tokio::test]
async fn a_wrong_server_fails() {
    for (fault, seen_by) in [
        (Fault::AnswersTwice, &["get-on-headers", "post-one-piece", "event-stream-not-held"][..]),
        (Fault::DropsBodies, &["post-one-piece", "post-200-kb", "trailers-end-a-body"]),
        (Fault::LargePieces, &["post-200-kb", "post-1-mb-in-chunks"]),
        (Fault::HeaderOnly, &["get-on-headers", "post-one-piece"]),
        (Fault::Mirrors, &["hop-by-hop-request", "hop-by-hop-response", "two-cookies"]),
        (Fault::IgnoresTrailers, &["trailers-end-a-body", "trailers-after-an-end"]),
        (Fault::None, &["subset-of-one", "subset-empty", "subset-empty-for-get"]),
    ] {
        let server = Wrong::start(fault).await;
        let target = server.at.to_string();
        let mut flags = vec!["--target", &target, "--patience", "300ms"];
        flags.extend(seen_by.iter().flat_map(|case| ["--case", *case]));
        let (code, report) = conformance(&flags).await;
        let failed = with_verdict(&report, "fail");
        assert_eq!(failed.len(), seen_by.len(), "{fault:?}: {report:#}");
        assert_eq!(code, 1);
        for case in report["cases"].as_array().unwrap() {
            assert_ne!(case["expected"], "", "{case:#}");
            assert_ne!(case["got"], "", "{case:#}");
        }
    }
    let server = Wrong::start(Fault::None).await;
    let target = server.at.to_string();
    let flags = ["--target", &target, "--case", "post-one-piece", "--case", "get-on-headers"];
    let (code, report) = conformance(&flags).await;
    assert_eq!((code, &report["passed"]), (0, &Value::from(2)), "{report:#}");
}

/// A misspelt case is refused by name; a list needs no target. Mutants: trying nothing and passing.
#[tokio::test]
async fn flags_are_checked() {
    let run = async |flags: &[&str]| command(&["conformance"]).args(flags).output().await.unwrap();
    let unknown = run(&["--target", "127.0.0.1:1", "--case", "nothing"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let text = String::from_utf8(unknown.stderr).unwrap();
    assert!(text.contains("--case: there is no case \"nothing\""), "{text}");
    let list = run(&["--list"]).await;
    assert!(list.status.success());
    assert!(String::from_utf8(list.stdout).unwrap().lines().count() > 40);
    let nobody = run(&["--target", "127.0.0.1:1"]).await;
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8(nobody.stderr).unwrap().contains("connecting to 127.0.0.1:1"));
}
