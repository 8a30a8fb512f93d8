//! The session against the order in which Envoy 1.40 speaks and listens, as it was measured.
//!
//! [`Envoy`] plays the gateway: it sends only what Envoy sends in the mode at hand, waits where Envoy
//! waits, and takes an answer only where Envoy takes it; anything else it would answer with 500, hang,
//! or pass on an empty body. Sizes are bytes.

use std::collections::VecDeque;

use super::*;

/// What Envoy waits for, direction by direction.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Awaited {
    Headers,
    /// In modes with one answer for each message.
    Body,
    Trailers,
}

/// One direction of the exchange.
#[derive(Debug)]
struct Side {
    mode: BodyMode,
    awaited: VecDeque<Awaited>,
    sent: Vec<u8>,
    passed: Vec<u8>,
    /// An end of stream went in, and came out.
    ended: [bool; 2],
    /// Nothing more goes in but trailers.
    complete: bool,
    /// Some of the body went in.
    shown: bool,
}

impl Side {
    fn new(mode: BodyMode) -> Self {
        let (sent, passed) = (Vec::new(), Vec::new());
        let awaited = VecDeque::new();
        Self { mode, awaited, sent, passed, ended: [false; 2], complete: false, shown: false }
    }

    fn is_full_duplex(&self) -> bool {
        self.mode == BodyMode::FullDuplex
    }

    fn sends(&mut self, chunk: &Chunk) {
        if self.is_full_duplex() {
            self.sent.extend(&chunk.bytes);
        } else {
            self.awaited.push_back(Awaited::Body);
        }
        self.ended[0] |= chunk.end;
        self.shown = true;
        // One message is all of a BUFFERED body, trailers or not.
        self.complete |= chunk.end || self.mode == BodyMode::Buffered;
    }

    fn answered(&mut self, what: Awaited) {
        assert_eq!(self.awaited.pop_front(), Some(what), "spurious message");
        if what == Awaited::Trailers {
            assert!(self.passed == self.sent, "trailers before the body");
        }
    }

    fn piece(&mut self, chunk: &Chunk) {
        assert!(self.is_full_duplex(), "a piece in {:?}", self.mode);
        assert!(!self.awaited.contains(&Awaited::Headers), "a body before the headers");
        assert!(!self.ended[1], "a piece behind the end");
        assert!(chunk.bytes.len() <= 62_000, "a piece of {}", chunk.bytes.len());
        self.passed.extend(&chunk.bytes);
        self.ended[1] = chunk.end;
    }

    /// Everything that went in has come out.
    fn is_settled(&self) -> bool {
        self.awaited.is_empty() && self.passed == self.sent && self.ended[0] == self.ended[1]
            || !self.is_full_duplex() && self.awaited.is_empty()
    }
}

/// The gateway and what became of one request.
struct Envoy {
    session: Session,
    pick: Result<Arc<str>, Rejection>,
    request: Side,
    response: Side,
    /// Answered on the headers: nothing is held from then on.
    passing: bool,
    destinations: usize,
    refusals: usize,
    completions: usize,
    closed: bool,
    /// Envoy answered by itself; the request goes nowhere.
    local: bool,
}

impl Envoy {
    fn new(modes: Modes, pick: Result<Arc<str>, Rejection>) -> Self {
        let mut session = Session::new(1 << 20);
        session.declare(modes, false);
        Self {
            session,
            pick,
            request: Side::new(modes.request),
            response: Side::new(modes.response),
            passing: false,
            destinations: 0,
            refusals: 0,
            completions: 0,
            closed: false,
            local: false,
        }
    }

    fn say(&mut self, event: Event) {
        if self.closed {
            return;
        }
        match &event {
            Event::RequestHeaders(head) => {
                self.request.awaited.push_back(Awaited::Headers);
                self.request.complete = head.end;
                let held = matches!(
                    self.request.mode,
                    BodyMode::FullDuplex | BodyMode::Buffered | BodyMode::BufferedPartial
                );
                self.passing = head.end || head.upgrade || !held;
            }
            Event::RequestBody(chunk) => self.request.sends(chunk),
            Event::RequestTrailers => {
                self.request.awaited.push_back(Awaited::Trailers);
                self.request.complete = true;
            }
            Event::ResponseHeaders { end } => {
                self.response.awaited.push_back(Awaited::Headers);
                self.response.complete = *end;
            }
            Event::ResponseBody(chunk) => self.response.sends(chunk),
            Event::ResponseTrailers => {
                self.response.awaited.push_back(Awaited::Trailers);
                self.response.complete = true;
            }
        }
        let mut actions = Vec::new();
        self.session.on(event, &mut actions);
        let mut next = 0;
        while next < actions.len() {
            match actions[next].clone() {
                Action::Pick => self.session.decided(self.pick.clone(), &mut actions),
                Action::Reply(reply) => self.hear(reply),
                Action::Complete => self.completions += 1,
                Action::Close => {
                    assert_eq!(self.refusals, 1, "ended without an answer");
                    self.closed = true;
                }
            }
            next += 1;
        }
        self.check();
    }

