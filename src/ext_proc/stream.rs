//! One ext_proc stream, polled for its answers: no task and no channel per request.
//!
//! Decides the order of work (replies that are due go out first, then a verdict on a request that waits
//! is carried out, then the gateway is read) and how long a request stays counted at its endpoint. The
//! stream is read as long as it lives, so an abort is seen at once and ends what the request holds.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper::body::Incoming;
use tonic::{Code, Status};

use super::Picking;
use super::frames::Inbound;
use super::head::ResponseFacts;
use super::message::{ProcessingRequest, ProcessingResponse};
use super::rejection::{self, Rejection};
use super::request_side::RequestSide;
use super::sent::Sent;
use super::session::{Action, Chunk, Event, Reply, Session};
use super::turn::Turn;
use super::wire::{self, Mutations};
use crate::flow::Verdict;
use crate::reckoning;
use crate::response::{ResponseHead, ResponseReader, Restore};
use crate::routing::{Ask, Refusal, Subset};
use crate::store::Weight;

/// The answers to one HTTP request; dropping it gives back what the request holds.
pub(super) struct ProcessStream {
    picking: Arc<Picking>,
    inbound: Inbound<Incoming>,
    session: Session,
    mutations: Mutations,
    declared: bool,
    replies: VecDeque<ProcessingResponse>,
    actions: Vec<Action>,
    sent: Option<Sent>,
    subset: Option<Subset>,
    request: RequestSide,
    turn: Turn,
    /// What a response says instead of the model that served.
    restore: Option<Restore>,
    /// Held bytes of this request that are in the sum of all.
    accounted: usize,
    /// Reads the response while it passes; none before its headers.
    response: Option<ResponseReader>,
    closing: bool,
    failure: Option<Status>,
}

