//! The composition root: bind every socket first, wire, spawn, hand back addresses and a drain.
//!
//! Decides the order of start and of shutdown; everything else is decided by what it wires. Adapters
//! meet only here.

mod membership;
mod policy_feed;
pub mod scaling;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

use crate::admin::{self, Admin, health};
use crate::config::LineSource;
use crate::config::scaling_file::ScalingLoads;
use crate::discovery::Discovery;
use crate::discovery::file::{FileDiscovery, Reloads};
use crate::discovery::static_list::StaticList;
use crate::ext_proc::server::{self, Threads};
use crate::ext_proc::{Options, Picking, unseen};
use crate::flow::Limits;
use crate::flow_control::FlowControl;
use crate::lifecycle::Lifecycle;
use crate::manifests::{Loads, Manifests};
use crate::policy::{Policy, PolicyWriter};
use crate::poller::{Poller, Scrapes, Scraping};
use crate::pool::PoolName;
use crate::store::{HeldBytes, MembershipWriter, Store};
use crate::telemetry::metrics::Metrics;
use crate::tls;

/// Where endpoints come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A list given at start.
    Static(StaticList),
    /// A watched file.
    File(PathBuf),
}

/// How the ext_proc port is secured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// No TLS.
    Plaintext,
    /// A certificate made at start.
    SelfSigned,
    /// `tls.crt` and `tls.key` in a folder.
    Files {
        /// The folder.
        folder: PathBuf,
        /// Whether a new pair there is taken over while we serve.
        reload: bool,
    },
}

/// Everything that a start needs, already validated.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where endpoints come from.
    pub source: Source,
    /// The first policy.
    pub policy: Policy,
    /// Where the line comes from; the first policy has it already.
    pub line: LineSource,
    /// Watched documents that change the policy; what they say at start is part of it already.
    pub manifests: Option<Manifests>,
    /// ext_proc and health.
    pub grpc: SocketAddr,
    /// Health alone.
    pub grpc_health: SocketAddr,
    /// HTTP for operators.
    pub admin: SocketAddr,
    /// How the ext_proc port is secured.
    pub security: Security,
    /// TLS versions and cipher suites of the ext_proc port.
    pub protocol: tls::Protocol,
    /// Switches and limits of the ext_proc service.
    pub options: Options,
    /// The pool's name in a cluster.
    pub pool: PoolName,
    /// How and as what endpoints are scraped.
    pub scraping: Scraping,
    /// Time between two scrapes of one endpoint.
    pub scrape_interval: Duration,
    /// How long new requests are still taken after the drain began.
    pub drain_timeout: Duration,
    /// Where requests are served.
    pub threads: Threads,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// Largest sum of held request bodies in bytes.
    pub max_held: usize,
    /// How much may wait for an endpoint while there is none; `None` refuses it at once.
    pub waiting_room: Option<Limits>,
    /// Whether `/debug` answers other hosts.
    pub debug_remote: bool,
    /// What plans the replicas.
    pub scaler: scaling::Scaler,
}

/// The bound addresses, useful when a port was 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// ext_proc and health.
    pub grpc: SocketAddr,
    /// Health alone.
    pub grpc_health: SocketAddr,
    /// HTTP for operators.
    pub admin: SocketAddr,
    /// KEDA's external scaler, where it is asked for.
    pub keda: Option<SocketAddr>,
    /// `external.metrics.k8s.io`, where it is asked for.
    pub external_metrics: Option<SocketAddr>,
}

/// A running process.
pub struct App {
    /// Where it listens.
    pub addresses: Addresses,
    /// Its readiness.
    pub lifecycle: Lifecycle,
    /// Its store, for those who look from inside.
    pub store: Store,
    drain_timeout: Duration,
    stop_serving: watch::Sender<bool>,
    stop_rest: watch::Sender<bool>,
    serving: JoinSet<Result<()>>,
    rest: JoinSet<Result<()>>,
}

