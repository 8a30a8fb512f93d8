//! The requests that were recorded through Envoy, sent through a real Envoy again.
//!
//! Compared are status, who answered (a server, the picker, Envoy with these details), what the server
//! saw of the body (length, digest), which control headers reached it, and the bytes of the answer. The
//! server answers a model server's cases with the recorded body, so that the bytes can be compared.
//! `envoy-differences.txt` has the form of `differences.txt`.

mod echo;

use std::collections::BTreeSet;

use futures_util::future::join_all;
use http::Method;
use plumbline::conformance::answer::digest;
use plumbline::envoy::Modes;
use serde_json::Value;

use super::dialogs::lines;
use super::table::{Outcome, Table};
use crate::harness::{Ask, Plan, World, free_port, soon};
use echo::Echo;

/// Cases that are not sent again, and why. `*` ends a name that stands for several.
const ASIDE: &[(&str, &str)] = &[
    ("abort-mid-sse", "shown by envoy/in_flight.rs"),
    ("abort-while-backend-thinks", "shown by envoy/in_flight.rs"),
    ("abort-while-queued", "comes with: flow control"),
    ("arrivals-*", "row: never held; shown lock-step by ext_proc.rs, an_event_stream_passes…"),
    ("echo-drop", "shown by envoy/in_flight.rs"),
    ("echo-empty-request-id", "Envoy replaces the id, by which its log line would be found"),
    ("echo-expect-100", "hyper's client does not wait for 100 Continue"),
    ("echo-slow-backend", "shown by in_flight.rs, which needs no delay"),
    ("flow-*", "comes with: flow control"),
    ("h2-request-trailers-idle2s", "gateway variant: route idle_timeout"),
    ("h2-response-trailers-sse", "shown by envoy/passing.rs, trailers_pass_in_both_directions"),
    ("health-*", "gateway variant: panic threshold; ours serves health on 9002 always"),
    ("kill-*", "shown by envoy/failures.rs; gateway variant: failure_mode_allow true"),
    ("ovr2-dead-post", "gateway variant: override_host cluster without the endpoint"),
    ("slow-epp-*", "a frozen picker is cut by the keepalive of src/envoy.rs"),
    ("trace-parent", "comes with: tracing"),
    ("ws-upgrade", "shown by envoy/passing.rs, an_upgrade_passes"),
    ("ws-upgrade-idle2s", "gateway variant: route idle_timeout"),
];

fn aside(case: &str) -> bool {
    ASIDE.iter().any(|(name, _)| match name.strip_suffix('*') {
        Some(start) => case.starts_with(start),
        None => *name == case,
    })
}

