//! A real Envoy in front of us, for the demo and for tests: its bootstrap and its process.
//!
//! Decides a configuration that is known to work with Envoy 1.40, in the JSON form of
//! `deploy/envoy.yaml`, which operators copy. Starts nothing but the process it is told to start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

/// How Envoy learns the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// `ORIGINAL_DST` by header: goes wherever the picker says.
    OriginalDst,
    /// `override_host` by dynamic metadata, then header, among the given endpoints; without either it
    /// falls back to round robin.
    OverrideHost,
}

impl Cluster {
    fn name(self) -> &'static str {
        match self {
            Self::OriginalDst => "original_destination",
            Self::OverrideHost => "override_host",
        }
    }
}

/// Body modes as Envoy spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// Such as `FULL_DUPLEX_STREAMED`.
    pub request: &'static str,
    /// Such as `NONE`.
    pub response: &'static str,
    /// Whether response headers are shown: `SEND` or `SKIP`.
    pub response_headers: &'static str,
}

impl Default for Modes {
    fn default() -> Self {
        Self {
            request: "FULL_DUPLEX_STREAMED",
            response: "FULL_DUPLEX_STREAMED",
            response_headers: "SEND",
        }
    }
}

/// What the bootstrap is made from.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    /// Envoy's own admin pages.
    pub admin: SocketAddr,
    /// One listener per entry.
    pub listeners: Vec<(SocketAddr, Cluster)>,
    /// The ext_proc port of the picker.
    pub picker: SocketAddr,
    /// Whether that port speaks TLS.
    pub picker_tls: bool,
    /// Members of the `override_host` cluster.
    pub endpoints: Vec<SocketAddr>,
    /// Body modes.
    pub modes: Modes,
    /// Where the access log goes, one JSON object a line; `None` writes none.
    pub access_log: Option<PathBuf>,
    /// Whether Envoy speaks HTTP/2 to the model servers, as trailers need.
    pub http2_upstream: bool,
}

fn typed(name: &str, fields: Value) -> Value {
    let mut config = json!({ "@type": format!("type.googleapis.com/{name}") });
    if let (Some(config), Value::Object(fields)) = (config.as_object_mut(), fields) {
        config.extend(fields);
    }
    config
}

fn address(at: SocketAddr) -> Value {
    json!({ "socket_address": { "address": at.ip().to_string(), "port_value": at.port() } })
}

fn assignment(cluster: &str, endpoints: &[SocketAddr]) -> Value {
    let endpoints: Vec<_> =
        endpoints.iter().map(|at| json!({ "endpoint": { "address": address(*at) } })).collect();
    json!({ "cluster_name": cluster, "endpoints": [{ "lb_endpoints": endpoints }] })
}

/// Envoy's defaults cut at 1,024 requests.
fn no_circuit_breaker() -> Value {
    json!({ "thresholds": [{ "max_connections": 40000, "max_pending_requests": 40000,
                             "max_requests": 40000, "max_retries": 1024 }] })
}

const HTTP_OPTIONS: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";

impl Bootstrap {
    /// The bootstrap document, JSON (which Envoy reads as YAML).
    pub fn json(&self) -> Value {
        let listeners: Vec<_> =
            self.listeners.iter().map(|(at, cluster)| self.listener(*at, *cluster)).collect();
        json!({
            "admin": { "address": address(self.admin) },
            "static_resources": {
                "listeners": listeners,
                "clusters": [self.original_dst(), self.override_host(), self.picker()],
            },
        })
    }

