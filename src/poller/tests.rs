//! The loop against a real HTTP server: what a good page, a bad status and a dead port leave behind.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::*;
use crate::endpoint::{Load, Signal};
use crate::lifecycle::Lifecycle;

const PAGE: &str = "vllm:num_requests_waiting 3\nvllm:num_requests_running 2\n\
                    vllm:kv_cache_usage_perc 0.5\n\
                    vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"512\"} 1\n";

/// A server that answers `status` and counts requests and connections.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    status: Arc<AtomicU16>,
    requests: Arc<AtomicU32>,
    connections: Arc<AtomicU32>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            status: Arc::new(AtomicU16::new(200)),
            requests: Arc::default(),
            connections: Arc::default(),
        };
        let this = server.clone();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                this.connections.fetch_add(1, Ordering::Relaxed);
                let this = this.clone();
                tokio::spawn(async move {
                    let service = service_fn(|request| {
                        assert_eq!(
                            http::Request::<hyper::body::Incoming>::uri(&request),
                            "/metrics"
                        );
                        this.requests.fetch_add(1, Ordering::Relaxed);
                        let status = this.status.load(Ordering::Relaxed);
                        let mut page = Response::new(Full::new(Bytes::from(PAGE)));
                        *page.status_mut() = StatusCode::from_u16(status).unwrap();
                        async { Ok::<_, Infallible>(page) }
                    });
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await;
                });
            }
        });
        server
    }
}

/// A store with one endpoint at `address`, and its loop.
struct Watch {
    store: Store,
    poller: Poller,
    lifecycle: Lifecycle,
    handle: JoinHandle<()>,
}

impl Watch {
    fn start(address: SocketAddr) -> Self {
        Self::scraping(address, Scraping::default())
    }

    fn scraping(address: SocketAddr, scraping: Scraping) -> Self {
        let (store, mut writer) = Store::new(Instant::now().into_std());
        let change = writer.apply(vec![Endpoint::new("default", "a", address)]);
        let poller = Poller::new(
            store.clone(),
            Arc::new(Metrics::new().unwrap()),
            Scrapes::default(),
            scraping,
            Duration::from_millis(50),
        );
        let lifecycle = Lifecycle::default();
        let first = lifecycle.latch("first scrape");
        let handle = poller.spawn(&change.started[0], Some(first));
        Self { store, poller, lifecycle, handle }
    }

    fn load(&self) -> Load {
        let mut loads = Vec::new();
        self.store.read_loads(&self.store.pool(), Instant::now().into_std(), &mut loads);
        loads[0]
    }

    fn error(&self) -> String {
        self.poller.scrapes.last_error(Slot(0)).unwrap_or_default()
    }

    fn count(&self, result: &str) -> u64 {
        self.poller.metrics.scrapes.with_label_values(&[result]).get()
    }

    /// Lets the loop run until `level` holds.
    async fn until(&self, what: &str, level: impl Fn(&Self) -> bool) {
        let reached = async {
            while !level(self) {
                // A look at the level every millisecond; under paused time this moves the clock.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), reached).await;
        assert!(waited.is_ok(), "never reached: {what}; last error {:?}", self.error());
    }
}

/// Mutants: a new connection for every scrape; the latch kept; ranks not published.
#[tokio::test]
async fn a_good_page_fills_the_cell_over_one_connection() {
    let server = Server::start().await;
    let watch = Watch::start(server.address);
    assert!(!watch.lifecycle.status().is_ready());
    watch.until("three scrapes", |w| w.count("ok") >= 3).await;
    let load = watch.load();
    assert_eq!((load.waiting.value(), load.running.value()), (Some(3.0), Some(2.0)));
    assert_eq!((load.kv.value(), load.ranks), (Some(0.5), 1));
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    assert!(watch.lifecycle.status().is_ready());
    assert_eq!(watch.error(), "");
}

/// Recorded cases metrics/http-503 and http-204: no page, nothing changes, the next scrape tries
/// again. Mutant: reading the body whatever the status.
#[tokio::test]
async fn only_status_200_is_a_page() {
    let server = Server::start().await;
    for status in [503, 204] {
        server.status.store(status, Ordering::Relaxed);
        let watch = Watch::start(server.address);
        watch.until("a failed scrape", |w| w.count("failed") >= 2).await;
        assert_eq!(watch.load().waiting, Signal::Never);
        assert!(watch.error().contains(&status.to_string()), "{}", watch.error());
        assert!(watch.lifecycle.status().is_ready(), "tried is enough to be ready");
        server.status.store(200, Ordering::Relaxed);
        watch.until("recovery", |w| w.load().waiting.value() == Some(3.0)).await;
        watch.handle.abort();
    }
}

/// Mutants: no backoff (the loop would hammer a dead port), or backoff that never ends.
#[tokio::test(start_paused = true)]
async fn a_dead_port_is_tried_less_and_less_and_again() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let watch = Watch::start(dead);
    let start = Instant::now();
    watch.until("eight failures", |w| w.count("failed") >= 8).await;
    let took = start.elapsed();
    // 100, 200, 400, 800 ms, then 1 s each; each pause waits for the next tick as well.
    assert!(took >= Duration::from_millis(4_500), "{took:?}");
    assert!(took <= Duration::from_millis(6_500), "{took:?}");
    assert!(watch.error().starts_with("connecting"), "{}", watch.error());
}
