//! Bodies that are read: what is refused and in which words, what a rewrite edits, what comes back.
//!
//! Every body is cut at awkward places; what is not the one edited string must stay as it was.

use std::path::PathBuf;

use tonic::transport::Channel;

use super::*;
use crate::harness::script::Refused;

const CHAT: &[(&str, &str)] = &[
    (":method", "POST"),
    (":path", "/v1/chat/completions"),
    ("content-type", "application/json"),
    ("x-request-id", "r-1"),
];
const EVENTS: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];
const TO_HEADER: (&str, &str) = ("x-llm-d-model-name-rewrite", "served-by-header");

/// The number does not fit a double and the keys are in no order: a body that was parsed and written
/// again would lose both (U010, U011).
const BODY: &str = r#"{"seed":9007199254740993, "model" : "asked","z":1,"a":[{"model":"inner"}],
 "messages":[{"role":"user","content":"\u00e9 asked"}]}"#;

/// A document that turns `asked` into `served`.
const RULES: &str = "kind: InferenceModelRewrite
apiVersion: llm-d.ai/v1alpha2
metadata: {name: rules}
spec:
  poolRef: {name: pool}
  rules:
  - matches: [{model: {value: asked}}]
    targets: [{modelRewrite: served}]
";

fn with<'a>(
    headers: &[(&'a str, &'a str)],
    more: &[(&'a str, &'a str)],
) -> Vec<(&'a str, &'a str)> {
    [headers, more].concat()
}

async fn ask(channel: &Channel, headers: &[(&str, &str)], body: &[u8], cut: usize) -> Script {
    let mut script = Script::open(channel).await;
    script.request_headers(headers, false);
    for chunk in body.chunks(cut) {
        script.request_body(chunk, false);
    }
    script.request_body(b"", true);
    script
}

fn rules() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    (folder, path)
}

/// Upstream's words, and only once the body is complete: until then nothing is answered, which the
/// second stream shows. Mutants: refusing at the first wrong byte; other words; no details.
#[tokio::test]
async fn a_bad_body_is_refused_at_its_end() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let unmarshal = "error unmarshaling request bodyMap: ";
    let table: &[(&[u8], String)] = &[
        (b"{\"model\":\"m\",", format!("{unmarshal}unexpected end of JSON input")),
        (b"", format!("{unmarshal}unexpected end of JSON input")),
        (b"model=m", format!("{unmarshal}invalid character 'm' looking for beginning of value")),
        (
            b"[1]",
            format!(
                "{unmarshal}json: cannot unmarshal array into Go value of type \
                 map[string]interface {{}}"
            ),
        ),
        (
            b"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "model not found in request body".into(),
        ),
        (
            b"{\"model\":\"\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}",
            "model not found in request body".into(),
        ),
    ];
    for (body, message) in table {
        let mut script = Script::open(&channel).await;
        script.request_headers(CHAT, false);
        script.request_body(body, false);
        let mut other = Script::open(&channel).await;
        other.request_headers(GET, true);
        assert_destination(&other.answer().await);
        assert_eq!(picker.metric("plumbline_held_bytes").await, body.len() as u64);
        script.request_body(b"", true);
        let expected = format!("inference error: BadRequest - {message}");
        let refused = script.refused().await;
        assert_eq!(refused, Refused::plain(400, &expected, "bad-request-body"), "{body:?}");
        assert_eq!(picker.metric("plumbline_held_bytes").await, 0);
    }
    let refused = picker.metric("plumbline_requests_total{result=\"bad-request-body\"}").await;
    assert_eq!(refused, table.len() as u64);
    at_rest(&picker).await;
}

