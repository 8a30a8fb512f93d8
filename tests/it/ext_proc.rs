//! The ext_proc service as a gateway sees it: a scripted client against the real server.
//!
//! The endpoints of the pool do not exist; a pool that cannot be scraped fails open, so there is always
//! a destination. What holds of every answer is checked by the script: `raw_value` alone (U013, U014),
//! explicit overwrite and one destination in header and metadata (U022), nothing mirrored (U004).

mod bodies;
mod gate;
mod one_policy;
mod storm;
mod subset;
mod waiting;

use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;

use crate::harness::script::{Heard, Script, connect};
use crate::harness::{Picker, Plan, wait_for};

/// A path that no reader of bodies claims, so that any bytes pass.
const POST: &[(&str, &str)] = &[(":method", "POST"), (":path", "/v1/audio/transcriptions")];
const GET: &[(&str, &str)] = &[(":method", "GET"), (":path", "/v1/models")];
const OK: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];
/// Nobody listens on these.
const POOL: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

async fn picker(plan: Plan) -> Picker {
    let picker = Picker::inside(plan.settings(&POOL.join(","))).await;
    picker.ready().await;
    picker
}

/// Nothing in flight and no stream open: what every exchange must leave behind.
async fn at_rest(picker: &Picker) {
    wait_for("nothing in flight, no stream", async || {
        let seen = (picker.in_flight().await, picker.streams().await);
        if seen == (0, 0) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

fn assert_destination(heard: &Heard) {
    assert!(POOL.contains(&heard.destination()), "{heard:?}");
}

/// U005: a GET is routed on its headers, and the response phase needs no request body.
/// Mutant: waiting for a body when the headers end the stream.
#[tokio::test]
async fn a_get_is_routed_on_its_headers() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(GET, true);
    assert_destination(&script.answer().await);
    assert_eq!(picker.in_flight().await, 1);
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(b"{\"data\":[]}", true);
    assert_eq!(script.answer().await, Heard::ResponsePiece(b"{\"data\":[]}".to_vec(), true));
    // The exchange is complete before the gateway says so.
    wait_for("the guard ended with the response", async || {
        let seen = picker.in_flight().await;
        if seen == 0 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    script.half_close();
    script.end().await;
    at_rest(&picker).await;
}

/// U008: the end may stand on an empty chunk. U023: any path is routed. U031: headers count in full
/// duplex before the body's end. Mutants: answering early; losing the empty end.
#[tokio::test]
async fn a_post_in_pieces_with_its_end_on_an_empty_chunk() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    for path in ["/v1/messages/count_tokens", "/v1/audio/transcriptions", "/tokenize"] {
        let mut script = Script::open(&channel).await;
        let forged = ("x-prefiller-host-port", "6.6.6.6:80");
        script.request_headers(&[(":method", "POST"), (":path", path), forged], false);
        script.request_body(b"\x00not ", false);
        script.request_body(b"json\xff", false);
        script.request_body(b"", true);
        let first = script.answer().await;
        assert_destination(&first);
        let Heard::RequestHeaders { removed, .. } = first else { panic!("{first:?}") };
        assert_eq!(removed, ["x-prefiller-host-port"]);
        let (mut body, mut ended) = (Vec::new(), false);
        while !ended {
            let Heard::RequestPiece(bytes, end) = script.answer().await else { panic!("no piece") };
            body.extend(bytes);
            ended = end;
        }
        assert_eq!(body, b"\x00not json\xff");
    }
    at_rest(&picker).await;
}

/// U001: pieces stay under 64 KiB and the bytes stay what they were; exactly one, the last, ends.
/// Mutants: passing the body on whole; an end on every piece.
#[tokio::test]
async fn large_bodies_are_cut_and_kept() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    for size in [65_535, 65_536, 65_537, 200_000, 1_000_000, 10_000_000] {
        let body: Vec<u8> = (0..size).map(|i: usize| (i % 251) as u8).collect();
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, false);
        let quarter = size.div_ceil(4);
        for (index, chunk) in body.chunks(quarter).enumerate() {
            script.request_body(chunk, (index + 1) * quarter >= size);
        }
        assert_destination(&script.answer().await);
        let (mut seen, mut ended) = (Vec::new(), false);
        while !ended {
            let Heard::RequestPiece(bytes, end) = script.answer().await else { panic!("no piece") };
            assert!(bytes.len() <= 64 << 10, "{}", bytes.len());
            seen.extend(bytes);
            ended = end;
        }
        assert!(seen == body, "{size} bytes changed");
        script.half_close();
        script.end().await;
    }
    at_rest(&picker).await;
}

/// U016 and U017: trailers end a body, get an answer of their own kind, and end the exchange.
/// Mutants: ignoring trailers; answering with the other direction's kind.
#[tokio::test]
async fn trailers_end_the_body_in_both_directions() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(POST, false);
    script.request_body(b"abc", false);
    script.request_trailers();
    assert_destination(&script.answer().await);
    assert_eq!(script.answer().await, Heard::RequestPiece(b"abc".to_vec(), false));
    assert_eq!(script.answer().await, Heard::RequestTrailers);
    script.response_headers(&[(":status", "200"), ("content-type", "application/grpc")], false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(b"frame", false);
    assert_eq!(script.answer().await, Heard::ResponsePiece(b"frame".to_vec(), false));
    assert_eq!(picker.in_flight().await, 1);
    script.response_trailers();
    assert_eq!(script.answer().await, Heard::ResponseTrailers);
    wait_for("response trailers end the guard", async || {
        let seen = picker.in_flight().await;
        if seen == 0 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    drop(script);
    at_rest(&picker).await;
}

/// U002: Envoy repeats the last chunk. One decision, one count, one body. Mutant: picking again.
#[tokio::test]
async fn a_repeated_end_changes_nothing() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(POST, false);
    script.request_body(b"a", false);
    script.request_body(b"b", true);
    script.request_body(b"b", true);
    script.response_headers(OK, true);
    assert_destination(&script.answer().await);
    // Small pieces are joined while they are held.
    assert_eq!(script.answer().await, Heard::RequestPiece(b"ab".to_vec(), true));
    assert_eq!(script.answer().await, Heard::ResponseHeaders, "and nothing for the repeated chunk");
    assert_eq!(picker.metric("plumbline_requests_total{result=\"picked\"}").await, 1);
    script.half_close();
    script.end().await;
    at_rest(&picker).await;
}

/// A local reply of the gateway shows us only a response. Mutant: demanding request headers first.
#[tokio::test]
async fn a_response_without_a_request_is_answered() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.response_headers(&[(":status", "504")], false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(b"timeout", true);
    assert_eq!(script.answer().await, Heard::ResponsePiece(b"timeout".to_vec(), true));
    script.half_close();
    script.end().await;
    at_rest(&picker).await;
}

/// U004: an event stream passes chunk by chunk, each answered before the next is sent, and nothing of
/// its headers comes back. Mutants: holding chunks to the end; copying response headers.
#[tokio::test]
async fn an_event_stream_passes_chunk_by_chunk() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(GET, true);
    assert_destination(&script.answer().await);
    let events = [
        (":status", "200"),
        ("content-type", "text/event-stream"),
        ("transfer-encoding", "chunked"),
    ];
    script.response_headers(&events, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    for index in 0..20 {
        let event = format!("data: {index}\n\n").into_bytes();
        script.response_body(&event, false);
        assert_eq!(script.answer().await, Heard::ResponsePiece(event, false));
        assert_eq!(picker.in_flight().await, 1);
    }
    script.response_body(b"", true);
    assert_eq!(script.answer().await, Heard::ResponsePiece(Vec::new(), true));
    drop(script);
    at_rest(&picker).await;
}

/// U170: control headers of a client are removed, whatever their case; its destination is overwritten
/// (U022, checked by the script). Mutant: any name missing from the list.
#[tokio::test]
async fn forged_control_headers_are_removed() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let forged = [
        "x-data-parallel-host-port",
        "x-encoder-hosts-ports",
        "x-gateway-destination-endpoint-scores",
        "x-gateway-destination-endpoint-served",
        "x-gateway-destination-endpoint-subset",
        "x-kv-cache-source-host-port",
        "x-prefiller-host-port",
    ];
    let mut headers = GET.to_vec();
    headers.extend([("x-gateway-destination-endpoint", "6.6.6.6:80"), ("x-harmless", "1")]);
    headers.extend(forged.iter().map(|name| (*name, "6.6.6.6:80")));
    headers.push(("X-Prefiller-Host-Port", "6.6.6.6:81"));
    let mut script = Script::open(&channel).await;
    script.request_headers(&headers, true);
    let heard = script.answer().await;
    assert_destination(&heard);
    let Heard::RequestHeaders { mut removed, .. } = heard else { panic!("{heard:?}") };
    removed.sort();
    assert_eq!(removed, forged);
    drop(script);
    at_rest(&picker).await;
}

/// U029: an upgrade has no body to wait for. Mutant: treating it as any request without an end.
#[tokio::test]
async fn an_upgrade_is_answered_on_its_headers() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let upgrade = [GET[0], GET[1], ("connection", "upgrade"), ("upgrade", "websocket")];
    for headers in [&upgrade[..], &[(":method", "CONNECT"), (":authority", "a:1")][..]] {
        let mut script = Script::open(&channel).await;
        script.request_headers(headers, false);
        assert_destination(&script.answer().await);
        script.request_body(b"ping", false);
        assert_eq!(script.answer().await, Heard::RequestPiece(b"ping".to_vec(), false));
    }
    at_rest(&picker).await;
}

