//! Speed of the whole picker, as ratios to a server that answers the same messages and decides nothing
//! (the floor): same profile, same client, runs in turn, both servers on core 0 and the client on core 1
//! where `taskset` is there.
//!
//! For each load it prints requests per second, CPU microseconds a request in the server, the 99th
//! percentile of a round trip, and ratios. A request is headers and body in (full duplex, in chunks of
//! 16 KiB), headers and body out, then a reset, as Envoy does. The picker has ten endpoints that nobody
//! scrapes. A last line compares the picker with itself: 100 endpoints polled every 50 ms against four.
//! Absolute numbers are the machine's; the ratios are the figures.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes};
use envoy_types::pb::envoy::service::ext_proc::v3 as pb;
use pb::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use prost::Message as _;
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUN: Duration = Duration::from_secs(3);
/// Times each server takes its turn at each load.
const TURNS: usize = 3;
/// Requests at a time, and bytes of a body.
const LOADS: [(usize, usize); 4] = [(1, 2 << 10), (16, 2 << 10), (128, 2 << 10), (32, 220 << 10)];
const CHUNK: usize = 16 << 10;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args.iter().position(|arg| arg == "serve-floor") {
        Some(at) => runtime.block_on(serve_floor(args[at + 1].parse().unwrap())),
        None => runtime.block_on(compare()),
    }
}

async fn compare() {
    pin(std::process::id(), 1);
    let floor = Subject::start(|at| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serve-floor", &at.to_string()]);
        command
    });
    let plumbline = Subject::picker(1..=10);
    println!(
        "{:>20}  {:>9} {:>8} {:>9}   {:>9} {:>8} {:>9}   {:>7} {:>7}",
        "load", "floor/s", "us CPU", "p99 us", "ours/s", "us CPU", "p99 us", "req/s", "CPU"
    );
    for (at_a_time, bytes) in LOADS {
        let (mut base, mut ours) = (Figures::default(), Figures::default());
        for _ in 0..TURNS {
            base.better(floor.load(at_a_time, bytes).await);
            ours.better(plumbline.load(at_a_time, bytes).await);
        }
        println!(
            "{:>20}  {:>9.0} {:>8.1} {:>9.0}   {:>9.0} {:>8.1} {:>9.0}   {:>7.2} {:>7.2}",
            format!("{at_a_time} x {bytes} B"),
            base.per_second,
            base.cpu_micros,
            base.p99_micros,
            ours.per_second,
            ours.cpu_micros,
            ours.p99_micros,
            ours.per_second / base.per_second,
            ours.cpu_micros / base.cpu_micros
        );
    }
    drop((floor, plumbline));
    polled().await;
}

/// What polling costs requests: both pickers on core 0, the polled servers with the client on core 1.
async fn polled() {
    const SERVERS: u16 = 100;
    let first = 20_000;
    let mut servers = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    servers.args(["sim", "--count", &SERVERS.to_string(), "--port", &first.to_string()]);
    let servers = Subject::spawn(servers, ([127, 0, 0, 1], first).into());
    pin(servers.process.id(), 1);
    let (mut few, mut many) = (Figures::default(), Figures::default());
    for _ in 0..TURNS {
        // One at a time: a picker polls whether or not it serves.
        for (count, best) in [(4, &mut few), (SERVERS, &mut many)] {
            best.better(Subject::picker(first..=first + count - 1).load(16, 2 << 10).await);
        }
    }
    println!(
        "{:>20}  {:>9.0} {:>8.1} {:>9.0}   {:>9.0} {:>8.1} {:>9.0}   {:>7.2} {:>7.2}",
        "polled: 4 / 100",
        few.per_second,
        few.cpu_micros,
        few.p99_micros,
        many.per_second,
        many.cpu_micros,
        many.p99_micros,
        many.per_second / few.per_second,
        many.cpu_micros / few.cpu_micros
    );
}

