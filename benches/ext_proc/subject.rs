//! A server under load, in a process of its own so that its CPU time and memory can be read.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::Channel;

use crate::client::run;

/// How long one turn is measured.
const RUN: Duration = Duration::from_secs(2);

/// One of the servers that are compared.
pub(crate) struct Subject {
    pub(crate) process: Child,
    address: SocketAddr,
}

/// What one turn showed.
pub(crate) struct Figures {
    pub(crate) per_second: f64,
    pub(crate) cpu_micros: f64,
    pub(crate) p99_micros: f64,
}

impl Subject {
    pub(crate) fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let address = plumbline::envoy::free_port().unwrap();
        Self::spawn(command(address), address)
    }

    pub(crate) fn spawn(mut command: Command, address: SocketAddr) -> Self {
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // A child inherits the client's core.
        pin(process.id(), 0);
        Self { process, address }
    }

    /// A picker of the endpoints at these ports.
    pub(crate) fn picker(ports: impl Iterator<Item = u16>) -> Self {
        let endpoints: Vec<_> = ports.map(|port| format!("127.0.0.1:{port}")).collect();
        Self::start(|at| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
            command
                .args(["--bind-address", "127.0.0.1", "--secure-serving=false", "--cores", "1"])
                .args(["--grpc-health-port", "0", "--metrics-port", "0"])
                .args(["--endpoints", &endpoints.join(","), "--grpc-port", &at.port().to_string()]);
            command
        })
    }

    /// Time on a core so far, in microseconds. The kernel counts it in nanoseconds here; the ticks of
    /// `/proc/PID/stat` misjudge a server that sleeps between short bursts.
    pub(crate) fn cpu_micros(&self) -> f64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).unwrap();
        let nanos = tasks.map(|task| {
            let path = task.unwrap().path().join("schedstat");
            let line = std::fs::read_to_string(path).unwrap_or_default();
            line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0)
        });
        nanos.sum::<f64>() / 1000.0
    }

    /// Memory that is in use now.
    pub(crate) fn resident_bytes(&self) -> f64 {
        let path = format!("/proc/{}/status", self.process.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() * 1024.0
    }

    pub(crate) async fn connect(&self) -> Channel {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match endpoint.connect().await {
                Ok(channel) => return channel,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn load(&self, at_a_time: usize, bytes: usize) -> Figures {
        let client = self.connect().await;
        run(&client, at_a_time, bytes, RUN / 4).await;
        let before = self.cpu_micros();
        let start = Instant::now();
        let mut times = run(&client, at_a_time, bytes, RUN).await;
        let (took, requests) = (start.elapsed(), times.len());
        times.sort_unstable();
        Figures {
            per_second: requests as f64 / took.as_secs_f64(),
            cpu_micros: (self.cpu_micros() - before) / requests as f64,
            p99_micros: times[requests * 99 / 100].as_secs_f64() * 1e6,
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Keeps a process on one core; without `taskset` the scheduler decides.
pub(crate) fn pin(process: u32, core: u8) {
    let _ = Command::new("taskset")
        .args(["-a", "-p", "-c", &core.to_string(), &process.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}