    fn listener(&self, at: SocketAddr, cluster: Cluster) -> Value {
        let name = cluster.name();
        let route = json!({ "match": { "prefix": "/" },
                            "route": { "cluster": name, "timeout": "86400s" } });
        let router = typed("envoy.extensions.filters.http.router.v3.Router", json!({}));
        let manager = typed(
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            json!({
                "stat_prefix": name,
                "stream_idle_timeout": "3600s",
                "access_log": self.access_log(),
                "http2_protocol_options": { "allow_connect": true },
                "upgrade_configs": [{ "upgrade_type": "websocket" }],
                "route_config": { "virtual_hosts": [
                    { "name": "all", "domains": ["*"], "routes": [route] } ] },
                "http_filters": [
                    { "name": "envoy.filters.http.ext_proc", "typed_config": self.ext_proc() },
                    { "name": "envoy.filters.http.router", "typed_config": router },
                ],
            }),
        );
        json!({
            "name": format!("{name}-{}", at.port()),
            "address": address(at),
            "per_connection_buffer_limit_bytes": 32768,
            "filter_chains": [{ "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": manager,
            }] }],
        })
    }

    fn ext_proc(&self) -> Value {
        // Full duplex demands trailers; the other modes do not need them.
        let trailers = |mode| if mode == "FULL_DUPLEX_STREAMED" { "SEND" } else { "SKIP" };
        typed(
            "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            json!({
                "failure_mode_allow": false,
                "message_timeout": "1000s",
                "grpc_service": {
                    "envoy_grpc": { "cluster_name": "ext_proc", "authority": "localhost:9002" },
                    "timeout": "10s",
                },
                "metadata_options": {
                    "receiving_namespaces": { "untyped": ["envoy.lb"] },
                    "forwarding_namespaces": { "untyped": ["envoy.lb"] },
                },
                "processing_mode": {
                    "request_header_mode": "SEND",
                    "request_body_mode": self.modes.request,
                    "request_trailer_mode": trailers(self.modes.request),
                    "response_header_mode": self.modes.response_headers,
                    "response_body_mode": self.modes.response,
                    "response_trailer_mode": trailers(self.modes.response),
                },
            }),
        )
    }

    fn access_log(&self) -> Value {
        let Some(path) = &self.access_log else { return json!([]) };
        let file = typed(
            "envoy.extensions.access_loggers.file.v3.FileAccessLog",
            json!({
                "path": path,
                "log_format": { "json_format": {
                    "id": "%REQ(X-REQUEST-ID)%",
                    "code": "%RESPONSE_CODE%",
                    "details": "%RESPONSE_CODE_DETAILS%",
                    "flags": "%RESPONSE_FLAGS%",
                    "upstream": "%UPSTREAM_HOST%",
                    "duration_ms": "%DURATION%",
                    // Microseconds the request took to arrive, and phase by phase those in the picker.
                    "body_us": "%COMMON_DURATION(DS_RX_BEG:DS_RX_END:us)%",
                    "picker_us": "%FILTER_STATE(envoy.filters.http.ext_proc:PLAIN)%",
                } },
            }),
        );
        json!([{ "name": "envoy.access_loggers.file", "typed_config": file }])
    }

    fn upstream_options(&self) -> Value {
        let options = if self.http2_upstream {
            json!({ "explicit_http_config": { "http2_protocol_options": {} } })
        } else {
            json!({ "explicit_http_config": { "http_protocol_options": {} } })
        };
        json!({ HTTP_OPTIONS: typed(HTTP_OPTIONS, options) })
    }

    fn original_dst(&self) -> Value {
        json!({
            "name": Cluster::OriginalDst.name(),
            "type": "ORIGINAL_DST",
            "lb_policy": "CLUSTER_PROVIDED",
            "connect_timeout": "2s",
            "circuit_breakers": no_circuit_breaker(),
            "original_dst_lb_config": {
                "use_http_header": true,
                "http_header_name": "x-gateway-destination-endpoint",
            },
            "typed_extension_protocol_options": self.upstream_options(),
        })
    }

    fn override_host(&self) -> Value {
        let name = Cluster::OverrideHost.name();
        let round_robin =
            typed("envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin", json!({}));
        let policy = typed(
            "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
            json!({
                "override_host_sources": [
                    { "metadata": { "key": "envoy.lb",
                                    "path": [{ "key": "x-gateway-destination-endpoint" }] } },
                    { "header": "x-gateway-destination-endpoint" },
                ],
                "fallback_policy": { "policies": [{ "typed_extension_config": {
                    "name": "envoy.load_balancing_policies.round_robin",
                    "typed_config": round_robin,
                } }] },
            }),
        );
        json!({
            "name": name,
            "type": "STATIC",
            "connect_timeout": "2s",
            "circuit_breakers": no_circuit_breaker(),
            "load_assignment": assignment(name, &self.endpoints),
            "load_balancing_policy": { "policies": [{ "typed_extension_config": {
                "name": "envoy.load_balancing_policies.override_host",
                "typed_config": policy,
            } }] },
            "typed_extension_protocol_options": self.upstream_options(),
        })
    }

    fn picker(&self) -> Value {
        let options = json!({ "explicit_http_config": { "http2_protocol_options": {
            "initial_stream_window_size": 65536,
            "initial_connection_window_size": 1048576,
            // The only thing that notices a frozen picker.
            "connection_keepalive": { "interval": "5s", "timeout": "2s" },
        } } });
        let mut cluster = json!({
            "name": "ext_proc",
            "type": "STATIC",
            "connect_timeout": "1s",
            "lb_policy": "LEAST_REQUEST",
            "circuit_breakers": no_circuit_breaker(),
            // So that a failed health check means "no host" at once.
            "common_lb_config": { "healthy_panic_threshold": { "value": 0 } },
            "health_checks": [{
                "timeout": "1s", "interval": "1s", "no_traffic_interval": "1s",
                "unhealthy_threshold": 1, "healthy_threshold": 1,
                "grpc_health_check": {
                    "service_name": "envoy.service.ext_proc.v3.ExternalProcessor" },
            }],
            "typed_extension_protocol_options": { HTTP_OPTIONS: typed(HTTP_OPTIONS, options) },
            "load_assignment": assignment("ext_proc", &[self.picker]),
        });
        if self.picker_tls {
            cluster["transport_socket"] = json!({
                "name": "envoy.transport_sockets.tls",
                "typed_config": typed(
                    "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                    json!({ "common_tls_context": { "validation_context": {} } }),
                ),
            });
        }
        cluster
    }
}

