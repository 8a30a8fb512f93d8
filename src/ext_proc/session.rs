//! The protocol of one ext_proc stream, without I/O: one event in, actions out.
//!
//! Decides when a request is picked, what is answered to each message, and that each is answered
//! once, in order, in the framing that the gateway declared. Knows no proto type. Sizes are bytes.
//!
//! ```text
//! Start --headers--> Collecting --end of body--> Picking --decided--> Done
//!            \--no body, upgrade, STREAMED, NONE--> Picking --decided--> Passing --end--> Done
//! ```
//!
//! Where [`Session::may_wait`] says so, a request may stay in Picking for as long as the driver likes,
//! while events go on to come in.

mod modes;

use std::sync::Arc;

use super::rejection::{self, Rejection};

pub use modes::{BodyMode, Modes};

/// Facts of the request headers that the protocol turns on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Head {
    /// No body follows.
    pub end: bool,
    /// An HTTP/1 upgrade or CONNECT: the body is a tunnel and has no end to wait for.
    pub upgrade: bool,
}

/// One message of the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Request headers.
    RequestHeaders(Head),
    /// A piece of the request body.
    RequestBody(Chunk),
    /// Request trailers, which also end the body.
    RequestTrailers,
    /// Response headers; `end` when no body follows.
    ResponseHeaders {
        /// No body follows.
        end: bool,
    },
    /// A piece of the response body.
    ResponseBody(Chunk),
    /// Response trailers, which also end the body.
    ResponseTrailers,
}

/// A piece of a body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// The bytes as they came.
    pub bytes: Vec<u8>,
    /// Nothing follows but trailers.
    pub end: bool,
}

/// What goes with the answer to a request body that is not full duplex.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BodyReply {
    /// The destination, where the pick had to wait for the body.
    pub destination: Option<Arc<str>>,
    /// The whole body anew, where it was edited.
    pub body: Option<Vec<u8>>,
}

/// What becomes of a response body that is not full duplex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It passes as it is.
    Keep,
    /// This chunk, or part, of it goes out as these bytes; more may follow.
    Part(Vec<u8>),
    /// All of it goes out as these bytes, of which the length is stated.
    Whole(Vec<u8>),
}

/// An answer to the gateway.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To request headers; with the destination where the pick is already made.
    RequestHeaders(Option<Arc<str>>),
    /// To a full-duplex request body: a piece of it, passed on.
    RequestPiece(Chunk),
    /// To a request body in any other mode: passed on as it is, or replaced.
    RequestBody(BodyReply),
    /// To request trailers.
    RequestTrailers,
    /// To response headers.
    ResponseHeaders,
    /// To a full-duplex response body: a piece of it, passed on.
    ResponsePiece(Chunk),
    /// To a response body in any other mode.
    ResponseBody(Edit),
    /// To response trailers.
    ResponseTrailers,
    /// Ends the request with a response of ours.
    Immediate(Rejection),
}

/// What to do next, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Choose an endpoint and tell [`Session::decided`]: before any later event, unless the request may
    /// wait and is [`resumed`](Session::resume) later.
    Pick,
    /// Send this.
    Reply(Reply),
    /// The exchange is complete: what was reserved for it ends now.
    Complete,
    /// Nothing more will be said: end the stream once the replies are out.
    Close,
}

/// Largest piece of a body in one answer, as upstream cuts it.
pub const MAX_PIECE: usize = 62_000;

/// Held pieces are joined up to this size.
const JOINED: usize = 8 << 10;

/// Where the request stands.
#[derive(Debug, Default)]
enum Request {
    #[default]
    Start,
    /// Body pieces are held until the body ends.
    Collecting,
    /// The decision is out.
    Picking(Ending),
    /// Decided on the headers; the body passes through.
    Passing,
    Done,
}

/// What made the pick due, and so what is answered with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Headers {
        body_follows: bool,
    },
    /// `whole` is false for the part of a BUFFERED_PARTIAL body that fitted.
    Body {
        whole: bool,
    },
    Trailers,
}

/// The protocol machine of one stream.
#[derive(Debug, Default)]
pub struct Session {
    modes: Modes,
    silent: bool,
    max_body: usize,
    request: Request,
    held: Vec<Vec<u8>>,
    held_bytes: usize,
    /// The held body is not what came in.
    edited: bool,
    trailers_answered: bool,
    response_trailers_answered: bool,
    /// Response bodies go out as the driver hands them in, not as the gateway has them.
    restoring: bool,
    response_begun: bool,
    response_done: bool,
    closed: bool,
}

