//! An HTTP client that hides nothing: one connection a request, chunks as they come, trailers, aborts.
//!
//! Decides nothing about what is right. Dropping an [`Answer`] closes its connection at once.

use std::any::Any;
use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

type Body = UnsyncBoxBody<Bytes, Infallible>;
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A request to be sent.
pub struct Ask {
    head: Request<()>,
    body: Body,
    trailers: Option<HeaderMap>,
}

impl Ask {
    pub fn new(method: Method, path: &str, body: impl Into<Bytes>) -> Self {
        let mut head = Request::new(());
        *head.method_mut() = method;
        *head.uri_mut() = path.parse().expect("a path");
        Self { head, body: Full::new(body.into()).boxed_unsync(), trailers: None }
    }

    pub fn get(path: &str) -> Self {
        Self::new(Method::GET, path, "")
    }

    pub fn post(path: &str, body: impl Into<Bytes>) -> Self {
        Self::new(Method::POST, path, body)
    }

    /// A completion of `tokens` tokens, as a stream of events or whole.
    pub fn completion(tokens: u64, stream: bool) -> Self {
        let body = serde_json::json!({ "model": "sim-model", "prompt": "straight down",
                                       "max_tokens": tokens, "stream": stream });
        Self::post("/v1/completions", body.to_string()).with("content-type", "application/json")
    }

    /// A POST whose body is what is sent into the channel.
    pub fn upload(path: &str) -> (Self, mpsc::Sender<Bytes>) {
        let (sender, pieces) = mpsc::channel(1);
        let frames = ReceiverStream::new(pieces).map(|piece| Ok(Frame::data(piece)));
        let ask = Self { body: StreamBody::new(frames).boxed_unsync(), ..Self::post(path, "") };
        (ask, sender)
    }

    pub fn with(mut self, name: &'static str, value: &str) -> Self {
        let value = HeaderValue::from_str(value).expect("a header value");
        self.head.headers_mut().append(name, value);
        self
    }

    pub fn trailer(mut self, name: &'static str, value: &'static str) -> Self {
        let entry = (HeaderName::from_static(name), HeaderValue::from_static(value));
        self.trailers.get_or_insert_default().extend([entry].map(|(n, v)| (Some(n), v)));
        self
    }

    pub fn http2(mut self) -> Self {
        *self.head.version_mut() = Version::HTTP_2;
        self
    }

    /// Sends it and returns when the response's headers are there.
    pub async fn send(self, at: SocketAddr) -> Result<Answer, Error> {
        let Self { head, body, trailers } = self;
        let body = match trailers {
            None => body,
            Some(trailers) => {
                body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync()
            }
        };
        let mut request = head.map(|()| body);
        let io = TokioIo::new(TcpStream::connect(at).await?);
        let (response, task, sender): (_, _, Box<dyn Any + Send>) =
            if request.version() == Version::HTTP_2 {
                let uri = format!("http://{at}{}", request.uri());
                *request.uri_mut() = uri.parse()?;
                let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await?;
                let task = tokio::spawn(async move { drop(connection.await) });
                let connection = Connection(task.abort_handle());
                (sender.send_request(request).await?, connection, Box::new(sender))
            } else {
                let host = HeaderValue::from_str(&at.to_string())?;
                request.headers_mut().entry("host").or_insert(host);
                let (mut sender, connection) = http1::handshake(io).await?;
                let upgradable = connection.with_upgrades();
                let task = tokio::spawn(async move { drop(upgradable.await) });
                let connection = Connection(task.abort_handle());
                (sender.send_request(request).await?, connection, Box::new(sender))
            };
        Ok(Answer { response, _sender: sender, _connection: task })
    }

    /// Sends it and reads the whole answer; panics on a connection that breaks.
    pub async fn whole(self, at: SocketAddr) -> Whole {
        let path = self.head.uri().clone();
        let answer = super::soon(path.path(), async { self.send(at).await?.whole().await }).await;
        answer.unwrap_or_else(|error| panic!("{path} at {at}: {error}"))
    }
}

/// Closes the connection when it is dropped.
struct Connection(AbortHandle);

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response whose headers are there and whose body may still come.
pub struct Answer {
    pub response: http::Response<Incoming>,
    _sender: Box<dyn Any + Send>,
    _connection: Connection,
}

impl Answer {
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// The next piece of the body, `None` at its end.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            match self.response.body_mut().frame().await? {
                Err(error) => return Some(Err(error)),
                Ok(frame) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
            }
        }
    }

    /// The tunnel after an upgrade, and what keeps it open.
    pub async fn upgraded(self) -> (TokioIo<hyper::upgrade::Upgraded>, impl Sized) {
        let tunnel = hyper::upgrade::on(self.response).await.expect("an upgraded connection");
        (TokioIo::new(tunnel), self._connection)
    }

    pub async fn whole(self) -> Result<Whole, Error> {
        let (head, body) = self.response.into_parts();
        let body = body.collect().await?;
        Ok(Whole {
            status: head.status.as_u16(),
            headers: head.headers,
            trailers: body.trailers().cloned().unwrap_or_default(),
            body: body.to_bytes(),
        })
    }
}

/// A response to its end.
#[derive(Debug)]
pub struct Whole {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

impl Whole {
    /// The value of a header, empty without one.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    /// The simulated server that answered; panics on any other answer than 200.
    pub fn endpoint(&self) -> &str {
        assert_eq!(self.status, 200, "{self:?}");
        self.header("x-sim-endpoint")
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
