//! A port that answers HTTP from memory: the accept loop that such ports share.
//!
//! Decides how long a client may take for its handshake and its headers, and that a failed accept or
//! handshake costs that connection alone. What is answered is the caller's.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

/// Longest TLS handshake, and wait for the headers of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// Answers every request with `answer`, which is told the client's address, until `stop` turns true.
/// `part` names the port in logs, with its article.
pub async fn serve<F>(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    part: &'static str,
    answer: F,
    mut stop: watch::Receiver<bool>,
) where
    F: Fn(&Request<Incoming>, SocketAddr) -> Response<Full<Bytes>> + Clone + Send + Sync + 'static,
{
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        let (tcp, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "accepting {part} connection failed");
                // Out of file descriptors the next accept fails at once; do not spin on it.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let (tls, answer) = (tls.clone(), answer.clone());
        tokio::spawn(async move {
            let answer = move |request: &_| answer(request, peer);
            let Some(tls) = tls else { return connection(TokioIo::new(tcp), answer).await };
            match tokio::time::timeout(LIMIT, tls.accept(tcp)).await {
                Ok(Ok(stream)) => connection(TokioIo::new(stream), answer).await,
                Ok(Err(error)) => tracing::debug!(%peer, %error, "{part} handshake failed"),
                Err(_) => {}
            }
        });
    }
}

async fn connection<S>(stream: S, answer: impl Fn(&Request<Incoming>) -> Response<Full<Bytes>>)
where
    S: Read + Write + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let response = answer(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    // A client that sends its headers byte by byte does not keep a connection for ever.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(LIMIT);
    // A client that goes away mid-request is its own business.
    let _ = builder.serve_connection(stream, service).await;
}
