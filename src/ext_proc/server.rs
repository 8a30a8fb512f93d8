//! Connections of the gateway: one acceptor deals them to data threads, each a current-thread runtime.
//!
//! Decides which thread serves a connection (the one with the fewest) and how a drain ends: a GOAWAY,
//! then the open streams finish. An Envoy opens one connection per worker, so dealing connections, not
//! streams, spreads the load.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::Service;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

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
pub async fn serve<S, B>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: S,
    threads: Threads,
    mut drain: watch::Receiver<bool>,
) -> io::Result<()>
where
    S: Serve<B>,
    B: Answer,
{
    let mut data = Vec::new();
    let mut joins = Vec::new();
    let count = if let Threads::Own(count) = threads { count.max(1) } else { 1 };
    for index in 0..count {
        let (connections, incoming) = mpsc::unbounded_channel();
        let open = Arc::new(());
        let run = run(incoming, Arc::clone(&open), tls.clone(), service.clone(), drain.clone());
        joins.push(match threads {
            Threads::Here => tokio::spawn(async move {
                run.await;
                Ok(())
            }),
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
    run: impl Future<Output = ()> + Send + 'static,
) -> io::Result<std::thread::JoinHandle<io::Result<()>>> {
    std::thread::Builder::new().name(format!("data-{index}")).spawn(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run);
        Ok(())
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

/// One data thread: serves the connections that are dealt to it until there are no more.
async fn run<S, B>(
    mut dealt: mpsc::UnboundedReceiver<std::net::TcpStream>,
    open: Arc<()>,
    tls: Option<TlsAcceptor>,
    service: S,
    drain: watch::Receiver<bool>,
) where
    S: Serve<B>,
    B: Answer,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            tcp = dealt.recv() => {
                let Some(tcp) = tcp else { break };
                let (tls, service, drain) = (tls.clone(), service.clone(), drain.clone());
                let open = Arc::clone(&open);
                connections.spawn(async move {
                    match establish(tcp, tls).await {
                        Ok(Io::Plain(tcp)) => connection(TokioIo::new(tcp), service, drain).await,
                        Ok(Io::Tls(tls)) => connection(TokioIo::new(*tls), service, drain).await,
                        Err(error) => tracing::debug!(%error, "an ext_proc handshake failed"),
                    }
                    drop(open);
                });
            }
            // Only so that they do not gather: a connection that failed is the gateway's business.
            Some(_) = connections.join_next() => {}
        }
    }
    while connections.join_next().await.is_some() {}
}

/// One connection until the gateway closes it, or until a drain has let its streams end.
async fn connection<Io, S, B>(io: Io, service: S, mut drain: watch::Receiver<bool>)
where
    Io: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    S: Serve<B>,
    B: Answer,
{
    let mut http2 = http2::Builder::new(TokioExecutor::new());
    http2
        .timer(TokioTimer::new())
        .auto_date_header(false)
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
        .max_local_error_reset_streams(None)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT);
    let mut serving = pin!(http2.serve_connection(io, service));
    let ended = tokio::select! {
        biased;
        ended = serving.as_mut() => Some(ended),
        () = drained(&mut drain) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an ext_proc connection broke");
    }
}

async fn drained(drain: &mut watch::Receiver<bool>) {
    // A dropped sender is a process on its way out.
    let _ = drain.wait_for(|draining| *draining).await;
}

enum Io {
    Plain(TcpStream),
    Tls(Box<tokio_rustls::server::TlsStream<TcpStream>>),
}

async fn establish(tcp: std::net::TcpStream, tls: Option<TlsAcceptor>) -> io::Result<Io> {
    let tcp = TcpStream::from_std(tcp)?;
    // Without it every small answer waits for the peer's delayed acknowledgement: 44 ms.
    tcp.set_nodelay(true)?;
    let Some(acceptor) = tls else { return Ok(Io::Plain(tcp)) };
    let handshake = tokio::time::timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp));
    Ok(Io::Tls(Box::new(handshake.await??)))
}

/// What answers the requests of a port; one clone a connection.
pub trait Serve<B>:
    Service<
        Request<Incoming>,
        Response = Response<B>,
        Error: std::error::Error + Send + Sync,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
}

impl<B, S> Serve<B> for S where
    S: Service<
            Request<Incoming>,
            Response = Response<B>,
            Error: std::error::Error + Send + Sync,
            Future: Send,
        > + Clone
        + Send
        + 'static
{
}

/// The body of such an answer.
pub trait Answer:
    Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static
{
}

impl<B> Answer for B where
    B: Body<Data: Send, Error: std::error::Error + Send + Sync> + Send + 'static
{
}
