//! A gateway that sends one request after the other, and does as little as it can with the answers.

use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use envoy_types::pb::envoy::service::ext_proc::v3 as pb;
use prost::Message as _;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};

/// Size of a chunk of a body.
const CHUNK: usize = 16 << 10;
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";

/// The round-trip times of every request in `time`.
pub(crate) async fn run(
    client: &Channel,
    at_a_time: usize,
    bytes: usize,
    time: Duration,
) -> Vec<Duration> {
    let start = Instant::now();
    let messages = messages(bytes);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..at_a_time {
        let (mut client, messages) = (client.clone(), messages.clone());
        tasks.spawn(async move {
            let mut times = Vec::new();
            while start.elapsed() < time {
                let begin = Instant::now();
                exchange(&mut client, messages.clone()).await;
                times.push(begin.elapsed());
            }
            times
        });
    }
    tasks.join_all().await.concat()
}

/// One request until the last piece of its body came back.
async fn exchange(client: &mut Channel, messages: Vec<Bytes>) {
    // Open until the answer is complete and gone with it: the client library then resets the stream, as
    // Envoy does. A request stream that never ended would leave every stream open.
    let (_open, until_dropped) = oneshot::channel::<()>();
    let end = futures_util::stream::once(until_dropped).filter_map(|_| None);
    let stream = tokio_stream::iter(messages).chain(end);
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(PROCESS);
    let answers = grpc.streaming(Request::new(stream), path, Raw).await.unwrap();
    let mut answers = answers.into_inner();
    loop {
        let answer = answers.next().await.expect("an answer before the end").unwrap();
        // Field 2 of the innermost message, which stands last: `end_of_stream: true`.
        if answer.ends_with(&[0x10, 1]) {
            return;
        }
    }
}

/// Requests of which the picker has headers and 2 KiB of body, and waits for more.
pub(crate) async fn hold(
    client: &Channel,
    requests: usize,
) -> Vec<(oneshot::Sender<()>, Streaming<Bytes>)> {
    let mut first = messages(4 << 10);
    first.truncate(1);
    first.push(chunk(&[b' '; 2 << 10], false));
    let mut held = Vec::new();
    for _ in 0..requests {
        let (open, until_dropped) = oneshot::channel::<()>();
        let end = futures_util::stream::once(until_dropped).filter_map(|_| None);
        let stream = tokio_stream::iter(first.clone()).chain(end);
        let mut grpc = tonic::client::Grpc::new(client.clone());
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(PROCESS);
        let answers = grpc.streaming(Request::new(stream), path, Raw).await.unwrap();
        held.push((open, answers.into_inner()));
    }
    // What has been sent is read in order: this one's answer comes after all of them.
    exchange(&mut client.clone(), messages(2 << 10)).await;
    held
}

/// Messages as they are: the client's own work must not be what is measured.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// Headers and a chat request of `bytes` bytes, cut as a gateway cuts it.
fn messages(bytes: usize) -> Vec<Bytes> {
    let head = r#"{"model":"m","messages":[{"role":"user","content":""#;
    let tail = r#""}],"max_tokens":128}"#;
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(bytes / 45 + 1);
    let body = format!("{head}{}{tail}", &text[..bytes - head.len() - tail.len()]);
    let chunks: Vec<_> = body.as_bytes().chunks(CHUNK).collect();
    let last = chunks.len() - 1;
    let body = chunks.iter().enumerate().map(|(index, bytes)| chunk(bytes, index == last));
    std::iter::once(headers().encode_to_vec().into()).chain(body).collect()
}

fn chunk(bytes: &[u8], end_of_stream: bool) -> Bytes {
    let body = pb::HttpBody { body: bytes.to_vec(), end_of_stream, ..Default::default() };
    message(pb::processing_request::Request::RequestBody(body)).encode_to_vec().into()
}

fn message(request: pb::processing_request::Request) -> pb::ProcessingRequest {
    pb::ProcessingRequest { request: Some(request), ..Default::default() }
}

fn headers() -> pb::ProcessingRequest {
    use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
    let pairs = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "models.example.com"),
        (":scheme", "http"),
        ("content-type", "application/json"),
        ("accept", "*/*"),
        ("user-agent", "bench"),
        ("x-request-id", "7c5d5a4e-0000-4000-8000-1234567890ab"),
        ("x-forwarded-for", "10.1.2.3"),
        ("x-forwarded-proto", "http"),
    ];
    let headers = pairs.map(|(key, value)| HeaderValue {
        key: key.to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    });
    message(pb::processing_request::Request::RequestHeaders(pb::HttpHeaders {
        headers: Some(HeaderMap { headers: headers.to_vec() }),
        ..Default::default()
    }))
}
