//! Scripted exchanges, and a property against the order that Envoy 1.40 accepts.

mod order;

use proptest::prelude::*;

use super::*;
use crate::fixed_seed;

const HEAD: Event = Event::RequestHeaders(Head { end: false, upgrade: false });

fn body(text: &str, end: bool) -> Event {
    Event::RequestBody(Chunk { bytes: text.as_bytes().to_vec(), end })
}

fn response(text: &str, end: bool) -> Event {
    Event::ResponseBody(Chunk { bytes: text.as_bytes().to_vec(), end })
}

fn destination() -> Arc<str> {
    "10.0.0.1:8000".into()
}

fn refusal() -> Rejection {
    Rejection { status: 503, body: "none".into(), reason: None, details: "none" }
}

/// Plays the events, answering each pick at once, and returns the answers in short form.
fn play(modes: Modes, events: Vec<Event>, pick: Result<Arc<str>, Rejection>) -> Vec<String> {
    let mut session = Session::new(200_000);
    session.declare(modes, false);
    let mut log = Vec::new();
    for event in events {
        let mut actions = Vec::new();
        session.on(event, &mut actions);
        let mut next = 0;
        while next < actions.len() {
            match actions[next].clone() {
                Action::Pick => session.decided(pick.clone(), &mut actions),
                Action::Reply(reply) => log.push(short(&reply)),
                Action::Complete => log.push("complete".into()),
                Action::Close => log.push("close".into()),
            }
            next += 1;
        }
    }
    log
}

fn short(reply: &Reply) -> String {
    let to = |d: &Option<Arc<str>>| d.as_ref().map_or("-".to_owned(), ToString::to_string);
    let piece = |c: &Chunk| format!("{}{}", c.bytes.len(), if c.end { "!" } else { "" });
    match reply {
        Reply::RequestHeaders(d) => format!("RH {}", to(d)),
        Reply::RequestPiece(c) => format!("RP {}", piece(c)),
        Reply::RequestBody(b) => format!("RB {}", to(&b.destination)),
        Reply::RequestTrailers => "RT".into(),
        Reply::ResponseHeaders => "SH".into(),
        Reply::ResponsePiece(c) => format!("SP {}", piece(c)),
        Reply::ResponseBody(Edit::Keep) => "SB".into(),
        Reply::ResponseBody(edit) => format!("SB {edit:?}"),
        Reply::ResponseTrailers => "ST".into(),
        Reply::Immediate(r) => format!("immediate {}", r.status),
    }
}

fn full_duplex(events: Vec<Event>) -> Vec<String> {
    play(Modes::default(), events, Ok(destination()))
}

/// Mutants: answering on the headers, or losing the end of the last piece.
#[test]
fn a_body_is_answered_once_it_ended_and_a_response_passes_chunk_by_chunk() {
    let events = vec![
        HEAD,
        body("{\"model\"", false),
        body(":\"m\"}", false),
        body("", true),
        Event::ResponseHeaders { end: false },
        response("data: 1\n", false),
        response("", true),
    ];
    let to = "RH 10.0.0.1:8000";
    assert_eq!(full_duplex(events), [to, "RP 13!", "SH", "SP 8", "SP 0!", "complete"]);
}

/// A body that trickles in does not cost a vector a byte; usual chunks are not copied. Mutant: a
/// vector for each.
#[test]
fn small_pieces_are_joined_while_held() {
    let mut events = vec![HEAD];
    events.extend((0..9_000).map(|_| body("x", false)));
    events.extend([body(&"y".repeat(8_000), false), body("", true)]);
    assert_eq!(full_duplex(events), ["RH 10.0.0.1:8000", "RP 8192", "RP 808", "RP 8000!"]);
}

/// Mutant: waiting for a body that never comes.
#[test]
fn header_only_requests_and_tunnels_are_answered_on_the_headers() {
    let get = Event::RequestHeaders(Head { end: true, upgrade: false });
    let headers_end = Event::ResponseHeaders { end: true };
    assert_eq!(full_duplex(vec![get, headers_end]), ["RH 10.0.0.1:8000", "SH", "complete"]);
    let upgrade = Event::RequestHeaders(Head { end: false, upgrade: true });
    assert_eq!(
        full_duplex(vec![upgrade, body("ping", false), body("pong", false)]),
        ["RH 10.0.0.1:8000", "RP 4", "RP 4"]
    );
}

/// Mutant: ignoring trailers, as the Go code does, or marking a piece as the end before them.
#[test]
fn trailers_end_the_body_and_get_their_own_answer() {
    let events = vec![HEAD, body("abc", false), Event::RequestTrailers];
    assert_eq!(full_duplex(events), ["RH 10.0.0.1:8000", "RP 3", "RT"]);
    let response =
        vec![Event::ResponseHeaders { end: false }, response("x", false), Event::ResponseTrailers];
    assert_eq!(full_duplex(response), ["SH", "SP 1", "ST", "complete"]);
}