/// Each declared mode is framed as Envoy demands of it. Mutant: any of them framed as full duplex.
#[tokio::test]
async fn every_declared_body_mode_is_answered_in_its_frame() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;

    for mode in [BodySendMode::Buffered, BodySendMode::BufferedPartial] {
        let mut script = Script::open(&channel).await.declare(mode, mode);
        script.request_headers(POST, false);
        let none = Heard::RequestHeaders { destination: None, removed: Vec::new() };
        assert_eq!(script.answer().await, none, "{mode:?}");
        script.request_body(b"{}", true);
        assert_destination(&script.answer().await);
        script.response_headers(OK, false);
        assert_eq!(script.answer().await, Heard::ResponseHeaders);
        script.response_body(b"{}", true);
        assert_eq!(script.answer().await, Heard::ResponseBody);
    }

    let mut script =
        Script::open(&channel).await.declare(BodySendMode::Streamed, BodySendMode::Streamed);
    script.request_headers(POST, false);
    assert_destination(&script.answer().await);
    for (body, end) in [("a", false), ("", true)] {
        script.request_body(body.as_bytes(), end);
        assert_eq!(script.answer().await, Heard::RequestBody { destination: None });
    }
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(b"x", true);
    assert_eq!(script.answer().await, Heard::ResponseBody);
    drop(script);

    let mut script = Script::open(&channel).await.declare(BodySendMode::None, BodySendMode::None);
    script.request_headers(POST, false);
    assert_destination(&script.answer().await);
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    drop(script);

    let mut script = Script::open(&channel).await.declare(BodySendMode::Grpc, BodySendMode::None);
    script.request_headers(POST, false);
    let Heard::Immediate { status, details, .. } = script.answer().await else { panic!("passed") };
    assert_eq!((status, details.as_str()), (500, "unsupported-body-mode"));
    script.end().await;
    at_rest(&picker).await;
}