/// Keeps a process on one core; without `taskset` the scheduler decides.
fn pin(process: u32, core: u8) {
    let _ = Command::new("taskset")
        .args(["-a", "-p", "-c", &core.to_string(), &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// A server under load, in a process of its own so that its CPU time can be read.
struct Subject {
    process: Child,
    address: SocketAddr,
}

#[derive(Default)]
struct Figures {
    per_second: f64,
    cpu_micros: f64,
    p99_micros: f64,
}

impl Figures {
    /// Keeps the turn with the most requests: noise only ever takes some away.
    fn better(&mut self, other: Self) {
        if other.per_second > self.per_second {
            *self = other;
        }
    }
}

impl Subject {
    fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let address = plumbline::envoy::free_port().unwrap();
        Self::spawn(command(address), address)
    }

    fn spawn(mut command: Command, address: SocketAddr) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A child inherits the client's core.
        pin(process.id(), 0);
        Self { process, address }
    }

    /// A picker of the endpoints at these ports.
    fn picker(ports: impl Iterator<Item = u16>) -> Self {
        let endpoints: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        Self::start(|at| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
            command
                .args(["--bind-address", "127.0.0.1", "--secure-serving=false", "--cores", "1"])
                .args(["--grpc-health-port", "0", "--metrics-port", "0"])
                .args(["--endpoints", &endpoints.join(","), "--grpc-port", &at.port().to_string()]);
            command
        })
    }

    /// Time on a core so far, in microseconds. The kernel counts it in nanoseconds here; the ticks of
    /// `/proc/PID/stat` misjudge a server that sleeps between short bursts.
    fn cpu_micros(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let nanos = tasks.map(|task| {
            let path = task.unwrap().path().join("schedstat");
            let line = std::fs::read_to_string(path).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
        });
        nanos.sum::<f64>() / 1000.0
    }

    async fn connect(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn load(&self, at_a_time: usize, bytes: usize) -> Figures {
        let client = self.connect().await;
        run(&client, at_a_time, bytes, RUN / 4).await;
        let before = self.cpu_micros();
        let start = Instant::now();
        let mut times = run(&client, at_a_time, bytes, RUN).await;
        let (took, requests) = (start.elapsed(), times.len());
        times.sort_unstable();
        Figures {
            per_second: requests as f64 / took.as_secs_f64(),
            cpu_micros: (self.cpu_micros() - before) / requests as f64,
            p99_micros: times[requests * 99 / 100].as_secs_f64() * 1e6,
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The round-trip times of every request in `time`.
async fn run(client: &Channel, at_a_time: usize, bytes: usize, time: Duration) -> Vec<Duration> {
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
    let (_open, until_dropped) = tokio::sync::oneshot::channel::<()>();
    let end = futures_util::stream::once(until_dropped).filter_map(|_| None);
    let stream = tokio_stream::iter(messages).chain(end);
    let mut grpc = tonic::client::Grpc::new(client.clone());
    grpc.ready().await.unwrap();
    let path = http::uri::PathAndQuery::from_static(
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process",
    );
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
    let body = chunks.iter().enumerate().map(|(index, chunk)| {
        message(pb::processing_request::Request::RequestBody(pb::HttpBody {
            body: chunk.to_vec(),
            end_of_stream: index == last,
            ..Default::default()
        }))
    });
    let messages = std::iter::once(headers()).chain(body);
    messages.map(|message| message.encode_to_vec().into()).collect()
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

/// The floor: the same two answers, made from constants.
struct Floor;

#[tonic::async_trait]
impl ExternalProcessor for Floor {
    type ProcessStream = std::pin::Pin<
        Box<dyn tokio_stream::Stream<Item = Result<pb::ProcessingResponse, Status>> + Send>,
    >;

    async fn process(
        &self,
        request: Request<Streaming<pb::ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        use pb::processing_request::Request as In;
        let answers = request.into_inner().map(|message| {
            Ok(match message?.request {
                Some(In::RequestBody(body)) => floor_body(body),
                _ => floor_headers(),
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

fn floor_headers() -> pb::ProcessingResponse {
    use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
    let destination = HeaderValueOption {
        header: Some(HeaderValue {
            key: "x-gateway-destination-endpoint".into(),
            raw_value: b"127.0.0.1:8000".to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let response = pb::CommonResponse {
        header_mutation: Some(pb::HeaderMutation {
            set_headers: vec![destination],
            ..Default::default()
        }),
        ..Default::default()
    };
    pb::ProcessingResponse {
        response: Some(pb::processing_response::Response::RequestHeaders(pb::HeadersResponse {
            response: Some(response),
        })),
        ..Default::default()
    }
}

fn floor_body(body: pb::HttpBody) -> pb::ProcessingResponse {
    let mutation = pb::body_mutation::Mutation::StreamedResponse(pb::StreamedBodyResponse {
        body: body.body,
        end_of_stream: body.end_of_stream,
        ..Default::default()
    });
    let response = pb::CommonResponse {
        body_mutation: Some(pb::BodyMutation { mutation: Some(mutation) }),
        ..Default::default()
    };
    pb::ProcessingResponse {
        response: Some(pb::processing_response::Response::RequestBody(pb::BodyResponse {
            response: Some(response),
        })),
        ..Default::default()
    }
}

async fn serve_floor(address: SocketAddr) {
    Server::builder()
        .http2_max_pending_accept_reset_streams(Some(100_000))
        .add_service(ExternalProcessorServer::new(Floor))
        .serve(address)
        .await
        .unwrap();
}