/// U002: Envoy repeats the last chunk. Mutant: picking again.
#[test]
fn a_repeated_end_of_stream_is_idempotent() {
    let events = vec![HEAD, body("a", false), body("b", true), body("b", true), HEAD];
    assert_eq!(full_duplex(events), ["RH 10.0.0.1:8000", "RP 2!"]);
    let twice = vec![Event::ResponseHeaders { end: false }, response("", true), response("", true)];
    assert_eq!(full_duplex(twice), ["SH", "SP 0!", "complete"]);
}

/// U001: pieces of at most 62,000 bytes, bytes kept. Mutant: the limit in KiB.
#[test]
fn large_chunks_are_cut() {
    let events = vec![HEAD, body(&"x".repeat(125_000), true)];
    assert_eq!(full_duplex(events), ["RH 10.0.0.1:8000", "RP 62000", "RP 62000", "RP 1000!"]);
    assert_eq!(full_duplex(vec![HEAD, body(&"x".repeat(62_000), true)])[1], "RP 62000!");
}

/// Mutant: any mode framed as full duplex (Envoy then answers 500, or loses the body).
#[test]
fn other_modes_are_framed_as_declared() {
    let to = "10.0.0.1:8000";
    let table = [
        (
            BodyMode::Buffered,
            vec![HEAD, body("abc", true)],
            vec!["RH -".into(), format!("RB {to}")],
        ),
        (
            BodyMode::BufferedPartial,
            vec![HEAD, body("abc", false)],
            vec!["RH -".into(), format!("RB {to}")],
        ),
        (
            BodyMode::Streamed,
            vec![HEAD, body("abc", false), body("", true)],
            vec![format!("RH {to}"), "RB -".into(), "RB -".into()],
        ),
        (BodyMode::None, vec![HEAD], vec![format!("RH {to}")]),
        (
            BodyMode::Grpc,
            vec![HEAD],
            vec!["immediate 500".into(), "complete".into(), "close".into()],
        ),
    ];
    for (request, events, expected) in table {
        let modes = Modes { request, response: BodyMode::None };
        assert_eq!(play(modes, events, Ok(destination())), expected, "{request:?}");
    }
}

/// Mutants: passing the body on after a refusal, or not closing.
#[test]
fn a_refusal_is_the_last_word() {
    let events = vec![HEAD, body("abc", true), body("abc", true), Event::RequestTrailers];
    let expected = ["immediate 503", "complete", "close"];
    assert_eq!(play(Modes::default(), events, Err(refusal())), expected);
}

/// Mutant: counting after holding, or not at all.
#[test]
fn a_body_over_the_limit_is_413_as_soon_as_it_is_over() {
    let half = "x".repeat(100_000);
    let events = vec![HEAD, body(&half, false), body(&half, false), body("y", false)];
    assert_eq!(full_duplex(events), ["immediate 413", "complete", "close"]);
}

/// What a request that waits answers to `events` before its pick is asked for again.
fn while_held(modes: Modes, before: Vec<Event>, held: Vec<Event>) -> (bool, Vec<String>) {
    let mut session = Session::new(200_000);
    session.declare(modes, false);
    let mut actions = Vec::new();
    before.into_iter().for_each(|event| session.on(event, &mut actions));
    assert_eq!(actions.pop(), Some(Action::Pick));
    let may_wait = session.may_wait();
    held.into_iter().for_each(|event| session.on(event, &mut actions));
    session.resume(&mut actions);
    let mut log = Vec::new();
    let mut next = 0;
    while next < actions.len() {
        match actions[next].clone() {
            Action::Pick => session.decided(Ok(destination()), &mut actions),
            Action::Reply(reply) => log.push(short(&reply)),
            Action::Complete => log.push("complete".into()),
            Action::Close => log.push("close".into()),
        }
        next += 1;
    }
    (may_wait, log)
}

/// Repeats while held are answered by nothing; a reply of the gateway's own ends the wait. Mutants: a
/// repeat collected again; a pick for a request that is over; the body kept for it.
#[test]
fn a_held_request_hears_and_is_sent_once() {
    let whole = || vec![HEAD, body("abc", true)];
    let to = "RH 10.0.0.1:8000";
    let again = vec![body("abc", true), HEAD, Event::RequestTrailers];
    assert_eq!(
        while_held(Modes::default(), whole(), again),
        (true, vec![to.into(), "RP 3!".into()])
    );
    let trailers = vec![HEAD, body("abc", false), Event::RequestTrailers];
    let sent = vec![to.into(), "RP 3".into(), "RT".into()];
    assert_eq!(while_held(Modes::default(), trailers, vec![Event::RequestTrailers]), (true, sent));
    let reply = vec![Event::ResponseHeaders { end: true }];
    let over = vec!["SH".into(), "complete".into()];
    assert_eq!(while_held(Modes::default(), whole(), reply), (true, over));
}

