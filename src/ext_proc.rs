//! The ext_proc service: the gateway's stream on one side, a decision on the other.
//!
//! Decides which endpoint by asking `routing` with one policy, one membership and one reading of the
//! loads; the protocol is the session's, the proto types are `wire`'s, connections are `server`'s.

mod decision;
mod frames;
mod grpc;
mod head;
mod message;
pub mod rejection;
mod request_side;
mod sent;
pub mod server;
pub mod session;
mod stream;
mod turn;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use tonic::service::Routes;

use crate::flow_control::FlowControl;
use crate::policy::PolicyReader;
use crate::store::{HeldBytes, Store};
use crate::telemetry::metrics::Metrics;
pub use grpc::ExternalProcessor;
pub use sent::unseen;

/// Name under which gateways check the health of this service.
pub const SERVICE_NAME: &str = "envoy.service.ext_proc.v3.ExternalProcessor";

/// Bytes that any message may have, whatever the limit of request bodies: headers and the chunks of a
/// response come in sizes of the gateway's own buffers (Envoy: 1 MiB unless told otherwise).
const MIN_MESSAGE: usize = 16 << 20;

/// The picking service; cheap to clone, one per data thread.
#[derive(Clone)]
pub struct Picking {
    /// Membership and loads.
    pub store: Store,
    /// The policy in force.
    pub policy: PolicyReader,
    /// Where decisions are counted.
    pub metrics: Arc<Metrics>,
    /// Largest request body in bytes.
    pub max_body: usize,
    /// Bytes of all request bodies that are held, of every stream.
    pub held: HeldBytes,
    /// Largest sum of held bodies in bytes.
    pub max_held: usize,
    /// Where requests wait that meet an empty pool; without it they are refused.
    pub flow: Option<FlowControl>,
    /// How long a request stays counted whose end the gateway does not show; see [`unseen`].
    pub linger: Duration,
    /// What an operator may turn off and on.
    pub options: Options,
}

/// Switches and limits of the service; the default is what a gateway needs without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Whether own requests that no scrape has shown yet count in the detector, the gate and the filter.
    pub correct_in_flight: bool,
    /// Whether the answer that names the destination also carries every candidate's total score.
    pub emit_scores: bool,
    /// Whether the gateway's subset of endpoints is ignored.
    pub disable_subset_filter: bool,
    /// Largest message of the gateway in bytes; without it, what a BUFFERED body of the largest
    /// request body needs.
    pub max_message_in: Option<usize>,
    /// Largest answer in bytes; without it, no limit.
    pub max_message_out: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            correct_in_flight: true,
            emit_scores: false,
            disable_subset_filter: false,
            max_message_in: None,
            max_message_out: None,
        }
    }
}

impl Picking {
    /// The gRPC service; `others` is served on the same port.
    pub fn into_service(self, others: Routes) -> ExternalProcessor {
        let Options { max_message_in, max_message_out, .. } = self.options;
        // A BUFFERED body is one message; the frame around it needs some room of its own.
        let needed = self.max_body.max(MIN_MESSAGE).saturating_add(64 << 10);
        ExternalProcessor::new(self, (max_message_in.unwrap_or(needed), max_message_out), others)
    }
}
