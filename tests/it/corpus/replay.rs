//! What each fuzz target does with its bytes; used by `fuzz/targets` and by the corpus tests.
#![allow(dead_code)] // A fuzz target uses one of them.

use plumbline::config::scaling::{self, Held};
use plumbline::config::{Layers, Params, resolve};
use plumbline::discovery::document;
use plumbline::ext_proc::session::{Action, Chunk, Event, Head, MAX_PIECE, Reply, Session};
use plumbline::poller::engines::{self, Engines};
use plumbline::poller::reading::read_page;
use plumbline::request::{Api, BodyReader, rewrite_model};
use plumbline::response::{ResponseHead, ResponseReader, Restore};
use plumbline::thresholds::Thresholds;

/// Any page is read without a panic, and what is read is finite and not negative.
pub fn exposition(data: &[u8]) {
    let engines = Engines::default();
    for name in ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"] {
        let reading = read_page(data, engines.named(name).expect("built in"));
        let load = [reading.waiting, reading.running, reading.kv];
        for value in load.into_iter().chain(reading.vitals).flatten() {
            assert!(value.is_finite() && value >= 0.0);
        }
    }
}

/// Any text is engines or a reason; what is accepted answers any endpoint and reads any page.
pub fn engines_document(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match engines::read_document(text, None) {
        Ok(engines) => drop(read_page(data, engines.of(&std::collections::BTreeMap::new()))),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Any document is read or refused, and an accepted endpoint prints as an address that reads back.
pub fn endpoints_document(data: &[u8]) {
    for endpoint in document::parse(data).map(|parsed| parsed.endpoints).unwrap_or_default() {
        assert!(endpoint.address.port() > 0);
        assert_eq!(endpoint.address.to_string().parse(), Ok(endpoint.address));
    }
}

/// Any file is layers or a reason; whatever it says, each resolved line keeps every rule, routing and
/// scaling agree, and reading it again changes nothing. Other kinds of configuration do not panic on it.
pub fn scaling_config(data: &[u8]) {
    let _ = plumbline::config::epp::read(data);
    let Ok(document) = scaling::read(data) else { return };
    let (held, _) = Held::default().next(&document);
    assert_eq!(held.next(&document).0, held);
    let layers = Layers { scaling: held, ..Layers::default() };
    let (table, _) = layers.table();
    for (model, namespace) in [("m", "ns"), ("", "")] {
        let line = layers.line(Some(model), namespace);
        assert_eq!(table.entry(model, namespace), line.entry);
        assert!(Thresholds::try_new(line.entry.thresholds.numbers()).is_ok());
        for analyzer in &line.entry.analyzers {
            let (up, down) = line.entry.bounds(&analyzer.name);
            assert!(up > down && up <= 1.0 && down > 0.0, "{up} {down}");
        }
    }
}

/// Any text is params or a list of reasons; accepted params make valid thresholds.
pub fn detector_params(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Params::parse(text) {
        Ok(params) => drop(resolve(&params).expect("ranges were checked")),
        Err(reasons) => assert!(!reasons.is_empty()),
    }
}

/// Two bytes of how, then a body: cuts change nothing, nothing is lost, and no name is left to restore.
pub fn response_body(data: &[u8]) {
    let [kind, step, body @ ..] = data else { return };
    let content_type = Some(if kind % 2 == 0 { "text/event-stream" } else { "application/json" });
    let pass = |body: &[u8], step: usize, restore: bool| {
        let names = Restore { target: "t-x".into(), incoming: "\"m".into() };
        let head = ResponseHead { content_type, content_encoding: None, status: 200 };
        let mut reader = ResponseReader::new(head, restore.then_some(names));
        let mut out: Vec<u8> =
            body.chunks(step).flat_map(|chunk| reader.feed(chunk.to_vec(), false)).collect();
        out.extend(reader.feed(Vec::new(), true));
        (out, reader.usage(), reader.events(), reader.done_seen(), reader.first_token_seen())
    };
    let whole = body.len().max(1);
    let read = pass(body, whole, false);
    assert_eq!(read.0, body);
    let restored = pass(body, whole, true);
    assert_eq!((read.1, read.2, read.3, read.4), (restored.1, restored.2, restored.3, restored.4));
    for step in [usize::from(*step).max(1), 1] {
        assert_eq!(pass(body, step, false), read);
        assert_eq!(pass(body, step, true), restored);
    }
    assert_eq!(pass(&restored.0, whole, true).0, restored.0);
}

/// Two bytes an event: any exchange keeps the order that a gateway accepts.
pub fn session(data: &[u8]) {
    let mut session = Session::new(100_000);
    let (mut heads, mut closed) = (0, false);
    for pair in data.chunks_exact(2) {
        let chunk = Chunk { bytes: vec![b'x'; usize::from(pair[1]) * 300], end: pair[1] % 2 == 1 };
        let event = match pair[0] % 6 {
            0 => Event::RequestHeaders(Head { end: chunk.end, upgrade: pair[1] % 8 == 4 }),
            1 => Event::RequestBody(chunk),
            2 => Event::RequestTrailers,
            3 => Event::ResponseHeaders { end: chunk.end },
            4 => Event::ResponseBody(chunk),
            _ => Event::ResponseTrailers,
        };
        let mut actions = Vec::new();
        session.on(event, &mut actions);
        let mut next = 0;
        while next < actions.len() {
            assert!(!closed, "said something after the close");
            match actions[next].clone() {
                Action::Pick => session.decided(Ok("10.0.0.1:80".into()), &mut actions),
                Action::Close => closed = true,
                Action::Reply(Reply::RequestHeaders(_)) => heads += 1,
                Action::Reply(Reply::RequestPiece(piece)) => {
                    assert!(heads == 1 && piece.bytes.len() <= MAX_PIECE);
                }
                Action::Reply(_) | Action::Complete => {}
            }
            next += 1;
        }
        assert!(heads <= 1, "request headers answered twice");
    }
}

/// The first byte chooses API and coding, the second where the body is cut: any body is read the same
/// in one piece and in several, and a model that was found can be rewritten and is found again.
pub fn request_body(data: &[u8]) {
    const APIS: [Api; 8] = [
        Api::Completions,
        Api::Chat,
        Api::Embeddings,
        Api::Responses,
        Api::Images,
        Api::Messages,
        Api::Generate,
        Api::SglangGenerate,
    ];
    const CODINGS: [&str; 6] = ["", "gzip", "deflate", "zstd", "br", "zstd, gzip"];
    let [choice, cut, body @ ..] = data else { return };
    let api = APIS[usize::from(choice % 8)];
    let coding = CODINGS[usize::from(choice / 8) % CODINGS.len()];
    let read = |body: &[u8], size: usize| {
        let mut reader = BodyReader::new(api, "", coding, 1 << 20);
        body.chunks(size).for_each(|piece| reader.feed(piece));
        reader.finish()
    };
    let whole = read(body, body.len().max(1));
    let pieces = read(body, usize::from(*cut).max(1));
    // How much a decoder hands on before it meets a fault depends on the cut.
    if coding.is_empty() || pieces.is_ok() || whole.is_ok() {
        assert_eq!(pieces, whole);
    }
    let Some(model) = whole.ok().and_then(|facts| facts.model) else { return };
    let mut chunks: Vec<Vec<u8>> = body.chunks(7).map(<[u8]>::to_vec).collect();
    assert_eq!(rewrite_model(&mut chunks, &model, "new"), coding.is_empty());
    if coding.is_empty() {
        let again = read(&chunks.concat(), 5).expect("only the name changed");
        assert_eq!(again.model.map(|model| model.name).as_deref(), Some("new"));
    }
}
