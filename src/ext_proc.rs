//! The ext_proc service: the gateway's stream on one side, a decision on the other.
//!
//! Decides which endpoint by asking `routing` with one policy, one membership and one reading of the
//! loads; the protocol is the session's, the proto types are `wire`'s, connections are `server`'s.

mod grpc;
mod head;
mod message;
pub mod rejection;
mod request_side;
pub mod server;
pub mod session;
mod stream;
mod wire;

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng};
use tokio::time::Instant;

use crate::endpoint::Load;
use crate::policy::{Policy, PolicyReader};
use crate::pool::PoolView;
use crate::response::Restore;
use crate::routing::subset::Subset;
use crate::routing::{self, Refusal, Scratch};
use crate::store::{HeldBytes, InFlight, Store};
use crate::telemetry::metrics::Metrics;
pub use grpc::ExternalProcessor;
use rejection::Rejection;
use request_side::RequestSide;
use session::Session;

/// Name under which gateways check the health of this service.
pub const SERVICE_NAME: &str = "envoy.service.ext_proc.v3.ExternalProcessor";

/// Bytes that any message may have, whatever the limit of request bodies: headers and the chunks of a
/// response come in sizes of the gateway's own buffers (Envoy: 1 MiB unless told otherwise).
const MIN_MESSAGE: usize = 16 << 20;

/// Buffers and chance of one thread, reused by all its decisions.
struct Desk {
    loads: Vec<Load>,
    scratch: Scratch,
    rng: SmallRng,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk {
        loads: Vec::new(),
        scratch: Scratch::default(),
        rng: SmallRng::from_os_rng(),
    });
}

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
    /// How long a request stays counted whose end the gateway does not show: two scrapes, at least
    /// 250 ms.
    pub linger: Duration,
    /// What an operator may turn off and on.
    pub options: Options,
}

/// Switches and limits of the service; the default is what a gateway needs without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
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

/// Where a request goes, and the count that it holds there.
pub(crate) struct Pick {
    pub(crate) destination: Arc<str>,
    pub(crate) guard: InFlight,
    /// Destination and total score of every candidate; empty unless they are to be emitted.
    pub(crate) scores: Vec<(Arc<str>, f64)>,
}

impl Picking {
    /// The gRPC service.
    pub fn into_service(self) -> ExternalProcessor {
        let Options { max_message_in, max_message_out, .. } = self.options;
        // A BUFFERED body is one message; the frame around it needs some room of its own.
        let needed = self.max_body.max(MIN_MESSAGE).saturating_add(64 << 10);
        ExternalProcessor::new(self, max_message_in.unwrap_or(needed), max_message_out)
    }

    /// Reads what the complete request says and edits its model; see [`RequestSide::finish`].
    fn understand(
        &self,
        policy: &Policy,
        request: &mut RequestSide,
        session: &mut Session,
    ) -> Result<Option<Restore>, Rejection> {
        DESK.with_borrow_mut(|desk| {
            request.finish(session, &policy.rewrites, &mut desk.rng, self.max_body)
        })
    }

    /// One decision on the pool of this instant, among the endpoints that `subset` admits.
    pub(crate) fn pick(&self, policy: &Policy, subset: Option<&Subset>) -> Result<Pick, Rejection> {
        let start = Instant::now();
        let pool = self.store.pool();
        let picked = DESK.with_borrow_mut(|desk| {
            self.store.read_loads(&pool, start.into_std(), &mut desk.loads);
            let view = PoolView { members: &pool.members, loads: &desk.loads };
            let Desk { scratch, rng, .. } = desk;
            let order =
                routing::schedule(&view, subset, &policy.profile, &policy.thresholds, rng, scratch);
            let first = order.map(|mut order| order.next());
            let emitted = if self.options.emit_scores { usize::MAX } else { 0 };
            let destination = |index: usize| Arc::clone(&pool.members[index].destination);
            let totals = scratch.totals().take(emitted);
            let scores = totals.map(|(index, total)| (destination(index), total)).collect();
            first.map(|first| (first, scores))
        });
        self.metrics.decision_seconds.observe(start.elapsed().as_secs_f64());
        match picked {
            Ok((Some(index), scores)) => {
                let member = &pool.members[index];
                self.metrics.picked.inc();
                Ok(Pick {
                    destination: Arc::clone(&member.destination),
                    guard: self.store.begin(member.slot),
                    scores,
                })
            }
            // A schedule never succeeds empty; were it ever to, no endpoint is the true answer.
            Ok((None, _)) => Err(rejection::of(Refusal::NoEndpoints)),
            Err(refusal) => Err(rejection::of(refusal)),
        }
    }
}

/// A random UUID (version 4) for a request that came without an id.
fn new_request_id() -> String {
    let bits: u128 = DESK.with_borrow_mut(|desk| desk.rng.random());
    let bits = bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
