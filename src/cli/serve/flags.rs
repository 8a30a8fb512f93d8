//! What is served and how: the flags that do what they say.
//!
//! Decides names, defaults and help. Rules that need more than one flag are in the neighbours.
//! Booleans are Go's: `--flag`, `--flag=false`, never `--flag false`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::cli::{boolean, duration};
use crate::config::{LineSource, Model, Params};
use crate::ext_proc::server::Threads;
use crate::flow::Limits;
use crate::pool::PoolName;
use crate::routing::Profile;
use crate::telemetry::{self, LogFormat};
use crate::units::parse_bytes;

/// How endpoints are read and chosen.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Decisions")]
pub(super) struct Deciding {
    /// JSON params of the utilization detector: queueDepthThreshold, kvCacheUtilThreshold,
    /// metricsStalenessThreshold, headroom.
    #[arg(long, value_name = "JSON", env = "PLUMBLINE_PARAMS")]
    pub(super) params: Option<String>,
    /// Watched ConfigMap of scaling thresholds (wva-saturation-scaling-config), or its bare content:
    /// the same numbers for routing and scaling.
    #[arg(long, value_name = "FILE")]
    pub(super) scaling_config: Option<PathBuf>,
    /// The model of this process: its entry `{modelID}#{namespace}` of --scaling-config counts. Default:
    /// the one that the variants name.
    #[arg(long, value_name = "MODEL")]
    pub(super) model_id: Option<String>,
    /// Namespace of that model. Default: the one that the variants name, else that of the pool.
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
    /// Time between two scrapes of one endpoint; at least 50ms.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = duration)]
    pub(super) refresh_metrics_interval: Duration,
    /// How endpoints are ranked: prefill-load by the seconds that a request would wait (ours), upstream
    /// by queue and KV cache as scraped.
    #[arg(long, value_name = "PROFILE", value_enum, default_value_t = DefaultProfile::PrefillLoad)]
    default_profile: DefaultProfile,
    /// Count own requests that no scrape has shown yet in the detector, the gate and the filter.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub(super) in_flight_correction: bool,
    /// Tell the gateway every candidate's score, as metadata beside the destination.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub(super) emit_endpoint_scores: bool,
    /// Hold requests that meet an empty pool until an endpoint joins, in full duplex only: at most 1,000
    /// requests and 256Mi of bodies.
    #[arg(long, value_name = "WHETHER", value_enum, default_value_t = Switch::Off)]
    waiting_room: Switch,
    /// Longest wait for an endpoint; keep it below the gateway's stream_idle_timeout.
    #[arg(long, value_name = "DURATION", default_value = "290s", value_parser = wait)]
    waiting_room_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum DefaultProfile {
    PrefillLoad,
    Upstream,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// A wait of some length. A longer one than a day is none that a gateway could be told of.
fn wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait.is_zero() || wait > Duration::from_secs(24 * 3600) {
        return Err("must be above 0s and at most 24h".to_owned());
    }
    Ok(wait)
}

/// What Envoy's `stream_idle_timeout` is unless it is told otherwise.
const ENVOY_IDLE: Duration = Duration::from_secs(300);

impl Deciding {
    /// How endpoints are ranked.
    pub(super) fn profile(&self) -> Profile {
        match self.default_profile {
            DefaultProfile::PrefillLoad => Profile::prefill_load(self.refresh_metrics_interval),
            DefaultProfile::Upstream => Profile::upstream(),
        }
    }

    /// How much may wait; `None` where nothing may.
    pub(super) fn waiting_room(&self, warnings: &mut Vec<String>) -> Option<Limits> {
        let wait = self.waiting_room_timeout;
        let limits = Limits { wait, ..Limits::default() };
        if self.waiting_room == Switch::Off {
            if wait != Limits::default().wait {
                warnings
                    .push("--waiting-room-timeout does nothing without --waiting-room=on".into());
            }
            return None;
        }
        if wait >= ENVOY_IDLE {
            warnings.push(
                "--waiting-room-timeout is not below 300s: unless the gateway's stream_idle_timeout is \
                 raised above it, the gateway answers 504 first"
                    .into(),
            );
        }
        Some(limits)
    }
}

impl Deciding {
    /// Whose line routing takes.
    pub(super) fn model(&self, pool: &PoolName) -> Model {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let namespace = given(&self.namespace).unwrap_or_else(|| pool.namespace.clone());
        Model { id: given(&self.model_id), namespace }
    }

