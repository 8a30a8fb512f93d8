//! `plumbline sim`: the flags of the simulated model servers, and the run from bind to signal.
//!
//! Decides names, addresses and defaults of a set of servers; what a server does is `sim`'s.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::sim::{EngineSettings, Handle, Server, Settings};
use crate::units::GoDuration;

const EXAMPLES: &str = "\
Examples:
  Four servers on ports 8000 to 8003, and the file that Plumbline discovers them by:
    plumbline sim --count 4 --endpoints-file endpoints.yaml

  A small, slow one that fills up soon:
    plumbline sim --max-num-seqs 4 --num-gpu-blocks 512 --time-per-output-token 50ms

  Ask it, and watch it:
    curl localhost:8000/v1/completions -d '{\"prompt\": \"Hello\", \"max_tokens\": 32, \"stream\": true}'
    curl localhost:8000/metrics

  Pretend, break, restart:
    curl localhost:8000/admin/set -d '{\"waiting\": 12, \"kv\": 0.93}'
    curl localhost:8000/admin/set -d '{\"waiting\": null, \"kv\": null, \"freeze_metrics\": true}'
    curl localhost:8000/admin/set -d '{\"metrics\": \"hang\"}'  (ok, 500, empty, garbage)
    curl localhost:8000/admin/set -d '{\"fault\": {\"kind\": \"status\", \"code\": 503, \"ratio\": 0.5}}'
    curl localhost:8000/admin/set -d '{\"fault\": {\"kind\": \"slow\", \"delay_ms\": 250}}'  (or hang, drop)
    curl localhost:8000/admin/set -d '{\"fault\": null}'
    curl -X POST localhost:8000/admin/restart
    curl localhost:8000/admin/state
    curl localhost:8000/admin/received

  Check that a proxy changes no byte:
    curl -i localhost:8000/echo --data-binary @body.json";

/// Run simulated model servers that speak the OpenAI API and report as vLLM does.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// First port; server i listens on this plus i (0: any free port for each).
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Servers in this process, named sim-0, sim-1, ...
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub count: u16,
    /// Address to listen on.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    pub bind_address: IpAddr,
    /// Listen on exactly these, comma-separated, instead: `127.0.0.1:8000,[::1]:8001`.
    #[arg(long, value_delimiter = ',', conflicts_with_all = ["port", "count", "bind_address"])]
    pub listen: Vec<SocketAddr>,
    /// Write the servers to this file, in the form that Plumbline's file discovery reads.
    #[arg(long, value_name = "PATH")]
    pub endpoints_file: Option<PathBuf>,
    /// Name of the model.
    #[arg(long, default_value = "sim-model")]
    pub model: String,
    /// LoRA adapters, comma-separated.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub loras: Vec<String>,
    /// Adapters in one batch, as the metrics page states it.
    #[arg(long, default_value_t = 4)]
    pub max_loras: usize,
    /// Answer 404 to requests for any other model.
    #[arg(long)]
    pub check_model: bool,
    /// Seed of the draw that decides which request a fault strikes.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
}

/// The engine's knobs.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Engine")]
struct EngineArgs {
    /// Sequences that run together at most.
    #[arg(long, default_value_t = EngineSettings::default().max_num_seqs)]
    max_num_seqs: usize,
    /// Tokens that one step computes at most.
    #[arg(long, default_value_t = EngineSettings::default().max_num_batched_tokens)]
    max_num_batched_tokens: u64,
    /// Tokens per KV block.
    #[arg(long, default_value_t = EngineSettings::default().block_size)]
    block_size: u64,
    /// KV blocks; with the block size also the longest request.
    #[arg(long, default_value_t = EngineSettings::default().num_gpu_blocks)]
    num_gpu_blocks: u64,
    /// Prompt tokens computed per second.
    #[arg(long, default_value_t = EngineSettings::default().prefill_tokens_per_second)]
    prefill_tokens_per_second: f64,
    /// Length of a decode step with one sequence, such as 10ms.
    #[arg(long, default_value = "10ms", value_parser = length_of_time)]
    time_per_output_token: Duration,
    /// How much longer a decode step takes with a full batch: 0.5 is half as long again.
    #[arg(long, default_value_t = EngineSettings::default().batch_slowdown)]
    batch_slowdown: f64,
    /// Compute every prompt in full, however well its beginning is known.
    #[arg(long)]
    no_prefix_caching: bool,
}

fn length_of_time(text: &str) -> Result<Duration, String> {
    let duration = GoDuration::parse(text).map_err(|error| error.to_string())?;
    duration.to_std().ok_or_else(|| "must not be negative".to_owned())
}

impl Args {
    /// The settings that the flags describe; the engine's are not checked yet.
    pub fn settings(&self) -> Settings {
        let engine = &self.engine;
        Settings {
            model: self.model.clone(),
            loras: self.loras.clone(),
            max_loras: self.max_loras,
            check_model: self.check_model,
            seed: self.seed,
            engine: EngineSettings {
                max_num_seqs: engine.max_num_seqs,
                max_num_batched_tokens: engine.max_num_batched_tokens,
                block_size: engine.block_size,
                num_gpu_blocks: engine.num_gpu_blocks,
                prefill_tokens_per_second: engine.prefill_tokens_per_second,
                time_per_output_token: engine.time_per_output_token,
                batch_slowdown: engine.batch_slowdown,
                prefix_caching: !engine.no_prefix_caching,
            },
        }
    }

