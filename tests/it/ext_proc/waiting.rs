//! Requests that meet an empty pool while the waiting room is on, told message by message.

use std::time::Duration;

use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use plumbline::flow::Limits;

use super::{GET, at_rest};
use crate::harness::script::{Heard, Refused, Script, connect};
use crate::harness::{Picker, Plan, PoolFile};

const POST: &[(&str, &str)] =
    &[(":method", "POST"), (":path", "/v1/completions"), ("content-type", "application/json")];
const BODY: &[u8] = br#"{"model":"m","prompt":"hi"}"#;

/// A picker of an empty pool that may be filled.
async fn start(limits: Limits) -> (Picker, PoolFile) {
    let file = PoolFile::empty();
    let plan = Plan { waiting_room: Some(limits), ..Plan::default() };
    let picker = Picker::inside(file.source(plan.settings(""))).await;
    picker.ready().await;
    (picker, file)
}

async fn ask(channel: &tonic::transport::Channel) -> Script {
    let mut script = Script::open(channel).await;
    script.request_headers(POST, false);
    script.request_body(BODY, true);
    script
}

/// Held, with a repeated end meanwhile, then sent on once, byte for byte; trailers wait too. Mutants: a
/// refusal at once; a repeat that is picked a second time; a body lost while it was held.
#[tokio::test]
async fn a_request_waits_for_the_first_endpoint() {
    let (picker, file) = start(Limits::default()).await;
    let channel = connect(picker.grpc).await;
    let mut first = ask(&channel).await;
    picker.waiting(1, 27).await;
    let mut second = Script::open(&channel).await;
    second.request_headers(POST, false);
    second.request_body(BODY, false);
    second.request_trailers();
    first.request_body(BODY, true);
    picker.waiting(2, 54).await;
    assert_eq!(picker.metric("plumbline_held_bytes").await, 54);
    assert_eq!(picker.in_flight().await, 0);

    file.set(&picker, &["127.0.0.1:1"]).await;
    assert_eq!(first.sent_on().await, ("127.0.0.1:1".to_owned(), BODY.to_vec()));
    assert_eq!(second.answer().await.destination(), "127.0.0.1:1");
    assert_eq!(second.answer().await, Heard::RequestPiece(BODY.to_vec(), false));
    assert_eq!(second.answer().await, Heard::RequestTrailers);
    assert_eq!(picker.in_flight().await, 2);
    for mut script in [first, second] {
        script.response_headers(&[(":status", "200")], true);
        assert_eq!(script.answer().await, Heard::ResponseHeaders);
        script.half_close();
        script.end().await;
    }
    picker.waiting(0, 0).await;
    at_rest(&picker).await;
    assert_eq!(picker.metric("plumbline_held_bytes").await, 0);
}

/// A reset, a half-close and a reply of the gateway's own each end a wait at once, and an endpoint that
/// joins later gets none of them. Mutants: a stream that is not read while it is held; a request that
/// stays in the room after its stream; a half-close answered by a clean end.
#[tokio::test]
async fn who_gives_up_leaves_at_once() {
    let (picker, file) = start(Limits::default()).await;
    let channel = connect(picker.grpc).await;
    let (reset, mut closed, mut replied) =
        (ask(&channel).await, ask(&channel).await, ask(&channel).await);
    picker.waiting(3, 81).await;
    drop(reset);
    picker.waiting(2, 54).await;
    closed.half_close();
    let refused = closed.refused().await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.reason.as_deref(), Some("rejected-context-cancelled"));
    picker.waiting(1, 27).await;
    replied.response_headers(&[(":status", "504")], false);
    assert_eq!(replied.answer().await, Heard::ResponseHeaders);
    replied.response_body(b"stream timeout", true);
    assert_eq!(replied.answer().await, Heard::ResponsePiece(b"stream timeout".to_vec(), true));
    picker.waiting(0, 0).await;
    file.set(&picker, &["127.0.0.1:1"]).await;
    replied.half_close();
    replied.end().await;
    at_rest(&picker).await;
    let left = r#"plumbline_requests_total{result="rejected-context-cancelled"}"#;
    assert_eq!(picker.metric(left).await, 3);
    assert_eq!(picker.metric(r#"plumbline_requests_total{result="picked"}"#).await, 0);
}

/// U091: with nobody there the answer is 503, also over the room's own limit, and whatever the
/// priority. Mutants: 429; a limit that counts who has left.
#[tokio::test]
async fn an_empty_pool_is_503_and_never_429() {
    let (requests, wait) = (1, Duration::from_secs(290));
    let (picker, _file) = start(Limits { requests, bytes: 1 << 20, wait }).await;
    let channel = connect(picker.grpc).await;
    let held = ask(&channel).await;
    picker.waiting(1, 27).await;
    for _ in 0..9 {
        let refused = ask(&channel).await.refused().await;
        assert_eq!((refused.status, refused.details.as_str()), (503, "waiting-full"));
        assert_eq!(refused.reason.as_deref(), Some("rejected-no-endpoints"));
        assert_eq!(refused.retry_after, None);
    }
    drop(held);
    picker.waiting(0, 0).await;
    let held = ask(&channel).await;
    picker.waiting(1, 27).await;
    drop(held);
    at_rest(&picker).await;
}

/// A wait that is over is told so, with the recorded words. Mutants: no deadline; 429.
#[tokio::test]
async fn a_wait_ends_with_503() {
    let wait = Duration::from_millis(30);
    let (picker, _file) = start(Limits { wait, ..Limits::default() }).await;
    let channel = connect(picker.grpc).await;
    let expected = Refused {
        reason: Some("rejected-no-endpoints".to_owned()),
        ..Refused::plain(
            503,
            "inference error: ServiceUnavailable - request timed out in queue and no endpoints are \
             available: request evicted from queue: request TTL expired: no endpoints available",
            "waiting-expired",
        )
    };
    assert_eq!(ask(&channel).await.refused().await, expected);
    picker.waiting(0, 0).await;
    at_rest(&picker).await;
}

/// Where a gateway runs a timer, or there is no body, nobody waits; nor does a request that is bad
/// anyway. Mutants: holding in any mode; holding what will be refused.
#[tokio::test]
async fn only_full_duplex_bodies_wait() {
    let (picker, _file) = start(Limits::default()).await;
    let channel = connect(picker.grpc).await;
    let mut get = Script::open(&channel).await;
    get.request_headers(GET, true);
    assert_eq!(get.refused().await.status, 503);
    for mode in [BodySendMode::Buffered, BodySendMode::Streamed] {
        let mut script = Script::open(&channel).await.declare(mode, BodySendMode::None);
        script.request_headers(POST, false);
        if mode == BodySendMode::Buffered {
            assert!(matches!(script.answer().await, Heard::RequestHeaders { .. }));
            script.request_body(BODY, true);
        }
        assert_eq!(script.refused().await.status, 503, "{mode:?}");
    }
    for body in [&b"{"[..], br#"{"prompt":"x"}"#] {
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, false);
        script.request_body(body, true);
        assert_eq!(script.refused().await.status, 400);
    }
    picker.waiting(0, 0).await;
    at_rest(&picker).await;
}
