//! The model servers of the demo of scaling, started and stopped as a Deployment would.
//!
//! Decides that a new server takes its time to load before it is an endpoint, and that one that goes
//! is no endpoint any more before it stops. The endpoints file is what Plumbline watches.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep};

use crate::sim::{EngineSettings, Handle, Server, Settings};

/// How long a server loads its model.
pub(super) const LOADING: Duration = Duration::from_secs(3);
/// How long a server that is no endpoint any more finishes what it has.
const GRACE: Duration = Duration::from_secs(3);

/// The servers there are: those that serve, and those that still load.
pub(super) struct Replicas {
    file: PathBuf,
    serving: Vec<Handle>,
    loading: Vec<Instant>,
    made: usize,
}

impl Replicas {
    /// None, and an endpoints file that says so.
    pub(super) fn none(file: PathBuf) -> Result<Self> {
        let replicas = Self { file, serving: Vec::new(), loading: Vec::new(), made: 0 };
        replicas.write()?;
        Ok(replicas)
    }

    /// Servers that exist, serving or not.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.serving.len() + self.loading.len()).unwrap_or(u32::MAX)
    }

    /// Servers that serve.
    pub(super) fn ready(&self) -> usize {
        self.serving.len()
    }

    /// Starts or stops servers until there are `wanted`; the youngest go first.
    pub(super) fn scale(&mut self, wanted: u32) -> Result<()> {
        while self.count() < wanted {
            self.loading.push(Instant::now() + LOADING);
        }
        let mut gone = Vec::new();
        while self.count() > wanted {
            if self.loading.pop().is_none() {
                gone.extend(self.serving.pop());
            }
        }
        if !gone.is_empty() {
            self.write()?;
            tokio::spawn(async move {
                sleep(GRACE).await;
                for server in gone {
                    server.stop().await;
                }
            });
        }
        Ok(())
    }

    /// Lets those serve that have loaded; whether there were any.
    pub(super) fn tend(&mut self) -> Result<bool> {
        let now = Instant::now();
        let before = self.loading.len();
        self.loading.retain(|ready| *ready > now);
        for _ in self.loading.len()..before {
            let name = format!("sim-{}", self.made);
            self.made += 1;
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let server = Server::start(name.as_str(), listener, settings());
            self.serving.push(server.with_context(|| format!("starting {name}"))?);
        }
        if self.loading.len() < before {
            self.write()?;
        }
        Ok(self.loading.len() < before)
    }

    fn write(&self) -> Result<()> {
        let entries: Vec<String> = self
            .serving
            .iter()
            .map(|server| {
                let (name, at) = (server.name(), server.addr());
                format!("{{name: {name}, address: {}, port: \"{}\"}}", at.ip(), at.port())
            })
            .collect();
        let next = self.file.with_extension("next");
        std::fs::write(&next, format!("endpoints: [{}]\n", entries.join(", ")))?;
        std::fs::rename(next, &self.file).context("writing the endpoints")
    }

    /// Stops all of them.
    pub(super) async fn end(self) {
        for server in self.serving {
            server.stop().await;
        }
    }
}

/// Small engines: eight sequences at a time, a request of 120 tokens in about two seconds.
fn settings() -> Settings {
    let engine = EngineSettings {
        max_num_seqs: 8,
        num_gpu_blocks: 512,
        prefill_tokens_per_second: 20_000.0,
        time_per_output_token: Duration::from_millis(15),
        ..EngineSettings::default()
    };
    Settings { engine, ..Settings::default() }
}
