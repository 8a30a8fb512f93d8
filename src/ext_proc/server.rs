//! Connections of the gateway: one acceptor deals them to data threads, each a current-thread runtime.
//!
//! Decides which thread serves a connection (the one with the fewest) and how a drain ends: a GOAWAY,
//! then the open streams finish. An Envoy opens one connection per worker, so dealing connections, not
//! streams, spreads the load.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;

/// Resets that a connection may have pending. The default of 20 lets a burst of client aborts close
/// the connection under everybody else's requests.
const MAX_PENDING_RESETS: usize = 100_000;
/// How often a silent gateway is asked whether it still lives. A host that died without a word would
/// otherwise leave its streams, and what they hold, behind for ever.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long it may take to answer that.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Window of one stream in bytes. A stream whose answers the gateway does not take is not read either,
/// and keeps as much of what the gateway sends.
const STREAM_WINDOW: u32 = 1 << 20;
/// Window of a connection in bytes, the largest there is: were it used up by streams that are not read,
/// all others of the connection would stand still.
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Longest TLS handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Where the data threads come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Threads {
    /// Serve on the calling runtime; for one core, and for tests that pause time.
    Here,
    /// So many threads of their own; at least 1.
    Own(usize),
}

/// The dealing side of one data thread.
#[derive(Clone)]
struct DataThread {
    connections: mpsc::UnboundedSender<std::net::TcpStream>,
    /// Strong references minus ours are the open connections.
    open: Arc<()>,
}

/// Serves until `drain` turns true and every open stream has ended.
///
/// # Errors
/// A data thread that cannot start, or a listener that fails for good.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    routes: Routes,
    threads: Threads,
    mut drain: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut data = Vec::new();
    let mut joins = Vec::new();
    let count = if let Threads::Own(count) = threads { count.max(1) } else { 1 };
    for index in 0..count {
        let (connections, incoming) = mpsc::unbounded_channel();
        let open = Arc::new(());
        let run = run(incoming, Arc::clone(&open), tls.clone(), routes.clone(), drain.clone());
        joins.push(match threads {
            Threads::Here => tokio::spawn(run),
            Threads::Own(_) => {
                let thread = spawn_thread(index, run)?;
                tokio::task::spawn_blocking(move || {
                    thread.join().map_err(|_| io::Error::other("a data thread panicked"))?
                })
            }
        });
        data.push(DataThread { connections, open });
    }
    tokio::select! {
        () = deal(&listener, &data) => {}
        _ = drain.wait_for(|draining| *draining) => {}
    }
    drop(listener);
    drop(data);
    for join in joins {
        join.await.map_err(io::Error::other)??;
    }
    Ok(())
}

fn spawn_thread(
    index: usize,
    run: impl Future<Output = io::Result<()>> + Send + 'static,
) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
    std::thread::Builder::new().name(format!("data-{index}")).spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run)
    })
}

/// Accepts for ever; an accept error (too many files, an aborted handshake) costs that connection.
async fn deal(listener: &TcpListener, data: &[DataThread]) {
    loop {
        match listener.accept().await.and_then(|(tcp, _)| tcp.into_std()) {
            Ok(tcp) => {
                let least = data.iter().min_by_key(|thread| Arc::strong_count(&thread.open));
                if let Some(thread) = least {
                    // A closed channel is a thread that is gone; its join reports why.
                    let _ = thread.connections.send(tcp);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "accepting an ext_proc connection failed");
                // Out of file descriptors the next accept fails at once; do not spin on it.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// One data thread: hands its connections to a tonic server of its own.
async fn run(
    mut dealt: mpsc::UnboundedReceiver<std::net::TcpStream>,
    open: Arc<()>,
    tls: Option<TlsAcceptor>,
    routes: Routes,
    mut drain: watch::Receiver<bool>,
) -> io::Result<()> {
    let (ready, mut accepted) = mpsc::channel::<io::Result<Connection>>(16);
    let handshakes = async move {
        while let Some(tcp) = dealt.recv().await {
            let (ready, tls, open) = (ready.clone(), tls.clone(), Arc::clone(&open));
            tokio::spawn(async move {
                match Connection::establish(tcp, tls, open).await {
                    // A closed channel means that the server drains; the connection is dropped.
                    Ok(connection) => drop(ready.send(Ok(connection)).await),
                    Err(error) => tracing::debug!(%error, "an ext_proc handshake failed"),
                }
            });
        }
    };
    tokio::spawn(handshakes);
    let incoming = stream::poll_fn(move |cx| accepted.poll_recv(cx));
    Server::builder()
        .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .add_routes(routes)
        .serve_with_incoming_shutdown(incoming, async move {
            // A dropped sender is a process on its way out.
            let _ = drain.wait_for(|draining| *draining).await;
        })
        .await
        .map_err(io::Error::other)
}

/// One gateway connection, plain or TLS, counted while it is open.
struct Connection {
    io: Io,
    _open: Arc<()>,
}

enum Io {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

impl Connection {
    async fn establish(
        tcp: std::net::TcpStream,
        tls: Option<TlsAcceptor>,
        open: Arc<()>,
    ) -> io::Result<Self> {
        let tcp = TcpStream::from_std(tcp)?;
        // Without it every small answer waits for the peer's delayed acknowledgement: 44 ms.
        tcp.set_nodelay(true)?;
        let io = match tls {
            None => Io::Plain(tcp),
            Some(acceptor) => {
                let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp));
                Io::Tls(Box::new(handshake.await??))
            }
        };
        Ok(Self { io, _open: open })
    }
}

impl Connected for Connection {
    type ConnectInfo = Option<SocketAddr>;

    fn connect_info(&self) -> Self::ConnectInfo {
        match &self.io {
            Io::Plain(tcp) => tcp.peer_addr().ok(),
            Io::Tls(tls) => tls.get_ref().0.peer_addr().ok(),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_read(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write(cx, buf),
            Io::Tls(io) => Pin::new(io).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_write_vectored(cx, bufs),
            Io::Tls(io) => Pin::new(io).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.io {
            Io::Plain(io) => io.is_write_vectored(),
            Io::Tls(io) => io.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_flush(cx),
            Io::Tls(io) => Pin::new(io).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Io::Plain(io) => Pin::new(io).poll_shutdown(cx),
            Io::Tls(io) => Pin::new(io).poll_shutdown(cx),
        }
    }
}