/// U025: 5 MiB in one message are fine, what is over the limit is 413 and not a broken stream; the
/// same for the sum of many. Mutants: tonic's limit of 4 MiB; the limit's error passed on.
#[tokio::test]
async fn bodies_over_the_limit_are_413() {
    let picker = picker(Plan { max_body: 6 << 20, ..Plan::default() }).await;
    let channel = connect(picker.grpc).await;
    let buffered = BodySendMode::Buffered;
    for (size, fits) in
        [(5 << 20, true), (6 << 20, true), ((6 << 20) + 1, false), (44 << 20, false)]
    {
        let mut script = Script::open(&channel).await.declare(buffered, buffered);
        script.request_headers(POST, false);
        script.answer().await;
        script.request_body(&vec![b'x'; size], true);
        let heard = script.answer().await;
        if fits {
            assert_destination(&heard);
        } else {
            let details = "body-too-large".to_owned();
            assert_eq!(heard, Heard::Immediate { status: 413, details, reason: None }, "{size}");
            script.end().await;
        }
    }
    let mut script = Script::open(&channel).await;
    script.request_headers(POST, false);
    for _ in 0..7 {
        script.request_body(&vec![b'x'; 1 << 20], false);
    }
    let Heard::Immediate { status: 413, .. } = script.answer().await else { panic!("passed") };
    script.end().await;
    at_rest(&picker).await;
}

/// A gateway that only lets us watch gets no answer and no decision. The second stream's answer shows
/// that the first one's messages were read before it. Mutant: answering anyway.
#[tokio::test]
async fn a_watching_gateway_hears_nothing() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut watching = Script::open(&channel).await.watching();
    watching.request_headers(GET, true);
    watching.response_headers(OK, true);
    let mut other = Script::open(&channel).await;
    other.request_headers(GET, true);
    assert_destination(&other.answer().await);
    watching.half_close();
    watching.end().await;
    assert_eq!(picker.metric("plumbline_requests_total{result=\"picked\"}").await, 1);
    drop(other);
    at_rest(&picker).await;
}

