//! The scaling loop and those who tell its plans on.
//!
//! Decides which of them run: with `off` none, with `advisory` the loop alone, with `on` the ports
//! that autoscalers ask as well.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

use super::{Security, bind, secured, spawn_until};
use crate::admin::Plans;
use crate::autoscaler::{Autoscaler, History, Pace, Published, Sources, Standing, Subject};
use crate::config::Model;
use crate::config::variants::Variants;
use crate::config::variants_file::{VariantsFile, VariantsState};
use crate::ext_proc::server::{self, Threads};
use crate::flow_control::FlowControl;
use crate::lifecycle::Lifecycle;
use crate::policy::PolicyReader;
use crate::scaling::registry::Registry;
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use crate::{external_metrics, keda, peers, tls};

/// What scaling does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing.
    #[default]
    Off,
    /// It plans and shows the plans; nobody acts on them.
    Advisory,
    /// Autoscalers may ask for the targets.
    On,
}

/// A port for autoscalers.
#[derive(Debug, Clone)]
pub struct Port {
    /// Where to listen.
    pub address: SocketAddr,
    /// Its certificate.
    pub security: Security,
    /// Only clients with a certificate of these authorities may ask; a PEM file.
    pub client_ca: Option<PathBuf>,
}

/// Settings of the scaling loop.
#[derive(Debug, Clone)]
pub struct Scaler {
    /// What it does.
    pub mode: Mode,
    /// Whose replicas are planned.
    pub subject: Subject,
    /// The variants at start.
    pub variants: Variants,
    /// The watched file that they came from.
    pub file: Option<VariantsFile>,
    /// How it runs.
    pub pace: Pace,
    /// HTTP ports of other pickers of the model, `host:port`.
    pub peers: Vec<String>,
    /// KEDA's external scaler.
    pub keda: Option<Port>,
    /// `external.metrics.k8s.io`.
    pub external_metrics: Option<Port>,
}

impl Scaler {
    /// The model of this process, as flags or variants name it.
    pub fn model(&self) -> Model {
        let (id, namespace) = self.subject.named(&self.variants);
        Model { id, namespace }
    }
}

impl Default for Scaler {
    /// Off.
    fn default() -> Self {
        let pace = Pace {
            interval: Duration::from_secs(1),
            look: Duration::from_millis(50),
            startup_grace: Duration::from_secs(600),
            inert_after: Duration::from_secs(300),
        };
        Self {
            mode: Mode::Off,
            subject: Subject { model_id: None, namespace: "default".to_owned() },
            variants: Variants::one("default"),
            file: None,
            pace,
            peers: Vec::new(),
            keda: None,
            external_metrics: None,
        }
    }
}

/// A bound port and what makes its TLS.
struct Open {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    renewal: Option<tls::Renewal>,
}

/// The ports, bound before anything runs.
#[derive(Default)]
pub(super) struct Ports {
    keda: Option<Open>,
    external_metrics: Option<Open>,
}

impl Ports {
    /// Binds what `scaler` asks for.
    pub(super) async fn bind(scaler: &Scaler, protocol: &tls::Protocol) -> Result<Self> {
        if scaler.mode != Mode::On {
            return Ok(Self::default());
        }
        let keda = match &scaler.keda {
            Some(port) => Some(open(port, protocol, tls::Face::GRPC, "KEDA's scaler").await?),
            None => None,
        };
        let external_metrics = match &scaler.external_metrics {
            Some(port) => Some(open(port, protocol, tls::Face::HTTP, "external metrics").await?),
            None => None,
        };
        Ok(Self { keda, external_metrics })
    }

    /// Where KEDA's scaler and external metrics listen.
    pub(super) fn addresses(&self) -> Result<(Option<SocketAddr>, Option<SocketAddr>)> {
        let of = |open: &Option<Open>| open.as_ref().map(|o| o.listener.local_addr()).transpose();
        Ok((of(&self.keda)?, of(&self.external_metrics)?))
    }
}

