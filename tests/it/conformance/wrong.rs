//! A picker in few lines that does one thing wrong: what shows that a case can fail.
//!
//! Without a fault it is right about everything but subsets, which it does not know.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request as Said;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response as Reply;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpHeaders,
    ProcessingRequest, ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use envoy_types::pb::google::protobuf::{Struct, Value, value::Kind};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnboundedReceiverStream};
use tonic::{Request, Response, Status, Streaming};

const POOL: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];
static TURN: AtomicUsize = AtomicUsize::new(0);

/// What is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    #[default]
    None,
    /// Says everything twice.
    AnswersTwice,
    /// Passes no body on.
    DropsBodies,
    /// Cuts no body.
    LargePieces,
    /// Names the destination in the header, and not in the metadata.
    HeaderOnly,
    /// Sets every header that it saw, as the gateway sent it.
    Mirrors,
    /// Takes no notice of request trailers.
    IgnoresTrailers,
}

/// A running server; dropping it ends it.
pub struct Wrong {
    pub at: SocketAddr,
    task: JoinHandle<()>,
}

impl Wrong {
    pub async fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let server = tonic::transport::Server::builder()
            .add_service(ExternalProcessorServer::new(Picks(fault)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        Self { at, task: tokio::spawn(async move { server.await.unwrap() }) }
    }
}

impl Drop for Wrong {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Picks(Fault);

#[tonic::async_trait]
impl ExternalProcessor for Picks {
    type ProcessStream = UnboundedReceiverStream<Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let (to, answers) = mpsc::unbounded_channel();
        let (fault, mut from) = (self.0, request.into_inner());
        tokio::spawn(async move {
            let mut exchange = Exchange { fault, ..Exchange::default() };
            while let Ok(Some(message)) = from.message().await {
                for answer in message.request.map(|said| exchange.on(said)).unwrap_or_default() {
                    let times = if fault == Fault::AnswersTwice { 2 } else { 1 };
                    for _ in 0..times {
                        drop(to.send(Ok(answer.clone())));
                    }
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers)))
    }
}

#[derive(Default)]
struct Exchange {
    fault: Fault,
    headers: HttpHeaders,
    held: Vec<u8>,
    picked: bool,
}

impl Exchange {
    fn on(&mut self, said: Said) -> Vec<ProcessingResponse> {
        match said {
            Said::RequestHeaders(headers) => {
                let end = headers.end_of_stream;
                self.headers = headers;
                if end { self.pick(None) } else { Vec::new() }
            }
            Said::RequestBody(body) => {
                self.held.extend(body.body);
                if body.end_of_stream && !self.picked { self.pick(Some(true)) } else { Vec::new() }
            }
            Said::RequestTrailers(_) if self.fault == Fault::IgnoresTrailers => Vec::new(),
            Said::RequestTrailers(_) => {
                let mut answers = if self.picked { Vec::new() } else { self.pick(Some(false)) };
                answers.push(answer(Reply::RequestTrailers(TrailersResponse::default())));
                answers
            }
            Said::ResponseHeaders(headers) => {
                let header_mutation = (self.fault == Fault::Mirrors).then(|| mirror(&headers));
                let common = CommonResponse { header_mutation, ..Default::default() };
                vec![answer(Reply::ResponseHeaders(HeadersResponse { response: Some(common) }))]
            }
            Said::ResponseBody(body) => self
                .pieces(&body.body, body.end_of_stream)
                .map(|piece| answer(Reply::ResponseBody(piece)))
                .collect(),
            Said::ResponseTrailers(_) => {
                vec![answer(Reply::ResponseTrailers(TrailersResponse::default()))]
            }
        }
    }

    /// The answer to headers, then the body, if there is one, with its end or without.
    fn pick(&mut self, body: Option<bool>) -> Vec<ProcessingResponse> {
        self.picked = true;
        // Two endpoints in turn, so that a subset of one is met by half of the picks only.
        let to = POOL[TURN.fetch_add(1, Ordering::Relaxed) % 2];
        let mut mutation = HeaderMutation::default();
        if self.fault == Fault::Mirrors {
            mutation = mirror(&self.headers);
        }
        mutation.set_headers.push(set("x-gateway-destination-endpoint", to.as_bytes()));
        let common = CommonResponse {
            header_mutation: Some(mutation),
            clear_route_cache: true,
            ..Default::default()
        };
        let mut head = answer(Reply::RequestHeaders(HeadersResponse { response: Some(common) }));
        if self.fault != Fault::HeaderOnly {
            let to = Kind::StringValue(to.to_owned());
            let inner = structure("x-gateway-destination-endpoint", to);
            head.dynamic_metadata = Some(structure("envoy.lb", Kind::StructValue(inner)));
        }
        let held = std::mem::take(&mut self.held);
        let pieces = body.into_iter().flat_map(|end| self.pieces(&held, end).collect::<Vec<_>>());
        let body = pieces.map(|piece| answer(Reply::RequestBody(piece)));
        std::iter::once(head).chain(body).collect()
    }

    fn pieces(&self, body: &[u8], end: bool) -> impl Iterator<Item = BodyResponse> + use<> {
        let body = if self.fault == Fault::DropsBodies { &[] } else { body };
        let size = if self.fault == Fault::LargePieces { usize::MAX } else { 62_000 };
        let mut chunks: Vec<_> = body.chunks(size).map(<[u8]>::to_vec).collect();
        if chunks.is_empty() {
            chunks.push(Vec::new());
        }
        let last = chunks.len() - 1;
        chunks.into_iter().enumerate().map(move |(index, body)| {
            let end_of_stream = end && index == last;
            let piece = StreamedBodyResponse { body, end_of_stream, ..Default::default() };
            let mutation = Some(Mutation::StreamedResponse(piece));
            let common = CommonResponse {
                body_mutation: Some(BodyMutation { mutation }),
                ..Default::default()
            };
            BodyResponse { response: Some(common) }
        })
    }
}

fn structure(key: &str, kind: Kind) -> Struct {
    Struct { fields: [(key.to_owned(), Value { kind: Some(kind) })].into() }
}

fn set(key: &str, value: &[u8]) -> HeaderValueOption {
    let header =
        HeaderValue { key: key.to_owned(), raw_value: value.to_vec(), ..Default::default() };
    HeaderValueOption { header: Some(header), ..Default::default() }
}

fn mirror(headers: &HttpHeaders) -> HeaderMutation {
    let seen = headers.headers.iter().flat_map(|map| &map.headers);
    let set_headers = seen.map(|header| set(&header.key, &header.raw_value)).collect();
    HeaderMutation { set_headers, ..Default::default() }
}

fn answer(reply: Reply) -> ProcessingResponse {
    ProcessingResponse { response: Some(reply), ..Default::default() }
}
