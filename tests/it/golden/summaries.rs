//! Recorded lines that sum up many dialogs, or that are none: storms, health, signals.

use std::collections::BTreeMap;

use std::time::Duration;

use futures_util::future::join_all;
use plumbline::admin::health::contract;
use plumbline::conformance::answer::code_name;
use plumbline::conformance::connection::{Target, connect};
use plumbline::conformance::dialog::{Step, parse};
use plumbline::conformance::play::{Answer, Pace, Play, Said};
use serde_json::{Map, Value, json};
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::dialogs::Recorded;
use super::normal::{self, extent};
use super::table::Outcome;
use crate::harness::{Picker, wait_for};

const PACE: Pace = Pace { patience: Duration::from_secs(20), quiet: Duration::ZERO };

/// Whether a dialog must have its picker for itself: it changes the pool, counts what is in flight, or
/// is so large that an unoptimised build makes the others wait, or minds the time.
pub fn runs_alone(dialog: &Recorded) -> bool {
    let alone = ["event", "repeat", "open", "deadline_ms"];
    let large = dialog.case.contains("MiB") || dialog.case.contains("MB");
    large || dialog.request.iter().any(|step| alone.iter().any(|key| step.get(key).is_some()))
}

/// Replays a summary; `None` for a plain dialog.
pub async fn replay(picker: &Picker, dialog: &Recorded) -> Option<Outcome> {
    let first = &dialog.request[0];
    let has = |key: &str| dialog.request.iter().any(|step| step.get(key).is_some());
    let ours = if has("health_check") {
        health(picker, first["health_check"].as_array().unwrap()).await
    } else if has("repeat") {
        // What failed in a dialog before stays counted for seconds.
        settled(picker, 0).await;
        streams(picker, first).await
    } else if has("open") {
        settled(picker, 0).await;
        storm(picker, &dialog.request).await
    } else if has("signal") {
        // Needs a process of its own; `process/drain.rs` shows what we do.
        Value::String("not replayed".to_owned())
    } else {
        return None;
    };
    let recorded = Value::Array(dialog.response.clone()).to_string();
    Some(Outcome { case: dialog.case.clone(), recorded, ours: json!([ours]).to_string() })
}

/// Names and what is said of them, on the health port and on the ext_proc port.
async fn health(picker: &Picker, names: &[Value]) -> Value {
    let plain = |at: std::net::SocketAddr| Target { address: at.to_string(), tls: false };
    let health = HealthClient::new(connect(&plain(picker.health)).await.unwrap());
    let ext_proc = HealthClient::new(connect(&plain(picker.grpc)).await.unwrap());
    let mut watching = health.clone();
    let watch = watching.watch(HealthCheckRequest { service: String::new() }).await;
    let few: Vec<_> = [0, 4, 5].map(|index| names[index].clone()).to_vec();
    json!({
        "health_port": statuses(health, names).await,
        "ext_proc_port": statuses(ext_proc, &few).await,
        "Watch": match watch {
            Ok(_) => "a stream".to_owned(),
            Err(status) => format!("gRPC {}", code_name(status.code())),
        },
        "List": listed(picker).await,
    })
}

/// Every service that is known by name.
async fn listed(picker: &Picker) -> Value {
    let target = Target { address: picker.health.to_string(), tls: false };
    let mut client = contract::health_client::HealthClient::new(connect(&target).await.unwrap());
    let answer = client.list(contract::HealthListRequest {}).await.unwrap().into_inner();
    let told = answer.statuses.iter().collect::<BTreeMap<_, _>>().into_iter();
    told.map(|(name, status)| (name.clone(), Value::from(status.status().as_str_name()))).collect()
}

async fn statuses(mut client: HealthClient<Channel>, names: &[Value]) -> Value {
    let mut told = Map::new();
    for name in names {
        let name = name.as_str().unwrap();
        let answer = client.check(HealthCheckRequest { service: name.to_owned() }).await;
        let status = match answer {
            Ok(response) => response.get_ref().status().as_str_name().to_owned(),
            Err(status) => format!("gRPC {}", code_name(status.code())),
        };
        told.insert(
            if name.is_empty() { "\"\"".to_owned() } else { name.to_owned() },
            status.into(),
        );
    }
    Value::Object(told)
}

