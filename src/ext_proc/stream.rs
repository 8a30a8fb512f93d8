//! One ext_proc stream as a hand-written `Stream`: no task and no channel per request.
//!
//! Decides only the order of work: replies that are due go out first, then the gateway is read. The
//! stream is read as long as it lives, so an abort is seen at once and ends what the request holds.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingRequest, ProcessingResponse};
use futures_util::Stream;
use tonic::{Code, Status, Streaming};

use super::Picking;
use super::session::{Action, Session};
use super::wire::{self, Forged};
use crate::store::InFlight;

/// The answers to one HTTP request; dropping it gives back what the request holds.
pub struct ProcessStream {
    picking: Picking,
    inbound: Streaming<ProcessingRequest>,
    session: Session,
    forged: Forged,
    declared: bool,
    replies: VecDeque<ProcessingResponse>,
    actions: Vec<Action>,
    guard: Option<InFlight>,
    closing: bool,
    failure: Option<Status>,
}

impl ProcessStream {
    pub(super) fn new(picking: Picking, inbound: Streaming<ProcessingRequest>) -> Self {
        picking.metrics.streams.inc();
        let session = Session::new(picking.max_body);
        Self {
            picking,
            inbound,
            session,
            forged: Forged::default(),
            declared: false,
            replies: VecDeque::new(),
            actions: Vec::new(),
            guard: None,
            closing: false,
            failure: None,
        }
    }

    fn on_message(&mut self, message: ProcessingRequest) {
        let decoded = wire::decode(message);
        if !std::mem::replace(&mut self.declared, true) {
            self.session.declare(decoded.declared.unwrap_or_default(), decoded.silent);
        }
        self.forged =
            if decoded.forged == Forged::default() { self.forged } else { decoded.forged };
        if let Some(event) = decoded.event {
            let mut actions = std::mem::take(&mut self.actions);
            self.session.on(event, &mut actions);
            self.perform(&mut actions);
            self.actions = actions;
        }
    }

    /// The gateway reset the stream, which is also its normal end, or sent what cannot be read. The
    /// second must not look like a clean end: the gateway would forward an empty body.
    fn on_broken(&mut self, status: Status) {
        self.closing = true;
        if status.code() == Code::OutOfRange {
            let mut actions = Vec::new();
            self.session.too_large(&mut actions);
            self.perform(&mut actions);
        } else {
            self.failure = Some(status);
        }
    }

    /// Carries out the actions in order; a pick may append more.
    fn perform(&mut self, actions: &mut Vec<Action>) {
        let mut next = 0;
        while next < actions.len() {
            match std::mem::replace(&mut actions[next], Action::Complete) {
                Action::Pick => {
                    let decision = self.picking.pick().map(|pick| {
                        self.guard = Some(pick.guard);
                        pick.destination
                    });
                    self.session.decided(decision, actions);
                }
                Action::Reply(reply) => self.replies.push_back(wire::encode(reply, self.forged)),
                Action::Complete => self.guard = None,
                Action::Close => self.closing = true,
            }
            next += 1;
        }
        actions.clear();
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
                Some(Ok(message)) => this.on_message(message),
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
    }
}
