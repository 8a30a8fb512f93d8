//! The gRPC service around the picker: which method is asked for, and the HTTP/2 of its answers.
//!
//! Decides when answers go out (as soon as none is left that is ready) and how a stream ends; framing is
//! `frames`', what is answered `stream`'s. Every other path of the port is somebody else's service.
//! Written by hand: a router, boxed bodies and 8 KiB of buffers in each direction would cost each
//! request as much as its decision. Sizes are bytes.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use futures_util::future::Either;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;
use tonic::Status;
use tonic::service::Routes;

use super::Picking;
use super::frames;
use super::stream::ProcessStream;

/// The one method.
const PROCESS: &str = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
/// Answers that are ready are joined up to this size before they go out.
const JOINED_ANSWERS: usize = 32 << 10;
/// Header of a stream whose messages are compressed, and the only value that is none.
const ENCODING: (&str, &str) = ("grpc-encoding", "identity");

/// The service of one port as a server takes it; cheap to clone.
#[derive(Clone)]
pub struct ExternalProcessor {
    picking: Arc<Picking>,
    max_in: usize,
    max_out: Option<usize>,
    others: TowerToHyperService<Routes>,
}

impl ExternalProcessor {
    /// Serves `picking`, and `others` on every path but its own. A message of the gateway over `max_in`
    /// ends its stream with 413; an answer over `max_out` with an error.
    pub(super) fn new(
        picking: Picking,
        (max_in, max_out): (usize, Option<usize>),
        others: Routes,
    ) -> Self {
        let others = TowerToHyperService::new(others);
        Self { picking: Arc::new(picking), max_in, max_out, others }
    }
}

type Answered = Result<Response<AnswerBody>, Infallible>;

impl hyper::service::Service<Request<Incoming>> for ExternalProcessor {
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Either<Ready<Answered>, Pin<Box<dyn Future<Output = Answered> + Send>>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        if request.uri().path() != PROCESS {
            let answer = self.others.call(request);
            return Either::Right(Box::pin(async move {
                Ok(answer.await.unwrap_or_else(|never| match never {}).map(AnswerBody::Other))
            }));
        }
        if request.headers().get(ENCODING.0).is_some_and(|coding| coding != ENCODING.1) {
            let no = Status::unimplemented("messages are taken uncompressed only");
            return Either::Left(ready(Ok(no
                .into_http::<tonic::body::Body>()
                .map(AnswerBody::Other))));
        }
        let inbound = frames::Inbound::new(request.into_body(), self.max_in);
        let answers = Answers {
            stream: ProcessStream::new(Arc::clone(&self.picking), inbound),
            ready: BytesMut::new(),
            max: self.max_out,
            end: End::Open,
        };
        let mut response = Response::new(AnswerBody::Answers(Box::new(answers)));
        let grpc = HeaderValue::from_static("application/grpc");
        response.headers_mut().insert(CONTENT_TYPE, grpc);
        Either::Left(ready(Ok(response)))
    }
}

/// What a stream answers with: the picker's answers, or the bytes of another service.
pub enum AnswerBody {
    /// Answers to the messages of a gateway.
    Answers(Box<Answers>),
    /// Whatever else is served on the port.
    Other(tonic::body::Body),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.get_mut() {
            Self::Answers(answers) => answers.poll_frame(cx).map(|frame| frame.map(Ok)),
            Self::Other(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Answers(answers) => matches!(answers.end, End::Sent),
            Self::Other(body) => body.is_end_stream(),
        }
    }
}

/// The answers of one stream, on their way out as frames.
pub struct Answers {
    stream: ProcessStream,
    /// Frames that have not been given to the connection.
    ready: BytesMut,
    max: Option<usize>,
    end: End,
}

/// How far a stream is from its end.
enum End {
    Open,
    /// Only this is left to say.
    Due(Status),
    Sent,
}

impl Answers {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        while matches!(self.end, End::Open) && self.ready.len() < JOINED_ANSWERS {
            match self.stream.poll_next(cx) {
                Poll::Ready(Some(Ok(answer))) => {
                    if let Err(status) = frames::append(&answer, self.max, &mut self.ready) {
                        self.end = End::Due(status);
                    }
                }
                Poll::Ready(Some(Err(status))) => self.end = End::Due(status),
                Poll::Ready(None) => self.end = End::Due(Status::ok("")),
                Poll::Pending if self.ready.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            }
        }
        if !self.ready.is_empty() {
            // A stream that waits for its next message keeps no buffer meanwhile.
            return Poll::Ready(Some(Frame::data(std::mem::take(&mut self.ready).freeze())));
        }
        let End::Due(status) = std::mem::replace(&mut self.end, End::Sent) else {
            return Poll::Ready(None);
        };
        let mut trailers = HeaderMap::new();
        // Only metadata that is no header could be refused, and a status of ours has none.
        let _ = status.add_header(&mut trailers);
        Poll::Ready(Some(Frame::trailers(trailers)))
    }
}
