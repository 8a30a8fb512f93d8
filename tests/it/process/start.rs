//! Starting: readiness has reasons, and a start that cannot be is refused by name.

use std::net::TcpListener;

use crate::harness::picker::{Picker, command};
use crate::harness::{Plan, soon, wait_for};

/// U140: not ready while the first scrape of a server that accepts and never answers is under way;
/// ready when its limit has passed, with the server counted as full. Mutants: ready at once; waiting for a
/// scrape that succeeds.
#[tokio::test]
async fn ready_when_every_first_scrape_was_tried() {
    // The kernel accepts for it; nobody answers.
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = mute.local_addr().unwrap().to_string();
    let picker = Picker::inside(Plan::default().settings(&endpoint)).await;
    let (status, reasons) = picker.readyz().await.unwrap();
    assert_eq!(status, 503);
    let known = ["discovery has not synced", "first scrapes are not done"];
    assert!(reasons.lines().all(|line| known.contains(&line)), "{reasons}");
    assert!(!reasons.trim().is_empty());
    picker.ready().await;
    // The error is kept when the limit has passed, and no sooner.
    let error = picker.pool().await[0]["last_error"].to_string();
    assert!(error.contains("no answer within 1s"), "{error}");
    assert_eq!(picker.pool().await[0]["stale"], true);
    assert_eq!(picker.pool().await[0]["score"], 1.0);
}

/// Without endpoints there is nothing to wait for. Mutant: waiting for a first endpoint.
#[tokio::test]
async fn an_empty_pool_is_ready() {
    let picker = Picker::inside(Plan::default().settings("")).await;
    picker.ready().await;
    assert!(picker.pool().await.is_empty());
}

/// The message names the address and the part that wanted it. Mutants: a bare I/O error; going on
/// without the port.
#[tokio::test]
async fn a_port_in_use_ends_the_start() {
    for (flag, part) in
        [("--grpc-port", "ext_proc"), ("--grpc-health-port", "health"), ("--metrics-port", "admin")]
    {
        let owner = TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = owner.local_addr().unwrap();
        let mut flags = vec!["--bind-address=127.0.0.1".to_owned()];
        for port in ["--grpc-port", "--grpc-health-port", "--metrics-port"] {
            let at = if port == flag { taken.port() } else { 0 };
            flags.push(format!("{port}={at}"));
        }
        let output = soon("the binary", command(&flags).output()).await.unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("{taken} for {part}")), "{text}");
    }
}

/// Each way in which Go users write these flags starts the same process. Mutant: a flag that needs `=`
/// or refuses it.
#[tokio::test]
async fn flags_are_spelled_as_in_go() {
    for flags in [
        &["--v=3"][..],
        &["-v", "2"],
        &["-v=4"],
        &["--v", "5"],
        &["--secure-serving=false"],
        &["--secure-serving"],
        &["--secure-serving", "--v=1"],
    ] {
        let arguments: Vec<_> =
            ["check", "--endpoints", "127.0.0.1:1"].iter().chain(flags).collect();
        let output = soon("check", command(&arguments).output()).await.unwrap();
        assert_eq!(output.status.code(), Some(0), "{flags:?}: {output:?}");
    }
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--v=3", "--secure-serving", "--drain-timeout=0s"].map(str::to_owned).to_vec();
    let mut picker = Picker::process(flags, folder.path()).await;
    picker.ready().await;
    picker.signal("TERM");
    assert_eq!(picker.exit().await.code(), Some(0));
}

/// SIGINT is as good as SIGTERM, with nothing open. Mutant: only one of them handled.
#[tokio::test]
async fn an_interrupt_drains_too() {
    let folder = tempfile::tempdir().unwrap();
    let flags = vec!["--drain-timeout=0s".to_owned(), "--cores=1".to_owned()];
    let mut picker = Picker::process(flags, folder.path()).await;
    picker.ready().await;
    picker.signal("INT");
    assert_eq!(picker.exit().await.code(), Some(0));
    wait_for("nobody listens any more", async || match picker.readyz().await {
        Err(_) => Ok(()),
        Ok(seen) => Err(format!("{seen:?}")),
    })
    .await;
}
