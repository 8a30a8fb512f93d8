//! The recorded HTTP exchanges of the Go picker's scrapes, against real servers on loopback.
//!
//! What a scrape leaves behind (the value, or that it gave up after a second) must be equal. The
//! headers of the request differ on purpose, in every case in the same way; ours are asserted too.

use std::time::Duration;

use plumbline::poller::Scraping;
use plumbline::poller::access::Access;
use plumbline::pool::Slot;
use plumbline::store::{Page, Scraped, Store};
use serde_json::Value;
use tokio::time::Instant;

use super::cases;
use crate::scrape::Watch;
use crate::scrape::server::{Reply, Server};

/// Our request, in all cases. No compression is asked for, since at twenty pages a second it costs the
/// server more than the network saves; a server that compresses unasked is understood. Of a server
/// that negotiates we ask for the classic text.
const HEADERS: [&str; 4] = [
    "Accept-Encoding: identity",
    "Accept: text/plain;version=0.0.4,*/*;q=0.1",
    "Host: HOST",
    "User-Agent: plumbline",
];

const PAGE: &str = "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting 4\n";

fn server(kind: &str) -> impl Fn(&str) -> Reply + Send + Sync + 'static {
    let kind = kind.to_owned();
    move |head| match (kind.as_str(), head.split(' ').nth(1).unwrap()) {
        ("redirect", "/metrics") => Reply::with("302 Found", "Location: /moved\r\n", b""),
        ("gzip", _) => {
            Reply::with("200 OK", "Content-Encoding: gzip\r\n", &crate::scrape::gzip(PAGE))
        }
        ("slow", _) => Reply { delay: Duration::from_secs(3600), ..Reply::page(PAGE) },
        ("slow-body", _) => Reply::half(PAGE),
        _ => Reply::page(PAGE),
    }
}

/// What was known before: one request waiting.
fn before(store: &Store) {
    let waiting = Scraped::Value(1.0);
    let page = Page {
        waiting,
        running: Scraped::Missing,
        kv: Scraped::Missing,
        ranks: 1,
        capacity_tokens: None,
    };
    store.load_writer(Slot(0)).publish(&page, Instant::now().into_std());
}

async fn play(name: &str, input: &Value, output: &Value) {
    let server = Server::start(server(input["server"].as_str().unwrap())).await;
    let mut access = Access::default();
    if let Some(path) = input["params"]["path"].as_str() {
        access.path = Access::parse_path(path).unwrap();
    }
    let begin = Instant::now();
    let scraping = Scraping { access: access.into(), ..Scraping::default() };
    let watch = Watch::after(server.address, scraping, before);
    // A look every millisecond; under paused time this moves the clock.
    while watch.count("ok") + watch.count("failed") == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let took = begin.elapsed();
    assert_eq!(watch.load().waiting.value(), output["waiting"].as_f64(), "{name}");
    match output["gave_up_after_ms"].as_u64() {
        Some(limit) => {
            let limit = Duration::from_millis(limit);
            assert!(took >= limit && took < limit + Duration::from_millis(20), "{name}: {took:?}");
            assert_eq!(watch.error(), "no answer within 1s", "{name}");
        }
        None => {
            assert_eq!(watch.count("failed"), 0, "{name}: {}", watch.error());
            assert_eq!(output["request_proto"], "HTTP/1.1");
            let head = server.heads.lock().unwrap()[0].replace(&server.address.to_string(), "HOST");
            let mut lines = head.trim_end().lines();
            let path = input["params"]["path"].as_str().unwrap_or("/metrics");
            assert_eq!(lines.next(), Some(format!("GET {path} HTTP/1.1").as_str()), "{name}");
            let mut headers: Vec<&str> = lines.collect();
            headers.sort_unstable();
            assert_eq!(headers, HEADERS, "{name}");
        }
    }
}

/// The pages come at once, in real time. Mutants: gzip not inflated; a redirection taken as an answer.
#[tokio::test]
async fn exchanges_that_bring_a_page() {
    let mut played = 0;
    for (name, input, output) in cases("scrape-http") {
        if output["gave_up_after_ms"].is_null() {
            play(&name, &input, &output).await;
            played += 1;
        }
    }
    assert_eq!(played, 4);
}

/// The servers never finish, so that the clock moves on by itself. Mutants: no limit for the body; the
/// value of before lost.
#[tokio::test(start_paused = true)]
async fn exchanges_that_are_given_up() {
    let mut played = 0;
    for (name, input, output) in cases("scrape-http") {
        if !output["gave_up_after_ms"].is_null() {
            play(&name, &input, &output).await;
            played += 1;
        }
    }
    assert_eq!(played, 2);
}