/// Where the gateway runs a timer, or there is no body to hold, nothing waits. Mutants: any of them
/// left out.
#[test]
fn only_a_full_duplex_body_may_wait() {
    let get = || vec![Event::RequestHeaders(Head { end: true, upgrade: false })];
    let upgrade = || vec![Event::RequestHeaders(Head { end: false, upgrade: true })];
    let post = || vec![HEAD, body("abc", true)];
    let with = |request| Modes { request, response: BodyMode::FullDuplex };
    for (mode, before) in [
        (BodyMode::FullDuplex, get()),
        (BodyMode::FullDuplex, upgrade()),
        (BodyMode::Streamed, vec![HEAD]),
        (BodyMode::None, vec![HEAD]),
    ] {
        assert!(!while_held(with(mode), before, vec![]).0, "{mode:?}");
    }
    for mode in [BodyMode::Buffered, BodyMode::BufferedPartial] {
        let mut session = Session::new(9);
        session.declare(with(mode), false);
        post().into_iter().for_each(|event| session.on(event, &mut Vec::new()));
        assert!(session.is_picking() && !session.may_wait(), "{mode:?}");
    }
}

/// Mutant: answering anyway.
#[test]
fn a_watching_gateway_gets_no_answer() {
    let mut session = Session::new(100);
    session.declare(Modes::default(), true);
    let mut actions = Vec::new();
    session.on(Event::RequestHeaders(Head { end: true, upgrade: false }), &mut actions);
    session.on(Event::ResponseHeaders { end: true }, &mut actions);
    assert_eq!(actions, []);
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        any::<(bool, bool)>()
            .prop_map(|(end, upgrade)| Event::RequestHeaders(Head { end, upgrade })),
        (0_usize..70_000, any::<bool>()).prop_map(|(n, end)| body(&"x".repeat(n), end)),
        Just(Event::RequestTrailers),
        any::<bool>().prop_map(|end| Event::ResponseHeaders { end }),
        (0_usize..70_000, any::<bool>()).prop_map(|(n, end)| response(&"y".repeat(n), end)),
        Just(Event::ResponseTrailers),
    ]
}

proptest! {
    #![proptest_config(fixed_seed())]

    /// Whatever comes in whatever order: request headers are answered at most once and before any
    /// request body, nothing of the request follows its end, nothing follows a close, and pieces stay
    /// within the limit. Mutants: answering headers twice; a piece after `!`; `Close` not honoured.
    #[test]
    fn answers_are_in_order_and_never_twice(events in prop::collection::vec(any_event(), 0..12)) {
        let log = full_duplex(events);
        let at = |prefix: &str| log.iter().position(|l| l.starts_with(prefix));
        prop_assert!(log.iter().filter(|l| l.starts_with("RH")).count() <= 1, "{log:?}");
        if let Some(piece) = at("RP") {
            prop_assert!(at("RH").is_some_and(|head| head < piece), "{log:?}");
        }
        let ended = log.iter().position(|l| l.starts_with("RP") && l.ends_with('!'));
        if let Some(ended) = ended {
            prop_assert!(!log[ended + 1..].iter().any(|l| l.starts_with("RP")), "{log:?}");
        }
        if let Some(close) = at("close") {
            prop_assert_eq!(close + 1, log.len());
        }
        prop_assert!(log.iter().filter(|l| *l == "complete").count() <= 2, "{log:?}");
    }

    /// A request body comes out as it went in, whatever the cuts. Mutant: dropping an empty or last
    /// chunk's end, or a piece.
    #[test]
    fn bodies_are_kept_and_ended_once(cuts in prop::collection::vec(0_usize..70_000, 1..3)) {
        let last = cuts.len() - 1;
        let events = std::iter::once(HEAD)
            .chain(cuts.iter().enumerate().map(|(i, n)| body(&"x".repeat(*n), i == last)));
        let log = full_duplex(events.collect());
        let sizes = log.iter().filter_map(|l| l.strip_prefix("RP "));
        let total: usize = sizes.map(|l| l.trim_end_matches('!').parse::<usize>().unwrap()).sum();
        prop_assert_eq!(total, cuts.iter().sum::<usize>());
        prop_assert_eq!(log.iter().filter(|l| l.ends_with('!')).count(), 1);
        prop_assert!(log.last().unwrap().ends_with('!'));
    }
}
