//! The demo as a newcomer runs it: the real binary, a real Envoy, real breaks.
//!
//! Times are those of the demo; a run of 6 s is the shortest that shows a break.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

/// `plumbline demo` with its files below `folder`.
fn demo(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    command.arg("demo").args(flags).env("TMPDIR", folder).env_remove("PLUMBLINE_PARAMS");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().next().is_none()
}

/// A run with a killed endpoint and this staleness limit: exit code, and what it printed.
async fn kill_endpoint(staleness: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let params = format!(r#"{{"metricsStalenessThreshold": "{staleness}"}}"#);
    let flags = ["--duration=6s", "--rate=20", "--break=kill-endpoint", "--params", &params];
    let output = demo(folder.path(), &flags).output().await.unwrap();
    assert!(is_empty(folder.path()), "the demo left files behind");
    let error = String::from_utf8_lossy(&output.stderr);
    let text = format!("{}{error}", String::from_utf8_lossy(&output.stdout));
    (output.status.code(), text)
}

/// Mutants: a summary without one of its parts, params that do not reach Plumbline, a kill or a
/// restart that is not carried out (the verdict then fails the run).
///
/// The limit is wider than the default because tests share their two cores.
#[tokio::test]
async fn a_killed_endpoint_costs_no_more_than_it_may() {
    let (code, text) = kill_endpoint("900ms").await;
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "killed sim-2",
        "started sim-2 again",
        "chat, streamed",
        "sim-3",
        "added to a request   p50",
        "choosing alone       p50",
        "pool saturation     mean",
        "metricsStalenessThreshold     900ms   params",
        "Broken: kill-endpoint",
        "Passed",
        "plumbline demo --keep",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// A limit that never marks a dead endpoint stale breaks the promise, and the demo says so.
///
/// Mutants: an exit code that does not follow the verdict; an allowance that grows with the limit.
#[tokio::test]
async fn a_dead_endpoint_that_is_picked_fails_the_run() {
    let (code, text) = kill_endpoint("1h").await;
    assert_eq!(code, Some(1), "{text}");
    for part in ["Failed", "not held: the broken endpoint is not picked", "not held: every request"]
    {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// Mutants: a signal that is not listened to, a child or the folder that survives it.
#[tokio::test]
async fn an_interrupt_ends_everything() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), &["--rate=10"]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut ports: Vec<SocketAddr> = Vec::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        let address = line.split_once("http://").and_then(|(_, rest)| rest.split(',').next());
        ports.extend(address.map(|address| address.parse::<SocketAddr>().unwrap()));
        if line.contains("of traffic") {
            break;
        }
    }
    assert_eq!(ports.len(), 2, "Plumbline and Envoy are named");
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_ok()));
    let pid = child.id().unwrap().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
    assert_eq!(child.wait().await.unwrap().code(), Some(130));
    assert!(ports.iter().all(|port| TcpStream::connect(port).is_err()));
    assert!(is_empty(folder.path()), "the demo left files behind");
}

/// Mutant: an error that does not say what to run.
#[tokio::test]
async fn without_envoy_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = demo(folder.path(), &[]);
    command.current_dir(folder.path()).env_remove("PLUMBLINE_ENVOY").env("PATH", "");
    let mut child = command.spawn().unwrap();
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).await.unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(1));
    assert!(error.contains("make envoy") && error.contains("PLUMBLINE_ENVOY"), "{error}");
    assert!(is_empty(folder.path()));
}

/// Mutants: reporting the first mistake only, or starting in spite of one.
#[tokio::test]
async fn every_bad_flag_is_named_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--duration=1s", "--break=saturate", "--params", r#"{"headroom": -1}"#];
    let output = demo(folder.path(), &flags).output().await.unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("--duration must be at least 6s"), "{error}");
    assert!(error.contains("--params: headroom must be a non-negative value"), "{error}");
    assert!(output.stdout.is_empty());
}
