//! A real Kubernetes API server with its etcd and controllers, on loopback, for one test.
//!
//! Decides the flags, and that everything ends with the test. There is no kubelet and no scheduler: pods
//! are what a test says of them. Ports are the process's own, so clusters run beside each other.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::api::Api;
use crate::harness::{free_port, wait_within};
use crate::keys::{self, Keys};

/// Longest wait for a server that starts: three seconds alone, more beside others.
const START: Duration = Duration::from_secs(120);

/// A running cluster. Dropping it kills everything, the controllers first.
pub struct Cluster {
    /// Everything is allowed to this client.
    pub admin: Api,
    pub keys: Keys,
    _controllers: Process,
    server: Process,
    _etcd: Process,
    at: SocketAddr,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Starts everything and returns once the API server is ready.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let keys = Keys::write(folder.path());
        let [etcd_at, peer_at, at, controllers_at] = [(); 4].map(|()| free_port());
        let etcd = Process::start("etcd", &etcd(folder.path(), etcd_at, peer_at), folder.path());
        // It waits for etcd.
        let flags = server(&keys, etcd_at, at);
        let mut server = Process::start("apiserver", &flags, folder.path());
        let admin = Api::new(at, &keys.cluster.pem, None).with_token(keys::ADMIN);
        ready(&admin, &mut server).await;
        let flags = controllers(&keys, folder.path(), at, controllers_at);
        let controllers = Process::start("controllers", &flags, folder.path());
        Self { admin, keys, _controllers: controllers, server, _etcd: etcd, at, folder }
    }

    /// A client with this token.
    pub fn client(&self, token: &str) -> Api {
        Api::new(self.at, &self.keys.cluster.pem, None).with_token(token)
    }

    /// Kills the API server, without a word to those that watch, and starts it again.
    pub async fn restart_server(&mut self) {
        self.server.kill();
        let flags = self.server.flags.clone();
        self.server = Process::start("apiserver", &flags, self.folder.path());
        ready(&self.admin, &mut self.server).await;
    }
}

async fn ready(admin: &Api, server: &mut Process) {
    wait_within(START, "the API server is ready", async || {
        if let Ok(Some(code)) = server.child.try_wait() {
            panic!("the API server ended with {code}: {}", server.log());
        }
        admin.get("/readyz").await.map(drop).map_err(|error| format!("{error}; {}", server.log()))
    })
    .await;
}

fn etcd(folder: &Path, at: SocketAddr, peer: SocketAddr) -> Vec<String> {
    let data = folder.join("etcd");
    vec![
        format!("--data-dir={}", data.display()),
        format!("--listen-client-urls=http://{at}"),
        format!("--advertise-client-urls=http://{at}"),
        format!("--listen-peer-urls=http://{peer}"),
        format!("--initial-advertise-peer-urls=http://{peer}"),
        format!("--initial-cluster=default=http://{peer}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn server(keys: &Keys, etcd: SocketAddr, at: SocketAddr) -> Vec<String> {
    let fixed = [
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        // It would want the default account of each namespace before the first pod.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--allow-privileged",
        // SIGTERM with an open watch takes a minute without it.
        "--shutdown-watch-termination-grace-period=2s",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    ];
    let files = [
        ("tls-cert-file", "serving.crt"),
        ("tls-private-key-file", "serving.key"),
        ("client-ca-file", "cluster.crt"),
        ("token-auth-file", "tokens.csv"),
        ("service-account-key-file", "accounts.pub"),
        ("service-account-signing-key-file", "accounts.key"),
        ("proxy-client-cert-file", "front-proxy.crt"),
        ("proxy-client-key-file", "front-proxy.key"),
        ("requestheader-client-ca-file", "front-proxy-authority.crt"),
    ];
    let mut flags: Vec<_> = fixed.iter().map(ToString::to_string).collect();
    flags.extend(files.map(|(flag, name)| format!("--{flag}={}", keys.path(name))));
    flags.push(format!("--requestheader-allowed-names={}", keys::FRONT_PROXY));
    flags.push(format!("--etcd-servers=http://{etcd}"));
    flags.push(format!("--secure-port={}", at.port()));
    flags
}

/// Those that make replicas of a Deployment, and what cleans up after them.
const CONTROLLERS: &str = "horizontal-pod-autoscaler-controller,deployment-controller,\
    replicaset-controller,namespace-controller,serviceaccount-controller,garbage-collector-controller";

fn controllers(keys: &Keys, folder: &Path, server: SocketAddr, at: SocketAddr) -> Vec<String> {
    let cluster = json!({
        "server": format!("https://{server}"), "certificate-authority": keys.path("cluster.crt"),
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": cluster}],
        "users": [{"name": "admin", "user": {"token": keys::ADMIN}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
    });
    let path = folder.join("kubeconfig");
    std::fs::write(&path, config.to_string()).unwrap();
    vec![
        format!("--kubeconfig={}", path.display()),
        "--leader-elect=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={}", at.port()),
        format!("--service-account-private-key-file={}", keys.path("accounts.key")),
        format!("--root-ca-file={}", keys.path("cluster.crt")),
        format!("--controllers={CONTROLLERS}"),
        "--horizontal-pod-autoscaler-sync-period=2s".to_owned(),
    ]
}

/// One role of the server binary; killed when it is dropped.
struct Process {
    child: Child,
    flags: Vec<String>,
    log: PathBuf,
}

impl Process {
    fn start(role: &str, flags: &[String], folder: &Path) -> Self {
        let binary = std::env::var_os("PLUMBLINE_KUBE_SERVER")
            .expect("PLUMBLINE_KUBE_SERVER names the server binary: `make test-kube` builds it");
        let log = folder.join(format!("{role}.log"));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(&log).unwrap();
        let child = Command::new(binary)
            .arg(role)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .expect("the server binary");
        Self { child, flags: flags.to_vec(), log }
    }

    fn kill(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }

    /// The end of what it has said.
    fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
