//! Plumbline itself: in this process on a thread of its own, or the real binary.
//!
//! Decides how each is started, asked and ended; both answer the same questions.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use plumbline::app::{App, Settings};
use plumbline::store::Store;
use serde_json::Value;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::{Ask, free_port, soon, wait_for};

/// A running Plumbline. Dropping it ends it without a drain.
pub struct Picker {
    pub grpc: SocketAddr,
    pub health: SocketAddr,
    pub admin: SocketAddr,
    /// KEDA's scaler; known of a picker inside.
    pub keda: Option<SocketAddr>,
    /// External metrics; known of a picker inside.
    pub external_metrics: Option<SocketAddr>,
    kind: Kind,
}

enum Kind {
    Inside {
        store: Store,
        /// Ends the thread's runtime when it is dropped.
        _end: oneshot::Sender<()>,
    },
    Process {
        child: Child,
        flags: Vec<String>,
        log: PathBuf,
    },
}

impl Picker {
    /// Inside the test process; its store can be looked at.
    pub async fn inside(settings: Settings) -> Self {
        let (started, start) = oneshot::channel();
        let (end, ended) = oneshot::channel::<()>();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let app = App::start(settings).await.unwrap();
                started.send((app.addresses, app.store.clone())).ok();
                tokio::select! {
                    result = app.run(std::future::pending()) => result.unwrap(),
                    _ = ended => {}
                }
            });
            runtime.shutdown_background();
        });
        let (addresses, store) = start.await.expect("the picker did not start");
        Self {
            grpc: addresses.grpc,
            health: addresses.grpc_health,
            admin: addresses.admin,
            keda: addresses.keda,
            external_metrics: addresses.external_metrics,
            kind: Kind::Inside { store, _end: end },
        }
    }

    /// The real binary; its log goes into `folder`.
    pub async fn process(mut flags: Vec<String>, folder: &Path) -> Self {
        let [grpc, health, admin] = [(); 3].map(|()| free_port());
        flags.push("--bind-address=127.0.0.1".to_owned());
        flags.push(format!("--grpc-port={}", grpc.port()));
        flags.push(format!("--grpc-health-port={}", health.port()));
        flags.push(format!("--metrics-port={}", admin.port()));
        let log = folder.join("plumbline.log");
        let child = spawn(&flags, &log);
        let kind = Kind::Process { child, flags, log };
        Self { grpc, health, admin, keda: None, external_metrics: None, kind }
    }

    /// Waits until `/readyz` answers 200.
    pub async fn ready(&self) {
        wait_for("the picker is ready", async || match self.readyz().await {
            Ok((200, _)) => Ok(()),
            Ok((status, text)) => Err(format!("{status} {text}")),
            Err(error) => Err(format!("{error}; {}", self.log())),
        })
        .await;
    }

    /// Status and text of `/readyz`.
    pub async fn readyz(&self) -> Result<(u16, String), super::client::Error> {
        let page = Ask::get("/readyz").send(self.admin).await?.whole().await?;
        Ok((page.status, page.text()))
    }

    /// The endpoints of `/debug/pool`.
    pub async fn pool(&self) -> Vec<Value> {
        let page = Ask::get("/debug/pool").whole(self.admin).await;
        let page: Value = serde_json::from_slice(&page.body).expect("JSON");
        page["endpoints"].as_array().expect("a list").clone()
    }

    /// Requests in flight over all endpoints.
    pub async fn in_flight(&self) -> u64 {
        match &self.kind {
            Kind::Inside { store, .. } => store.in_flight(),
            Kind::Process { .. } => {
                self.pool().await.iter().filter_map(|e| e["in_flight"].as_u64()).sum()
            }
        }
    }

    /// Waits until so many requests of so many bytes wait for an endpoint.
    pub async fn waiting(&self, requests: u64, bytes: u64) {
        wait_for(&format!("{requests} requests wait"), async || {
            let page = Ask::get("/debug/flow").whole(self.admin).await;
            let page: Value = serde_json::from_slice(&page.body).expect("JSON");
            let seen = (page["requests"].as_u64(), page["bytes"].as_u64());
            if seen == (Some(requests), Some(bytes)) { Ok(()) } else { Err(page.to_string()) }
        })
        .await;
        assert_eq!(self.metric("plumbline_waiting_requests").await, requests);
        assert_eq!(self.metric("plumbline_waiting_bytes").await, bytes);
    }

    /// Open ext_proc streams.
    pub async fn streams(&self) -> u64 {
        self.metric("plumbline_ext_proc_streams").await
    }

    /// The value of the first series of which the text begins with `series`.
    pub async fn metric(&self, series: &str) -> u64 {
        let page = Ask::get("/metrics").whole(self.admin).await.text();
        let line = page.lines().find(|line| line.starts_with(series));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("no {series} in {page}"))
    }

    /// What a process has logged so far.
    pub fn log(&self) -> String {
        match &self.kind {
            Kind::Inside { .. } => String::new(),
            Kind::Process { log, .. } => std::fs::read_to_string(log).unwrap_or_default(),
        }
    }

    fn child(&mut self) -> &mut Child {
        match &mut self.kind {
            Kind::Process { child, .. } => child,
            Kind::Inside { .. } => panic!("only a process of its own can be signalled"),
        }
    }

    /// Sends the process a signal, by name.
    pub fn signal(&mut self, name: &str) {
        let pid = self.child().id().expect("a process that runs").to_string();
        let sent = std::process::Command::new("kill").arg(format!("-{name}")).arg(pid).status();
        assert!(sent.expect("kill").success());
    }

    /// How the process ends.
    pub async fn exit(&mut self) -> ExitStatus {
        soon("the process exits", self.child().wait()).await.expect("wait")
    }

    /// Starts the killed process again, with the same flags.
    pub async fn restart(&mut self) {
        if let Kind::Process { child, flags, log } = &mut self.kind {
            *child = spawn(flags, log);
        }
        self.ready().await;
    }
}

fn spawn(flags: &[String], log: &Path) -> Child {
    let log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("a log");
    command(flags).stderr(log).spawn().expect("the plumbline binary")
}

/// The binary with these arguments and without the environment's params.
pub fn command(arguments: &[impl AsRef<std::ffi::OsStr>]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plumbline"));
    command.args(arguments).env_remove("PLUMBLINE_PARAMS").stdin(Stdio::null()).kill_on_drop(true);
    command
}