impl Session {
    /// A new stream. A request body over `max_body` bytes is refused with 413.
    pub fn new(max_body: usize) -> Self {
        Self { max_body, ..Self::default() }
    }

    /// What the first message declared: body modes, and whether everything is only read
    /// (`observability_mode`).
    pub fn declare(&mut self, modes: Modes, silent: bool) {
        self.modes = modes;
        self.silent = silent;
    }

    /// Bytes of the request body that are held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Refuses the request, whatever was held of it, for a reason that only the driver knows.
    pub fn refuse(&mut self, rejection: Rejection, actions: &mut Vec<Action>) {
        if !self.closed && !self.silent {
            self.reject(rejection, actions);
        }
    }

    /// Whether request headers have come.
    pub fn has_begun(&self) -> bool {
        !matches!(self.request, Request::Start)
    }

    /// Whether the request body is being collected for a decision.
    pub fn is_collecting(&self) -> bool {
        matches!(self.request, Request::Collecting)
    }

    /// The held request body, to be edited between [`Action::Pick`] and [`Session::decided`]. A
    /// BUFFERED_PARTIAL body may be only a part; see [`Session::has_whole_body`].
    pub fn edit(&mut self) -> &mut Vec<Vec<u8>> {
        self.edited = true;
        &mut self.held
    }

    /// From now on response bodies are edited before they come in here.
    pub fn restore_responses(&mut self) {
        self.restoring = true;
    }

    /// Whether all of the request body was seen when the pick became due.
    pub fn has_whole_body(&self) -> bool {
        matches!(self.request, Request::Picking(Ending::Body { whole: true } | Ending::Trailers))
    }

    /// Whether an answer may say more of a response than it was asked for, as only full duplex allows.
    pub fn adds_to_responses(&self) -> bool {
        self.modes.response == BodyMode::FullDuplex
    }

    /// Whether the gateway shows a response body in one message only, whatever follows it.
    pub fn shows_response_once(&self) -> bool {
        matches!(self.modes.response, BodyMode::Buffered | BodyMode::BufferedPartial)
    }

    /// Whether the gateway keeps the stream until the response ended. Without a response body it resets
    /// the stream at dispatch or at the response headers, long before the endpoint is done.
    pub fn sees_response_end(&self) -> bool {
        self.response_done || self.modes.response != BodyMode::None
    }

    /// Whether response bodies are shown as they come.
    pub fn sees_response_body(&self) -> bool {
        matches!(self.modes.response, BodyMode::FullDuplex | BodyMode::Streamed)
    }

    /// Takes one message and appends what it asks for.
    pub fn on(&mut self, event: Event, actions: &mut Vec<Action>) {
        if self.closed || self.silent {
            return;
        }
        match event {
            Event::RequestHeaders(head) => self.on_request_headers(head, actions),
            Event::RequestBody(chunk) => self.on_request_body(chunk, actions),
            Event::RequestTrailers => self.on_request_trailers(actions),
            Event::ResponseHeaders { end } => self.on_response_headers(end, actions),
            Event::ResponseBody(chunk) => self.on_response_body(chunk, actions),
            Event::ResponseTrailers => {
                if !std::mem::replace(&mut self.response_trailers_answered, true) {
                    actions.push(Action::Reply(Reply::ResponseTrailers));
                }
                self.end_response(true, actions);
            }
        }
    }

    /// Whether the request has gone to an endpoint.
    pub fn is_dispatched(&self) -> bool {
        matches!(self.request, Request::Passing | Request::Done) && !self.closed
    }

    /// A fault of ours, before the request has gone anywhere.
    pub fn fault(&mut self, actions: &mut Vec<Action>) {
        self.closed = false;
        self.reject(rejection::fault(), actions);
    }

    /// Whether the pick that is due comes before the end of the body: nobody knows what is in it.
    pub fn picks_before_the_end(&self) -> bool {
        let early = [Ending::Headers { body_follows: true }, Ending::Body { whole: false }];
        matches!(&self.request, Request::Picking(ending) if early.contains(ending))
    }

