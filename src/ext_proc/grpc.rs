//! The gRPC service around the picker: method, codec and limits of one message.
//!
//! Decides how messages are framed and how large the buffers of a stream start; what the messages say
//! is `message`'s. Written by hand because the generated service brings its own message types and
//! buffers of 8 KiB in each direction, which every held stream would keep. Sizes are bytes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tonic::body::Body;
use tonic::codec::{BufferSettings, Codec};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::{Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::message::{ProcessingRequest, ProcessingResponse};
use super::stream::ProcessStream;
use super::{Picking, SERVICE_NAME};

/// What the buffers of a stream start with: a gateway's headers, or an answer and a small body.
const BUFFER: usize = 2 << 10;
/// Answers that are ready are joined up to this size before they go out.
const JOINED_ANSWERS: usize = 32 << 10;

/// The service as a server takes it; cheap to clone.
#[derive(Clone)]
pub struct ExternalProcessor {
    picking: Arc<Picking>,
    max_in: usize,
    max_out: Option<usize>,
}

impl ExternalProcessor {
    /// Serves `picking`. A message of the gateway over `max_in` ends its stream with 413; an answer over
    /// `max_out` with an error.
    pub(super) fn new(picking: Picking, max_in: usize, max_out: Option<usize>) -> Self {
        Self { picking: Arc::new(picking), max_in, max_out }
    }
}

impl NamedService for ExternalProcessor {
    const NAME: &'static str = SERVICE_NAME;
}

type Answer = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

impl<B> tower::Service<Request<B>> for ExternalProcessor
where
    B: tonic::codegen::Body + Send + 'static,
    B::Error: Into<tonic::codegen::StdError> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Answer {
        if request.uri().path() != "/envoy.service.ext_proc.v3.ExternalProcessor/Process" {
            let unknown = Status::unimplemented("the only method is Process");
            return Box::pin(ready(Ok(unknown.into_http())));
        }
        let mut grpc =
            Grpc::new(Frames).apply_max_message_size_config(Some(self.max_in), self.max_out);
        let process = Process(Arc::clone(&self.picking));
        Box::pin(async move { Ok(grpc.streaming(process, request).await) })
    }
}

/// The method.
struct Process(Arc<Picking>);

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = ProcessStream;
    type Future = Ready<Result<tonic::Response<ProcessStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        ready(Ok(tonic::Response::new(ProcessStream::new(
            Arc::clone(&self.0),
            request.into_inner(),
        ))))
    }
}

/// Our messages, in buffers that start small.
struct Frames;

impl Codec for Frames {
    type Encode = ProcessingResponse;
    type Decode = ProcessingRequest;
    type Encoder = ProstEncoder<ProcessingResponse>;
    type Decoder = ProstDecoder<ProcessingRequest>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<ProcessingResponse, ProcessingRequest>::raw_encoder(settings())
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<ProcessingResponse, ProcessingRequest>::raw_decoder(settings())
    }
}

fn settings() -> BufferSettings {
    BufferSettings::new(BUFFER, JOINED_ANSWERS)
}
