//! What a gateway says of endpoints: which a request may use, and which one served it.
//!
//! Three ports of one address and one of another family stand in the pool; nobody listens on them.

use std::collections::HashSet;

use envoy_types::pb::google::protobuf::value::Kind;
use tonic::transport::Channel;

use super::*;
use crate::harness::script::{Refused, SERVED, SUBSET, list, list_of, text};

/// `127.0.0.1` on two ports, another address, and IPv6.
const MEMBERS: [&str; 4] = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.2:1", "[::1]:1"];
const V4: &[usize] = &[0, 1];
/// Enough for every admitted endpoint of at most four to be seen, but for one run in millions.
const TRIES: usize = 60;

async fn four() -> Picker {
    let picker = Picker::inside(Plan::default().settings(&MEMBERS.join(","))).await;
    picker.ready().await;
    picker
}

/// The endpoints that a hint admits, seen by asking often; `None` when it is refused.
async fn admitted(channel: &Channel, hint: &Kind) -> Option<HashSet<String>> {
    let mut seen = HashSet::new();
    for _ in 0..TRIES {
        let mut script = Script::open(channel).await;
        script.metadata(SUBSET, hint.clone());
        script.request_headers(GET, true);
        match script.answer().await {
            Heard::Immediate { status: 503, details, .. } => {
                assert_eq!(details, "rejected-no-endpoints");
                return None;
            }
            heard => _ = seen.insert(heard.destination().to_owned()),
        }
    }
    Some(seen)
}

/// Every form of a hint, on header-only requests, which obey as all others do. Mutants: the port
/// ignored; strings or commas not read; an empty or unknown hint taken for none; IPv6 not understood;
/// a destination that is no member.
#[tokio::test]
async fn a_hint_restricts_whatever_its_form() {
    let picker = four().await;
    let channel = connect(picker.grpc).await;
    let table: [(Kind, &[usize]); 18] = [
        (list(&["127.0.0.1:2"]), &[1]),
        (list(&["127.0.0.1"]), V4),
        (list(&["127.0.0.1:1", "127.0.0.2"]), &[0, 2]),
        (list(&["127.0.0.1:1, 127.0.0.2:1"]), &[0, 2]),
        (list(&[" 127.0.0.1:2\t"]), &[1]),
        (text("127.0.0.2:1"), &[2]),
        (text(" 127.0.0.1:1 , [::1]:1 "), &[0, 3]),
        (text("[::1]"), &[3]),
        (text("::1"), &[3]),
        (text("127.0.0.1:2,6.6.6.6:80"), &[1]),
        (list_of(vec![Kind::NumberValue(1.0), text("127.0.0.2")]), &[2]),
        (Kind::NullValue(0), &[0, 1, 2, 3]),
        (list(&[]), &[]),
        (text(""), &[]),
        (list(&["6.6.6.6:80"]), &[]),
        (list(&["127.0.0.1:3"]), &[]),
        (list_of(vec![Kind::BoolValue(true)]), &[]),
        (Kind::NumberValue(127.0), &[]),
    ];
    for (hint, expected) in table {
        let expected: HashSet<_> = expected.iter().map(|i| MEMBERS[*i].to_owned()).collect();
        let seen = admitted(&channel, &hint).await.unwrap_or_default();
        assert_eq!(seen, expected, "{hint:?}");
    }
    at_rest(&picker).await;
}

/// A refusal has its reason, with a body and without. Mutants: 500 for a request without a body; the
/// whole pool for one.
#[tokio::test]
async fn a_hint_that_admits_nobody_is_503() {
    let picker = four().await;
    let channel = connect(picker.grpc).await;
    for end in [true, false] {
        let mut script = Script::open(&channel).await;
        script.metadata(SUBSET, list(&[]));
        script.request_headers(POST, end);
        if !end {
            script.request_body(b"x", true);
        }
        let refused = script.refused().await;
        let reason = "rejected-no-endpoints".to_owned();
        let body = "inference error: ServiceUnavailable - failed to find endpoint candidates for \
                    serving the request";
        let expected =
            Refused { reason: Some(reason), ..Refused::plain(503, body, "rejected-no-endpoints") };
        assert_eq!(refused, expected);
    }
    at_rest(&picker).await;
}

/// The newest message that carries a hint before the pick counts; one that carries none takes nothing
/// back. Mutants: the first; the last message only.
#[tokio::test]
async fn the_newest_hint_before_the_pick_counts() {
    let picker = four().await;
    let channel = connect(picker.grpc).await;
    for (hints, expected) in [
        ([Some(0), None, None], 0),
        ([Some(0), Some(1), None], 1),
        ([None, Some(2), Some(3)], 3),
        ([Some(3), None, Some(0)], 0),
    ] {
        // Chance alone would agree once in four.
        for _ in 0..8 {
            let mut script = Script::open(&channel).await;
            for (index, hint) in hints.into_iter().enumerate() {
                if let Some(member) = hint {
                    script.metadata(SUBSET, list(&[MEMBERS[member]]));
                }
                match index {
                    0 => script.request_headers(POST, false),
                    _ => script.request_body(b"x", index == 2),
                }
            }
            let (destination, body) = script.sent_on().await;
            assert_eq!(
                (destination.as_str(), &body[..]),
                (MEMBERS[expected], &b"xx"[..]),
                "{hints:?}"
            );
        }
    }
    at_rest(&picker).await;
}

async fn in_flight(picker: &Picker) -> Vec<u64> {
    let pool = picker.pool().await;
    let of = |member: &str| {
        pool.iter().find(|e| e["address"] == *member).expect("a member")["in_flight"].clone()
    };
    MEMBERS.iter().map(|member| of(member).as_u64().expect("a count")).collect()
}

async fn counted(picker: &Picker, expected: [u64; 4]) {
    wait_for(&format!("{expected:?} in flight"), async || {
        let seen = in_flight(picker).await;
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
}

/// The request counts where it was served. Mutants: counting at both, at neither, or at the first; a
/// second move ignored; an unknown name that loses the count.
#[tokio::test]
async fn the_count_moves_to_the_endpoint_that_served() {
    let picker = four().await;
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.metadata(SUBSET, text(MEMBERS[0]));
    script.request_headers(GET, true);
    assert_eq!(script.answer().await.destination(), MEMBERS[0]);
    counted(&picker, [1, 0, 0, 0]).await;
    script.metadata(SERVED, text(MEMBERS[3]));
    script.response_headers(OK, false);
    assert_eq!(script.answer().await, Heard::ResponseHeaders);
    counted(&picker, [0, 0, 0, 1]).await;
    for (served, expected) in [
        (text("6.6.6.6:80"), [0, 0, 0, 1]),
        (Kind::NumberValue(1.0), [0, 0, 0, 1]),
        (text(MEMBERS[3]), [0, 0, 0, 1]),
        (text(MEMBERS[1]), [0, 1, 0, 0]),
    ] {
        script.metadata(SERVED, served);
        script.response_body(b"x", false);
        assert_eq!(script.answer().await, Heard::ResponsePiece(b"x".to_vec(), false));
        counted(&picker, expected).await;
    }
    script.metadata(SERVED, text(MEMBERS[2]));
    script.response_body(b"", true);
    assert_eq!(script.answer().await, Heard::ResponsePiece(Vec::new(), true));
    // The end of the response ends the count, whoever served.
    counted(&picker, [0; 4]).await;
    drop(script);
    at_rest(&picker).await;
}
