//! Other pickers of the same model: what they hold and have in flight, read from their `/metrics`.
//!
//! Decides when a peer counts as unread (nobody knows then whether the model is idle) and when two
//! pickers decide by different policies for too long. Counts are requests, sizes bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use crate::policy::PolicyReader;
use crate::poller::exposition::{self, Sample, Wanted};
use crate::telemetry::metrics::Metrics;

/// Time between two readings of a peer, and the longest that one may take.
const EVERY: Duration = Duration::from_secs(1);
/// A peer that was not read for so long is unread.
const UNREAD: Duration = Duration::from_secs(5);
/// Policies may differ for so long: a change does not reach every file at once.
const DIFFERENT: Duration = Duration::from_secs(10);
/// Longest page.
const MAX_PAGE: usize = 16 << 20;

/// What one peer's page says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Requests that wait for an endpoint.
    pub held: u64,
    /// Bytes of their bodies.
    pub held_bytes: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Digest of the policy in force.
    pub digest: Option<String>,
}

/// The last page of each peer, and when it was read.
pub type Heard = BTreeMap<String, Option<(Page, Instant)>>;

/// All peers together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sum {
    /// Requests that wait at peers.
    pub held: u64,
    /// Bytes of their bodies.
    pub held_bytes: u64,
    /// Requests in flight; `None` while a peer is unread.
    pub in_flight: Option<u64>,
}

/// Adds up what was heard, as of `now`.
pub fn sum(heard: &Heard, now: Instant) -> Sum {
    let mut sum = Sum { in_flight: Some(0), ..Sum::default() };
    for last in heard.values() {
        match last {
            Some((page, at)) if now.saturating_duration_since(*at) < UNREAD => {
                sum.held += page.held;
                sum.held_bytes += page.held_bytes;
                sum.in_flight = sum.in_flight.map(|sum| sum + page.in_flight);
            }
            _ => sum.in_flight = None,
        }
    }
    sum
}

/// The families of a page that are read.
const FAMILIES: [&str; 4] = [
    "plumbline_waiting_requests",
    "plumbline_waiting_bytes",
    "plumbline_endpoint_in_flight_requests",
    "plumbline_policy_info",
];

/// Reads an exposition of ours; `wanted` are [`FAMILIES`].
fn page(bytes: &[u8], wanted: &Wanted) -> Page {
    let mut page = Page::default();
    for line in exposition::lines(bytes, wanted) {
        let Some(Sample { labels, value: Some(value), .. }) = line.sample else { continue };
        // Counts are whole, and the parser passes no negative ones.
        let count = value as u64;
        match line.family {
            0 => page.held = count,
            1 => page.held_bytes = count,
            2 => page.in_flight += count,
            _ => page.digest = labels.get("digest").map(|digest| digest.text().into_owned()),
        }
    }
    page
}

/// Since when each peer decides by another policy.
#[derive(Debug, Default)]
struct Differences(BTreeMap<String, Instant>);

impl Differences {
    /// Notes what a peer says; true where it has differed for too long.
    fn note(&mut self, peer: &str, digest: Option<&str>, ours: &str, now: Instant) -> bool {
        if digest.is_none_or(|digest| digest == ours) {
            self.0.remove(peer);
            return false;
        }
        let since = *self.0.entry(peer.to_owned()).or_insert(now);
        now.saturating_duration_since(since) > DIFFERENT
    }
}

