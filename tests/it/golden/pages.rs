//! The pools of the recorded setups: vLLM pages, the idle ones at the very addresses that dialogs name.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// Nothing to do.
pub const IDLE: &str = "vllm:num_requests_waiting 0\nvllm:num_requests_running 0\n\
                        vllm:kv_cache_usage_perc 0\n";
/// Far over the line.
pub const SATURATED: &str = "vllm:num_requests_waiting 50\nvllm:num_requests_running 0\n\
                             vllm:kv_cache_usage_perc 0.99\n";

/// Serves the pages until it is dropped.
pub struct Pages(#[allow(dead_code)] JoinSet<()>);

impl Pages {
    /// Two test processes may serve the same addresses side by side: their pages are equal.
    pub fn start(addresses: &[&str], page: &'static str) -> Self {
        let mut tasks = JoinSet::new();
        for address in addresses {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_reuseport(true).unwrap();
            socket.set_reuseaddr(true).unwrap();
            let address: SocketAddr = address.parse().unwrap();
            socket.bind(address).unwrap_or_else(|error| panic!("{address}: {error}"));
            tasks.spawn(serve(socket.listen(128).unwrap(), page));
        }
        Self(tasks)
    }
}

async fn serve(listener: TcpListener, page: &'static str) {
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        connections.spawn(async move { drop(answer(tcp, page).await) });
    }
}

/// Every request is one for the page; scrapers send no body.
async fn answer(mut tcp: TcpStream, page: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = tcp.read(&mut buffer).await?;
        if read == 0 {
            return Ok(());
        }
        head.extend(&buffer[..read]);
        if head.ends_with(b"\r\n\r\n") {
            head.clear();
            let length = page.len();
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{page}");
            tcp.write_all(answer.as_bytes()).await?;
        }
    }
}