/// Every socket, bound before anything runs.
struct Bound {
    grpc: TcpListener,
    grpc_health: TcpListener,
    admin: TcpListener,
    tls: Option<TlsAcceptor>,
    renewal: Option<tls::Renewal>,
    scaling: scaling::Ports,
}

impl Bound {
    async fn all(settings: &Settings) -> Result<(Self, Addresses)> {
        let grpc = bind(settings.grpc, "ext_proc").await?;
        let grpc_health = bind(settings.grpc_health, "health").await?;
        let admin = bind(settings.admin, "admin").await?;
        let (tls, renewal) = secured(&settings.security, &settings.protocol, &tls::Face::GRPC)?;
        let scaling = scaling::Ports::bind(&settings.scaler, &settings.protocol).await?;
        let (keda, external_metrics) = scaling.addresses()?;
        let addresses = Addresses {
            grpc: grpc.local_addr()?,
            grpc_health: grpc_health.local_addr()?,
            admin: admin.local_addr()?,
            keda,
            external_metrics,
        };
        Ok((Self { grpc, grpc_health, admin, tls, renewal, scaling }, addresses))
    }
}

impl App {
    /// Binds, wires and spawns; returns as soon as every socket listens.
    ///
    /// # Errors
    /// An address in use or a certificate that cannot be read; nothing keeps running then.
    pub async fn start(settings: Settings) -> Result<Self> {
        let (bound, addresses) = Bound::all(&settings).await?;
        announce(&settings.policy, &settings.pool, &addresses);
        let lifecycle = Lifecycle::default();
        let metrics = Arc::new(Metrics::new()?);
        let (store, members) = Store::new(Instant::now().into_std());
        let (policy_writer, policy) = PolicyWriter::new(settings.policy.clone());
        let (stop_serving, stopped_serving) = watch::channel(false);
        let (stop_rest, stop) = watch::channel(false);
        let (mut serving, mut rest) = (JoinSet::new(), JoinSet::new());

        let scrapes = Scrapes::default();
        spawn_token(&mut rest, &settings.scraping, &stop);
        let poller = Poller::new(
            store.clone(),
            Arc::clone(&metrics),
            scrapes.clone(),
            settings.scraping,
            settings.scrape_interval,
        );
        let reloads = Arc::new(Reloads::default());
        let discovery = (settings.source, Arc::clone(&reloads));
        let changes = spawn_membership(&mut rest, discovery, (members, poller), &lifecycle, &stop);
        let flow =
            spawn_flow(&mut rest, settings.waiting_room, &store, (&changes, &lifecycle, &stop));
        let manifests = Arc::new(Loads::default());
        let scaling = Arc::new(ScalingLoads::default());
        let feed = (policy_writer, settings.policy, Arc::clone(&scaling));
        let manifests_source = (settings.manifests, Arc::clone(&manifests));
        spawn_policy_feed(&mut rest, feed, settings.line, manifests_source, &stop);
        if let Some(renewal) = bound.renewal {
            spawn(&mut rest, renewal.run(Arc::clone(&metrics), stop.clone()));
        }
        spawn_learner(&mut rest, store.clone(), stop.clone());
        let parts = scaling::Parts {
            store: store.clone(),
            policy: policy.clone(),
            flow: flow.clone(),
            membership: changes,
            lifecycle: lifecycle.clone(),
            metrics: Arc::clone(&metrics),
        };
        let plans = scaling::spawn(&mut rest, settings.scaler, parts, bound.scaling, &stop);

        let held = HeldBytes::default();
        let picking = Picking {
            store: store.clone(),
            policy: policy.clone(),
            metrics: Arc::clone(&metrics),
            max_body: settings.max_body,
            held: held.clone(),
            max_held: settings.max_held,
            options: settings.options,
            flow: flow.clone(),
            linger: unseen(settings.scrape_interval),
        };
        let checks = health::Checks::into_service(lifecycle.clone(), stopped_serving.clone());
        let service = picking.into_service(Routes::new(checks).prepare());
        let ext_proc =
            server::serve(bound.grpc, bound.tls, service, settings.threads, stopped_serving);
        serving.spawn(async move { ext_proc.await.context("serving ext_proc") });
        let pages = Admin {
            store: store.clone(),
            policy,
            lifecycle: lifecycle.clone(),
            metrics,
            scrapes,
            held,
            flow,
            reloads,
            manifests,
            scaling,
            plans,
            debug_remote: settings.debug_remote,
        };
        spawn_pages(&mut rest, (bound.admin, pages), (bound.grpc_health, &lifecycle), &stop);
        let drain_timeout = settings.drain_timeout;
        Ok(Self {
            addresses,
            lifecycle,
            store,
            drain_timeout,
            stop_serving,
            stop_rest,
            serving,
            rest,
        })
    }