    /// The layers of the line; reads the scaling configuration once.
    pub(super) fn line(&self, params: Params, model: Model) -> LineSource {
        LineSource::open(params, model, self.scaling_config.as_deref())
    }
}

/// Where to listen and what to bear.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Ports and limits")]
pub(super) struct Listening {
    /// Address that every port binds to; all addresses, IPv6 and IPv4, by default.
    #[arg(long, value_name = "IP")]
    bind_address: Option<IpAddr>,
    /// ext_proc and health.
    #[arg(long, value_name = "PORT", default_value_t = 9002)]
    pub(super) grpc_port: u16,
    /// gRPC health alone.
    #[arg(long, value_name = "PORT", default_value_t = 9003)]
    pub(super) grpc_health_port: u16,
    /// HTTP: /metrics, /livez, /readyz, /debug.
    #[arg(long, value_name = "PORT", default_value_t = 9090)]
    pub(super) metrics_port: u16,
    /// Let /debug answer other hosts than this one.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    pub(super) debug_remote: bool,
    /// How long new requests are still taken after SIGTERM.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(super) drain_timeout: Duration,
    /// Cores to use; one runs everything on one thread. Default: all.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    cores: Option<u16>,
    /// Largest request body; over it the client gets 413.
    #[arg(long, value_name = "SIZE", default_value = "64Mi", value_parser = parse_bytes)]
    pub(super) max_body_bytes: usize,
    /// Largest sum of request bodies held at one time; over it clients get 429.
    #[arg(long, value_name = "SIZE", default_value = "1Gi", value_parser = parse_bytes)]
    pub(super) max_held_bytes: usize,
    /// Largest message of the gateway. Default: what --max-body-bytes needs.
    #[arg(long, value_name = "SIZE", value_parser = message_size)]
    grpc_max_recv_msg_size: Option<usize>,
    /// Largest answer to the gateway. Default: no limit.
    #[arg(long, value_name = "SIZE", value_parser = message_size)]
    grpc_max_send_msg_size: Option<usize>,
}

/// A size of which the empty text is 0; 0 stands for the default.
fn message_size(text: &str) -> Result<usize, String> {
    if text.is_empty() { Ok(0) } else { parse_bytes(text) }
}

/// An answer of ours: a piece of a body and what is around it, in bytes.
const LARGEST_ANSWER: usize = 64 << 10;

impl Listening {
    /// The address to bind. `::` serves IPv4 as well; a kernel without IPv6 refuses it.
    pub(super) fn address(&self) -> IpAddr {
        let dual = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        self.bind_address.unwrap_or_else(|| match std::net::TcpListener::bind((dual, 0)) {
            Ok(_) => dual,
            Err(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        })
    }

    /// One core keeps a thread for control; the rest serve requests.
    pub(super) fn threads(&self) -> Threads {
        let cores = self.cores.map_or_else(
            || std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            usize::from,
        );
        if cores == 1 { Threads::Here } else { Threads::Own(cores - 1) }
    }

    /// Limits of messages in and out, where one is asked for.
    pub(super) fn message_limits(
        &self,
        warnings: &mut Vec<String>,
    ) -> (Option<usize>, Option<usize>) {
        let given = |size: Option<usize>| size.filter(|size| *size > 0);
        let (recv, send) = (given(self.grpc_max_recv_msg_size), given(self.grpc_max_send_msg_size));
        if recv.is_some_and(|limit| limit < self.max_body_bytes) {
            warnings.push(format!(
                "--grpc-max-recv-msg-size is below --max-body-bytes ({} bytes): a body that comes \
                 in one message gets 413 above the smaller",
                self.max_body_bytes
            ));
        }
        if send.is_some_and(|limit| limit < LARGEST_ANSWER) {
            warnings.push(format!(
                "--grpc-max-send-msg-size is below {LARGEST_ANSWER} bytes: an answer with a piece of \
                 a body may not fit, and its request fails"
            ));
        }
        (recv, send)
    }
}

/// What to write about it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct Logging {
    /// Log verbosity: 0 to 3 info, 4 debug, 5 trace.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2)]
    verbosity: u8,
    /// Log format. Default: text.
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<LogFormat>,
    /// Upstream's name of --log-format.
    #[arg(long, value_name = "ENCODER", value_enum)]
    zap_encoder: Option<ZapEncoder>,
    /// debug, info, error, panic, or a verbosity as of -v; wins over it.
    #[arg(long, value_name = "LEVEL", value_parser = zap_level)]
    zap_log_level: Option<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ZapEncoder {
    Json,
    Console,
}

fn zap_level(text: &str) -> Result<&'static str, String> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok("debug"),
        "info" => Ok("info"),
        // A panic of ours is an error of one stream.
        "error" | "panic" => Ok("error"),
        number => match number.parse::<u8>() {
            Ok(verbosity @ 1..) => Ok(telemetry::level(verbosity)),
            _ => Err("must be debug, info, error, panic or a number above 0".to_owned()),
        },
    }
}

impl Logging {
    /// The level of our own records.
    pub(super) fn level(&self) -> &'static str {
        self.zap_log_level.unwrap_or_else(|| telemetry::level(self.verbosity))
    }

    /// The format; our own flag wins.
    pub(super) fn format(&self) -> LogFormat {
        let upstream = self.zap_encoder.map(|encoder| match encoder {
            ZapEncoder::Json => LogFormat::Json,
            ZapEncoder::Console => LogFormat::Text,
        });
        self.log_format.or(upstream).unwrap_or_default()
    }
}
