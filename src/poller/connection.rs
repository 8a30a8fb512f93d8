//! One persistent HTTP/1.1 connection to one model server.
//!
//! Decides how a page is fetched: only status 200 counts, a page is at most 8 MiB, a broken connection
//! is made anew by the next fetch. Time limits are the caller's.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// Largest page that is read.
const MAX_PAGE: usize = 8 << 20;

/// Why a fetch brought no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("connecting")]
    Connect(#[source] std::io::Error),
    #[error("fetching the page")]
    Fetch(#[source] hyper::Error),
    #[error("building the request")]
    Request(#[source] http::Error),
    #[error("status {0} instead of 200")]
    Status(StatusCode),
    #[error("the page is over {MAX_PAGE} bytes")]
    TooLarge,
}

impl Error {
    /// Nobody listens there: worth a pause, unlike a server that answers badly.
    pub(super) fn is_connect(&self) -> bool {
        matches!(self, Self::Connect(_))
    }
}

/// A connection that is made when needed and kept as long as it works.
pub(super) struct Connection {
    address: SocketAddr,
    open: Option<Open>,
    page: BytesMut,
}

struct Open {
    send: SendRequest<Empty<Bytes>>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Connection {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, open: None, page: BytesMut::new() }
    }

    /// Drops the connection, after a fetch that was given up.
    pub(super) fn reset(&mut self) {
        self.open = None;
    }

    /// Fetches `path`; the page is valid until the next call.
    pub(super) async fn get(&mut self, path: &str) -> Result<&[u8], Error> {
        // Taken out while in use: a fetch that is given up half way leaves no half-read connection.
        let mut open = match self.open.take().filter(|open| open.send.is_ready()) {
            Some(open) => open,
            None => self.connect().await?,
        };
        let request = Request::get(path)
            .header(header::HOST, self.address.to_string())
            .header(header::ACCEPT, "text/plain;version=0.0.4")
            .body(Empty::new())
            .map_err(Error::Request)?;
        let response = open.send.send_request(request).await.map_err(Error::Fetch)?;
        let status = response.status();
        let mut body = response.into_body();
        self.page.clear();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(Error::Fetch)?;
            let Some(data) = frame.data_ref() else { continue };
            if self.page.len() + data.len() > MAX_PAGE {
                return Err(Error::TooLarge);
            }
            self.page.extend_from_slice(data);
        }
        // Ready again once the connection task has seen the end of this exchange.
        if open.send.ready().await.is_ok() {
            self.open = Some(open);
        }
        if status == StatusCode::OK { Ok(&self.page) } else { Err(Error::Status(status)) }
    }

    async fn connect(&self) -> Result<Open, Error> {
        let tcp = TcpStream::connect(self.address).await.map_err(Error::Connect)?;
        tcp.set_nodelay(true).map_err(Error::Connect)?;
        let (send, connection) = handshake(TokioIo::new(tcp)).await.map_err(Error::Fetch)?;
        // Its end is seen by the sender; the error says no more than that.
        let task = tokio::spawn(async move { drop(connection.await) });
        Ok(Open { send, task: task.abort_handle() })
    }
}
