//! One ext_proc stream as a hand-written `Stream`: no task and no channel per request.
//!
//! Decides the order of work (replies that are due go out first, then the gateway is read) and how long
//! a request stays counted at its endpoint. The stream is read as long as it lives, so an abort is seen
//! at once and ends what the request holds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::Stream;
use tonic::{Code, Status, Streaming};

use super::Picking;
use super::session::{Action, Event, Rejection, Session};
use super::wire::{self, Mutations};
use crate::store::InFlight;

/// The answers to one HTTP request; dropping it gives back what the request holds.
pub struct ProcessStream {
    picking: Picking,
    inbound: Streaming<ProcessingRequest>,
    session: Session,
    mutations: Mutations,
    declared: bool,
    replies: VecDeque<ProcessingResponse>,
    actions: Vec<Action>,
    sent: Option<Sent>,
    closing: bool,
    failure: Option<Status>,
}

/// Where the request went, and its count there.
struct Sent {
    destination: Arc<str>,
    guard: InFlight,
}

impl ProcessStream {
    pub(super) fn new(picking: Picking, inbound: Streaming<ProcessingRequest>) -> Self {
        picking.metrics.streams.inc();
        let session = Session::new(picking.max_body);
        Self {
            picking,
            inbound,
            session,
            mutations: Mutations::default(),
            declared: false,
            replies: VecDeque::new(),
            actions: Vec::new(),
            sent: None,
            closing: false,
            failure: None,
        }
    }

    fn on_message(&mut self, message: ProcessingRequest) {
        let Ok(decoded) = wire::decode(message) else {
            return self.with_session(|session, actions| session.no_header_map(actions));
        };
        if !std::mem::replace(&mut self.declared, true) {
            self.session.declare(decoded.declared.unwrap_or_default(), decoded.silent);
        }
        if let Some(head) = decoded.head {
            self.mutations = Mutations { forged: head.forged, ..Mutations::default() };
        }
        if let Some(served) = decoded.served {
            self.move_guard(&served);
        }
        if let Some(event) = decoded.event {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        self.with_session(|session, actions| session.on(event, actions));
    }

    /// Lets the session speak and carries out what it asks for, in order; a pick may ask for more.
    fn with_session(&mut self, speak: impl FnOnce(&mut Session, &mut Vec<Action>)) {
        let mut actions = std::mem::take(&mut self.actions);
        speak(&mut self.session, &mut actions);
        let mut next = 0;
        while next < actions.len() {
            match std::mem::replace(&mut actions[next], Action::Complete) {
                Action::Pick => {
                    let decision = self.pick();
                    self.session.decided(decision, &mut actions);
                }
                Action::Reply(reply) => {
                    self.replies.push_back(wire::encode(reply, &mut self.mutations));
                }
                Action::Complete => self.sent = None,
                Action::Close => self.closing = true,
            }
            next += 1;
        }
        actions.clear();
        self.actions = actions;
    }

    fn pick(&mut self) -> Result<Arc<str>, Rejection> {
        let pick = self.picking.pick()?;
        let destination = Arc::clone(&pick.destination);
        self.mutations.scores = pick.scores;
        self.sent = Some(Sent { destination: pick.destination, guard: pick.guard });
        Ok(destination)
    }

    /// The gateway says that another endpoint served (a retry, a fallback): the request counts there.
    fn move_guard(&mut self, served: &str) {
        let Some(sent) = self.sent.as_mut().filter(|sent| *sent.destination != *served) else {
            return;
        };
        let pool = self.picking.store.pool();
        if let Some(member) = pool.members.iter().find(|member| *member.destination == *served) {
            sent.guard = self.picking.store.begin(member.slot);
            sent.destination = Arc::clone(&member.destination);
        }
    }

    /// The gateway reset the stream, which is also its normal end, or sent what cannot be read. The
    /// second must not look like a clean end: the gateway would forward an empty body.
    fn on_broken(&mut self, status: Status) {
        if status.code() == Code::OutOfRange && !self.session.is_dispatched() {
            self.with_session(|session, actions| session.too_large(actions));
        } else {
            self.closing = true;
            self.failure = Some(status);
        }
    }

    /// A fault of ours costs this stream: 500 while the client has nothing yet, else an error that
    /// makes the gateway cut both sides.
    fn on_panic(&mut self) {
        self.picking.metrics.panics.inc();
        self.closing = true;
        self.actions = Vec::new();
        if self.session.is_dispatched() {
            self.failure = Some(Status::internal("a fault of the endpoint picker"));
        } else {
            self.replies.clear();
            self.with_session(|session, actions| session.fault(actions));
        }
    }
}

impl Stream for ProcessStream {
    type Item = Result<ProcessingResponse, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(reply) = this.replies.pop_front() {
                return Poll::Ready(Some(Ok(reply)));
            }
            if this.closing {
                return Poll::Ready(this.failure.take().map(Err));
            }
            match ready!(Pin::new(&mut this.inbound).poll_next(cx)) {
                Some(Ok(message)) => {
                    // Whatever state the fault leaves behind ends with this stream.
                    if catch_unwind(AssertUnwindSafe(|| this.on_message(message))).is_err() {
                        this.on_panic();
                    }
                }
                Some(Err(status)) => this.on_broken(status),
                // The gateway ended the exchange, or its client went away while we held the request.
                None => return Poll::Ready(None),
            }
        }
    }
}

impl Drop for ProcessStream {
    fn drop(&mut self) {
        self.picking.metrics.streams.dec();
        let Some(sent) = self.sent.take() else { return };
        if self.session.sees_response_end() {
            return;
        }
        // The gateway resets such a stream at dispatch, when the endpoint has only begun. The count
        // stays until scrapes show the request.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let linger = self.picking.linger;
            runtime.spawn(async move {
                tokio::time::sleep(linger).await;
                drop(sent.guard);
            });
        }
    }
}
