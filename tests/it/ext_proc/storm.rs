//! Crowds: clients that leave at once, bodies that are large, streams that are many, readers that are
//! slow. None of them hurts another stream, on the same connection or not.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{GET, OK, POST, assert_destination, at_rest, picker};
use crate::harness::script::{Heard, Refused, Script, connect, connect_like_envoy};
use crate::harness::{Picker, Plan, soon, wait_for};

async fn held(picker: &Picker) -> u64 {
    picker.metric("plumbline_held_bytes").await
}

/// 1,000 streams reset at once do not hurt the 50 that share their connection. Mutant: a guard, held
/// bytes or a stream that outlive their reset.
#[tokio::test]
async fn an_abort_storm_leaves_bystanders_alone() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut bystanders = Vec::new();
    for _ in 0..50 {
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, false);
        script.request_body(b"first ", false);
        bystanders.push(script);
    }
    let mut storm = Vec::new();
    for index in 0..1_000 {
        let mut script = Script::open(&channel).await;
        // Half of them hold a guard, half hold a body.
        script.request_headers(POST, index % 2 == 0);
        if index % 2 == 1 {
            script.request_body(b"cut", false);
        }
        storm.push(script);
    }
    wait_for("all of it has come", async || {
        let seen = (picker.in_flight().await, held(&picker).await);
        if seen == (500, 500 * 3 + 50 * 6) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    drop(storm);
    for script in &mut bystanders {
        script.request_body(b"last", true);
        assert_destination(&script.answer().await);
        assert_eq!(script.answer().await, Heard::RequestPiece(b"first last".to_vec(), true));
    }
    wait_for("only the bystanders are left", async || {
        let seen = (picker.in_flight().await, picker.streams().await);
        if seen == (50, 50) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    assert_eq!(held(&picker).await, 0);
    drop(bystanders);
    at_rest(&picker).await;
}

/// 60 MB go through one stream, beside another that is answered meanwhile. Mutants: a limit below
/// `--max-body-bytes`; held bytes counted twice or never given back.
#[tokio::test]
async fn sixty_megabytes_pass() {
    let picker = picker(Plan::default()).await;
    let channel = connect_like_envoy(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(POST, false);
    let chunk: Vec<u8> = (0..60_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
    for _ in 0..1_000 {
        script.request_body(&chunk, false);
    }
    wait_for("60 MB are held", async || {
        let seen = held(&picker).await;
        if seen == 60_000_000 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let mut other = Script::open(&channel).await;
    other.request_headers(GET, true);
    assert_destination(&other.answer().await);
    script.request_body(b"", true);
    let (_, body) = script.sent_on().await;
    assert!(body.len() == 60_000_000 && body.chunks(60_000).all(|seen| seen == chunk));
    assert_eq!(held(&picker).await, 0);
    drop((script, other));
    at_rest(&picker).await;
}

/// The request that goes over the limit of all held bytes is told to come back; those that are held
/// already go on, and what it held makes room. Mutants: refusing another one, or all; a sum that only
/// grows; no retry-after.
#[tokio::test]
async fn the_request_over_the_held_limit_is_429() {
    let picker = picker(Plan { max_held: 100_000, ..Plan::default() }).await;
    let channel = connect(picker.grpc).await;
    let (mut first, mut second) = (Script::open(&channel).await, Script::open(&channel).await);
    for script in [&mut first, &mut second] {
        script.request_headers(POST, false);
        script.request_body(&[b'x'; 40_000], false);
    }
    wait_for("two bodies are held", async || {
        let seen = held(&picker).await;
        if seen == 80_000 { Ok(()) } else { Err(seen.to_string()) }
    })
    .await;
    let body = "inference error: ResourceExhausted - requests of more than 100000 bytes are held \
                (--max-held-bytes)";
    for size in [20_001, 30_000] {
        let mut over = Script::open(&channel).await;
        over.request_headers(POST, false);
        over.request_body(&vec![b'x'; size], false);
        let expected = Refused {
            reason: Some("rejected-saturated".to_owned()),
            retry_after: Some("1".to_owned()),
            ..Refused::plain(429, body, "held-bytes")
        };
        assert_eq!(over.refused().await, expected);
        assert_eq!(held(&picker).await, 80_000);
    }
    // The limit itself is not over it.
    let mut fits = Script::open(&channel).await;
    fits.request_headers(POST, false);
    fits.request_body(&[b'x'; 20_000], false);
    fits.request_body(b"", true);
    assert_eq!(fits.sent_on().await.1.len(), 20_000);
    for script in [&mut first, &mut second] {
        script.request_body(b"", true);
        assert_eq!(script.sent_on().await.1.len(), 40_000);
    }
    assert_eq!(held(&picker).await, 0);
    drop((first, second, fits));
    at_rest(&picker).await;
}

/// Thousands of streams are held at once, over as many connections as an Envoy has workers, and all of
/// them are answered; `PLUMBLINE_OPEN_STREAMS` says how many (`make soak`: 10,000). Mutants: a limit of
/// streams; a task or a timer per stream that gives up.
#[tokio::test]
async fn thousands_of_streams_are_held_and_released() {
    let count = std::env::var("PLUMBLINE_OPEN_STREAMS").ok();
    let count = count.map_or(3_000, |count| count.parse::<usize>().expect("a number"));
    let picker = picker(Plan::default()).await;
    let mut channels = Vec::new();
    for _ in 0..4 {
        channels.push(connect(picker.grpc).await);
    }
    let mut open = Vec::new();
    for index in 0..count {
        let mut script = Script::open(&channels[index % channels.len()]).await;
        script.request_headers(POST, false);
        script.request_body(b"held", false);
        open.push(script);
    }
    let expected = (count as u64, 4 * count as u64, 0);
    wait_for(&format!("{count} streams are held"), async || {
        let seen = (picker.streams().await, held(&picker).await, picker.in_flight().await);
        if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    for script in &mut open {
        script.request_body(b"", true);
    }
    for script in &mut open {
        assert_eq!(script.sent_on().await.1, b"held");
    }
    assert_eq!(picker.in_flight().await, count as u64);
    assert_eq!(held(&picker).await, 0);
    drop(open);
    at_rest(&picker).await;
}

/// A client that reads its response slowly, or not at all, costs the others on its connection nothing:
/// the gateway goes on telling us of it until the stream's window is full. When it leaves, its count
/// ends, although what it was told is still on the way. Mutant: a connection's window no larger than a
/// stream's, which two slow streams fill.
#[tokio::test]
async fn slow_readers_block_nobody() {
    let picker = picker(Plan::default()).await;
    let channel = connect_like_envoy(picker.grpc).await;
    let mut slow = Vec::new();
    for _ in 0..5 {
        let mut script = Script::open(&channel).await;
        script.request_headers(GET, true);
        assert_destination(&script.answer().await);
        script.response_headers(OK, false);
        assert_eq!(script.answer().await, Heard::ResponseHeaders);
        for _ in 0..56 {
            script.response_body(&[b'x'; 16 << 10], false);
        }
        slow.push(script);
    }
    // The others send more than what is left of any window that the slow ones share.
    for _ in 0..5 {
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, false);
        for _ in 0..16 {
            script.request_body(&[b'y'; 64 << 10], false);
        }
        script.request_body(b"", true);
        assert_eq!(script.sent_on().await.1.len(), 1 << 20);
    }
    // What the slow ones did not read is still theirs.
    let mut script = slow.remove(0);
    for _ in 0..56 {
        assert_eq!(script.answer().await, Heard::ResponsePiece(vec![b'x'; 16 << 10], false));
    }
    drop((script, slow));
    at_rest(&picker).await;
}

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
/// Flags of a frame.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A call of `Process`, HPACK without tables: static indices, and literals that are not indexed.
fn process_headers() -> Vec<u8> {
    let text = |block: &mut Vec<u8>, text: &str| {
        block.push(text.len() as u8);
        block.extend(text.as_bytes());
    };
    // :method POST, :scheme http, then :path, content-type and te with their values.
    let mut block = vec![0x83, 0x86, 0x04];
    text(&mut block, "/envoy.service.ext_proc.v3.ExternalProcessor/Process");
    block.extend([0x0f, 0x10]);
    text(&mut block, "application/grpc");
    block.push(0);
    text(&mut block, "te");
    text(&mut block, "trailers");
    block
}

/// Streams that are opened and reset in one burst, before the server has accepted any: hyper by default
/// takes 20 of them for an attack and closes the connection, with every other request on it. Mutant:
/// that default.
#[tokio::test]
async fn a_burst_of_resets_does_not_close_the_connection() {
    let picker = picker(Plan::default()).await;
    let mut tcp = TcpStream::connect(picker.grpc).await.unwrap();
    let mut burst = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    burst.extend(frame(SETTINGS, 0, 0, &[]));
    for index in 0..1_000 {
        let stream = 2 * index + 1;
        burst.extend(frame(HEADERS, END_HEADERS, stream, &process_headers()));
        // CANCEL, as Envoy sends.
        burst.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
    }
    burst.extend(frame(PING, 0, 0, b"livenow?"));
    tcp.write_all(&burst).await.unwrap();
    soon("the answer to the ping", async {
        loop {
            let mut head = [0; 9];
            tcp.read_exact(&mut head).await.expect("the connection stays open");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            tcp.read_exact(&mut payload).await.unwrap();
            match (head[3], head[4] & ACK) {
                (GOAWAY, _) => panic!("the connection is closed: {payload:?}"),
                (PING, ACK) => break,
                _ => {}
            }
        }
    })
    .await;
    at_rest(&picker).await;
}
