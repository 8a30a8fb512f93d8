//! The real Envoy of a world: one process, a listener for each kind of cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use plumbline::app::Security;
use plumbline::envoy::{self, Bootstrap, Cluster, Envoy};
use serde_json::Value;

use super::{Ask, Picker, Plan, free_port, wait_for};

/// A running Envoy.
pub struct Gateway {
    pub original_dst: SocketAddr,
    pub override_host: SocketAddr,
    access_log: PathBuf,
    _envoy: Envoy,
}

impl Gateway {
    /// Starts Envoy; fails, never skips, where there is none.
    pub async fn start(
        plan: &Plan,
        picker: &Picker,
        endpoints: Vec<SocketAddr>,
        folder: &Path,
    ) -> Self {
        let binary = envoy::find().unwrap_or_else(|missing| panic!("{missing}"));
        let (original_dst, override_host, admin) = (free_port(), free_port(), free_port());
        let access_log = folder.join("access.log");
        let bootstrap = Bootstrap {
            admin,
            listeners: vec![
                (original_dst, Cluster::OriginalDst),
                (override_host, Cluster::OverrideHost),
            ],
            picker: picker.grpc,
            picker_tls: plan.security != Security::Plaintext,
            endpoints,
            modes: plan.modes,
            access_log: Some(access_log.clone()),
            http2_upstream: plan.http2_upstream,
        };
        let envoy = match Envoy::start(&binary, &bootstrap, folder).await {
            Ok(envoy) => envoy,
            Err(error) => {
                let log = std::fs::read_to_string(folder.join("envoy.log")).unwrap_or_default();
                panic!("{error}\n{log}")
            }
        };
        let gateway = Self { original_dst, override_host, access_log, _envoy: envoy };
        gateway.reaches_picker().await;
        gateway
    }

    /// The listener of every kind of cluster, with its name for messages.
    pub fn listeners(&self) -> [(&'static str, SocketAddr); 2] {
        [("original_dst", self.original_dst), ("override_host", self.override_host)]
    }

    /// Waits until requests reach the picker on every listener. A request and not a statistic: Envoy's
    /// workers hear of a healthy host later than its admin pages do.
    pub async fn reaches_picker(&self) {
        for (kind, at) in self.listeners() {
            wait_for(&format!("{kind} reaches the picker"), async || {
                match Ask::get("/probe").send(at).await {
                    Ok(answer) if answer.status() == 500 => Err("500".to_owned()),
                    Ok(_) => Ok(()),
                    Err(error) => Err(error.to_string()),
                }
            })
            .await;
        }
    }

    /// Waits for a line of the access log for which `matches` holds.
    pub async fn logged(&self, matches: impl Fn(&Value) -> bool) -> Value {
        wait_for("a line of the access log", async || {
            let text = std::fs::read_to_string(&self.access_log).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            lines.into_iter().find(|line| matches(line)).ok_or(text)
        })
        .await
    }
}