    /// Runs until `shutdown` resolves, then drains: not ready at once, new requests for the drain
    /// timeout, then open streams to their end, and the operators' ports last.
    ///
    /// # Errors
    /// The first part that failed for good.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<()> {
        tokio::select! {
            () = shutdown => {}
            ended = first_failure(&mut self.serving, &mut self.rest) => return Err(ended),
        }
        tracing::info!(timeout = ?self.drain_timeout, "draining");
        self.lifecycle.drain();
        tokio::time::sleep(self.drain_timeout).await;
        self.stop_serving.send_replace(true);
        while let Some(part) = self.serving.join_next().await {
            part??;
        }
        self.stop_rest.send_replace(true);
        while let Some(part) = self.rest.join_next().await {
            part??;
        }
        tracing::info!("drained");
        Ok(())
    }
}

/// No part ends by itself before a drain, except the membership task after a discovery that failed.
async fn first_failure(
    serving: &mut JoinSet<Result<()>>,
    rest: &mut JoinSet<Result<()>>,
) -> anyhow::Error {
    loop {
        let ended = tokio::select! {
            Some(part) = serving.join_next() => part,
            Some(part) = rest.join_next() => part,
            else => return anyhow!("every part of the process has ended"),
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(error) => return error.into(),
        }
    }
}

async fn bind(address: SocketAddr, part: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("binding {address} for {part}"))
}

/// What accepts TLS, and what renews its certificate.
fn secured(
    security: &Security,
    protocol: &tls::Protocol,
    face: &tls::Face,
) -> Result<(Option<TlsAcceptor>, Option<tls::Renewal>)> {
    Ok(match security {
        Security::Plaintext => (None, None),
        Security::SelfSigned => (Some(tls::self_signed(protocol, face)?), None),
        Security::Files { folder, reload } => {
            let (acceptor, renewal) = tls::from_folder(folder, protocol, face)?;
            (Some(acceptor), reload.then_some(renewal))
        }
    })
}

/// Follows the file of the bearer token, where scrapes have one.
fn spawn_token(rest: &mut JoinSet<Result<()>>, scraping: &Scraping, stop: &watch::Receiver<bool>) {
    if let Some(token) = scraping.access.token.clone() {
        spawn_until(rest, stop.clone(), async move { token.follow().await });
    }
}

/// Discovery and the one task that changes membership; returns what tells of each change.
fn spawn_membership(
    rest: &mut JoinSet<Result<()>>,
    (source, reloads): (Source, Arc<Reloads>),
    (writer, poller): (MembershipWriter, Poller),
    lifecycle: &Lifecycle,
    stop: &watch::Receiver<bool>,
) -> watch::Receiver<()> {
    let (sink, sets) = mpsc::channel(4);
    let not_synced = lifecycle.latch(membership::NOT_SYNCED);
    let (changed, changes) = watch::channel(());
    let members =
        membership::run(sets, (writer, changed), poller, lifecycle.clone(), Some(not_synced));
    spawn(rest, members);
    let stop = stop.clone();
    match source {
        Source::Static(list) => {
            rest.spawn(async move { list.run(sink, stop).await.context("--endpoints") });
        }
        Source::File(path) => {
            let file = FileDiscovery::new(path, reloads);
            rest.spawn(async move { file.run(sink, stop).await.context("--endpoints-file") });
        }
    }
    changes
}