/// What is not ours to read goes on as it came: other paths, multipart, gRPC, and compressed bodies,
/// which are read but never written. Mutants: reading a multipart body as JSON; passing on the
/// inflated body.
#[tokio::test]
async fn other_bodies_pass_byte_by_byte() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let path = |path| [(":method", "POST"), (":path", path)];
    let multipart = with(CHAT, &[("content-type", "multipart/form-data; boundary=x")]);
    let grpc = with(CHAT, &[("content-type", "application/grpc")]);
    let gzip = with(CHAT, &[("content-encoding", "gzip")]);
    let zipped = zip(BODY.as_bytes());
    for (headers, body) in [
        (path("/tokenize").to_vec(), &b"{not json"[..]),
        (path("/v1/threads/1/messages").to_vec(), b"{not json"),
        (path("/v1/messages/count_tokens").to_vec(), b"{not json"),
        (multipart, b"--x\r\n{"),
        (grpc, b"\0\0\0\0\x02{}"),
        (gzip.clone(), &zipped),
    ] {
        let mut script = ask(&channel, &headers, body, 3).await;
        let (_, passed) = script.sent_on().await;
        assert_eq!(passed, body, "{headers:?}");
    }
    // A gzip body is read, so its faults are found.
    let mut script = ask(&channel, &gzip, &zip(b"{\"model\":"), 7).await;
    assert_eq!(script.refused().await.status, 400);
    // To rewrite it would be to pack it anew.
    let mut script = ask(&channel, &with(&gzip, &[TO_HEADER]), &zipped, 7).await;
    let expected =
        "inference error: BadRequest - the model of a compressed body cannot be rewritten";
    assert_eq!(script.refused().await, Refused::plain(400, expected, "compressed-body-rewrite"));
    at_rest(&picker).await;
}

fn zip(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(body).unwrap();
    packer.finish().unwrap()
}

/// U010, U011: exactly one string changes, whatever the cuts; the rule beats the header, and without a
/// rule the header counts. Mutants: writing the parsed body; editing the inner `model`; the header
/// first; the span off by the bytes of an earlier chunk.
#[tokio::test]
async fn a_rewrite_edits_one_string() {
    let (_folder, path) = rules();
    let ruled = picker(Plan { manifests: Some(path), ..Plan::default() }).await;
    let plain = picker(Plan::default()).await;
    let edited = |name: &str| BODY.replacen("\"asked\"", &format!("\"{name}\""), 1);
    for (picker, headers, expected) in [
        (&ruled, CHAT.to_vec(), edited("served")),
        (&ruled, with(CHAT, &[TO_HEADER]), edited("served")),
        (&plain, with(CHAT, &[TO_HEADER]), edited("served-by-header")),
        (&plain, with(CHAT, &[("x-gateway-model-name-rewrite", "old-alias")]), edited("old-alias")),
        (&plain, with(CHAT, &[(TO_HEADER.0, "asked")]), BODY.to_owned()),
        (&plain, with(CHAT, &[(TO_HEADER.0, "qu\"ote")]), edited("qu\\\"ote")),
        (&plain, CHAT.to_vec(), BODY.to_owned()),
    ] {
        let channel = connect(picker.grpc).await;
        // The name stands at bytes 36 to 42: cuts before, in and behind it.
        for cut in [1, 5, 36, 38, 40, 43, 1000] {
            let mut script = ask(&channel, &headers, BODY.as_bytes(), cut).await;
            let (_, body) = script.sent_on().await;
            assert_eq!(String::from_utf8(body).unwrap(), expected, "{headers:?} cut at {cut}");
        }
        // Rewrite headers do not travel on.
        let mut script = Script::open(&channel).await;
        script.request_headers(&headers, true);
        let Heard::RequestHeaders { removed, .. } = script.answer().await else { panic!() };
        assert_eq!(removed.len(), headers.len() - CHAT.len());
    }
    at_rest(&ruled).await;
    at_rest(&plain).await;
}