    /// Where the servers listen, in the order of their numbers.
    ///
    /// # Errors
    /// When a port would be above 65535.
    pub fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        if !self.listen.is_empty() {
            return Ok(self.listen.clone());
        }
        (0..self.count)
            .map(|i| {
                let port = if self.port == 0 { Some(0) } else { self.port.checked_add(i) };
                let Some(port) = port else {
                    bail!("--port {} and --count {} need ports above 65535", self.port, self.count);
                };
                Ok(SocketAddr::new(self.bind_address, port))
            })
            .collect()
    }
}

/// Runs the servers until SIGINT or SIGTERM, on a runtime of its own.
///
/// # Errors
/// Settings that contradict themselves, an address that cannot be listened on, or an endpoints file
/// that cannot be written.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    // Before the first line is printed, so that whoever reads it can already end us.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let servers = start(args)?;
    for server in &servers {
        println!("{} http://{}", server.name(), server.addr());
    }
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    for server in servers {
        server.stop().await;
    }
    Ok(())
}

/// Binds every address, then starts a server on each and writes the endpoints file, where asked for.
///
/// # Errors
/// As [`run`]; no server is left behind.
pub fn start(args: &Args) -> anyhow::Result<Vec<Handle>> {
    let settings = args.settings();
    settings.engine.check().map_err(anyhow::Error::msg)?;
    let mut listeners = Vec::new();
    for address in args.addresses()? {
        let listener =
            TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
        listeners.push(listener);
    }
    let mut servers = Vec::new();
    for (i, listener) in listeners.into_iter().enumerate() {
        servers.push(Server::start(format!("sim-{i}"), listener, settings.clone())?);
    }
    if let Some(path) = &args.endpoints_file {
        write_endpoints(path, &servers)
            .with_context(|| format!("cannot write the endpoints file {}", path.display()))?;
    }
    Ok(servers)
}

/// Writes beside the file, then moves it into place: a watcher never reads half a document.
fn write_endpoints(path: &Path, servers: &[Handle]) -> std::io::Result<()> {
    let mut document = String::from("endpoints:\n");
    for server in servers {
        let (name, address) = (server.name(), reachable(server.addr().ip()));
        let port = server.addr().port();
        let _ =
            writeln!(document, "- name: \"{name}\"\n  address: \"{address}\"\n  port: \"{port}\"");
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, document)?;
    std::fs::rename(&beside, path)
}

/// An address to connect to: one that listens everywhere is reached on loopback.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(flags: &str) -> Result<Args, clap::Error> {
        let words = std::iter::once("sim").chain(flags.split_whitespace());
        Command::try_parse_from(words).map(|command| command.args)
    }

    /// Mutant: a flag whose default is not the library's.
    #[test]
    fn without_flags_it_is_the_default_server_on_port_8000() {
        let args = parse("").unwrap();
        assert_eq!(args.settings(), Settings::default());
        assert_eq!(args.addresses().unwrap(), ["127.0.0.1:8000".parse().unwrap()]);
    }

    /// Mutant: ports that do not count up, or that wrap at the end.
    #[test]
    fn ports_count_up_and_end_at_65535() {
        let ports = |flags: &str| -> Vec<u16> {
            let addresses = parse(flags).unwrap().addresses().unwrap();
            addresses.iter().map(SocketAddr::port).collect()
        };
        assert_eq!(ports("--port 9000 --count 3"), [9000, 9001, 9002]);
        assert_eq!(ports("--port 0 --count 2"), [0, 0]);
        assert_eq!(ports("--listen 127.0.0.1:7,[::1]:9"), [7, 9]);
        let error = parse("--port 65535 --count 2").unwrap().addresses().unwrap_err().to_string();
        assert!(error.contains("--port 65535 and --count 2"), "{error}");
    }

    #[test]
    fn bad_flags_are_refused_by_name() {
        for (flags, part) in [
            ("--time-per-output-token 10", "missing unit"),
            ("--time-per-output-token=-10ms", "must not be negative"),
            ("--count 0", "--count"),
            ("--listen 127.0.0.1:1 --port 5", "--port"),
        ] {
            let error = parse(flags).unwrap_err().to_string();
            assert!(error.contains(part), "{flags}: {error}");
        }
        let error = start(&parse("--max-num-seqs 5000").unwrap()).unwrap_err().to_string();
        assert!(error.contains("max_num_batched_tokens 2048 must be at least"), "{error}");
    }

    /// Mutants: the bind address instead of one to connect to, or port 0 instead of the bound one.
    #[tokio::test]
    async fn the_endpoints_file_names_what_is_listened_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("endpoints.yaml");
        let flags = format!(
            "--bind-address 0.0.0.0 --port 0 --count 2 --endpoints-file {}",
            path.display()
        );
        let servers = start(&parse(&flags).unwrap()).unwrap();
        let ports: Vec<_> = servers.iter().map(|server| server.addr().port()).collect();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            format!(
                "endpoints:\n- name: \"sim-0\"\n  address: \"127.0.0.1\"\n  port: \"{}\"\n\
                 - name: \"sim-1\"\n  address: \"127.0.0.1\"\n  port: \"{}\"\n",
                ports[0], ports[1]
            )
        );
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
