//! How long a request counts, by what the gateway shows of it; under paused time.

use super::*;
use crate::endpoint::{Endpoint, Load};
use crate::store::{MembershipWriter, Weight};

const TOKENS: u64 = 300;
const LEFT: (u32, u64) = (0, 0);

/// Two endpoints, and a request that was sent to the first.
fn sent() -> (Store, MembershipWriter, Sent) {
    let now = Instant::now().into_std();
    let (store, mut members) = Store::new(now);
    let endpoint = |port| Endpoint::new("ns", &format!("e{port}"), ([127, 0, 0, 1], port).into());
    members.apply(vec![endpoint(1), endpoint(2)]);
    let first = store.pool().members[0].clone();
    let weight = Weight { tokens: TOKENS, watched: true };
    let guard = store.begin(first.slot, weight, now);
    (store, members, Sent::new(first.destination, guard))
}

/// Requests in flight and tokens without a first chunk, of the nth endpoint, from 1.
fn counts(store: &Store, nth: usize) -> (u32, u64) {
    let mut loads: Vec<Load> = Vec::new();
    store.read_loads(&store.pool(), Instant::now().into_std(), &mut loads);
    (loads[nth - 1].in_flight, loads[nth - 1].in_flight_tokens)
}

async fn after(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Mutants: the count given back with the answer, or with the stream; the tokens held as long; a limit
/// of 500 that is not one.
#[tokio::test(start_paused = true)]
async fn a_failure_counts_for_ten_seconds_however_its_stream_ends() {
    for cut in [false, true] {
        let (store, _members, mut sent) = sent();
        sent.answered(500);
        assert_eq!(counts(&store, 1), (1, 0), "the prompt is not read any more");
        sent.chunk();
        match cut {
            true => sent.cut(Some(Duration::from_millis(250))),
            false => sent.end(Some(7)),
        }
        after(FAILURE_HOLD - Duration::from_millis(2)).await;
        assert_eq!(counts(&store, 1), (1, 0));
        after(Duration::from_millis(4)).await;
        assert_eq!(counts(&store, 1), LEFT);
    }
}

/// Mutants: a client's error, or a full server's 429, held like a failure; tokens kept after the first
/// chunk.
#[tokio::test(start_paused = true)]
async fn an_answer_counts_to_its_end() {
    for status in [200, 404, 429, 499, 0] {
        let (store, _members, mut sent) = sent();
        sent.answered(status);
        assert_eq!(counts(&store, 1), (1, TOKENS), "headers may come before the prompt is read");
        sent.chunk();
        assert_eq!(counts(&store, 1), (1, 0));
        sent.end(None);
        assert_eq!(counts(&store, 1), LEFT, "{status}");
    }
}

/// Mutants: an abort that lingers; a stream that is reset at dispatch and does not.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_cut_counts_only_where_its_end_is_not_shown() {
    let (store, _members, aborted) = sent();
    aborted.cut(None);
    assert_eq!(counts(&store, 1), LEFT);
    let (store, _members, unseen) = sent();
    unseen.cut(Some(Duration::from_millis(250)));
    after(Duration::from_millis(248)).await;
    assert_eq!(counts(&store, 1), (1, TOKENS));
    after(Duration::from_millis(4)).await;
    assert_eq!(counts(&store, 1), LEFT);
}

/// Mutants: the floor, or the second scrape, left out.
#[test]
fn an_unseen_request_counts_for_two_scrapes_and_250_ms_at_least() {
    let ms = Duration::from_millis;
    assert_eq!(
        [50, 124, 126, 1000].map(|interval| unseen(ms(interval))),
        [250, 250, 252, 2000].map(ms)
    );
}

/// Mutants: tokens left where the request was first sent; a stranger's address followed; a failure that
/// the move heals.
#[tokio::test(start_paused = true)]
async fn a_request_counts_where_it_was_served() {
    let (store, _members, mut moved) = sent();
    moved.served_by("127.0.0.1:2", &store);
    assert_eq!([1, 2].map(|port| counts(&store, port)), [LEFT, (1, TOKENS)]);
    moved.served_by("10.9.9.9:9", &store);
    assert_eq!(counts(&store, 2), (1, TOKENS), "nobody of the pool");
    moved.answered(503);
    moved.served_by("127.0.0.1:1", &store);
    assert_eq!([1, 2].map(|port| counts(&store, port)), [(1, 0), LEFT]);
    moved.end(None);
    assert_eq!(counts(&store, 1), (1, 0));
    after(FAILURE_HOLD + Duration::from_millis(2)).await;
    assert_eq!(counts(&store, 1), LEFT);
    assert_eq!(store.in_flight(), 0);
}

/// Mutant: a slot that is handed out while a failure still counts there.
#[tokio::test(start_paused = true)]
async fn a_failure_outlives_its_endpoint_and_no_other_inherits_it() {
    let (store, mut members, mut sent) = sent();
    let failed = store.pool().members[0].slot;
    sent.answered(502);
    sent.end(None);
    members.apply(Vec::new());
    let endpoint = |port| Endpoint::new("ns", &format!("new{port}"), ([127, 0, 0, 1], port).into());
    members.apply(vec![endpoint(8), endpoint(9)]);
    let pool = store.pool();
    assert!(pool.members.iter().all(|member| member.slot != failed), "{pool:?}");
    assert_eq!([1, 2].map(|nth| counts(&store, nth)), [LEFT; 2]);
    after(FAILURE_HOLD + Duration::from_millis(2)).await;
    assert_eq!(store.in_flight(), 0);
}
