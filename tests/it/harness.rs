//! A whole world for a test: simulated servers, Plumbline, and a real Envoy in front.
//!
//! Decides how the parts are started and found, and how a test waits: for a level, never for a time.
//! Every port is the process's own, so worlds run beside each other.

pub mod backend;
pub mod client;
pub mod gateway;
pub mod picker;
pub mod pool_file;
pub mod script;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plumbline::app::{Security, Settings, Source};
use plumbline::config::{self, LineSource, Params};
use plumbline::discovery::static_list::StaticList;
use plumbline::envoy::{self, Modes};
use plumbline::ext_proc::Options;
use plumbline::ext_proc::server::Threads;
use plumbline::flow::Limits;
use plumbline::manifests::{Content, Manifests};
use plumbline::poller::Scraping;
use plumbline::pool::PoolName;
use plumbline::sim;
use plumbline::tls::Protocol;
use tokio::time::{Instant, sleep, timeout};

pub use backend::Backend;
pub use client::Ask;
pub use gateway::Gateway;
pub use picker::Picker;
pub use pool_file::PoolFile;

/// Longest wait for a level. Generous: a wait that succeeds ends early, whatever the limit.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Polls until `probe` holds and returns its value; fails with what was seen last.
pub async fn wait_for<T>(level: &str, probe: impl AsyncFnMut() -> Result<T, String>) -> T {
    wait_within(PATIENCE, level, probe).await
}

/// The same for a level that may come later.
pub async fn wait_within<T>(
    patience: Duration,
    level: &str,
    mut probe: impl AsyncFnMut() -> Result<T, String>,
) -> T {
    let deadline = Instant::now() + patience;
    loop {
        match probe().await {
            Ok(value) => return value,
            Err(seen) if Instant::now() > deadline => {
                panic!("waited {patience:?} for: {level}; seen last: {seen}")
            }
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

/// A future that must not hang.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("no end within {PATIENCE:?}: {what}"),
    }
}

/// What a world is made of.
#[derive(Clone)]
pub struct Plan {
    /// Simulated servers.
    pub sims: usize,
    /// Other endpoints of the pool, after the simulated ones.
    pub others: Vec<SocketAddr>,
    /// Limit of the age of a reading. Far above what a busy test machine delays a scrape by, so that
    /// only a test about staleness sees it.
    pub staleness: &'static str,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// How the ext_proc port is secured.
    pub security: Security,
    /// Whether Envoy speaks HTTP/2 to the servers.
    pub http2_upstream: bool,
    /// Body modes.
    pub modes: Modes,
    /// Plumbline as a process of its own, which can be killed.
    pub process: bool,
    /// Time between two scrapes. A process scrapes at its own default.
    pub scrape: Duration,
    /// Largest sum of held bodies in bytes.
    pub max_held: usize,
    /// How much may wait for an endpoint.
    pub waiting_room: Option<Limits>,
    /// A file of Kubernetes documents.
    pub manifests: Option<PathBuf>,
    /// The file of the scaling configuration.
    pub scaling_config: Option<PathBuf>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            sims: 3,
            others: Vec::new(),
            staleness: "10s",
            max_body: 64 << 20,
            security: Security::Plaintext,
            http2_upstream: false,
            modes: Modes::default(),
            process: false,
            scrape: Duration::from_millis(50),
            max_held: 1 << 30,
            waiting_room: None,
            manifests: None,
            scaling_config: None,
        }
    }
}