impl ProcessStream {
    pub(super) fn new(picking: Arc<Picking>, inbound: Inbound<Incoming>) -> Self {
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
            turn: Turn::default(),
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
            let request_id = (!head.has_request_id).then(super::decision::new_request_id);
            self.mutations = Mutations { forged: head.forged, request_id, ..Mutations::default() };
            self.request = RequestSide::new(head, self.picking.max_body);
        }
        if let Some(subset) = Subset::from_hint(&decoded.hint)
            && !self.picking.options.disable_subset_filter
        {
            // Of several hints before the pick the newest counts; later ones concern nobody.
            self.subset = Some(subset);
        }
        if let (Some(served), Some(sent)) = (decoded.served, &mut self.sent) {
            sent.served_by(&served, &self.picking.store);
        }
        if let Some(facts) = decoded.response {
            if let Some(sent) = &mut self.sent {
                sent.answered(facts.status);
            }
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
                if let Some(sent) = self.sent.as_mut().filter(|_| !chunk.bytes.is_empty()) {
                    sent.chunk();
                }
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
        let grew = held > self.accounted;
        let total = self.picking.held.replace(self.accounted, held);
        self.accounted = held;
        if grew && total > self.picking.max_held {
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
                Action::Pick => match self.pick() {
                    Ok(Some(destination)) => self.session.decided(Ok(destination), &mut actions),
                    Ok(None) => {}
                    Err(rejection) => self.session.decided(Err(rejection), &mut actions),
                },
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
        if !self.session.is_picking() {
            self.leave();
        }
    }

    /// What waited is not wanted any more.
    fn leave(&mut self) {
        if self.turn.leave() {
            self.picking.metrics.refused(rejection::LEFT);
        }
    }

    fn on_verdict(&mut self, verdict: Verdict) {
        self.with_session(|session, actions| match verdict {
            Verdict::Dispatch => session.resume(actions),
            Verdict::Reject(reason) => session.refuse(rejection::of_wait(reason), actions),
        });
        self.account();
    }

    /// The gateway ends its side: its client went away, or it needs nothing more. Only a request that
    /// waits has not been answered; should somebody still listen, this is not to look like a clean end.
    fn on_half_close(&mut self) {
        self.closing = true;
        if self.turn.leave() {
            self.with_session(|session, actions| session.refuse(rejection::left(), actions));
        }
        self.account();
    }

    /// The exchange is over: its count ends, what the response said of itself is added up.
    fn complete(&mut self) {
        let response = self.response.take();
        if let Some(sent) = self.sent.take() {
            let usage = response.as_ref().and_then(ResponseReader::usage);
            sent.end(usage.map(|usage| usage.completion));
        }
        if let Some(response) = response {
            self.picking.metrics.response(&response);
        }
    }

    /// Where the request goes; `None` where it waits for an endpoint.
    fn pick(&mut self) -> Result<Option<Arc<str>>, Rejection> {
        // One policy decides the whole request, model and endpoint. One that waits is decided by the
        // policy of the moment when it goes on.
        let policy = self.picking.policy.load();
        let flow = self.picking.flow.as_ref().filter(|_| self.session.may_wait());
        let held = flow.is_some() && self.picking.store.pool().members.is_empty();
        if self.session.picks_before_the_end() && self.request.is_unread(&policy.rewrites) {
            self.picking.metrics.rewrite_skipped();
        }
        let restore =
            self.picking.understand(&policy, &mut self.request, &mut self.session, held)?;
        if self.request.if_available() {
            return Err(rejection::not_cached());
        }
        if restore.is_some() {
            self.session.restore_responses();
            self.restore = restore;
        }
        let ask = Ask {
            subset: self.subset.as_ref(),
            priority: policy.objectives.priority(self.request.objective()),
            prompt_tokens: self.request.prompt_tokens(),
        };
        let weight = Weight {
            tokens: ask.prompt_tokens.max(reckoning::LEAST_TOKENS),
            watched: self.request.streams() && self.session.sees_response_body(),
        };
        // What is to be held was not rewritten, so it is not picked either, whoever has joined since.
        let picked =
            if held { Err(Refusal::EmptyPool) } else { self.picking.pick(&policy, &ask, weight) };
        let pick = match (picked, flow) {
            (Ok(pick), _) => pick,
            (Err(Refusal::EmptyPool), Some(flow)) => {
                let fairness = self.request.fairness();
                self.turn.wait(flow, self.session.held_bytes(), ask.priority, fairness);
                return Ok(None);
            }
            (Err(refusal), _) => return Err(rejection::of(refusal)),
        };
        self.mutations.scores = pick.scores;
        self.sent = Some(Sent::new(pick.destination, pick.guard));
        Ok(Some(pick.told))
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
        self.turn.leave();
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

impl ProcessStream {
    /// The next answer; `None` after the last.
    ///
    /// # Errors
    /// The status that the stream is to end with, where it must not look like a clean end.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ProcessingResponse, Status>>> {
        loop {
            if let Some(reply) = self.replies.pop_front() {
                return Poll::Ready(Some(Ok(reply)));
            }
            if self.closing {
                return Poll::Ready(self.failure.take().map(Err));
            }
            // Polled before the gateway is, so that both can wake this stream.
            let event = match self.turn.poll(cx) {
                Poll::Ready(verdict) => Heard::Verdict(verdict),
                Poll::Pending => match ready!(self.inbound.poll_next(cx)) {
                    Some(Ok(message)) => Heard::Message(message),
                    Some(Err(status)) => {
                        self.on_broken(status);
                        continue;
                    }
                    None => {
                        self.on_half_close();
                        continue;
                    }
                },
            };
            // Whatever state a fault leaves behind ends with this stream.
            let carried_out = catch_unwind(AssertUnwindSafe(|| match event {
                Heard::Message(message) => self.on_message(message),
                Heard::Verdict(verdict) => self.on_verdict(verdict),
            }));
            if carried_out.is_err() {
                self.on_panic();
            }
        }
    }
}

/// What wakes a stream.
enum Heard {
    Message(ProcessingRequest),
    Verdict(Verdict),
}

#[cfg(test)]
mod tests;

impl Drop for ProcessStream {
    fn drop(&mut self) {
        self.leave();
        self.picking.metrics.streams.dec();
        self.picking.held.replace(self.accounted, 0);
        if let Some(sent) = self.sent.take() {
            let unseen = (!self.session.sees_response_end()).then_some(self.picking.linger);
            sent.cut(unseen);
        }
    }
}
