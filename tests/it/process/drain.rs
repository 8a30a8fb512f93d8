//! Draining: told at once to those who ask, felt by nobody who is served.

use tokio::net::TcpStream;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus::{self, NotServing, Serving};
use tonic_health::pb::health_client::HealthClient;

use crate::harness::picker::Picker;
use crate::harness::script::{Heard, Script, connect};
use crate::harness::{Ask, Plan, PoolFile, World, soon, wait_for};

const NAMES: [&str; 4] =
    ["", "envoy.service.ext_proc.v3.ExternalProcessor", "readiness", "liveness"];

async fn health(channel: &Channel, name: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: name.to_owned() };
    let mut client = HealthClient::new(channel.clone());
    soon("a health check", client.check(request)).await.unwrap().into_inner().status()
}

async fn drained(picker: &Picker) {
    wait_for("/readyz says draining", async || match picker.readyz().await {
        Ok((503, text)) if text == "draining\n" => Ok(()),
        seen => Err(format!("{seen:?}")),
    })
    .await;
}

async fn refuses(picker: &Picker) {
    wait_for("the ext_proc port is closed", async || match TcpStream::connect(picker.grpc).await {
        Err(_) => Ok(()),
        Ok(_) => Err("still open".to_owned()),
    })
    .await;
}

fn flags(drain: &str) -> Vec<String> {
    let flags = ["--endpoints=127.0.0.1:1", "--secure-serving=false", "--cores=2"];
    let mut flags: Vec<_> = flags.map(str::to_owned).to_vec();
    flags.push(format!("--drain-timeout={drain}"));
    flags
}

const GET: &[(&str, &str)] = &[(":method", "GET"), (":path", "/v1/models")];
const OK: &[(&str, &str)] = &[(":status", "200")];

/// The whole order: health and readiness fall at once, new requests are served until the timeout, then
/// the port closes, what is open runs to its end, and the process ends with 0. A watcher of health,
/// whose stream has no end of its own, must not hold it up. Mutants: health that stays up; closing at
/// once; cutting open streams; waiting for watchers.
#[tokio::test]
async fn sigterm_drains_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut picker = Picker::process(flags("4s"), folder.path()).await;
    picker.ready().await;
    let channel = connect(picker.grpc).await;
    let both = [channel.clone(), connect(picker.health).await];
    let mut watchers = Vec::new();
    for channel in &both {
        for name in NAMES {
            assert_eq!(health(channel, name).await, Serving, "{name}");
        }
        let request = HealthCheckRequest::default();
        let mut client = HealthClient::new(channel.clone());
        let mut watcher = client.watch(request).await.unwrap().into_inner();
        assert_eq!(watcher.message().await.unwrap().unwrap().status(), Serving);
        watchers.push(watcher);
    }
    let mut open = Script::open(&channel).await;
    open.request_headers(GET, true);
    open.answer().await.destination();
    open.response_headers(OK, false);
    open.answer().await;

    picker.signal("TERM");
    drained(&picker).await;
    for channel in &both {
        for name in NAMES {
            let expected = if name == "liveness" { Serving } else { NotServing };
            assert_eq!(health(channel, name).await, expected, "{name}");
        }
    }
    for watcher in &mut watchers {
        let news = soon("a watcher hears", watcher.message()).await.unwrap().unwrap();
        assert_eq!(news.status(), NotServing);
    }
    assert_eq!(Ask::get("/livez").whole(picker.admin).await.status, 200);
    let mut late = Script::open(&channel).await;
    late.request_headers(GET, true);
    late.answer().await.destination();
    drop(late);

    refuses(&picker).await;
    open.response_body(b"data: 1\n\n", false);
    assert_eq!(open.answer().await, Heard::ResponsePiece(b"data: 1\n\n".to_vec(), false));
    open.response_body(b"", true);
    assert_eq!(open.answer().await, Heard::ResponsePiece(Vec::new(), true));
    open.half_close();
    open.end().await;
    assert_eq!(picker.exit().await.code(), Some(0));
}

/// An event stream through Envoy that outlives the drain timeout is whole. Mutant: exit at the timeout.
#[tokio::test]
async fn an_event_stream_outlives_the_drain_timeout() {
    let mut world = World::start(Plan { sims: 1, process: true, ..Plan::default() }).await;
    let (_, at) = world.gateway.listeners()[0];
    let mut events = soon("headers", Ask::completion(300, true).send(at)).await.unwrap();
    let mut text = soon("an event", events.chunk()).await.unwrap().unwrap().to_vec();
    world.picker.signal("TERM");
    refuses(&world.picker).await;
    while let Some(chunk) = soon("an event", events.chunk()).await {
        text.extend(chunk.unwrap());
    }
    assert!(text.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&text));
    assert_eq!(world.picker.exit().await.code(), Some(0));
}

/// A second signal does not wait, whatever is open. Mutants: ignoring it; waiting for the data thread.
#[tokio::test]
async fn a_second_signal_ends_at_once_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut picker = Picker::process(flags("1h"), folder.path()).await;
    picker.ready().await;
    let channel = connect(picker.grpc).await;
    let mut open = Script::open(&channel).await;
    open.request_headers(GET, true);
    open.answer().await.destination();
    picker.signal("TERM");
    drained(&picker).await;
    picker.signal("TERM");
    assert_eq!(picker.exit().await.code(), Some(1));
}

/// U097: requests that wait for an endpoint are told at once that they wait in vain here, and the end is
/// no later for them. Mutants: 500; held until the drain timeout, or for ever.
#[tokio::test]
async fn who_waits_for_an_endpoint_is_sent_elsewhere() {
    let file = PoolFile::empty();
    let folder = tempfile::tempdir().unwrap();
    let flags = [
        format!("--endpoints-file={}", file.path.display()),
        "--waiting-room=on".to_owned(),
        "--secure-serving=false".to_owned(),
        "--cores=2".to_owned(),
        "--drain-timeout=0s".to_owned(),
    ];
    let mut picker = Picker::process(flags.to_vec(), folder.path()).await;
    picker.ready().await;
    let channel = connect(picker.grpc).await;
    let mut held = Vec::new();
    for _ in 0..50 {
        let mut script = Script::open(&channel).await;
        script.request_headers(&[(":method", "POST"), (":path", "/tokenize")], false);
        script.request_body(b"x", true);
        held.push(script);
    }
    picker.waiting(50, 50).await;
    picker.signal("TERM");
    for mut script in held {
        let refused = script.refused().await;
        assert_eq!(refused.status, 503);
        assert_eq!(refused.reason.as_deref(), Some("rejected-shutting-down"));
    }
    assert_eq!(picker.exit().await.code(), Some(0));
}
