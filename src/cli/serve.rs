//! `plumbline` without a sub-command: serve.
//!
//! Decides flags, their defaults and how they become [`Settings`]; every mistake is reported at once.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgAction, Args};
use tokio::signal::unix::{SignalKind, signal};

use crate::app::{App, Security, Settings, Source};
use crate::config::{self, Params, Surroundings};
use crate::discovery::static_list::StaticList;
use crate::ext_proc::server::Threads;
use crate::manifests::{Content, Findings, Manifests};
use crate::telemetry::{self, LogFormat};
use crate::units::parse_bytes;

/// Shown under `--help`.
pub const EXAMPLES: &str = "\
Examples:
  plumbline --endpoints 10.0.0.1:8000,10.0.0.2:8000
  plumbline --endpoints-file /etc/plumbline/endpoints.yaml --secure-serving=false -v 4
  plumbline --endpoints 10.0.0.1:8000 --params '{\"queueDepthThreshold\": 10, \"headroom\": 0.2}'
  plumbline check --endpoints-file endpoints.yaml --strict
  plumbline demo";

/// Shortest scrape interval, as upstream; shorter ones are raised to it with a warning.
const MIN_SCRAPE_INTERVAL: Duration = Duration::from_millis(50);

/// Flags of `serve` and `check`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Model servers as ip:port, comma-separated; `[v6]:port` and `name=ip:port` are understood.
    #[arg(long, value_name = "LIST", conflicts_with = "endpoints_file")]
    endpoints: Option<String>,
    /// Watched YAML or JSON file of endpoints, in upstream's file-discovery schema.
    #[arg(long, value_name = "FILE")]
    endpoints_file: Option<PathBuf>,
    /// Watched YAML or JSON file of Kubernetes documents, or a folder of them:
    /// InferenceModelRewrite and InferenceObjective.
    #[arg(long, value_name = "PATH")]
    manifests: Option<PathBuf>,
    /// Only documents of --manifests whose poolRef has this name count.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pool_name: Option<String>,
    /// JSON params of the utilization detector: queueDepthThreshold, kvCacheUtilThreshold,
    /// metricsStalenessThreshold, headroom.
    #[arg(long, value_name = "JSON", env = "PLUMBLINE_PARAMS")]
    params: Option<String>,
    /// Address that every port binds to; all addresses, IPv6 and IPv4, by default.
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,
    /// ext_proc and health.
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    grpc_port: u16,
    /// gRPC health alone.
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    grpc_health_port: u16,
    /// HTTP: /metrics, /livez, /readyz, /debug.
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    metrics_port: u16,
    /// TLS on the ext_proc port; self-signed unless --cert-path.
    #[arg(long, value_name = "BOOL", default_value_t = true, default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    secure_serving: bool,
    /// Folder with tls.crt and tls.key; empty makes a self-signed certificate.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    cert_path: String,
    /// Time between two scrapes of one endpoint; at least 50ms.
    #[arg(long, value_name = "DURATION", default_value = "50ms",
          value_parser = super::duration)]
    refresh_metrics_interval: Duration,
    /// How long new requests are still taken after SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = super::duration)]
    drain_timeout: Duration,
    /// Cores to use; one runs everything on one thread. Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    cores: Option<u16>,
    /// Largest request body; over it the client gets 413.
    #[arg(long, value_name = "SIZE", default_value = "64Mi", value_parser = parse_bytes)]
    max_body_bytes: usize,
    /// Largest sum of request bodies held at one time; over it clients get 429.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = parse_bytes)]
    max_held_bytes: usize,
    /// Let /debug answer other hosts than this one.
    #[arg(long, value_name = "BOOL", default_value_t = false, default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set)]
    debug_remote: bool,
    /// Log verbosity: 0 to 3 info, 4 debug, 5 trace.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    verbosity: u8,
    /// Log format.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

/// Settings, and what is valid but hardly meant.
pub(super) struct Resolved {
    pub(super) settings: Settings,
    pub(super) warnings: Vec<String>,
    /// Documents that are left out as bad; the rest is good without them.
    pub(super) left_out: Vec<String>,
}