/// Kinds of the answers, in order and without ends, as the recording names them.
fn sequence(answers: &[Answer]) -> String {
    let told: Vec<_> = answers.iter().map(plumbline::conformance::answer::describe).collect();
    let kinds = ["request_headers", "request_body", "response_headers", "immediate_response"];
    let kind = |answer: &Value| kinds.into_iter().find(|kind| answer.get(kind).is_some());
    told.iter().filter_map(kind).collect::<Vec<_>>().join("+")
}

fn counted<'a>(names: impl Iterator<Item = &'a str>) -> Value {
    let mut counts = Map::new();
    for name in names {
        let before = counts.get(name).and_then(Value::as_u64).unwrap_or(0);
        counts.insert(name.to_owned(), (before + 1).into());
    }
    Value::Object(counts)
}

/// What is in flight, under the name that the recording has for it.
fn gauge(running: u64) -> Value {
    json!({ "llm_d_epp_request_running": f64::from(u32::try_from(running).unwrap()) })
}

async fn to_the_end(play: &mut Play, steps: &[Step], due: normal::Extent) {
    for (index, step) in steps.iter().enumerate() {
        let last = index + 1 == steps.len();
        play.step(index, step, &PACE, |answers| !last || extent(answers) >= due).await;
    }
}

async fn channel(picker: &Picker) -> Channel {
    connect(&Target { address: picker.grpc.to_string(), tls: false }).await.unwrap()
}

/// Many streams at once on one connection, all open until all are answered.
async fn streams(picker: &Picker, storm: &Value) -> Value {
    let count = storm["repeat"].as_u64().unwrap();
    let steps = parse(storm["steps"].as_array().unwrap()).unwrap();
    let channel = channel(picker).await;
    // Failures that dialogs before this one recorded keep their counts for ten seconds.
    settled(picker, 0).await;
    let mut plays: Vec<_> = (0..count).map(|_| Play::open(&channel, &steps)).collect();
    join_all(plays.iter_mut().map(|play| to_the_end(play, &steps, (1, 27, 1)))).await;
    let open = picker.in_flight().await;
    let sequences: Vec<_> = plays.iter().map(|play| sequence(play.answers())).collect();
    let ended = plays.iter_mut().map(|play| {
        play.step(steps.len(), &Step::HalfClose, &PACE, |answers| extent(answers).0 >= 2)
    });
    join_all(ended).await;
    let ends = plays.iter().filter_map(|play| match &play.answers().last()?.said {
        Said::End { code, .. } => Some(code_name(*code)),
        Said::Message(_) => None,
    });
    json!({
        "sequences": counted(sequences.iter().map(String::as_str)),
        "running_gauge_while_open": gauge(open),
        "status_at_half_close": counted(ends),
        "running_gauge_after": gauge(settled(picker, 0).await),
    })
}

/// A thousand aborts beside fifty held requests, which then go on.
async fn storm(picker: &Picker, request: &[Value]) -> Value {
    let steps = |value: &Value| parse(value.as_array().unwrap()).unwrap();
    let channel = channel(picker).await;
    let (held, many) = (steps(&request[0]["steps"]), steps(&request[1]["steps"]));
    let count = |value: &Value| value["open"].as_u64().unwrap();
    let mut bystanders: Vec<_> =
        (0..count(&request[0])).map(|_| Play::open(&channel, &held)).collect();
    join_all(bystanders.iter_mut().map(|play| to_the_end(play, &held, (0, 0, 0)))).await;
    let mut crowd: Vec<_> = (0..count(&request[1])).map(|_| Play::open(&channel, &many)).collect();
    join_all(crowd.iter_mut().map(|play| to_the_end(play, &many, (1, 27, 1)))).await;
    join_all(crowd.iter_mut().map(|play| play.step(9, &Step::Cancel, &PACE, |_| true))).await;
    drop(crowd);
    let rest = steps(&request[3]["steps_of_the_50"]);
    join_all(bystanders.iter_mut().map(|play| to_the_end(play, &rest, (1, 27, 1)))).await;
    let sequences: Vec<_> = bystanders.iter().map(|play| sequence(play.answers())).collect();
    json!({
        "bystanders": counted(sequences.iter().map(String::as_str)),
        "running_gauge_after_with_50_open": gauge(settled(picker, 50).await),
    })
}

/// Waits for a count of requests in flight, and returns it.
async fn settled(picker: &Picker, count: u64) -> u64 {
    wait_for(&format!("{count} in flight"), async || {
        let seen = picker.in_flight().await;
        if seen == count { Ok(seen) } else { Err(seen.to_string()) }
    })
    .await
}
