//! The HTTP side for operators: `/metrics`, `/livez`, `/readyz`, `/debug/*`.
//!
//! Decides paths and who may see what; `/debug` answers loopback only unless told otherwise. The pages
//! themselves are built in the submodules.

pub mod debug;
pub mod health;
mod plans;

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::scaling_file::ScalingLoads;
use crate::discovery::file::Reloads;
use crate::endpoint::Load;
use crate::flow_control::FlowControl;
use crate::http_port;
use crate::lifecycle::Lifecycle;
use crate::manifests::Loads;
use crate::policy::PolicyReader;
use crate::poller::Scrapes;
use crate::pool::PoolView;
use crate::store::{HeldBytes, Store};
use crate::telemetry::metrics::Metrics;
pub use plans::Plans;

/// What the pages read.
#[derive(Clone)]
pub struct Admin {
    /// Membership and loads.
    pub store: Store,
    /// The policy in force.
    pub policy: PolicyReader,
    /// Readiness.
    pub lifecycle: Lifecycle,
    /// All metric families.
    pub metrics: Arc<Metrics>,
    /// Last scrape error of each endpoint.
    pub scrapes: Scrapes,
    /// The sum of all held request bodies.
    pub held: HeldBytes,
    /// What waits for an endpoint; `None` where nothing may.
    pub flow: Option<FlowControl>,
    /// What became of the endpoints file.
    pub reloads: Arc<Reloads>,
    /// What became of the manifests.
    pub manifests: Arc<Loads>,
    /// What became of the scaling configuration.
    pub scaling: Arc<ScalingLoads>,
    /// The scaling loop's; `None` where it is off.
    pub plans: Option<Plans>,
    /// Whether `/debug` answers other hosts.
    pub debug_remote: bool,
}

/// Serves until `stop` turns true; accept errors are logged.
pub async fn serve(listener: TcpListener, admin: Admin, stop: watch::Receiver<bool>) {
    let answer = move |request: &Request<_>, peer| admin.answer(request, peer);
    http_port::serve(listener, None, "an admin", answer, stop).await;
}

type Page = Response<Full<Bytes>>;

impl Admin {
    fn answer<B>(&self, request: &Request<B>, peer: SocketAddr) -> Page {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut page = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            page.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
            return page;
        }
        let path = request.uri().path();
        if path.starts_with("/debug") && !self.debug_remote && !is_local(peer) {
            return text(
                StatusCode::FORBIDDEN,
                "debug pages answer loopback only; --debug-remote opens them\n",
            );
        }
        match path {
            "/metrics" => self.metrics_page(),
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready_page(),
            "/debug/pool" => self.with_view(|view, pool_generation| {
                let policy = self.policy.load();
                let mut page =
                    debug::pool(view, pool_generation, &policy.thresholds, &self.scrapes);
                page["discovery"] = debug::discovery(&self.reloads.now());
                json(&page)
            }),
            "/debug/policy" => {
                let mut page = debug::policy(&self.policy.load());
                let scaling = self.scaling.now();
                page["conflicts"] = scaling.conflicts.clone().into();
                page["lastReload"] = debug::last_reload(&scaling);
                page["manifests"] = debug::manifests(&self.manifests.now());
                json(&page)
            }
            "/debug/flow" => json(&debug::flow(self.flow.as_ref())),
            "/debug/plan" => plans::newest(self.plans.as_ref()),
            "/debug/plan/history" => plans::history(self.plans.as_ref()),
            "/debug/snapshot" => plans::snapshot(self.plans.as_ref()),
            _ => text(
                StatusCode::NOT_FOUND,
                "known are /metrics /livez /readyz /debug/pool /debug/policy /debug/flow /debug/plan \
                 /debug/plan/history /debug/snapshot\n",
            ),
        }
    }

    /// Reads the loads once, at this instant.
    fn with_view<T>(&self, page: impl FnOnce(&PoolView<'_>, u64) -> T) -> T {
        let pool = self.store.pool();
        let mut loads: Vec<Load> = Vec::new();
        self.store.read_loads(&pool, Instant::now().into_std(), &mut loads);
        page(&PoolView { members: &pool.members, loads: &loads }, pool.generation)
    }

    fn metrics_page(&self) -> Page {
        let loads = self.reloads.now();
        self.metrics.mirror_discovery(loads.ok, loads.failed);
        let loads = self.manifests.now();
        self.metrics.mirror_manifests(loads.ok, loads.failed, loads.rejected);
        let scaling = self.scaling.now();
        self.metrics.mirror_scaling(scaling.ok, scaling.failed, scaling.rejected);
        self.metrics.mirror_conflicts(scaling.conflicts.len());
        self.metrics.mirror_held(self.held.now());
        let waiting = self.flow.as_ref().map(FlowControl::held).unwrap_or_default();
        self.metrics.mirror_waiting(waiting.requests, waiting.bytes, waiting.oldest);
        if let Some(plans) = &self.plans {
            plans.mirror(&self.metrics.scaling);
        }
        match self.with_view(|view, _| self.metrics.page(view, &self.policy.load())) {
            Ok(page) => typed(StatusCode::OK, "text/plain; version=0.0.4", page),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    fn ready_page(&self) -> Page {
        let status = self.lifecycle.status();
        if status.is_ready() {
            text(StatusCode::OK, "ok\n")
        } else {
            text(StatusCode::SERVICE_UNAVAILABLE, status.reasons().join("\n") + "\n")
        }
    }
}

fn is_local(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn typed(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::new(body.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    page
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Page {
    typed(status, "text/plain; charset=utf-8", body)
}

fn json(value: &serde_json::Value) -> Page {
    typed(StatusCode::OK, "application/json", format!("{value:#}\n"))
}
