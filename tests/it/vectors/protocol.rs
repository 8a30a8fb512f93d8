//! Part `protocol`: odd orders of messages, through the served picker.
//!
//! Each message is sent as recorded, then our side ends; what was answered until the picker's end is
//! compared: the kinds of answers in order, the response body, and status and text of a refusal.

use serde_json::{Value, json};

use super::{Difference, replay};
use crate::harness::script::{Heard, Script, connect};
use crate::harness::{Picker, Plan};

const BODY: &[u8] = br#"{"model":"m","prompt":"hi"}"#;

/// The answers, by the names of the recording.
fn name(heard: &Heard) -> &'static str {
    match heard {
        Heard::RequestHeaders { .. } => "request_headers",
        Heard::RequestPiece(_, true) => "request_body(eos)",
        Heard::RequestPiece(_, false) => "request_body",
        Heard::RequestTrailers => "request_trailers",
        Heard::ResponseHeaders => "response_headers",
        Heard::ResponsePiece(_, true) => "response_body(eos)",
        Heard::ResponsePiece(_, false) => "response_body",
        Heard::ResponseTrailers => "response_trailers",
        Heard::Immediate { .. } => "immediate",
        other => panic!("an answer in another mode: {other:?}"),
    }
}

/// What the recording leaves out of its messages: the response body of a case, and whether it is a
/// stream of events.
fn response(case: &str) -> (&'static [u8], bool) {
    match case.strip_prefix("protocol/").unwrap() {
        name if name.starts_with("sse") => (b"data: x\n\n", true),
        "response-without-request" => (b"x", false),
        "unary-then-trailers" => (b"abc", false),
        _ => (b"{}", false),
    }
}

fn say(script: &mut Script, message: &str, case: &str) {
    let (body, events) = response(case);
    let kind = if events { "text/event-stream" } else { "application/json" };
    let method = if message.ends_with("headers(eos)") { "GET" } else { "POST" };
    let request = [(":method", method), (":path", "/v1/completions")];
    let response = [(":status", "200"), ("content-type", kind)];
    match message {
        "request_headers" => script.request_headers(&request, false),
        "request_headers(eos)" => script.request_headers(&request, true),
        "request_headers without headers" => script.headers_without_a_map(),
        "request_body" => script.request_body(BODY, false),
        "request_body(eos)" => script.request_body(BODY, true),
        "request_body(eos) bad json" => script.request_body(b"{", true),
        "request_trailers" => script.request_trailers(),
        "response_headers" => script.response_headers(&response, false),
        "response_headers(eos)" => script.response_headers(&response, true),
        "response_headers without headers" => script.response_headers_without_a_map(),
        "response_body" => script.response_body(body, false),
        "response_body(eos)" => script.response_body(body, true),
        "response_trailers" => script.response_trailers(),
        "empty message" => script.nothing(),
        other => panic!("no message {other}"),
    }
}

async fn play(channel: &tonic::transport::Channel, case: &str, input: &Value) -> Value {
    if input["config"] != "" {
        return json!({ "unsupported": "config" });
    }
    let mut script = Script::open(channel).await;
    for message in input["messages"].as_array().unwrap() {
        say(&mut script, message.as_str().unwrap(), case);
    }
    script.half_close();
    let (mut messages, mut body, mut answer) = (Vec::new(), Vec::new(), json!({}));
    while let Some(heard) = script.hear().await {
        let heard = heard.unwrap_or_else(|status| panic!("{case}: {status}"));
        messages.push(name(&heard));
        match heard {
            Heard::ResponsePiece(piece, _) => body.extend(piece),
            Heard::Immediate { status, .. } => answer["status"] = json!(status),
            _ => {}
        }
    }
    answer["messages"] = json!(messages);
    if !body.is_empty() {
        answer["response_body"] = json!(String::from_utf8(body).unwrap());
    }
    answer
}

fn agrees(ours: &Value, recorded: &Value) -> bool {
    let same = |key: &str| ours[key] == recorded[key];
    recorded["panic"].is_null() && same("messages") && same("response_body") && same("status")
}

/// Mutants: a second answer to a repeated end; trailers that go unanswered; a response held until it
/// has ended.
#[test]
fn odd_orders_are_answered_as_recorded_or_better() {
    const DIES: &str = "the recorded process dies of it; here that stream alone ends";
    const ORDER: &str = "no gateway sends a body before its headers: there is no request to route";
    const END: &str = "Envoy repeats an end of stream: idempotent";
    const TRAILERS: &str = "trailers end a body and get their own answer";
    const HELD: &str = "a response body is never held";
    const LATER: &str = "comes with the plugin configuration";
    let row = |case, ours, why| Difference { case, ours, why };
    let differences = [
        row("protocol/body-before-headers", r#"{"messages":["immediate"],"status":500}"#, ORDER),
        row("protocol/headers-field-absent", r#"{"messages":["immediate"],"status":400}"#, DIES),
        row(
            "protocol/response-headers-field-absent",
            r#"{"messages":["request_headers","request_body(eos)","response_headers"]}"#,
            DIES,
        ),
        row("protocol/eos-twice", r#"{"messages":["request_headers","request_body(eos)"]}"#, END),
        row(
            "protocol/trailers-only-end",
            r#"{"messages":["request_headers","request_body","request_trailers"]}"#,
            TRAILERS,
        ),
        row(
            "protocol/trailers-after-eos",
            r#"{"messages":["request_headers","request_body(eos)","request_trailers"]}"#,
            TRAILERS,
        ),
        row(
            "protocol/response-body-first",
            r#"{"messages":["request_headers","request_body(eos)","response_body(eos)"],"response_body":"{}"}"#,
            HELD,
        ),
        row(
            "protocol/unary-held-until-end",
            r#"{"messages":["request_headers","request_body(eos)","response_headers","response_body"],"response_body":"{}"}"#,
            HELD,
        ),
        row(
            "protocol/trailers-without-body",
            r#"{"messages":["request_headers","request_body(eos)","response_headers","response_trailers"]}"#,
            TRAILERS,
        ),
        row("protocol/pd-handler-unknown-profile", r#"{"unsupported":"config"}"#, LATER),
        row("protocol/disagg-handler-unknown-profile", r#"{"unsupported":"config"}"#, LATER),
    ];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let picker = runtime.block_on(Picker::inside(Plan::default().settings("127.0.0.1:1")));
    let channel = runtime.block_on(connect(picker.grpc));
    // Two cases have equal inputs; they are replayed in order.
    let names = std::cell::RefCell::new(super::cases("protocol").into_iter());
    let answer = |input: &Value| {
        let (case, same, _) = names.borrow_mut().next().unwrap();
        assert_eq!(*input, same);
        runtime.block_on(play(&channel, &case, input))
    };
    replay("protocol", &differences, answer, agrees);
}
