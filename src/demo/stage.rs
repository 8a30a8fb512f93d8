//! What stands while the demo runs: four simulated model servers, a Plumbline process, an Envoy.
//!
//! Decides ports, flags and files, and that everything ends with the stage: servers, processes and the
//! folder alike. Reads no load and judges nothing.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use super::client::Client;
use crate::envoy::{self, Bootstrap, Cluster, Envoy, Modes, free_port};
use crate::sim::{Change, EngineSettings, Handle, Server, Settings};

/// Model servers.
const SERVERS: usize = 4;
/// Longest wait for Plumbline's start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Small engines, so that a few dozen requests a second fill them to about two thirds.
fn engine() -> EngineSettings {
    EngineSettings {
        max_num_seqs: 16,
        num_gpu_blocks: 1024,
        prefill_tokens_per_second: 20_000.0,
        time_per_output_token: Duration::from_millis(15),
        ..EngineSettings::default()
    }
}

/// A folder that goes with its value.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> io::Result<Self> {
        let name = format!("plumbline-demo-{}-{:08x}", std::process::id(), rand::random::<u32>());
        let path = std::env::temp_dir().join(name);
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The last act of a demo: nobody is left to hear of a failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// One simulated model server; `None` while it is killed.
struct Model {
    name: String,
    address: SocketAddr,
    server: Option<Handle>,
}

/// Everything that runs. Dropping it ends everything; the folder goes last.
pub(super) struct Stage {
    models: Vec<Model>,
    envoy: Envoy,
    plumbline: Plumbline,
    /// Where clients go.
    pub(super) gateway: SocketAddr,
    /// Envoy's access log.
    pub(super) access_log: PathBuf,
    folder: Folder,
}

impl Stage {
    /// Starts everything and returns when all of it is ready. `params` goes to Plumbline as it is.
    pub(super) async fn start(client: &Client, params: Option<&str>) -> Result<Self> {
        let folder = Folder::new().context("making a folder for the demo's files")?;
        let models = (0..SERVERS).map(start_model).collect::<Result<Vec<_>>>()?;
        let endpoints = folder.0.join("endpoints.yaml");
        std::fs::write(&endpoints, endpoints_file(&models)).context("writing the endpoints")?;
        let flags = params.map(|params| format!("--params={params}")).into_iter().collect();
        let mut plumbline = Plumbline::start(&endpoints, flags, &folder.0)?;
        // Envoy asks the picker's health once at its start, and then a second later.
        plumbline.wait_ready(client).await?;
        let access_log = folder.0.join("access.jsonl");
        let log = Some(access_log.clone());
        let (envoy, gateway) =
            start_envoy(&plumbline, Cluster::OriginalDst, log, &folder.0).await?;
        wait_answered(client, gateway).await?;
        Ok(Self { models, envoy, plumbline, gateway, access_log, folder })
    }

    /// Name and address of each model server.
    pub(super) fn models(&self) -> impl ExactSizeIterator<Item = (&str, SocketAddr)> {
        self.models.iter().map(|model| (model.name.as_str(), model.address))
    }

    /// Where Plumbline's pages are.
    pub(super) fn admin(&self) -> SocketAddr {
        self.plumbline.admin
    }

    /// Pins the reported queue of one server, or lets it report the truth again.
    pub(super) fn pin(&self, model: usize, waiting: Option<u64>) {
        if let Some(server) = self.models.get(model).and_then(|model| model.server.as_ref()) {
            server.set(&Change { waiting: Some(waiting), ..Change::default() });
        }
    }

    /// Kills a server and returns when its port is closed.
    pub(super) async fn kill_model(&mut self, model: usize) {
        if let Some(server) = self.models.get_mut(model).and_then(|model| model.server.take()) {
            server.stop().await;
        }
    }

    /// Starts a killed server where it was.
    pub(super) fn restart_model(&mut self, model: usize) -> Result<()> {
        let Some(model) = self.models.get_mut(model) else { return Ok(()) };
        let listener = TcpListener::bind(model.address)
            .with_context(|| format!("starting {} again on {}", model.name, model.address))?;
        model.server = Some(Server::start(&*model.name, listener, settings())?);
        Ok(())
    }

    /// SIGKILLs Plumbline and returns when it is gone.
    pub(super) async fn kill_plumbline(&mut self) -> Result<()> {
        self.plumbline.process.kill().await.context("killing Plumbline")
    }

    /// Starts Plumbline as before, on the same ports; does not wait until it is ready.
    pub(super) fn restart_plumbline(&mut self) -> Result<()> {
        self.plumbline.spawn()
    }

