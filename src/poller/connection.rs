//! One persistent HTTP/1.1 connection to one model server.
//!
//! Decides how a page is fetched: only status 200 counts, a redirection is followed to the same
//! server only, a page may come in gzip although none is asked for, a kept connection that turns out
//! closed is made anew at once. Time limits are the caller's.

use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::access::Access;
use super::answer::{Answer, AnswerError, AnswerReader, MAX_PAGE, Progress};
use super::buffers::{Buffers, Loan};

/// Redirections in a row that are followed.
const MAX_HOPS: usize = 3;

/// Why a fetch brought no page.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("connecting")]
    Connect(#[source] io::Error),
    #[error("TLS handshake")]
    Handshake(#[source] io::Error),
    #[error("sending the request")]
    Send(#[source] io::Error),
    #[error("reading the answer")]
    Receive(#[source] io::Error),
    #[error("reading the answer")]
    Answer(#[source] AnswerError),
    #[error("inflating the page")]
    Inflate(#[source] io::Error),
    #[error("status {0} instead of 200")]
    Status(u16),
    #[error("redirected to {0:?}, which is not on this server")]
    Elsewhere(String),
    #[error("redirected more than {MAX_HOPS} times")]
    TooManyHops,
}

/// A fetch that failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// Whether the server let us in and then said at least one byte.
    answered: bool,
}

impl Failure {
    /// Nobody answers there: worth a pause, unlike a server that answers badly.
    pub(super) fn is_connect(&self) -> bool {
        !self.answered
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let answered = !matches!(error, Error::Connect(_) | Error::Handshake(_));
        Self { error, answered }
    }
}

/// A connection that is made when needed and kept as long as it works.
pub(super) struct Connection {
    access: Arc<Access>,
    address: SocketAddr,
    open: Option<Stream>,
    request: Vec<u8>,
    buffers: Buffers,
}

/// A page in a buffer on loan.
pub(super) struct Fetched {
    loan: Loan,
    body: Range<usize>,
}

impl Fetched {
    /// The page's bytes.
    pub(super) fn page(&self) -> &[u8] {
        &self.loan.buffer[self.body.clone()]
    }
}

impl Connection {
    /// A connection to the metrics of the model server at `address`; nothing is sent yet.
    pub(super) fn new(access: Arc<Access>, mut address: SocketAddr, buffers: Buffers) -> Self {
        if let Some(port) = access.port {
            address.set_port(port);
        }
        Self { access, address, open: None, request: Vec::new(), buffers }
    }

    /// Fetches the page. May be given up at any time: a connection in use is dropped with the fetch, so
    /// that no half-read answer is left behind.
    ///
    /// # Errors
    /// [`Failure`]; the next fetch starts anew.
    pub(super) async fn get(&mut self) -> Result<Fetched, Failure> {
        let mut path = None;
        for _ in 0..=MAX_HOPS {
            self.access.request(&mut self.request, path.as_deref(), self.address);
            let (answer, mut loan) = self.exchange().await?;
            if matches!(answer.status, 301 | 302 | 303 | 307 | 308)
                && let Some(location) = answer.location
            {
                let here = self.access.local_path(&location, self.address);
                path = Some(here.ok_or(Error::Elsewhere(location))?);
                continue;
            }
            if answer.status != 200 {
                return Err(Error::Status(answer.status).into());
            }
            let mut body = answer.body;
            if answer.gzip {
                loan.buffer = inflate(&loan.buffer[body]).map_err(Error::Inflate)?;
                body = 0..loan.buffer.len();
            }
            return Ok(Fetched { loan, body });
        }
        Err(Error::TooManyHops.into())
    }

    /// Sends the request and reads its answer, over the kept connection where that still works.
    async fn exchange(&mut self) -> Result<(Answer, Loan), Failure> {
        if let Some(stream) = self.open.take() {
            match self.over(stream).await {
                // Servers close idle connections; that says nothing about the server.
                Err(failure) if !failure.answered => {}
                result => return result,
            }
        }
        let stream = self.connect().await?;
        self.over(stream).await
    }

    async fn over(&mut self, mut stream: Stream) -> Result<(Answer, Loan), Failure> {
        let silent = |error| Failure { error, answered: false };
        stream.write_all(&self.request).await.map_err(Error::Send).map_err(silent)?;
        stream.flush().await.map_err(Error::Send).map_err(silent)?;
        // A buffer is taken when there is something to put into it: those that wait need none, and
        // the one that was used last is still in the cache.
        stream.tcp().readable().await.map_err(Error::Receive).map_err(silent)?;
        let mut loan = self.buffers.take();
        let buffer = &mut loan.buffer;
        let mut reader = AnswerReader::default();
        let mut ended = false;
        loop {
            let failed = |error, buffer: &[u8]| Failure { error, answered: !buffer.is_empty() };
            let progress = reader.advance(buffer, ended);
            match progress.map_err(|error| failed(Error::Answer(error), buffer))? {
                Progress::Done(answer) => {
                    self.open = answer.keep.then_some(stream);
                    return Ok((answer, loan));
                }
                Progress::More(room) => {
                    buffer.reserve(room);
                    let read = stream.read_buf(buffer).await;
                    ended = read.map_err(|error| failed(Error::Receive(error), buffer))? == 0;
                }
            }
        }
    }

    async fn connect(&self) -> Result<Stream, Error> {
        let tcp = TcpStream::connect(self.address).await.map_err(Error::Connect)?;
        tcp.set_nodelay(true).map_err(Error::Connect)?;
        match &self.access.tls {
            None => Ok(Stream::Plain(tcp)),
            Some(tls) => {
                let connecting = tls.connector().connect(tls.name(self.address.ip()), tcp);
                Ok(Stream::Tls(Box::new(connecting.await.map_err(Error::Handshake)?)))
            }
        }
    }
}

/// The text of a gzip body, of any number of members.
fn inflate(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut page = Vec::with_capacity(body.len().saturating_mul(8).min(MAX_PAGE));
    let limit = MAX_PAGE as u64 + 1;
    flate2::read::MultiGzDecoder::new(body).take(limit).read_to_end(&mut page)?;
    if page.len() > MAX_PAGE {
        return Err(io::Error::other(AnswerError::TooLarge));
    }
    Ok(page)
}

/// What a connection runs over.
enum Stream {
    Plain(TcpStream),
    /// Boxed: a session is a kilobyte, and most pools have none.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Self::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}