/// A gateway that shows the body after the pick sends it on as it is; that is counted. Mutants: a GET or
/// a full-duplex body counted; nothing counted.
#[tokio::test]
async fn a_rewrite_that_cannot_be_is_counted() {
    let (_folder, path) = rules();
    let ruled = picker(Plan { manifests: Some(path), ..Plan::default() }).await;
    let channel = connect(ruled.grpc).await;
    let skipped = async || ruled.metric("plumbline_rewrites_skipped_total").await;
    let mut whole = ask(&channel, CHAT, BODY.as_bytes(), 1000).await;
    whole.sent_on().await;
    assert_eq!(skipped().await, 0);
    for (mode, count) in [(BodySendMode::Streamed, 1), (BodySendMode::None, 2)] {
        let mut script = Script::open(&channel).await.declare(mode, BodySendMode::None);
        script.request_headers(CHAT, false);
        assert_destination(&script.answer().await);
        assert_eq!(skipped().await, count, "{mode:?}");
    }
}

/// A body without a model gets one; the response then has no other name to show. Mutants: refusing it;
/// a restored empty name.
#[tokio::test]
async fn a_missing_model_is_inserted() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let body = "{\"messages\":[{\"role\":\"user\",\"content\":\"}\"}] }\n";
    let mut script = ask(&channel, &with(CHAT, &[TO_HEADER]), body.as_bytes(), 46).await;
    let (_, passed) = script.sent_on().await;
    let expected = body.replacen(" }\n", " ,\"model\":\"served-by-header\"}\n", 1);
    assert_eq!(String::from_utf8(passed).unwrap(), expected);
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    let answer = b"{\"model\":\"served-by-header\"}";
    script.response_body(answer, true);
    assert_eq!(script.answer().await, Heard::ResponsePiece(answer.to_vec(), true));
    drop(script);
    at_rest(&picker).await;
}

/// A rewrite file that changes is in force for the next request. Mutant: the rules of the start.
#[tokio::test]
async fn rewrites_are_live() {
    let (folder, path) = rules();
    let picker = picker(Plan { manifests: Some(path.clone()), ..Plan::default() }).await;
    let channel = connect(picker.grpc).await;
    let new = folder.path().join(".new");
    std::fs::write(&new, RULES.replace("served", "another")).unwrap();
    std::fs::rename(new, path).unwrap();
    wait_for("the new rule", async || {
        let (_, body) = ask(&channel, CHAT, BODY.as_bytes(), 1000).await.sent_on().await;
        let body = String::from_utf8(body).unwrap();
        if body.contains("\"another\"") { Ok(()) } else { Err(body) }
    })
    .await;
    at_rest(&picker).await;
}

/// Envoy takes the destination and the new body in one answer, and answers 500 where its length is not
/// in it. The restored response of a BUFFERED body says its length too. Mutants: no content-length; the
/// old one; the destination lost beside the body; a name that never ends kept back for a next message.
#[tokio::test]
async fn a_buffered_rewrite_is_one_answer() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let buffered = BodySendMode::Buffered;
    for trailers in [false, true] {
        let mut script = Script::open(&channel).await.declare(buffered, buffered);
        script.request_headers(&with(CHAT, &[TO_HEADER]), false);
        let Heard::RequestHeaders { destination: None, removed } = script.answer().await else {
            panic!("picked before the body")
        };
        assert_eq!(removed, [TO_HEADER.0]);
        script.request_body(BODY.as_bytes(), !trailers);
        let heard = script.answer().await;
        assert_destination(&heard);
        let Heard::NewRequestBody { body, length, .. } = heard else { panic!("{heard:?}") };
        assert_eq!(body, BODY.replacen("\"asked\"", "\"served-by-header\"", 1));
        assert_eq!(length, Some(body.len()));
        script.response_headers(OK, false);
        assert_eq!(script.answer().await, Heard::ResponseHeaders);
        script.response_body(b"{\"model\":\"served-by-header\",\"model\":\"served-by", !trailers);
        let body = "{\"model\":\"asked\",\"model\":\"served-by".to_owned();
        let length = Some(body.len());
        assert_eq!(script.answer().await, Heard::NewResponseBody { body, length });
        if trailers {
            script.response_trailers();
            assert_eq!(script.answer().await, Heard::ResponseTrailers);
        }
        script.half_close();
        script.end().await;
    }
    at_rest(&picker).await;
}

