//! Clients that leave in crowds: their resets hurt nobody who stays on the same connection.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{POST, assert_destination, at_rest, picker};
use crate::harness::script::{Heard, Script, connect};
use crate::harness::{Plan, soon, wait_for};

/// 400 streams reset at once do not hurt the 20 that share their connection. Mutant: a guard or a
/// stream that outlives its reset.
#[tokio::test]
async fn an_abort_storm_leaves_bystanders_alone() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    let mut bystanders = Vec::new();
    for _ in 0..20 {
        let mut script = Script::open(&channel).await;
        script.request_headers(POST, false);
        script.request_body(b"first ", false);
        bystanders.push(script);
    }
    for _ in 0..3 {
        let mut storm = Vec::new();
        for index in 0..400 {
            let mut script = Script::open(&channel).await;
            // Half of them hold a guard, half hold a body.
            script.request_headers(POST, index % 2 == 0);
            storm.push(script);
        }
        drop(storm);
    }
    for script in &mut bystanders {
        script.request_body(b"last", true);
        assert_destination(&script.answer().await);
        assert_eq!(script.answer().await, Heard::RequestPiece(b"first last".to_vec(), true));
    }
    wait_for("only the bystanders are left", async || {
        let seen = (picker.in_flight().await, picker.streams().await);
        if seen == (20, 20) { Ok(()) } else { Err(format!("{seen:?}")) }
    })
    .await;
    drop(bystanders);
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
    for index in 0..400 {
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
