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

use futures_util::Stream;
use tonic::{Code, Status, Streaming};

use super::Picking;
use super::head::ResponseFacts;
use super::message::{ProcessingRequest, ProcessingResponse};
use super::rejection::{self, Rejection};
use super::request_side::RequestSide;
use super::session::{Action, Chunk, Event, Reply, Session};
use super::wire::{self, Mutations};
use crate::response::{ResponseHead, ResponseReader, Restore};
use crate::routing::subset::Subset;
use crate::store::InFlight;

/// The answers to one HTTP request; dropping it gives back what the request holds.
pub(super) struct ProcessStream {
    picking: Arc<Picking>,
    inbound: Streaming<ProcessingRequest>,
    session: Session,
    mutations: Mutations,
    declared: bool,
    replies: VecDeque<ProcessingResponse>,
    actions: Vec<Action>,
    sent: Option<Sent>,
    subset: Option<Subset>,
    request: RequestSide,
    /// What a response says instead of the model that served.
    restore: Option<Restore>,
    /// Held bytes of this request that are in the sum of all.
    accounted: usize,
    /// Reads the response while it passes; none before its headers.
    response: Option<ResponseReader>,
    closing: bool,
    failure: Option<Status>,
}

/// Where the request went, and its count there.
struct Sent {
    destination: Arc<str>,
    guard: InFlight,
}

impl ProcessStream {
    pub(super) fn new(picking: Arc<Picking>, inbound: Streaming<ProcessingRequest>) -> Self {
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
            subset: None,
            request: RequestSide::default(),
            restore: None,
            accounted: 0,
            response: None,
            closing: false,
            failure: None,
        }
    }

    fn on_message(&mut self, message: ProcessingRequest) {
        let Ok(decoded) = wire::decode(message) else {
            let no = rejection::no_header_map();
            return self.with_session(|session, actions| session.refuse(no, actions));
        };
        if !std::mem::replace(&mut self.declared, true) {
            self.session.declare(decoded.declared.unwrap_or_default(), decoded.silent);
        }
        if let Some(head) = decoded.head.filter(|_| !self.session.has_begun()) {
            let request_id = (!head.has_request_id).then(super::new_request_id);
            self.mutations = Mutations { forged: head.forged, request_id, ..Mutations::default() };
            self.request = RequestSide::new(head, self.picking.max_body);
        }
        if let Some(subset) = Subset::from_hint(&decoded.hint)
            && !self.picking.options.disable_subset_filter
        {
            // Of several hints before the pick the newest counts; later ones concern nobody.
            self.subset = Some(subset);
        }
        if let Some(served) = decoded.served {
            self.move_guard(&served);
        }
        if let Some(facts) = decoded.response {
            let restore = self.restore.take();
            self.response.get_or_insert_with(|| reader(&facts, restore));
        }
        if let Some(event) = decoded.event {
            if event == Event::ResponseTrailers {
                self.flush_response();
            }
            match self.read(event) {
                Ok(event) => self.with_session(|session, actions| session.on(event, actions)),
                Err(no) => self.with_session(|session, actions| session.refuse(no, actions)),
            }
            self.account();
        }
    }

    /// Lets the readers see a body on its way through.
    fn read(&mut self, event: Event) -> Result<Event, Rejection> {
        match (&event, self.response.as_mut()) {
            (Event::RequestBody(chunk), _) if self.session.is_collecting() => {
                let limit = self.picking.max_body;
                self.request.feed(&chunk.bytes).map_err(|error| rejection::body(&error, limit))?;
            }
            (Event::ResponseBody(_), Some(reader)) => {
                let Event::ResponseBody(chunk) = event else { return Ok(event) };
                let last = chunk.end || self.session.shows_response_once();
                let bytes = reader.feed(chunk.bytes, last);
                return Ok(Event::ResponseBody(Chunk { bytes, end: chunk.end }));
            }
            _ => {}
        }
        Ok(event)
    }

    /// Trailers end a response: what a restored name may still be waiting for goes out before them.
    fn flush_response(&mut self) {
        let Some(reader) = self.response.as_mut().filter(|_| !self.session.shows_response_once())
        else {
            return;
        };
        let bytes = reader.feed(Vec::new(), true);
        // Where each chunk has one answer, the rest of a string that never ended has no place any more.
        if !bytes.is_empty() && self.session.adds_to_responses() {
            let rest = Event::ResponseBody(Chunk { bytes, end: false });
            self.with_session(|session, actions| session.on(rest, actions));
        }
    }

    /// Keeps the sum of all held bodies, and refuses the request that makes it too large.
    fn account(&mut self) {
        let held = self.session.held_bytes();
        let total = self.picking.held.replace(self.accounted, held);
        self.accounted = held;
        if held > 0 && total > self.picking.max_held {
            let no = rejection::held_too_much(self.picking.max_held);
            self.with_session(|session, actions| session.refuse(no, actions));
            self.picking.held.replace(held, 0);
            self.accounted = 0;
        }
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
                    if let Reply::Immediate(rejection) = &reply {
                        self.picking.metrics.refused(rejection.details);
                    }
                    self.replies.push_back(wire::encode(reply, &mut self.mutations));
                }
                Action::Complete => self.complete(),
                Action::Close => self.closing = true,
            }
            next += 1;
        }
        actions.clear();
        self.actions = actions;
    }

    /// The exchange is over: its count ends, what the response said of itself is added up.
    fn complete(&mut self) {
        self.sent = None;
        if let Some(reader) = self.response.take() {
            self.picking.metrics.response(&reader);
        }
    }

    fn pick(&mut self) -> Result<Arc<str>, Rejection> {
        // One policy decides the whole request, model and endpoint.
        let policy = self.picking.policy.load();
        let restore = self.picking.understand(&policy, &mut self.request, &mut self.session)?;
        if self.request.if_available() {
            return Err(rejection::not_cached());
        }
        let pick = self.picking.pick(&policy, self.subset.as_ref())?;
        if restore.is_some() {
            self.session.restore_responses();
        }
        self.restore = restore;
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
            let no = rejection::too_large(self.picking.max_body);
            self.with_session(|session, actions| session.refuse(no, actions));
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

fn reader(facts: &ResponseFacts, restore: Option<Restore>) -> ResponseReader {
    let head = ResponseHead {
        content_type: facts.content_type.as_deref(),
        content_encoding: facts.content_encoding.as_deref(),
        status: facts.status,
    };
    ResponseReader::new(head, restore)
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
        self.picking.held.replace(self.accounted, 0);
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