    fn hear(&mut self, reply: Reply) {
        assert!(!self.closed && self.refusals == 0, "an answer behind the last: {reply:?}");
        let mut steered = None;
        match reply {
            Reply::RequestHeaders(destination) => {
                self.request.answered(Awaited::Headers);
                steered = destination;
            }
            Reply::RequestPiece(chunk) => self.request.piece(&chunk),
            Reply::RequestBody(reply) => {
                assert!(!self.request.is_full_duplex(), "a body replaced in full duplex");
                self.request.answered(Awaited::Body);
                assert_eq!(reply.body, None);
                steered = reply.destination;
            }
            Reply::RequestTrailers => self.request.answered(Awaited::Trailers),
            Reply::ResponseHeaders => self.response.answered(Awaited::Headers),
            Reply::ResponsePiece(chunk) => self.response.piece(&chunk),
            Reply::ResponseBody(edit) => {
                assert!(!self.response.is_full_duplex(), "a body replaced in full duplex");
                self.response.answered(Awaited::Body);
                assert_eq!(edit, Edit::Keep);
            }
            Reply::ResponseTrailers => self.response.answered(Awaited::Trailers),
            Reply::Immediate(_) => self.refusals += 1,
        }
        if steered.is_some() {
            assert!(!self.local, "a request that is answered goes nowhere");
            self.destinations += 1;
        }
    }

    fn is_undecided(&self) -> bool {
        self.destinations == 0 && !self.closed
    }

    /// What must hold whenever the session has nothing more to say.
    fn check(&self) {
        if self.refusals == 1 {
            assert!(self.closed && self.pick.is_err() && self.completions == 1);
            return;
        }
        assert!(self.response.is_settled(), "a response is held: {:?}", self.response);
        let due = self.request.complete || self.passing || !self.request.is_full_duplex();
        assert!(self.local || !due || self.request.is_settled(), "{:?}", self.request);
        let partial = self.request.mode == BodyMode::BufferedPartial && self.request.shown;
        let begun = self.request.complete || self.passing || partial;
        assert_eq!(self.destinations, usize::from(begun && !self.local), "{:?}", self.request);
        assert!(self.completions <= usize::from(self.response.complete));
    }
}

/// How a body ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Finish {
    OnData,
    /// HTTP/1 puts the end on an empty chunk.
    OnEmpty,
    Trailers,
}

/// What goes wrong, before the request message of this index or instead of what would follow.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Well,
    /// Envoy resets the stream.
    Abort(usize),
    /// Envoy answers by itself, an idle timeout for one, and sends no more of the request.
    LocalReply(usize),
}

#[derive(Debug, Clone)]
struct Exchange {
    modes: Modes,
    /// `None`: no body.
    request: Option<(Vec<usize>, Finish)>,
    upgrade: bool,
    response: Option<(Vec<usize>, Finish)>,
    picked: bool,
    /// Envoy repeats the last chunk of some bodies.
    repeated: bool,
    /// The response begins after so many request messages, where it may.
    early: usize,
    fate: Fate,
}

fn chunk(bytes: usize, end: bool) -> Chunk {
    Chunk { bytes: vec![b'x'; bytes], end }
}

/// A body as the mode shows it.
fn messages(
    mode: BodyMode,
    (sizes, finish): &(Vec<usize>, Finish),
    body: fn(Chunk) -> Event,
    trailers: Event,
) -> Vec<Event> {
    let all: usize = sizes.iter().sum();
    let mut events = match mode {
        BodyMode::None | BodyMode::Grpc => Vec::new(),
        BodyMode::Buffered => vec![body(chunk(all, *finish != Finish::Trailers))],
        // The part that fitted is not the end.
        BodyMode::BufferedPartial => vec![body(chunk(all, *finish == Finish::OnData))],
        BodyMode::Streamed | BodyMode::FullDuplex => {
            let last = sizes.len() - 1;
            let ends = |index| *finish == Finish::OnData && index == last;
            let mut chunks: Vec<_> =
                sizes.iter().enumerate().map(|(i, size)| body(chunk(*size, ends(i)))).collect();
            if *finish == Finish::OnEmpty {
                chunks.push(body(chunk(0, true)));
            }
            chunks
        }
    };
    if *finish == Finish::Trailers {
        events.push(trailers);
    }
    events
}