/// Reads every peer (`host:port` of its HTTP port) until nobody listens.
pub async fn follow(
    peers: Vec<String>,
    policy: PolicyReader,
    metrics: Arc<Metrics>,
    heard: watch::Sender<Heard>,
) {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let wanted = Wanted::new(FAMILIES);
    let (mut ticks, mut differences, mut told) = (interval(EVERY), Differences::default(), false);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = heard.closed() => return,
        }
        let pages = peers.iter().map(|peer| fetch(&client, peer, &wanted));
        let pages = futures_util::future::join_all(pages).await;
        let (now, ours) = (Instant::now(), policy.load().digest.clone());
        let mut differs = false;
        for (peer, page) in peers.iter().zip(&pages) {
            let up = f64::from(u8::from(page.is_some()));
            metrics.scaling.peer_up.with_label_values(&[peer.as_str()]).set(up);
            let digest = page.as_ref().and_then(|page| page.digest.as_deref());
            differs |= differences.note(peer, digest, &ours, now);
        }
        metrics.scaling.digest_differs.set(i64::from(differs));
        if differs && !told {
            tracing::warn!(ours, "a peer has decided by another policy for more than 10 seconds");
        }
        told = differs;
        heard.send_modify(|heard| {
            for (peer, page) in peers.iter().zip(pages) {
                let last = heard.entry(peer.clone()).or_default();
                if let Some(page) = page {
                    *last = Some((page, now));
                }
            }
        });
    }
}

async fn fetch(
    client: &Client<HttpConnector, Full<Bytes>>,
    peer: &str,
    wanted: &Wanted,
) -> Option<Page> {
    let request =
        Request::get(format!("http://{peer}/metrics")).body(Full::new(Bytes::new())).ok()?;
    let read = async {
        let response = client.request(request).await.ok()?;
        let good = response.status() == StatusCode::OK;
        let body = Limited::new(response.into_body(), MAX_PAGE).collect().await.ok()?.to_bytes();
        good.then(|| page(&body, wanted))
    };
    timeout(EVERY, read).await.ok()?
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    /// Mutants: a family by its prefix; the last endpoint instead of the sum; help taken for a series.
    #[test]
    fn a_page_is_read_by_the_names_of_its_families() {
        let text = "# HELP plumbline_waiting_requests 9\nplumbline_waiting_requests 3\n\
                    plumbline_waiting_requests_x 7\nplumbline_waiting_bytes 900\n\
                    plumbline_endpoint_in_flight_requests{endpoint=\"d/a b\"} 2\n\
                    plumbline_endpoint_in_flight_requests{endpoint=\"d/c\"} 5\n\
                    plumbline_policy_info{digest=\"abc\"} 1\nbroken\n";
        let digest = Some("abc".to_owned());
        let wanted = Wanted::new(FAMILIES);
        assert_eq!(
            page(text.as_bytes(), &wanted),
            Page { held: 3, held_bytes: 900, in_flight: 7, digest }
        );
    }

    /// Mutants: an unread peer as nothing in flight; one that was never read left out; 5 s as read.
    #[tokio::test(start_paused = true)]
    async fn a_peer_that_is_not_read_leaves_idle_unknown() {
        let now = Instant::now();
        let page = Page { held: 1, in_flight: 4, ..Page::default() };
        let mut heard: Heard = [("a".to_owned(), Some((page, now)))].into();
        assert_eq!(sum(&heard, now), Sum { held: 1, held_bytes: 0, in_flight: Some(4) });
        assert_eq!(sum(&heard, now + 5 * S).in_flight, None);
        heard.insert("b".to_owned(), None);
        assert_eq!(sum(&heard, now), Sum { held: 1, held_bytes: 0, in_flight: None });
        assert_eq!(sum(&Heard::new(), now).in_flight, Some(0));
    }

    /// Mutants: an alarm at once; one that outlives the difference.
    #[tokio::test(start_paused = true)]
    async fn policies_may_differ_for_ten_seconds() {
        let (mut differences, now) = (Differences::default(), Instant::now());
        assert!(!differences.note("a", Some("x"), "y", now));
        assert!(!differences.note("a", Some("x"), "y", now + 10 * S));
        assert!(differences.note("a", Some("x"), "y", now + 11 * S));
        assert!(!differences.note("a", Some("y"), "y", now + 12 * S));
        assert!(!differences.note("a", Some("x"), "y", now + 13 * S));
    }
}
