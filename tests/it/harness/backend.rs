//! A server that does exactly what a test says, for what the simulated ones do not do.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// An idle engine's page.
const IDLE: &str = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n\
                    vllm:kv_cache_usage_perc 0\n";

/// A running server; dropping it closes every connection.
pub struct Backend {
    pub at: SocketAddr,
    task: JoinHandle<()>,
}

impl Backend {
    /// Serves `/metrics` as an idle engine and everything else by `answer`; an error of `answer` cuts
    /// the connection.
    pub fn start<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = std::io::Result<Response<Full<Bytes>>>> + Send + 'static,
    {
        let at = super::free_port();
        let listener = std::net::TcpListener::bind(at).expect("the port");
        listener.set_nonblocking(true).expect("non-blocking");
        let listener = TcpListener::from_std(listener).expect("a listener");
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tcp, _)) = listener.accept().await {
                let answer = answer.clone();
                connections.spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let page = request.uri().path() == "/metrics";
                        let answer = (!page).then(|| answer(request));
                        async move {
                            match answer {
                                None => std::io::Result::Ok(Response::new(Full::from(IDLE))),
                                Some(answer) => answer.await,
                            }
                        }
                    });
                    let builder = Builder::new(TokioExecutor::new());
                    let io = TokioIo::new(tcp);
                    drop(builder.serve_connection_with_upgrades(io, service).await);
                });
            }
        });
        Self { at, task }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}