/// What a client asks for, by the name of the case.
fn ask(case: &str, recorded: &Value) -> Ask {
    const PROMPT: &str = r#"{"model":"m","prompt":"hi"}"#;
    let post = |path: &str, body: &str| {
        Ask::post(path, body.to_owned()).with("content-type", "application/json")
    };
    let large = |count: usize| format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(count));
    let ask = match case {
        "sim-get-models" => Ask::get("/v1/models"),
        "sim-embeddings" => post("/v1/embeddings", r#"{"model":"m","input":"hi"}"#),
        "sim-chat-sse" => post(
            "/v1/chat/completions",
            r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#,
        ),
        "sim-messages" => post(
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"hi"}]}"#,
        ),
        "sim-responses" => post("/v1/responses", r#"{"model":"m","input":"hi"}"#),
        "echo-post" => post("/v1/completions?x=1", PROMPT).with("x-dup", "1").with("x-dup", "2"),
        "echo-get" => Ask::get("/v1/models").with("x-dup", "1").with("x-dup", "2"),
        "echo-forged" => post("/v1/completions", PROMPT)
            .with("x-gateway-destination-endpoint", "6.6.6.6:1")
            .with("x-prefiller-host-port", "6.6.6.6:1")
            .with("x-llm-d-inference-objective", "o")
            .with("x-gateway-destination-endpoint-subset", "127.0.7.14")
            .with("x-llm-d-model-name-rewrite", "other"),
        "echo-forged-get" => {
            Ask::get("/v1/models").with("x-gateway-destination-endpoint", "6.6.6.6:1")
        }
        "echo-content-length-0" => post("/v1/completions", ""),
        "echo-10MB" => post("/v1/completions", &large(10_000_000)),
        "empty-10MB" => post("/v1/completions", &large(9_999_975)),
        "echo-gzip" => Ask::post("/v1/completions", echo::GZIP)
            .with("content-type", "application/json")
            .with("content-encoding", "gzip"),
        "echo-rewrite" => post("/v1/completions", r#"{"model":"m","prompt":"x"}"#)
            .with("x-llm-d-model-name-rewrite", "m2"),
        "echo-head" => Ask::new(Method::HEAD, "/v1/models", ""),
        "echo-options" => Ask::new(Method::OPTIONS, "/v1/completions", ""),
        "echo-delete" => Ask::new(Method::DELETE, "/v1/responses/x", ""),
        "echo-bad-json" => post("/v1/completions", "no healthy upstream"),
        "echo-no-model" => post("/v1/completions", r#"{"prompt":"x"}"#),
        "echo-multipart" => Ask::post("/v1/audio/transcriptions", "--b\r\n\r\nx\r\n--b--\r\n")
            .with("content-type", "multipart/form-data; boundary=b"),
        "echo-tokenize" => post("/tokenize", "raw"),
        "echo-count-tokens" => post("/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#),
        "h2-post" => post("/v1/completions", PROMPT).http2(),
        "h2-request-trailers" => {
            post("/v1/completions", PROMPT).http2().with("te", "trailers").trailer("x-t", "1")
        }
        "h2-request-trailers-count-tokens" => {
            post("/v1/messages/count_tokens", r#"{"model":"m","messages":[]}"#)
                .http2()
                .with("te", "trailers")
                .trailer("x-t", "1")
        }
        get if recorded["client"].as_str().unwrap().contains("GET") || get.ends_with("-get") => {
            Ask::get("/v1/models")
        }
        _ => post("/v1/completions", PROMPT),
    };
    ask.with("x-case", case).with("x-request-id", case)
}

/// Which world a case belongs to.
fn world(case: &str, gateway: &str) -> usize {
    match (case, gateway) {
        (case, _) if case.starts_with("empty-") => 1,
        ("dead-post", _) => 2,
        (_, gateway) if gateway.starts_with("BUFFERED") => 3,
        (_, gateway) if gateway.starts_with("STREAMED") => 4,
        (_, gateway) if gateway.starts_with("bodies NONE") => 5,
        (_, gateway) if gateway.contains("response body NONE") => 6,
        _ => 0,
    }
}

/// One Envoy per variant of the gateway.
async fn worlds(echo: &Echo) -> Vec<World> {
    let modes = |request, response| Modes { request, response, ..Modes::default() };
    let plan = Plan { sims: 0, others: vec![echo.at], ..Plan::default() };
    let with = |modes| Plan { modes, ..plan.clone() };
    let plans = [
        plan.clone(),
        Plan { others: Vec::new(), ..plan.clone() },
        Plan { others: vec![free_port()], ..plan.clone() },
        with(modes("BUFFERED", "BUFFERED")),
        with(modes("STREAMED", "STREAMED")),
        with(modes("NONE", "NONE")),
        with(modes("FULL_DUPLEX_STREAMED", "NONE")),
    ];
    join_all(plans.map(World::start)).await
}

/// Details of a line of Envoy's access log, as the recording writes it.
fn detail(line: &str) -> &str {
    line.split(" details=").nth(1).and_then(|rest| rest.split(" up=").next()).unwrap_or_default()
}

/// Who answered: a server, the picker (the recorded one gives no details), or Envoy for this reason.
fn who(details: &str) -> String {
    let ours = ["bad-body", "bad-request", "rejected-no-endpoints", "body-", "model-"];
    let envoys = details.starts_with("ext_proc_error") || details.contains("upstream_reset");
    match details {
        "via_upstream" => "server".to_owned(),
        "" => "picker".to_owned(),
        details if !envoys && ours.iter().any(|name| details.contains(name)) => "picker".to_owned(),
        // Kinds of failures, not the library's words for them.
        details => format!("Envoy: {}", details.split(['{', '|']).next().unwrap()),
    }
}

/// What the server says that it saw.
fn seen(report: &Value) -> String {
    let control = |name: &str| {
        let ours = ["x-gateway-", "x-llm-d-", "x-prefiller-"];
        ours.iter().any(|start| name.starts_with(start)) && name != "x-gateway-destination-endpoint"
    };
    let headers = report["headers"].as_array().unwrap();
    let names: BTreeSet<_> = headers.iter().filter_map(|header| header[0].as_str()).collect();
    let forged: Vec<_> = names.iter().copied().filter(|name| control(name)).collect();
    assert!(names.contains("x-gateway-destination-endpoint") || report["any"] == true, "{report}");
    let body = format!("{} {}", report["body_len"], report["body_sha"].as_str().unwrap());
    format!(" saw {body} forged {}", forged.join(","))
}

fn recorded(case: &Value) -> String {
    let result = &case["result"];
    let body = result["body"].as_str().unwrap_or_default();
    let status = result["status"].as_str().unwrap_or("?");
    let who = who(detail(case["access_log"].as_str().unwrap_or_default()));
    format!("{status} {who}{}", answer(body, &who, case))
}

/// The rest of a line; what the recording cut off is not compared.
fn answer(body: &str, who: &str, case: &Value) -> String {
    let text = case["result"]["body"].as_str().unwrap_or_default();
    let whole = serde_json::from_str::<Value>(text).ok().filter(|j| j["body_len"].is_u64());
    match (whole, serde_json::from_str::<Value>(body)) {
        (Some(_), Ok(report)) if report["body_len"].is_u64() => seen(&report),
        _ if who == "picker" => format!(" {body:?}"),
        _ if echo::canned(case).is_some() => format!(" body {}", digest(body.as_bytes())),
        _ => String::new(),
    }
}

async fn replay(case: &Value, worlds: &[World]) -> Outcome {
    let name = case["case"].as_str().unwrap();
    let gateway = case["gateway"].as_str().unwrap();
    let world = &worlds[world(name, gateway)];
    let at = if gateway.starts_with("override_host") {
        world.gateway.override_host
    } else {
        world.gateway.original_dst
    };
    let recorded = recorded(case);
    let whole = soon(name, ask(name, case).send(at)).await;
    let whole = match whole {
        Ok(answer) => soon(name, answer.whole()).await,
        Err(error) => Err(error),
    };
    let ours = match whole {
        Err(_) => "cut".to_owned(),
        Ok(whole) => {
            let line = world.gateway.logged(|line| line["id"] == name).await;
            let who = who(line["details"].as_str().unwrap_or_default());
            if who == "server" && echo::canned(case).is_none() && whole.status == 200 {
                // What a mirror of headers loses, and ours must not.
                let cookies: Vec<_> = whole.headers.get_all("set-cookie").iter().collect();
                assert_eq!(cookies, ["a=1", "b=2"], "{name}");
            }
            format!("{} {who}{}", whole.status, answer(&whole.text(), &who, case))
        }
    };
    Outcome { case: name.to_owned(), recorded, ours }
}

/// Mutants: as for the dialogs; a destination that is not set; a body that loses a byte.
#[tokio::test]
async fn requests_through_envoy_are_equal_or_differ_for_a_reason() {
    let cases = lines("wire-golden-envoy.jsonl");
    assert_eq!(cases.len(), 97);
    let table = Table::read("envoy-differences.txt");
    let echo = Echo::start(&cases);
    let worlds = worlds(&echo).await;
    let name = |case: &Value| case["case"].as_str().unwrap().to_owned();
    let (left, sent): (Vec<_>, Vec<_>) = cases.iter().partition(|case| aside(&name(case)));
    for (pattern, _) in ASIDE {
        let start = pattern.trim_end_matches('*');
        assert!(left.iter().any(|case| name(case).starts_with(start)), "{pattern} is unknown");
    }
    let mut outcomes = Vec::new();
    for case in sent {
        outcomes.push(replay(case, &worlds).await);
    }
    for world in &worlds {
        world.at_rest("all recorded requests").await;
    }
    println!("{} requests through Envoy are not sent again", left.len());
    table.judge(&outcomes, "requests through Envoy");
}