/// The owner of the waiting room, where there is one.
fn spawn_flow(
    rest: &mut JoinSet<Result<()>>,
    limits: Option<Limits>,
    store: &Store,
    (changes, lifecycle, stop): (&watch::Receiver<()>, &Lifecycle, &watch::Receiver<bool>),
) -> Option<FlowControl> {
    let (control, owner) = FlowControl::new(limits?, store.clone());
    spawn(rest, owner.run(changes.clone(), lifecycle.clone(), stop.clone()));
    Some(control)
}

/// Health on its own port, and the operators' pages.
fn spawn_pages(
    rest: &mut JoinSet<Result<()>>,
    (admin, pages): (TcpListener, Admin),
    (health, lifecycle): (TcpListener, &Lifecycle),
    stop: &watch::Receiver<bool>,
) {
    let checks = health::Checks::into_service(lifecycle.clone(), stop.clone());
    let routes = TowerToHyperService::new(Routes::new(checks).prepare());
    let health = server::serve(health, None, routes, Threads::Here, stop.clone());
    rest.spawn(async move { health.await.context("serving health") });
    spawn(rest, admin::serve(admin, pages, stop.clone()));
}

/// How often speeds are learned anew; evidence fades over seconds.
const LEARNING: Duration = Duration::from_millis(100);

fn spawn_learner(rest: &mut JoinSet<Result<()>>, store: Store, mut stop: watch::Receiver<bool>) {
    rest.spawn(async move {
        let mut learner = store.learner(Instant::now().into_std());
        let mut ticks = tokio::time::interval(LEARNING);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                now = ticks.tick() => learner.learn(now.into_std()),
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
            }
        }
    });
}

/// The feed holds the one policy writer as long as anything can change the policy.
fn spawn_policy_feed(
    rest: &mut JoinSet<Result<()>>,
    (writer, policy, scaling_loads): (PolicyWriter, Policy, Arc<ScalingLoads>),
    LineSource { layers, model, file }: LineSource,
    (manifests, loads): (Option<Manifests>, Arc<Loads>),
    stop: &watch::Receiver<bool>,
) {
    let (file, version) = file.unzip();
    policy_feed::begin(version.as_deref(), &layers, &model, &scaling_loads);
    if manifests.is_none() && file.is_none() {
        return;
    }
    let feed = policy_feed::Feed { writer, policy, layers, model, loads: scaling_loads };
    let (documents_sink, documents) = mpsc::channel(1);
    let (scaling_sink, scaling) = mpsc::channel(1);
    if let Some(manifests) = manifests {
        spawn_until(rest, stop.clone(), manifests.follow(documents_sink, loads));
    }
    if let Some(file) = file {
        spawn_until(rest, stop.clone(), file.follow(scaling_sink));
    }
    let changes = policy_feed::Changes { documents, scaling };
    spawn(rest, feed.run(changes));
}

/// Runs `part`, which ends by itself.
fn spawn(rest: &mut JoinSet<Result<()>>, part: impl Future<Output = ()> + Send + 'static) {
    rest.spawn(async move {
        part.await;
        Ok(())
    });
}

/// Runs `part` until it ends or `stop` turns true.
fn spawn_until(
    rest: &mut JoinSet<Result<()>>,
    mut stop: watch::Receiver<bool>,
    part: impl Future<Output = ()> + Send + 'static,
) {
    spawn(rest, async move {
        tokio::select! {
            () = part => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
}

/// Operators look for these lines after every start.
fn announce(policy: &Policy, pool: &PoolName, addresses: &Addresses) {
    for (name, number, source) in policy.table() {
        tracing::info!(name, value = %number, source = source.name(), "threshold");
    }
    tracing::info!(
        %pool,
        grpc = %addresses.grpc,
        grpc_health = %addresses.grpc_health,
        admin = %addresses.admin,
        generation = policy.generation,
        digest = policy.digest,
        "listening"
    );
}
