//! The poller against real servers on loopback: HTTP as servers speak it, TLS, tokens, bad manners.
//!
//! Tests named after a report (`u0xx`) hold what the report shows.

pub mod server;
mod tls;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use plumbline::endpoint::{Endpoint, Load, Signal};
use plumbline::poller::access::Access;
use plumbline::poller::engines::{EngineConfig, Engines};
use plumbline::poller::{Poller, Scrapes, Scraping};
use plumbline::pool::Slot;
use plumbline::store::{MembershipWriter, Store, Vital};
use plumbline::telemetry::metrics::Metrics;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::server::{Reply, Server};
use crate::harness::{Picker, Plan, wait_for};

pub const PAGE: &str = "vllm:num_requests_waiting 4\nvllm:num_requests_running 2\n\
                        vllm:kv_cache_usage_perc 0.5\n\
                        vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"512\"} 1\n";

/// A store with one endpoint and its poller.
pub struct Watch {
    pub store: Store,
    pub metrics: Arc<Metrics>,
    scrapes: Scrapes,
    handle: JoinHandle<()>,
    _members: MembershipWriter,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl Watch {
    pub fn start(address: std::net::SocketAddr, access: Access) -> Self {
        let engines = Arc::default();
        Self::scraping(address, Scraping { engines, access: Arc::new(access) })
    }

    pub fn scraping(address: std::net::SocketAddr, scraping: Scraping) -> Self {
        Self::after(address, scraping, |_| {})
    }

    /// As [`scraping`](Self::scraping), with a look at the store before the first scrape.
    pub fn after(
        address: std::net::SocketAddr,
        scraping: Scraping,
        before: impl FnOnce(&Store),
    ) -> Self {
        let (store, mut members) = Store::new(Instant::now().into_std());
        let change = members.apply(vec![Endpoint::new("default", "a", address)]);
        before(&store);
        let (metrics, scrapes) = (Arc::new(Metrics::new().unwrap()), Scrapes::default());
        let interval = Duration::from_millis(50);
        let poller =
            Poller::new(store.clone(), metrics.clone(), scrapes.clone(), scraping, interval);
        let handle = poller.spawn(&change.started[0], None);
        Self { store, metrics, scrapes, handle, _members: members }
    }

    pub fn load(&self) -> Load {
        let mut loads = Vec::new();
        self.store.read_loads(&self.store.pool(), Instant::now().into_std(), &mut loads);
        loads[0]
    }

    pub fn error(&self) -> String {
        self.scrapes.last_error(Slot(0)).unwrap_or_default()
    }

    pub fn count(&self, result: &str) -> u64 {
        self.metrics.scrapes.with_label_values(&[result]).get()
    }

    pub async fn until(&self, what: &str, level: impl Fn(&Self) -> bool) {
        wait_for(what, async || {
            if level(self) { Ok(()) } else { Err(format!("{:?}; {}", self.load(), self.error())) }
        })
        .await;
    }
}

pub fn gzip(text: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Ways in which a server may send the same page. Mutants: chunks left where they stand; a gzip page
/// read as it is; a body that ends with its connection taken as cut.
#[tokio::test]
async fn a_page_reads_however_it_is_sent() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned()
        + &PAGE.as_bytes().chunks(7).fold(String::new(), |all, chunk| {
            format!("{all}{:x}\r\n{}\r\n", chunk.len(), String::from_utf8_lossy(chunk))
        })
        + "0\r\n\r\n";
    let closing = Reply { close: true, ..Reply::raw(format!("HTTP/1.1 200 OK\r\n\r\n{PAGE}")) };
    for (kept, reply) in [
        (true, Reply::page(PAGE)),
        (true, Reply::raw(chunked)),
        (true, Reply::with("200 OK", "Content-Encoding: gzip\r\n", &gzip(PAGE))),
        (false, closing),
    ] {
        let server = Server::start(move |_| reply.clone()).await;
        let watch = Watch::start(server.address, Access::default());
        watch.until("three pages", |w| w.count("ok") >= 3).await;
        assert_eq!((watch.load().waiting.value(), watch.error()), (Some(4.0), String::new()));
        assert_eq!(server.connections.load(Ordering::Relaxed) == 1, kept);
    }
}

/// A server may close a connection that idles; the next scrape notices and is none the worse.
/// Mutant: an error for the scrape that finds its connection closed.
#[tokio::test]
async fn a_connection_closed_in_between_fails_no_scrape() {
    let server = Server::start(|_| Reply { close: true, ..Reply::page(PAGE) }).await;
    let watch = Watch::start(server.address, Access::default());
    watch.until("five pages", |w| w.count("ok") >= 5).await;
    assert_eq!((watch.count("failed"), watch.error()), (0, String::new()));
}

/// Mutants: a redirection to another server followed; one without an end; the port not replaced.
#[tokio::test]
async fn port_path_and_redirections() {
    let answer = |head: &str| match head.split(' ').nth(1).unwrap() {
        "/stats?x=1" => Reply::with("307 There", "Location: /stats/\r\n", b""),
        "/stats/" => Reply::page(PAGE),
        "/away" => Reply::with("302 There", "Location: http://127.0.0.2:1/metrics\r\n", b""),
        _ => Reply::with("301 There", "Location: /round\r\n", b""),
    };
    let server = Server::start(answer).await;
    let access = |path: &str| Access {
        path: path.to_owned(),
        port: Some(server.address.port()),
        ..Access::default()
    };
    let elsewhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let watch = Watch::start(elsewhere, access("/stats?x=1"));
    watch.until("a page", |w| w.load().waiting.value() == Some(4.0)).await;
    for (path, said) in [
        ("/away", "redirected to \"http://127.0.0.2:1/metrics\", which is not on this server"),
        ("/round", "redirected more than 3 times"),
    ] {
        let watch = Watch::start(elsewhere, access(path));
        watch.until("a failure", |w| w.count("failed") > 0).await;
        assert_eq!(watch.error(), said);
    }
}

/// Every number beside the load arrives in the store with its age. Mutants: custom metrics or adapters
/// not published; the record of another slot.
#[tokio::test]
async fn vitals_adapters_caches_and_custom_metrics_reach_the_store() {
    let page = PAGE.to_owned()
        + "vllm:request_success_total{finished_reason=\"stop\"} 3\n\
           vllm:lora_requests_info{max_lora=\"2\",running_lora_adapters=\"x\"} 1.7e9\n\
           gpu_temp{gpu=\"0\"} 61.5\n";
    let server = Server::start(move |_| Reply::page(&page)).await;
    let config = EngineConfig {
        name: "vllm".to_owned(),
        queued_requests: "vllm:num_requests_waiting".to_owned(),
        kv_usage: "vllm:kv_cache_usage_perc".to_owned(),
        lora: "vllm:lora_requests_info".to_owned(),
        cache_info: "vllm:cache_config_info".to_owned(),
        custom_metrics: vec![("temp".to_owned(), "gpu_temp{gpu=0}".to_owned())],
        ..EngineConfig::default()
    };
    let engines = Arc::new(Engines::try_new(&[config], None, None).unwrap());
    let watch = Watch::scraping(server.address, Scraping { engines, access: Arc::default() });
    watch.until("a page", |w| w.count("ok") >= 1).await;
    assert_eq!(watch.load().running, Signal::Unmapped);
    let now = Instant::now().into_std();
    let vitals = watch.store.vitals(Slot(0), now).unwrap();
    assert_eq!(vitals.custom("temp").value(), Some(61.5));
    for (vital, value) in [
        (Vital::Succeeded, Some(3.0)),
        (Vital::KvCapacity, Some(8192.0)),
        (Vital::KvUsed, Some(4096.0)),
        (Vital::PrefixHits, None),
    ] {
        assert_eq!(vitals.get(vital).value(), value, "{vital:?}");
    }
    let (lora, _) = vitals.lora().unwrap();
    assert_eq!((lora.running.contains("x"), lora.max), (true, Some(2)));
    let (caches, _) = vitals.caches().unwrap();
    assert_eq!((caches[0].block_size, caches[0].num_blocks), (Some(16), Some(512)));
}

/// An endpoint that gets another engine label is read as that engine from then on. Mutants: the mapping
/// of the start kept; the label of nobody read.
#[tokio::test]
async fn a_new_engine_label_changes_the_mapping() {
    let page = "vllm:num_requests_waiting 4\nsglang:num_queue_reqs 7\n";
    let server = Server::start(move |_| Reply::page(page)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    let put = |engine: &str| {
        let (ip, port) = (server.address.ip(), server.address.port());
        let labels = format!("{{llm-d.ai/engine-type: {engine}}}");
        let entry = format!("{{name: a, address: {ip}, port: {port}, labels: {labels}}}");
        std::fs::write(&path, format!("endpoints: [{entry}]\n")).unwrap();
    };
    put("vllm");
    let mut settings = Plan::default().settings("");
    settings.source = plumbline::app::Source::File(path.clone());
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    for (engine, waiting) in [("vllm", 4), ("sglang", 7), ("other", 4)] {
        put(engine);
        wait_for(engine, async || {
            let seen = picker.pool().await[0]["waiting"].clone();
            if seen == waiting { Ok(()) } else { Err(seen.to_string()) }
        })
        .await;
    }
}

/// A page that takes two seconds: at most one scrape at a time, each cut off after a second and
/// followed by a rest of the same length. Mutants: no limit; no rest (twice the scrapes); values lost.
#[tokio::test(start_paused = true)]
async fn u041_a_slow_server_is_left_alone() {
    let slow = Reply { delay: Duration::from_secs(2), ..Reply::page(PAGE) };
    let server = Server::start(move |_| slow.clone()).await;
    let before = |store: &Store| {
        use plumbline::store::{Page, Scraped};
        let value = Scraped::Value(1.0);
        let page =
            Page { waiting: value, running: value, kv: value, ranks: 1, capacity_tokens: None };
        store.load_writer(Slot(0)).publish(&page, Instant::now().into_std());
    };
    let watch = Watch::after(server.address, Scraping::default(), before);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let failed = watch.count("failed");
    assert!((8..=10).contains(&failed), "{failed} scrapes in 20 s");
    assert_eq!(server.most_busy.load(Ordering::SeqCst), 1);
    assert_eq!(watch.error(), "no answer within 1s");
    let waiting = watch.load().waiting;
    assert_eq!(waiting.value(), Some(1.0));
    assert_eq!(waiting.age(), Some(Duration::from_secs(20)));
}

/// An endpoint that refuses connections is one line in the log, and one when it is back. Of a process of
/// its own: `tracing` may leave out an event whose place two threads reach first at once. Mutant: a line
/// for every failed scrape.
#[tokio::test]
async fn u047_a_failure_is_logged_when_it_begins_and_ends() {
    let healthy = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = healthy.clone();
    let server = Server::start(move |_| match told.load(Ordering::SeqCst) {
        true => Reply::page(PAGE),
        false => Reply::with("503 Busy", "", b"no"),
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let flags = vec![format!("--endpoints=a={}", server.address)];
    let picker = Picker::process(flags, folder.path()).await;
    picker.ready().await;
    let scraped = async |result: &str, least: u64| {
        let series = format!("plumbline_scrapes_total{{result=\"{result}\"}}");
        wait_for(&series, async || match picker.metric(&series).await {
            count if count >= least => Ok(()),
            count => Err(count.to_string()),
        })
        .await;
    };
    scraped("failed", 5).await;
    healthy.store(true, Ordering::SeqCst);
    scraped("ok", 3).await;
    let text = picker.log();
    let said: Vec<&str> = text.lines().filter(|line| line.contains("poller::scrape")).collect();
    assert_eq!(said.len(), 2, "{text}");
    assert!(said[0].contains("WARN") && said[0].contains("status 503 instead of 200"), "{text}");
    assert!(said[1].contains("INFO") && said[1].contains("again"), "{text}");
}

/// Scrapes are timed and counted. Mutant: only good scrapes observed.
#[tokio::test]
async fn u152_scrapes_are_timed() {
    let server = Server::start(|_| Reply::with("500 No", "", b"")).await;
    let watch = Watch::start(server.address, Access::default());
    watch.until("two failures", |w| w.count("failed") >= 2).await;
    assert!(watch.metrics.scrape_seconds.get_sample_count() >= 1);
}
