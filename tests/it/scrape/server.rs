//! A model server that answers as it is told, byte by byte, in plain text or TLS.
//!
//! Decides nothing: what a request is answered with is the test's closure; what came is kept.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// What to do with one request.
#[derive(Clone)]
pub struct Reply {
    pub bytes: Vec<u8>,
    /// Waits before anything is sent.
    pub delay: Duration,
    /// Closes the connection afterwards.
    pub close: bool,
}

impl Reply {
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), delay: Duration::ZERO, close: false }
    }

    /// Status 200 with this page.
    pub fn page(page: &str) -> Self {
        Self::with("200 OK", "", page.as_bytes())
    }

    /// Status, further header lines (each ended), body.
    pub fn with(status: &str, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\n\r\n");
        Self::raw([head.as_bytes(), body].concat())
    }

    /// Half of the page and then nothing more.
    pub fn half(page: &str) -> Self {
        let mut reply = Self::page(page);
        reply.bytes.truncate(reply.bytes.len() - page.len() / 2);
        reply
    }
}

type Answer = dyn Fn(&str) -> Reply + Send + Sync;

#[derive(Clone)]
pub struct Server {
    pub address: SocketAddr,
    /// Heads of the requests so far.
    pub heads: Arc<Mutex<Vec<String>>>,
    pub connections: Arc<AtomicUsize>,
    /// Requests that are being answered, and the most there were.
    busy: Arc<AtomicUsize>,
    pub most_busy: Arc<AtomicUsize>,
    answer: Arc<Answer>,
}

impl Server {
    pub async fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Self {
        Self::over(None, answer).await
    }

    pub async fn over(
        tls: Option<TlsAcceptor>,
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            heads: Arc::default(),
            connections: Arc::default(),
            busy: Arc::default(),
            most_busy: Arc::default(),
            answer: Arc::new(answer),
        };
        let this = server.clone();
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                this.connections.fetch_add(1, Ordering::Relaxed);
                let (this, tls) = (this.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => this.serve(tcp).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(tcp).await {
                                this.serve(stream).await;
                            }
                        }
                    }
                });
            }
        });
        server
    }

    /// The head of the newest request.
    pub fn last_head(&self) -> String {
        self.heads.lock().unwrap().last().cloned().unwrap_or_default()
    }

    async fn serve(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut head = Vec::new();
        // Byte by byte, so that nothing of a next request is swallowed.
        while let Ok(byte) = stream.read_u8().await {
            head.push(byte);
            if !head[0].is_ascii_uppercase() {
                // The hello of a TLS client.
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
                return;
            }
            if !head.ends_with(b"\r\n\r\n") {
                continue;
            }
            let text = String::from_utf8(std::mem::take(&mut head)).unwrap();
            let reply = (self.answer)(&text);
            self.heads.lock().unwrap().push(text);
            let busy = self.busy.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_busy.fetch_max(busy, Ordering::SeqCst);
            if !reply.delay.is_zero() {
                // A server notices that its client has gone.
                let gone = async {
                    let mut byte = [0];
                    while !matches!(stream.read(&mut byte).await, Ok(0) | Err(_)) {}
                };
                let _ = tokio::time::timeout(reply.delay, gone).await;
            }
            let sent = stream.write_all(&reply.bytes).await;
            let _ = stream.flush().await;
            self.busy.fetch_sub(1, Ordering::SeqCst);
            if reply.close || sent.is_err() {
                let _ = stream.shutdown().await;
                return;
            }
        }
    }
}