    /// An error when a process that should run has ended.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(status) = self.envoy.process.try_wait()? {
            bail!("Envoy ended by itself ({status})\n{}", tail(&self.envoy.log));
        }
        Ok(())
    }

    /// Ends both processes and returns when they are gone.
    pub(super) async fn end(mut self) {
        // Whichever is gone already is as it should be.
        let _ = self.envoy.process.kill().await;
        self.plumbline.end().await;
        for model in self.models.drain(..) {
            if let Some(server) = model.server {
                server.stop().await;
            }
        }
        drop(self.folder);
    }
}

/// Envoy in front of `plumbline`, and the port that it serves.
pub(super) async fn start_envoy(
    plumbline: &Plumbline,
    cluster: Cluster,
    access_log: Option<PathBuf>,
    folder: &Path,
) -> Result<(Envoy, SocketAddr)> {
    let binary = envoy::find()?;
    let gateway = free_port()?;
    let bootstrap = Bootstrap {
        admin: free_port()?,
        listeners: vec![(gateway, cluster)],
        picker: plumbline.grpc,
        picker_tls: true,
        endpoints: vec![],
        modes: Modes::default(),
        access_log,
        http2_upstream: false,
    };
    let envoy = Envoy::start(&binary, &bootstrap, folder).await.map_err(|error| {
        // The log that the error names is about to go with the folder.
        let log = tail(&folder.join("envoy.log"));
        anyhow::anyhow!("{:#}\n{log}", anyhow::Error::new(error))
    })?;
    Ok((envoy, gateway))
}

/// Envoy takes its first health check of the picker before it asks it anything.
pub(super) async fn wait_answered(client: &Client, gateway: SocketAddr) -> Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    while client.page(gateway, "/v1/models").await.is_none() {
        if Instant::now() > deadline {
            bail!("no request came through Envoy within {START_LIMIT:?}");
        }
        sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

fn settings() -> Settings {
    Settings { engine: engine(), ..Settings::default() }
}

fn start_model(number: usize) -> Result<Model> {
    let name = format!("sim-{number}");
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = Server::start(&*name, listener, settings())
        .with_context(|| format!("starting {name} on {address}"))?;
    Ok(Model { name, address, server: Some(server) })
}

fn endpoints_file(models: &[Model]) -> String {
    let entry = |model: &Model| {
        let (name, ip, port) = (&model.name, model.address.ip(), model.address.port());
        format!("- name: {name}\n  address: \"{ip}\"\n  port: \"{port}\"\n")
    };
    models.iter().fold("endpoints:\n".to_owned(), |text, model| text + &entry(model))
}

/// The Plumbline process: this very program, serving with its defaults.
pub(super) struct Plumbline {
    process: Child,
    grpc: SocketAddr,
    pub(super) admin: SocketAddr,
    flags: Vec<String>,
    log: PathBuf,
}

impl Plumbline {
    /// With `more` flags than those of addresses.
    pub(super) fn start(endpoints: &Path, more: Vec<String>, folder: &Path) -> Result<Self> {
        let (grpc, health, admin) = (free_port()?, free_port()?, free_port()?);
        let mut flags = vec![
            format!("--endpoints-file={}", endpoints.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--grpc-port={}", grpc.port()),
            format!("--grpc-health-port={}", health.port()),
            format!("--metrics-port={}", admin.port()),
        ];
        flags.extend(more);
        let log = folder.join("plumbline.log");
        let process = spawn(&flags, &log)?;
        Ok(Self { process, grpc, admin, flags, log })
    }

    fn spawn(&mut self) -> Result<()> {
        self.process = spawn(&self.flags, &self.log)?;
        Ok(())
    }

    /// Kills the process and returns when it is gone.
    pub(super) async fn end(&mut self) {
        // One that is gone already is as it should be.
        let _ = self.process.kill().await;
    }

    pub(super) async fn wait_ready(&mut self, client: &Client) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        while client.page(self.admin, "/readyz").await.is_none() {
            if let Some(status) = self.process.try_wait()? {
                bail!("Plumbline ended before it was ready ({status})\n{}", tail(&self.log));
            }
            if Instant::now() > deadline {
                bail!("Plumbline was not ready within {START_LIMIT:?}\n{}", tail(&self.log));
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

fn spawn(flags: &[String], log: &Path) -> Result<Child> {
    let program = std::env::current_exe().context("finding this program")?;
    let output = File::options().create(true).append(true).open(log)?;
    Command::new(program)
        .args(flags)
        // The demo's own flag decides, not what the shell may have set for another process.
        .env_remove("PLUMBLINE_PARAMS")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .kill_on_drop(true)
        .spawn()
        .context("starting Plumbline")
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let from = lines.len().saturating_sub(8);
    format!("its last words:\n  {}", lines[from..].join("\n  "))
}