    /// Whether the pick that is due may be left for later: all of the request is here, and in full duplex
    /// the gateway sets no timer for our answer. A request without a body is not worth a wait.
    pub fn may_wait(&self) -> bool {
        matches!(self.request, Request::Picking(Ending::Body { .. } | Ending::Trailers))
            && self.modes.request == BodyMode::FullDuplex
    }

    /// Whether a pick is due: it was asked for, and neither decided nor overtaken by an answer of the
    /// gateway's own.
    pub fn is_picking(&self) -> bool {
        matches!(self.request, Request::Picking(_)) && !self.closed
    }

    /// Asks for the pick of a request that waited, unless it is not wanted any more.
    pub fn resume(&mut self, actions: &mut Vec<Action>) {
        if self.is_picking() {
            actions.push(Action::Pick);
        }
    }

    /// The answer to [`Action::Pick`]: where the request goes, or why nowhere. Too late, when the gateway
    /// has answered by itself meanwhile, it only completes.
    pub fn decided(&mut self, pick: Result<Arc<str>, Rejection>, actions: &mut Vec<Action>) {
        let Request::Picking(ending) = self.request else {
            actions.push(Action::Complete);
            return;
        };
        let destination = match pick {
            Ok(destination) => destination,
            Err(rejection) => return self.reject(rejection, actions),
        };
        match ending {
            Ending::Body { .. } if self.is_buffered() => {
                let body = self.edited.then(|| self.held.concat());
                let answer = BodyReply { destination: Some(destination), body };
                actions.push(Action::Reply(Reply::RequestBody(answer)));
            }
            _ => actions.push(Action::Reply(Reply::RequestHeaders(Some(destination)))),
        }
        self.request = Request::Done;
        match ending {
            Ending::Headers { body_follows: true } => self.request = Request::Passing,
            Ending::Headers { body_follows: false } => {}
            Ending::Body { .. } if self.is_buffered() => {}
            Ending::Body { .. } => self.release_body(true, actions),
            Ending::Trailers => {
                self.release_body(false, actions);
                self.answer_trailers(actions);
            }
        }
        self.drop_body();
    }

    fn is_buffered(&self) -> bool {
        matches!(self.modes.request, BodyMode::Buffered | BodyMode::BufferedPartial)
    }

    fn on_request_headers(&mut self, head: Head, actions: &mut Vec<Action>) {
        if !matches!(self.request, Request::Start) {
            return;
        }
        if self.modes.request == BodyMode::Grpc || self.modes.response == BodyMode::Grpc {
            return self.reject(rejection::grpc_mode(), actions);
        }
        let waits = !head.end && !head.upgrade;
        match self.modes.request {
            BodyMode::FullDuplex if waits => self.request = Request::Collecting,
            BodyMode::Buffered | BodyMode::BufferedPartial if waits => {
                // The gateway sends no body before this answer.
                self.request = Request::Collecting;
                actions.push(Action::Reply(Reply::RequestHeaders(None)));
            }
            _ => self.pick(Ending::Headers { body_follows: !head.end }, actions),
        }
    }

    fn on_request_body(&mut self, chunk: Chunk, actions: &mut Vec<Action>) {
        match self.request {
            Request::Start => self.reject(rejection::out_of_order(), actions),
            Request::Collecting => {
                self.held_bytes += chunk.bytes.len();
                if self.held_bytes > self.max_body {
                    return self.reject(rejection::too_large(self.max_body), actions);
                }
                self.hold(chunk.bytes);
                if chunk.end || self.is_buffered() {
                    // A BUFFERED body before trailers is whole although it is not the end.
                    let whole = chunk.end || self.modes.request == BodyMode::Buffered;
                    self.pick(Ending::Body { whole }, actions);
                }
            }
            Request::Passing => {
                if chunk.end {
                    self.request = Request::Done;
                }
                if self.modes.request == BodyMode::FullDuplex {
                    pieces(chunk, Reply::RequestPiece, actions);
                } else {
                    actions.push(Action::Reply(Reply::RequestBody(BodyReply::default())));
                }
            }
            // Envoy repeats the last chunk of some bodies (envoy#46237): it was answered already.
            Request::Picking(_) | Request::Done => {}
        }
    }