/// Why Envoy is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No binary was found.
    #[error("no Envoy found; `make envoy` installs one into .venv, PLUMBLINE_ENVOY names another")]
    NotFound,
    /// Its configuration could not be written or its process not be started.
    #[error("starting Envoy")]
    Start(#[source] io::Error),
    /// It ended before it was ready.
    #[error("Envoy ended before it was ready, see {log}")]
    Ended {
        /// Its log.
        log: PathBuf,
    },
    /// It was not ready in time.
    #[error("Envoy was not ready within {limit:?}, see {log}")]
    NotReady {
        /// How long was waited.
        limit: Duration,
        /// Its log.
        log: PathBuf,
    },
}

/// `PLUMBLINE_ENVOY`, else `.venv/bin/envoy` here, else `envoy` on the PATH.
///
/// # Errors
/// [`Error::NotFound`].
pub fn find() -> Result<PathBuf, Error> {
    let named = std::env::var_os("PLUMBLINE_ENVOY").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("envoy"));
    let local = std::path::absolute(".venv/bin/envoy").ok();
    named
        .into_iter()
        .chain(local)
        .chain(on_path)
        .find(|candidate| candidate.is_file())
        .ok_or(Error::NotFound)
}

/// A running Envoy; dropping it ends the process.
pub struct Envoy {
    /// The process.
    pub process: Child,
    /// Its log.
    pub log: PathBuf,
}

/// Longest wait for a start.
const START_LIMIT: Duration = Duration::from_secs(20);

impl Envoy {
    /// Writes `envoy.json` and `envoy.log` into `folder` and starts `binary`; returns when every
    /// listener answers.
    ///
    /// # Errors
    /// [`Error`] names the log to look at.
    pub async fn start(binary: &Path, bootstrap: &Bootstrap, folder: &Path) -> Result<Self, Error> {
        let (config, log) = (folder.join("envoy.json"), folder.join("envoy.log"));
        std::fs::write(&config, format!("{:#}", bootstrap.json())).map_err(Error::Start)?;
        let output = std::fs::File::create(&log).map_err(Error::Start)?;
        let process = Command::new(binary)
            .arg("-c")
            .arg(&config)
            .args(["--concurrency", "1", "--disable-hot-restart", "-l", "warning"])
            // The access log is read while Envoy runs; by default it keeps lines back for 10 s.
            .args(["--file-flush-interval-msec", "100"])
            .stdin(Stdio::null())
            .stdout(output.try_clone().map_err(Error::Start)?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .map_err(Error::Start)?;
        let mut envoy = Self { process, log };
        let deadline = Instant::now() + START_LIMIT;
        while !is_ready(bootstrap.admin).await {
            if envoy.process.try_wait().map_err(Error::Start)?.is_some() {
                return Err(Error::Ended { log: envoy.log.clone() });
            }
            if Instant::now() > deadline {
                return Err(Error::NotReady { limit: START_LIMIT, log: envoy.log.clone() });
            }
            sleep(Duration::from_millis(50)).await;
        }
        Ok(envoy)
    }
}

/// Whether Envoy's `/ready` answers 200.
async fn is_ready(admin: SocketAddr) -> bool {
    let ask = async {
        let mut tcp = TcpStream::connect(admin).await?;
        // Envoy refuses HTTP/1.0.
        tcp.write_all(b"GET /ready HTTP/1.1\r\nhost: envoy\r\nconnection: close\r\n\r\n").await?;
        let mut answer = Vec::new();
        tcp.read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let status = |answer: Vec<u8>| answer.split(|b| *b == b' ').nth(1) == Some(b"200".as_slice());
    ask.await.is_ok_and(status)
}

/// A loopback port that nobody listens on now; for processes that cannot be told to choose one.
///
/// It lies below 32,768, where kernels begin to hand out client ports, so that no outgoing connection
/// takes it before its owner does; no two calls in one process answer the same port.
///
/// # Errors
/// None are free.
pub fn free_port() -> io::Result<SocketAddr> {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    const FIRST: u32 = 12_000;
    const COUNT: u32 = 20_000;
    // Processes that start together begin far apart.
    let offset = std::process::id().wrapping_mul(7_919) % COUNT;
    for _ in 0..COUNT {
        let next = (TAKEN.fetch_add(1, Ordering::Relaxed).wrapping_add(offset)) % COUNT;
        let address = SocketAddr::from(([127, 0, 0, 1], (FIRST + next) as u16));
        if std::net::TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::new(io::ErrorKind::AddrNotAvailable, "no free port in [12000, 32000)"))
}