/// Names come back across any cut, unary and in events, ended by a chunk or by trailers; nothing is
/// lost, and a string that never ends neither. Mutants: a search chunk by chunk; held bytes dropped at
/// the trailers, or sent behind them.
#[tokio::test]
async fn names_are_restored_across_chunks() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let unary = "{\"id\":1,\"model\":\"served-by-header\",\"x\":[\"served-by-header\"]}";
    let events = "data: {\"model\": \"served-by-header\"}\r\n\r\ndata: [DONE]\n\n";
    let broken = "{\"id\":1,\"model\":\"served-by";
    for (head, text) in [(OK, unary), (EVENTS, events), (OK, broken)] {
        let expected = text.replacen("\"served-by-header\"", "\"asked\"", 1);
        for (cut, trailers) in [(1, false), (1, true), (7, false), (20, true), (1000, true)] {
            let mut script = ask(&channel, &with(CHAT, &[TO_HEADER]), BODY.as_bytes(), 1000).await;
            script.sent_on().await;
            script.response_headers(head, false);
            assert_eq!(script.answer().await, Heard::ResponseHeaders);
            for chunk in text.as_bytes().chunks(cut) {
                script.response_body(chunk, false);
            }
            if trailers {
                script.response_trailers();
            } else {
                script.response_body(b"", true);
            }
            let (mut seen, mut ended) = (Vec::new(), false);
            while !ended {
                match script.answer().await {
                    Heard::ResponsePiece(bytes, end) => {
                        seen.extend(bytes);
                        ended = end;
                    }
                    Heard::ResponseTrailers if trailers => break,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(String::from_utf8(seen).unwrap(), expected, "{cut} {trailers}");
            script.half_close();
            script.end().await;
        }
    }
    at_rest(&picker).await;
}

/// In STREAMED each chunk has one answer, without a length: the headers are out. Mutants: a length of
/// the chunk; an answer more for the trailers.
#[tokio::test]
async fn a_streamed_response_is_restored_chunk_by_chunk() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    for trailers in [false, true] {
        let mut script = Script::open(&channel)
            .await
            .declare(BodySendMode::FullDuplexStreamed, BodySendMode::Streamed);
        script.request_headers(&with(CHAT, &[TO_HEADER]), false);
        script.request_body(BODY.as_bytes(), true);
        script.sent_on().await;
        script.response_headers(OK, false);
        assert_eq!(script.answer().await, Heard::ResponseHeaders);
        for (chunk, expected) in [
            ("{\"model\":\"served", "{\"model\":\""),
            ("-by-header\",", "asked\","),
            ("\"x\":{},\"model\":\"serv", "\"x\":{},\"model\":\""),
        ] {
            script.response_body(chunk.as_bytes(), false);
            let body = expected.to_owned();
            assert_eq!(script.answer().await, Heard::NewResponseBody { body, length: None });
        }
        if trailers {
            script.response_trailers();
            assert_eq!(script.answer().await, Heard::ResponseTrailers);
        } else {
            script.response_body(b"ing\"}", true);
            let body = "serving\"}".to_owned();
            assert_eq!(script.answer().await, Heard::NewResponseBody { body, length: None });
        }
        script.half_close();
        script.end().await;
    }
    at_rest(&picker).await;
}

