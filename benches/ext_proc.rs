//! CPU and throughput of the whole picker, as a ratio to a server that answers the same messages and
//! decides nothing (the floor), both measured in this run.
//!
//! `cargo bench` prints, for 1, 16 and 128 requests at a time: requests per second, CPU microseconds a
//! request in the server, and the ratio. A request is headers and 2 KB of body in, headers and body
//! out, then a reset, as Envoy does. Absolute numbers depend on the machine; the ratio is the figure.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used)]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use envoy_types::pb::envoy::service::ext_proc::v3 as pb;
use pb::external_processor_client::ExternalProcessorClient;
use pb::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use tokio::time::Instant;
use tokio_stream::StreamExt as _;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status, Streaming};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RUN: Duration = Duration::from_secs(4);
const BODY: usize = 2048;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match args.iter().position(|arg| arg == "serve-floor") {
        Some(at) => runtime.block_on(serve_floor(args[at + 1].parse().unwrap())),
        None => runtime.block_on(compare()),
    }
}

async fn compare() {
    println!(
        "{:>5}  {:>22}  {:>22}  {:>10}",
        "at", "floor req/s, us CPU", "plumbline", "CPU ratio"
    );
    let floor = Subject::start(|at| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["serve-floor", &at.to_string()]);
        command
    });
    let plumbline = Subject::start(|at| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
        let endpoints = (1..=10).map(|i| format!("127.0.0.1:{i}")).collect::<Vec<_>>().join(",");
        command
            .args(["--bind-address", "127.0.0.1", "--secure-serving=false", "--cores", "1"])
            .args(["--grpc-health-port", "0", "--metrics-port", "0", "--endpoints", &endpoints])
            .args(["--grpc-port", &at.port().to_string()]);
        command
    });
    for at_a_time in [1, 16, 128] {
        let base = floor.load(at_a_time).await;
        let ours = plumbline.load(at_a_time).await;
        println!(
            "{at_a_time:>5}  {:>12.0} {:>9.1}  {:>12.0} {:>9.1}  {:>10.2}",
            base.per_second,
            base.cpu_micros,
            ours.per_second,
            ours.cpu_micros,
            ours.cpu_micros / base.cpu_micros
        );
    }
}

/// A server under load, in a process of its own so that its CPU time can be read.
struct Subject {
    process: Child,
    address: SocketAddr,
}

struct Figures {
    per_second: f64,
    cpu_micros: f64,
}

impl Subject {
    fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let address = plumbline::envoy::free_port().unwrap();
        let process = command(address).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { process, address }
    }

    /// User and system time so far, in microseconds.
    fn cpu_micros(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // Fields 14 and 15, counted from the one after the parenthesised name; 100 ticks a second.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10_000.0
    }

    async fn connect(&self) -> ExternalProcessorClient<Channel> {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match endpoint.connect().await {
                Ok(channel) => return ExternalProcessorClient::new(channel),
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn load(&self, at_a_time: usize) -> Figures {
        let client = self.connect().await;
        run(&client, at_a_time, RUN / 4).await;
        let before = self.cpu_micros();
        let (requests, took) = run(&client, at_a_time, RUN).await;
        Figures {
            per_second: requests as f64 / took.as_secs_f64(),
            cpu_micros: (self.cpu_micros() - before) / requests as f64,
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn run(
    client: &ExternalProcessorClient<Channel>,
    at_a_time: usize,
    time: Duration,
) -> (u64, Duration) {
    let (start, done) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..at_a_time {
        let (mut client, done) = (client.clone(), Arc::clone(&done));
        tasks.spawn(async move {
            while start.elapsed() < time {
                exchange(&mut client).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    tasks.join_all().await;
    (done.load(Ordering::Relaxed), start.elapsed())
}

async fn exchange(client: &mut ExternalProcessorClient<Channel>) {
    let messages = [headers(), body()];
    let pending = tokio_stream::iter(messages).chain(tokio_stream::pending());
    let mut answers = client.process(pending).await.unwrap().into_inner();
    for _ in 0..2 {
        answers.next().await.unwrap().unwrap();
    }
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

fn body() -> pb::ProcessingRequest {
    message(pb::processing_request::Request::RequestBody(pb::HttpBody {
        body: vec![b'x'; BODY],
        end_of_stream: true,
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