impl ServeArgs {
    /// Validates everything that can be validated without starting.
    ///
    /// # Errors
    /// Every violated rule, one text each.
    pub(super) fn resolve(&self) -> Result<Resolved, Vec<String>> {
        let mut errors = Vec::new();
        let params = match self.params.as_deref().filter(|text| !text.trim().is_empty()) {
            None => Ok(Params::default()),
            Some(text) => Params::parse(text),
        };
        let params = params.map_err(|broken| errors.extend(broken));
        let policy = params
            .as_ref()
            .ok()
            .and_then(|params| config::policy(params).map_err(|broken| errors.extend(broken)).ok());
        let source = self.source().map_err(|broken| errors.push(broken));
        let opened = self.open_manifests().map_err(|broken| errors.push(broken));
        let (Ok(params), Some(policy), Ok(source), Ok((manifests, findings))) =
            (params, policy, source, opened)
        else {
            return Err(errors);
        };
        let Content { rewrites, objectives } =
            manifests.as_ref().map(Manifests::content).unwrap_or_default();
        let policy = policy.with_documents(rewrites, objectives);
        let scrape_interval = self.refresh_metrics_interval.max(MIN_SCRAPE_INTERVAL);
        let around = Surroundings {
            scrape_interval,
            endpoints: match &source {
                Source::Static(list) => Some(list.endpoints().len()),
                Source::File(_) => None,
            },
        };
        let mut warnings = config::lint::warnings(&params, &policy, &around);
        if scrape_interval != self.refresh_metrics_interval {
            warnings.push("--refresh-metrics-interval is raised to its minimum of 50ms".to_owned());
        }
        warnings.extend(findings.warnings);
        let ip = self.bind_address.unwrap_or_else(all_addresses);
        let at = |port| SocketAddr::new(ip, port);
        let settings = Settings {
            source,
            policy,
            manifests,
            grpc: at(self.grpc_port),
            grpc_health: at(self.grpc_health_port),
            admin: at(self.metrics_port),
            security: match (self.secure_serving, self.cert_path.is_empty()) {
                (false, _) => Security::Plaintext,
                (true, true) => Security::SelfSigned,
                (true, false) => Security::Files(self.cert_path.clone().into()),
            },
            scrape_interval,
            drain_timeout: self.drain_timeout,
            threads: self.threads(),
            max_body: self.max_body_bytes,
            max_held: self.max_held_bytes,
            debug_remote: self.debug_remote,
        };
        Ok(Resolved { settings, warnings, left_out: findings.errors })
    }

    /// The endpoints file, if that is where endpoints come from.
    pub(super) fn endpoints_file(&self) -> Option<&PathBuf> {
        self.endpoints_file.as_ref()
    }

    fn open_manifests(&self) -> Result<(Option<Manifests>, Findings), String> {
        let Some(path) = &self.manifests else { return Ok((None, Findings::default())) };
        let (manifests, mut findings) = Manifests::open(path, self.pool_name.clone())
            .map_err(|error| format!("--manifests: {:#}", anyhow::Error::from(error)))?;
        if !findings.ignored.is_empty() {
            let kinds: Vec<_> =
                findings.ignored.iter().map(|(k, n)| format!("{k} ({n})")).collect();
            let (path, kinds) = (path.display(), kinds.join(", "));
            findings.warnings.push(format!("{path}: other kinds are ignored: {kinds}"));
        }
        Ok((Some(manifests), findings))
    }

    fn source(&self) -> Result<Source, String> {
        if let Some(path) = &self.endpoints_file {
            return Ok(Source::File(path.clone()));
        }
        let list = match (&self.endpoints, &self.pool_name) {
            (Some(list), _) => list,
            (None, None) => return Ok(Source::Static(StaticList::default())),
            (None, Some(_)) => {
                return Err("--pool-name: endpoints cannot be read from a Kubernetes pool yet; \
                            give --endpoints or --endpoints-file"
                    .to_owned());
            }
        };
        StaticList::parse(list).map(Source::Static).map_err(|error| format!("--endpoints: {error}"))
    }

    /// One core keeps a thread for control; the rest serve requests.
    fn threads(&self) -> Threads {
        let cores = self.cores.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        );
        if cores == 1 { Threads::Here } else { Threads::Own(cores - 1) }
    }
}

/// `::` serves IPv4 as well; a kernel without IPv6 refuses it.
fn all_addresses() -> IpAddr {
    let dual = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    match std::net::TcpListener::bind((dual, 0)) {
        Ok(_) => dual,
        Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
    }
}

/// Serves until SIGTERM or SIGINT; a second signal exits with 1 at once.
pub(super) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(args.verbosity, args.log_format);
    let resolved = args.resolve().map_err(|errors| anyhow::anyhow!(errors.join("\n")))?;
    for warning in &resolved.warnings {
        tracing::warn!("{warning}");
    }
    for error in &resolved.left_out {
        tracing::error!(%error, "manifest left out");
    }
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let app = App::start(resolved.settings).await?;
    let mut next = async || {
        tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
    };
    let (first, asked) = tokio::sync::oneshot::channel();
    let run = app.run(async {
        // The sender lives in this function.
        let _ = asked.await;
    });
    let signals = async {
        next().await;
        let _ = first.send(());
        next().await;
    };
    tokio::select! {
        result = run => result.map(|()| ExitCode::SUCCESS),
        () = signals => anyhow::bail!("a second signal: exiting without waiting for requests"),
    }
}
