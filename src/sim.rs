//! `plumbline sim`: a simulated model server that speaks, batches and reports as vLLM does.
//!
//! Decides what a server is made of and how a program starts and ends one; the engine, the bodies, the
//! page and the switches have a file each. It computes no text worth reading. Any number of servers
//! live in one process, each on its own listener.

mod admin;
mod completion;
mod engine;
mod faults;
mod http;
mod listener;
mod metrics;
mod openai;
mod prefix;
mod state;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

pub use admin::{Change, Pins, Refused};
pub use engine::EngineSettings;
pub use faults::{Fault, FaultKind, MetricsMode};

/// What one server is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Name of the model, in answers and as the `model_name` label.
    pub model: String,
    /// Names of LoRA adapters. A request whose `model` is one of them uses it.
    pub loras: Vec<String>,
    /// Value of the `max_lora` label; it limits nothing.
    pub max_loras: usize,
    /// Whether a request for another model is answered 404, as vLLM does, or served all the same.
    pub check_model: bool,
    /// Seed of the one thing left to chance: which request a fault strikes.
    pub seed: u64,
    /// The engine's knobs.
    pub engine: EngineSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: "sim-model".to_owned(),
            loras: Vec::new(),
            max_loras: 4,
            check_model: false,
            seed: 0,
            engine: EngineSettings::default(),
        }
    }
}

/// A simulated model server; see [`Server::start`].
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Serves on `listener`, on the tokio runtime this is called in, until the handle is dropped.
    ///
    /// # Errors
    /// `InvalidInput` for settings that contradict themselves, and what the listener answers.
    pub fn start(
        name: impl Into<String>,
        listener: std::net::TcpListener,
        settings: Settings,
    ) -> io::Result<Handle> {
        settings
            .engine
            .check()
            .map_err(|rule| io::Error::new(io::ErrorKind::InvalidInput, rule))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        let state = Arc::new(state::State::new(name.into(), address, settings, unix_now()));
        let (kill, killed) = watch::channel(false);
        let task = tokio::spawn(listener::serve(listener, Arc::clone(&state), killed));
        Ok(Handle { state, kill, task: Some(task) })
    }
}

/// The wall clock, read once a server: a process start time is a Unix time.
#[expect(clippy::disallowed_methods, reason = "the metrics page shows the start as a Unix time")]
fn unix_now() -> f64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

/// A running server. Dropping it kills the server.
#[derive(Debug)]
pub struct Handle {
    state: Arc<state::State>,
    kill: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

impl Handle {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.state.address
    }

    /// Its name, as in `x-sim-endpoint`.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Does what `POST /admin/set` does.
    pub fn set(&self, change: &Change) {
        self.state.set(change);
    }

    /// Does what `POST /admin/restart` does: connections cut, requests lost, counters at zero, a new
    /// start time.
    pub fn restart(&self) {
        self.state.restart(None);
    }

    /// What `GET /metrics` answers while its mode is `ok`.
    pub fn metrics_page(&self) -> String {
        self.state.page()
    }

    /// What `GET /admin/state` answers.
    pub fn state(&self) -> serde_json::Value {
        self.state.json()
    }

    /// What `GET /admin/received` answers.
    pub fn received(&self) -> serde_json::Value {
        self.state.received()
    }

    /// Stops listening and cuts every connection; the runtime does so as soon as it runs its tasks.
    pub fn kill(&self) {
        self.kill.send_replace(true);
    }

    /// As [`Handle::kill`], and returns once the port is free and the connections are closed.
    pub async fn stop(mut self) {
        self.kill();
        if let Some(task) = self.task.take() {
            // A panicked server is stopped as well.
            let _ = task.await;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.kill();
    }
}