async fn open(port: &Port, protocol: &tls::Protocol, face: tls::Face, part: &str) -> Result<Open> {
    let face = match &port.client_ca {
        Some(file) => face.for_clients_of(file).with_context(|| format!("TLS of {part}"))?,
        None => face,
    };
    let listener = bind(port.address, part).await?;
    let (tls, renewal) = secured(&port.security, protocol, &face)?;
    Ok(Open { listener, tls, renewal })
}

/// What the loop reads, made by the composition root.
pub(super) struct Parts {
    pub(super) store: Store,
    pub(super) policy: PolicyReader,
    pub(super) flow: Option<FlowControl>,
    pub(super) membership: watch::Receiver<()>,
    pub(super) lifecycle: Lifecycle,
    pub(super) metrics: Arc<Metrics>,
}

/// Spawns what the mode asks for; `None` with `off`.
pub(super) fn spawn(
    rest: &mut JoinSet<Result<()>>,
    scaler: Scaler,
    parts: Parts,
    ports: Ports,
    stop: &watch::Receiver<bool>,
) -> Option<Plans> {
    let standing = match scaler.mode {
        Mode::Off => return None,
        Mode::Advisory => Standing::Advisory,
        Mode::On => Standing::Holder,
    };
    let state = VariantsState {
        variants: Arc::new(scaler.variants),
        ok: u64::from(scaler.file.is_some()),
        ..VariantsState::default()
    };
    let (variants_sink, variants) = watch::channel(state);
    if let Some(file) = scaler.file {
        spawn_until(rest, stop.clone(), file.follow(variants_sink));
    }
    let metrics = Arc::clone(&parts.metrics);
    // A peer that was never read is unread from the start.
    let heard = scaler.peers.iter().map(|peer| (peer.clone(), None)).collect();
    let (heard, peers) = watch::channel(heard);
    if !scaler.peers.is_empty() {
        let follow = peers::follow(scaler.peers, parts.policy.clone(), Arc::clone(&metrics), heard);
        spawn_until(rest, stop.clone(), follow);
    }
    let sources = Sources {
        store: parts.store,
        policy: parts.policy,
        flow: parts.flow,
        peers,
        variants: variants.clone(),
        membership: parts.membership,
        lifecycle: parts.lifecycle,
        // One process plans alone: what it is worth does not change.
        standing: watch::channel(standing).1,
        metrics: parts.metrics,
    };
    let history = History::default();
    let (autoscaler, published) = Autoscaler::new(
        sources,
        scaler.subject,
        scaler.pace,
        Registry::built_in(),
        history.clone(),
    );
    super::spawn(rest, autoscaler.run(stop.clone()));
    tell(rest, ports, &published, &metrics, stop);
    Some(Plans { history, published, variants })
}

/// The ports of those who tell the plans on.
fn tell(
    rest: &mut JoinSet<Result<()>>,
    ports: Ports,
    published: &watch::Receiver<Published>,
    metrics: &Arc<Metrics>,
    stop: &watch::Receiver<bool>,
) {
    let renew = |renewal: Option<tls::Renewal>, rest: &mut JoinSet<Result<()>>| {
        if let Some(renewal) = renewal {
            super::spawn(rest, renewal.run(Arc::clone(metrics), stop.clone()));
        }
    };
    if let Some(Open { listener, tls, renewal }) = ports.keda {
        renew(renewal, rest);
        let scaler = keda::Scaler::new(published.clone(), stop.clone()).into_service();
        let routes = TowerToHyperService::new(Routes::new(scaler).prepare());
        let serve = server::serve(listener, tls, routes, Threads::Here, stop.clone());
        rest.spawn(async move { serve.await.context("serving KEDA's scaler") });
    }
    // The API server speaks TLS only, so there is always an acceptor.
    if let Some(Open { listener, tls: Some(tls), renewal }) = ports.external_metrics {
        renew(renewal, rest);
        let serve = external_metrics::serve(listener, tls, published.clone(), stop.clone());
        super::spawn(rest, serve);
    }
}
