//! Accepts connections and cuts them: HTTP/1.1 and HTTP/2 with prior knowledge on one port.
//!
//! Decides how long a connection lives; what it answers is `http`'s.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::http;
use super::state::State;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Serves until `killed` turns true or its sender is gone; then every connection and the engine end.
pub(super) async fn serve(
    listener: TcpListener,
    state: Arc<State>,
    mut killed: watch::Receiver<bool>,
) {
    let mut tasks = JoinSet::new();
    let driven = Arc::clone(&state);
    tasks.spawn(async move { driven.drive().await });
    let mut connection = 0;
    loop {
        tokio::select! {
            () = ended(&mut killed) => break,
            stream = accept(&listener) => {
                let Some(stream) = stream else { continue };
                connection += 1;
                tasks.spawn(connect(stream, connection, Arc::clone(&state)));
            }
            Some(_) = tasks.join_next() => {}
        }
    }
    drop(listener);
    tasks.shutdown().await;
}

async fn ended(killed: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end as well.
    let _ = killed.wait_for(|killed| *killed).await;
}

/// The next connection. A failed attempt (no descriptors left) waits a moment, or it would spin.
async fn accept(listener: &TcpListener) -> Option<TcpStream> {
    if let Ok((stream, _)) = listener.accept().await {
        return Some(stream);
    }
    tokio::time::sleep(ACCEPT_PAUSE).await;
    None
}

async fn connect(stream: TcpStream, connection: u64, state: Arc<State>) {
    // Only latency is lost where the option is refused.
    let _ = stream.set_nodelay(true);
    let mut cuts = state.cuts();
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { http::answer(state, connection, request).await }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new());
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(None);
    let mut served = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        tokio::select! {
            // How a connection ended is its client's business.
            _ = served.as_mut() => return,
            changed = cuts.changed() => {
                let cut = *cuts.borrow_and_update();
                if changed.is_err() || cut.except != Some(connection) {
                    return;
                }
            }
        }
    }
}