/// An empty pool: 503 with its reason, before the body and after it. Mutant: a 500, or no reason.
#[tokio::test]
async fn an_empty_pool_is_refused_with_a_reason() {
    let picker = Picker::inside(Plan::default().settings("")).await;
    picker.ready().await;
    let channel = connect(picker.grpc).await;
    for end in [true, false] {
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, end);
        if !end {
            script.request_body(b"{}", true);
        }
        let reason = "rejected-no-endpoints".to_owned();
        let expected =
            Heard::Immediate { status: 503, details: reason.clone(), reason: Some(reason) };
        assert_eq!(script.answer().await, expected);
        script.end().await;
    }
    at_rest(&picker).await;
}

/// A body before any headers is a gateway's fault: refused, not hung. Mutant: holding it for ever.
#[tokio::test]
async fn messages_out_of_order_are_refused() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_body(b"{}", true);
    let Heard::Immediate { status: 500, details, .. } = script.answer().await else {
        panic!("passed")
    };
    assert_eq!(details, "out-of-order-message");
    script.end().await;
    at_rest(&picker).await;
}

/// A half-close while the request is held, as Envoy sends when its client left, frees everything and
/// ends the stream. Mutant: waiting for the rest of the body.
#[tokio::test]
async fn a_half_close_while_held_frees_everything() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(POST, false);
    script.request_body(b"{\"model\"", false);
    script.half_close();
    script.end().await;
    at_rest(&picker).await;
    assert_eq!(picker.metric("plumbline_requests_total{result=\"picked\"}").await, 0);
}

/// The limit is one of request bodies: a large chunk of a response passes, whatever it is. Mutant:
/// decoding no message that is larger than a request body may be.
#[tokio::test]
async fn a_small_body_limit_leaves_responses_alone() {
    let picker = picker(Plan { max_body: 1024, ..Plan::default() }).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(GET, true);
    assert_destination(&script.answer().await);
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    // What an Envoy with its default buffers puts into one message.
    script.response_body(&vec![b'x'; 1 << 20], true);
    let (mut bytes, mut ended) = (0, false);
    while !ended {
        let heard = script.answer().await;
        let Heard::ResponsePiece(piece, end) = heard else { panic!("{heard:?}") };
        bytes += piece.len();
        ended = end;
    }
    assert_eq!(bytes, 1 << 20);
    drop(script);
    at_rest(&picker).await;
}

/// U019: once response headers are passed on there is nothing left to refuse; what cannot be read then
/// ends the stream with an error, which cuts the response instead of mixing another into it. Mutant:
/// answering 413 in every phase.
#[tokio::test]
async fn nothing_is_refused_amid_a_response() {
    let picker = picker(Plan { max_body: 1024, ..Plan::default() }).await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(GET, true);
    assert_destination(&script.answer().await);
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    script.response_body(&vec![b'x'; 17 << 20], false);
    let heard = script.hear().await;
    assert!(matches!(heard, Some(Err(_))), "{heard:?}");
    at_rest(&picker).await;
}

/// Bytes that are no message must not look like a clean end, which Envoy takes for "no change": it
/// would forward an empty body. Mutant: ending with OK.
#[tokio::test]
async fn an_unreadable_message_is_an_error() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    // Field 2 (request_headers), length-delimited, of five bytes that are not there.
    let garbage = bytes::Bytes::from_static(&[0, 0, 0, 0, 2, 0x12, 0x05]);
    let body = http_body_util::StreamBody::new(tokio_stream::once(Ok::<_, tonic::Status>(
        hyper::body::Frame::data(garbage),
    )));
    let request = http::Request::post(format!(
        "http://{}/envoy.service.ext_proc.v3.ExternalProcessor/Process",
        picker.grpc
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(tonic::body::Body::new(body))
    .unwrap();
    use tower::ServiceExt as _;
    let response = channel.oneshot(request).await.unwrap();
    let head = response.headers().clone();
    use http_body_util::BodyExt as _;
    let end = response.into_body().collect().await.unwrap();
    let trailers = end.trailers().cloned().unwrap_or(head);
    let status = trailers["grpc-status"].to_str().unwrap();
    assert_ne!(status, "0", "{trailers:?}");
    at_rest(&picker).await;
}
