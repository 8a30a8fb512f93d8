//! gRPC health, on the ext_proc port and on a port of its own.
//!
//! Decides what a name asks for: `liveness` is the process alone; every other name, also an unknown one
//! as upstream answers, is readiness.

use std::pin::Pin;

use futures_util::{Stream, StreamExt as _, future};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use self::contract::health_check_response::ServingStatus;
use self::contract::health_server::{Health, HealthServer};
use self::contract::{
    HealthCheckRequest, HealthCheckResponse, HealthListRequest, HealthListResponse,
};
use crate::lifecycle::{self, Lifecycle};

/// What `proto/health.proto` defines. Crates that bring the protocol along know no `List`.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod contract {
    tonic::include_proto!("grpc.health.v1");
}

/// Services that are asked for by name; the first is what gateways ask for.
const NAMES: [&str; 3] = ["envoy.service.ext_proc.v3.ExternalProcessor", "liveness", "readiness"];

/// The health service of one port.
pub struct Checks {
    lifecycle: Lifecycle,
    stop: watch::Receiver<bool>,
}

impl Checks {
    /// As a tonic service. `stop` is what stops the port: it ends the watches, which have no end of
    /// their own and would keep a drain waiting for ever.
    pub fn into_service(lifecycle: Lifecycle, stop: watch::Receiver<bool>) -> HealthServer<Self> {
        HealthServer::new(Self { lifecycle, stop })
    }
}

fn serving(name: &str, status: &lifecycle::Status) -> HealthCheckResponse {
    let up = name == "liveness" || status.is_ready();
    let status = if up { ServingStatus::Serving } else { ServingStatus::NotServing };
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for Checks {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        Ok(Response::new(serving(&request.get_ref().service, &self.lifecycle.status())))
    }

    async fn list(
        &self,
        _: Request<HealthListRequest>,
    ) -> Result<Response<HealthListResponse>, Status> {
        let now = self.lifecycle.status();
        let statuses = NAMES.map(|name| (name.to_owned(), serving(name, &now)));
        Ok(Response::new(HealthListResponse { statuses: statuses.into() }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let name = request.into_inner().service;
        let mut last = None;
        let changes = WatchStream::new(self.lifecycle.watch()).filter_map(move |status| {
            let answer = serving(&name, &status);
            let news = last.replace(answer.status) != Some(answer.status);
            future::ready(news.then_some(Ok(answer)))
        });
        let mut stop = self.stop.clone();
        let stopped = async move {
            // A dropped sender is a process on its way out.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        Ok(Response::new(Box::pin(changes.take_until(stopped))))
    }
}