impl Plan {
    /// JSON params of the detector.
    fn params(&self) -> String {
        format!(r#"{{"metricsStalenessThreshold":"{}"}}"#, self.staleness)
    }

    /// Settings of a picker inside the test process.
    pub fn settings(&self, endpoints: &str) -> Settings {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let list = match endpoints {
            "" => StaticList::default(),
            some => StaticList::parse(some).expect("endpoints"),
        };
        let params = Params::parse(&self.params()).expect("params");
        let line =
            LineSource::open(params, config::Model::default(), self.scaling_config.as_deref());
        let mut policy = line.policy(plumbline::routing::Profile::default()).0;
        let manifests = self.manifests.as_ref().map(|path| {
            let (manifests, findings) = Manifests::open(path, None).expect("readable manifests");
            assert!(findings.errors.is_empty(), "{findings:?}");
            let Content { rewrites, objectives } = manifests.content();
            policy = policy.clone().with_documents(rewrites, objectives);
            manifests
        });
        Settings {
            max_held: self.max_held,
            waiting_room: self.waiting_room,
            source: Source::Static(list),
            manifests,
            policy,
            line,
            grpc: any,
            grpc_health: any,
            admin: any,
            security: self.security.clone(),
            protocol: Protocol::default(),
            options: Options::default(),
            pool: PoolName::default(),
            scraping: Scraping::default(),
            scrape_interval: self.scrape,
            drain_timeout: Duration::ZERO,
            threads: Threads::Here,
            max_body: self.max_body,
            debug_remote: false,
            scaler: plumbline::app::scaling::Scaler::default(),
        }
    }

    /// The same as flags of the real binary.
    pub fn flags(&self, endpoints: &str) -> Vec<String> {
        let secure = self.security != Security::Plaintext;
        let scaling = self.scaling_config.iter();
        let scaling = scaling.map(|path| format!("--scaling-config={}", path.display()));
        let flags = vec![
            format!("--endpoints={endpoints}"),
            format!("--params={}", self.params()),
            format!("--secure-serving={secure}"),
            format!("--max-body-bytes={}", self.max_body),
            "--drain-timeout=0s".to_owned(),
            // More data threads than the gateway has connections.
            "--cores=4".to_owned(),
        ];
        flags.into_iter().chain(scaling).collect()
    }
}

/// A running world. Dropping it ends everything.
pub struct World {
    pub sims: Vec<sim::Handle>,
    pub picker: Picker,
    pub gateway: Gateway,
    _folder: tempfile::TempDir,
}

impl World {
    /// Starts everything and returns once the gateway reaches a ready picker.
    pub async fn start(plan: Plan) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let sims: Vec<_> = (0..plan.sims).map(|i| start_sim(i, free_port())).collect();
        let addresses: Vec<_> =
            sims.iter().map(sim::Handle::addr).chain(plan.others.clone()).collect();
        let list: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let list = list.join(",");
        let picker = if plan.process {
            Picker::process(plan.flags(&list), folder.path()).await
        } else {
            Picker::inside(plan.settings(&list)).await
        };
        picker.ready().await;
        let gateway = Gateway::start(&plan, &picker, addresses, folder.path()).await;
        Self { sims, picker, gateway, _folder: folder }
    }

    /// Pins waiting requests and KV use of every simulated server, returns once the picker knows.
    pub async fn pin(&self, pins: &[(u64, f64)]) {
        for (sim, (waiting, kv)) in self.sims.iter().zip(pins) {
            let (waiting, kv) = (Some(Some(*waiting)), Some(Some(*kv)));
            sim.set(&sim::Change { waiting, kv, ..sim::Change::default() });
        }
        wait_for("the picker has read the pins", async || {
            let seen: Vec<_> = self.picker.pool().await;
            let matches = self.sims.iter().zip(pins).all(|(sim, (waiting, kv))| {
                let address = sim.addr().to_string();
                seen.iter()
                    .any(|e| e["address"] == address && e["waiting"] == *waiting && e["kv"] == *kv)
            });
            if matches { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }

    /// Kills one server and puts a new one of the same name on the same port, with `restart_sim`.
    pub async fn kill_sim(&mut self, index: usize) -> SocketAddr {
        let sim = self.sims.remove(index);
        let address = sim.addr();
        sim.stop().await;
        address
    }

    /// Puts a server back where one was killed.
    pub fn restart_sim(&mut self, index: usize, address: SocketAddr) {
        self.sims.insert(index, start_sim(index, address));
    }

    /// Waits until nothing is in flight any more and no stream is open: guards and streams both end.
    pub async fn at_rest(&self, after: &str) {
        wait_for(&format!("nothing in flight after {after}"), async || {
            let (requests, streams) = (self.picker.in_flight().await, self.picker.streams().await);
            if (requests, streams) == (0, 0) {
                Ok(())
            } else {
                Err(format!("{requests} in flight, {streams} streams"))
            }
        })
        .await;
    }
}

/// A simulated server of this number.
pub fn start_sim(index: usize, address: SocketAddr) -> sim::Handle {
    let listener = std::net::TcpListener::bind(address).expect("the port of a simulated server");
    sim::Server::start(format!("sim-{index}"), listener, sim::Settings::default())
        .expect("a simulated server")
}

/// A port for a process that must be told one.
pub fn free_port() -> SocketAddr {
    envoy::free_port().expect("a free port")
}