/// State hangs on the stream and never on a client's id. Mutant: anything kept by `x-request-id`.
#[tokio::test]
async fn one_request_id_twice_shares_nothing() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut scripts = Vec::new();
    for name in ["first", "second"] {
        let mut script = Script::open(&channel).await;
        script.request_headers(&with(CHAT, &[(TO_HEADER.0, name)]), false);
        script.request_body(&BODY.as_bytes()[..50], false);
        scripts.push((script, name));
    }
    for (script, name) in &mut scripts {
        script.request_body(&BODY.as_bytes()[50..], true);
        let (_, body) = script.sent_on().await;
        let expected = BODY.replacen("\"asked\"", &format!("\"{name}\""), 1);
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_eq!(script.made_id, None);
    }
    assert_eq!(picker.in_flight().await, 2);
    let (first, _) = scripts.remove(0);
    drop(first);
    wait_for("one left", async || {
        let seen = picker.in_flight().await;
        if seen == 1 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let (script, _) = &mut scripts[0];
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(b"{\"model\":\"second\"}", true);
    assert_eq!(
        script.answer().await,
        Heard::ResponsePiece(b"{\"model\":\"asked\"}".to_vec(), true)
    );
    drop(scripts);
    at_rest(&picker).await;
}

/// An id is made only for a request that has none, and no two are alike. Mutants: always; a constant.
#[tokio::test]
async fn a_request_id_is_made_where_none_came() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut made = Vec::new();
    for id in [Some("r-1"), Some(""), None, None] {
        let id = id.map(|id| ("x-request-id", id));
        let mut script = Script::open(&channel).await;
        script.request_headers(&with(GET, id.as_slice()), true);
        assert_destination(&script.answer().await);
        made.push(script.made_id.clone());
    }
    assert_eq!(made[0], None);
    let mut made: Vec<_> = made.into_iter().flatten().collect();
    assert!(made.iter().all(|id| id.as_bytes()[14] == b'4' && id.len() == 36), "{made:?}");
    made.sort();
    made.dedup();
    assert_eq!(made.len(), 3);
    at_rest(&picker).await;
}

/// What ends the Go picker's process ends one stream here. Mutant: a panic, or a stream left open.
#[tokio::test]
async fn headers_without_a_map_cost_one_stream() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut held = Script::open(&channel).await;
    held.request_headers(POST, false);
    let mut script = Script::open(&channel).await;
    script.headers_without_a_map();
    let expected = "inference error: BadRequest - request headers without a header map";
    assert_eq!(script.refused().await, Refused::plain(400, expected, "no-header-map"));
    held.request_body(b"x", true);
    assert_destination(&held.answer().await);
    assert_eq!(picker.metric("plumbline_panics_total").await, 0);
    drop(held);
    at_rest(&picker).await;
}

/// No prefix is known to be cached, so who would rather not compute one is refused; a bad body first.
/// Mutants: picking anyway; 412 before 400.
#[tokio::test]
async fn prefer_if_available_is_412() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let headers = with(CHAT, &[("prefer", "return=minimal, If-Available")]);
    let mut script = ask(&channel, &headers, BODY.as_bytes(), 1000).await;
    let expected =
        "inference error: PreconditionFailed - no decode worker has the requested KV cache";
    assert_eq!(script.refused().await, Refused::plain(412, expected, "prefix-not-cached"));
    let mut script = ask(&channel, &headers, b"{}", 1000).await;
    assert_eq!(script.refused().await.status, 400);
    assert_eq!(picker.metric("plumbline_requests_total{result=\"picked\"}").await, 0);
    at_rest(&picker).await;
}

/// A client's own destination is gone from the first answer on: a gateway that buffers may never show
/// a body. Mutant: leaving it until the destination is known.
#[tokio::test]
async fn a_forged_destination_does_not_outlive_the_headers() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let forged = ("x-gateway-destination-endpoint", "6.6.6.6:80");
    let mut script =
        Script::open(&channel).await.declare(BodySendMode::Buffered, BodySendMode::None);
    script.request_headers(&with(POST, &[forged]), false);
    let removed = vec![forged.0.to_owned()];
    assert_eq!(script.answer().await, Heard::RequestHeaders { destination: None, removed });
    script.request_body(b"x", true);
    assert_destination(&script.answer().await);
    drop(script);
    at_rest(&picker).await;
}