    /// Keeps a piece of the body. Small ones are joined, or a body that trickles in byte by byte would
    /// cost many times its size; chunks of a gateway's usual size are moved, not copied.
    fn hold(&mut self, bytes: Vec<u8>) {
        match self.held.last_mut() {
            Some(last) if last.len() + bytes.len() <= JOINED => last.extend_from_slice(&bytes),
            _ if bytes.is_empty() => {}
            _ => self.held.push(bytes),
        }
    }

    fn on_request_trailers(&mut self, actions: &mut Vec<Action>) {
        match self.request {
            Request::Collecting if self.is_buffered() => self.reject(rejection::no_body(), actions),
            Request::Collecting => self.pick(Ending::Trailers, actions),
            Request::Passing | Request::Done => {
                self.request = Request::Done;
                self.answer_trailers(actions);
            }
            Request::Start => self.reject(rejection::out_of_order(), actions),
            Request::Picking(_) => {}
        }
    }

    fn pick(&mut self, ending: Ending, actions: &mut Vec<Action>) {
        self.request = Request::Picking(ending);
        actions.push(Action::Pick);
    }

    /// Sends the held body on; `end` marks its last piece, which may be empty.
    fn release_body(&mut self, end: bool, actions: &mut Vec<Action>) {
        let held = std::mem::take(&mut self.held);
        let last = held.len().checked_sub(1);
        if last.is_none() && end {
            let empty = Chunk { bytes: Vec::new(), end };
            actions.push(Action::Reply(Reply::RequestPiece(empty)));
        }
        for (index, bytes) in held.into_iter().enumerate() {
            let chunk = Chunk { bytes, end: end && Some(index) == last };
            pieces(chunk, Reply::RequestPiece, actions);
        }
    }

    fn answer_trailers(&mut self, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.trailers_answered, true) {
            actions.push(Action::Reply(Reply::RequestTrailers));
        }
    }

    fn on_response_headers(&mut self, end: bool, actions: &mut Vec<Action>) {
        if std::mem::replace(&mut self.response_begun, true) {
            return;
        }
        if matches!(self.request, Request::Collecting | Request::Picking(_)) {
            // A reply of the gateway's own, an idle timeout for one: this request goes nowhere.
            self.request = Request::Done;
            self.drop_body();
        }
        actions.push(Action::Reply(Reply::ResponseHeaders));
        self.end_response(end, actions);
    }

    fn on_response_body(&mut self, chunk: Chunk, actions: &mut Vec<Action>) {
        if self.response_done {
            return;
        }
        // A BUFFERED body before trailers is whole although it is not the end.
        let end = chunk.end || self.modes.response == BodyMode::Buffered;
        if self.modes.response == BodyMode::FullDuplex {
            pieces(chunk, Reply::ResponsePiece, actions);
        } else {
            let edit = match self.modes.response {
                _ if !self.restoring => Edit::Keep,
                BodyMode::Buffered => Edit::Whole(chunk.bytes),
                _ => Edit::Part(chunk.bytes),
            };
            actions.push(Action::Reply(Reply::ResponseBody(edit)));
        }
        self.end_response(end, actions);
    }

    fn end_response(&mut self, end: bool, actions: &mut Vec<Action>) {
        if end && !std::mem::replace(&mut self.response_done, true) {
            actions.push(Action::Complete);
        }
    }

    fn drop_body(&mut self) {
        self.held = Vec::new();
        self.held_bytes = 0;
    }

    fn reject(&mut self, rejection: Rejection, actions: &mut Vec<Action>) {
        self.closed = true;
        self.drop_body();
        actions.push(Action::Reply(Reply::Immediate(rejection)));
        actions.push(Action::Complete);
        actions.push(Action::Close);
    }
}

/// Cuts a chunk into pieces of at most [`MAX_PIECE`] bytes; only the last carries the end.
fn pieces(chunk: Chunk, reply: fn(Chunk) -> Reply, actions: &mut Vec<Action>) {
    if chunk.bytes.len() <= MAX_PIECE {
        actions.push(Action::Reply(reply(chunk)));
        return;
    }
    let last = chunk.bytes.len().div_ceil(MAX_PIECE) - 1;
    for (index, bytes) in chunk.bytes.chunks(MAX_PIECE).enumerate() {
        let piece = Chunk { bytes: bytes.to_vec(), end: chunk.end && index == last };
        actions.push(Action::Reply(reply(piece)));
    }
}

#[cfg(test)]
mod tests;