impl Exchange {
    fn request_events(&self) -> Vec<Event> {
        let head = Head { end: self.request.is_none(), upgrade: self.upgrade };
        let mut events = vec![Event::RequestHeaders(head)];
        if let Some(body) = &self.request {
            events.extend(messages(
                self.modes.request,
                body,
                Event::RequestBody,
                Event::RequestTrailers,
            ));
        }
        events
    }

    fn response_events(&self) -> Vec<Event> {
        let mut events = vec![Event::ResponseHeaders { end: self.response.is_none() }];
        if let Some(body) = &self.response {
            events.extend(messages(
                self.modes.response,
                body,
                Event::ResponseBody,
                Event::ResponseTrailers,
            ));
        }
        events
    }

    fn play(&self) {
        let pick = if self.picked { Ok(destination()) } else { Err(refusal()) };
        let mut envoy = Envoy::new(self.modes, pick);
        let mut response = VecDeque::from(self.response_events());
        for (index, event) in self.request_events().into_iter().enumerate() {
            match self.fate {
                Fate::Abort(at) if at == index => return,
                // Only while nothing was sent on; later it would be the endpoint's answer that counts.
                Fate::LocalReply(at) if at == index && index > 0 && envoy.is_undecided() => {
                    envoy.local = true;
                    break;
                }
                _ => {}
            }
            if envoy.destinations == 1 && index > self.early {
                // An endpoint may answer before it has read all.
                response.pop_front().into_iter().for_each(|event| envoy.say(event));
            }
            let last = matches!(&event, Event::RequestBody(chunk) if chunk.end);
            envoy.say(event.clone());
            if last && self.repeated && envoy.request.is_full_duplex() {
                let mut actions = Vec::new();
                envoy.session.on(event, &mut actions);
                assert_eq!(actions, []);
            }
        }
        if envoy.destinations == 1 || envoy.local {
            response.into_iter().for_each(|event| envoy.say(event));
            let ended = usize::from(envoy.response.complete);
            assert_eq!(envoy.completions, ended, "{:?}", envoy.response);
        }
        assert_eq!(envoy.refusals, usize::from(!self.picked && !envoy.local));
    }
}

fn any_mode() -> impl Strategy<Value = BodyMode> {
    prop_oneof![
        3 => Just(BodyMode::FullDuplex),
        1 => Just(BodyMode::Streamed),
        1 => Just(BodyMode::Buffered),
        1 => Just(BodyMode::BufferedPartial),
        1 => Just(BodyMode::None),
    ]
}

fn any_body() -> impl Strategy<Value = Option<(Vec<usize>, Finish)>> {
    let size = prop_oneof![Just(0_usize), 1_usize..200, 60_000_usize..130_000];
    let finish = prop_oneof![Just(Finish::OnData), Just(Finish::OnEmpty), Just(Finish::Trailers)];
    prop::option::weighted(0.85, (prop::collection::vec(size, 1..5), finish))
}

fn any_exchange() -> impl Strategy<Value = Exchange> {
    let fate = prop_oneof![
        2 => Just(Fate::Well),
        1 => (0_usize..6).prop_map(Fate::Abort),
        1 => (0_usize..6).prop_map(Fate::LocalReply),
    ];
    let chance = (prop::bool::weighted(0.2), prop::bool::weighted(0.8), any::<bool>());
    (any_mode(), any_mode(), any_body(), any_body(), chance, 0_usize..6, fate).prop_map(
        |(
            request_mode,
            response_mode,
            request,
            response,
            (upgrade, picked, repeated),
            early,
            fate,
        )| {
            // A tunnel has no end to buffer for.
            let streams = matches!(request_mode, BodyMode::FullDuplex | BodyMode::Streamed);
            let upgrade = upgrade && streams && request.is_some();
            let modes = Modes { request: request_mode, response: response_mode };
            Exchange { modes, request, upgrade, response, picked, repeated, early, fate }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: fixed_seed().cases * 8, ..fixed_seed() })]

    /// In every mode of both directions, with trailers, local replies during a hold, early answers,
    /// repeated ends and aborts: each message that needs an answer gets exactly one, in order and before
    /// the next phase; bodies come out whole and ended once; a destination is told once, with the
    /// request's end at the latest; the count ends once; no stream ends without an answer.
    ///
    /// Mutants: pieces before the headers; an end before trailers; trailers, a STREAMED chunk or a local
    /// reply unanswered; a repeated end picked again; `Close` without a refusal; `Complete` never or
    /// twice; a response chunk held.
    #[test]
    fn every_exchange_that_envoy_can_have_is_answered(exchange in any_exchange()) {
        exchange.play();
    }
}
