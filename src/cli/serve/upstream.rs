//! Flags of the Go picker that do something else here, or nothing.
//!
//! Decides what each is answered with: a warning that says what stands in its place, or an error where
//! going on would serve something else than was asked for. A flag that asks for what is so anyway
//! (`--tracing=false`) is taken without a word.

use std::time::Duration;

use clap::{ArgAction, Args};

use crate::cli::{boolean, duration};

/// Flags that are understood and change nothing.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Accepted from the Go picker's command line, with a warning")]
pub(super) struct Accepted {
    /// --log-format stands in its place.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    zap_devel: Option<bool>,
    /// Errors carry their causes instead of stacks.
    #[arg(long, value_name = "LEVEL")]
    zap_stacktrace_level: Option<String>,
    /// Times are RFC 3339 in UTC.
    #[arg(long, value_name = "ENCODING")]
    zap_time_encoding: Option<String>,
    /// No traces are sent yet.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    tracing: Option<bool>,
    /// Use `perf` on the process.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    enable_pprof: Option<bool>,
    /// Gauges are set at every scrape of /metrics.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    refresh_prometheus_metrics_interval: Option<Duration>,
    /// The detector's metricsStalenessThreshold is the one limit of age.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    metrics_staleness_threshold: Option<Duration>,
    /// Open streams are always counted.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    enable_grpc_stream_metrics: Option<bool>,
    /// Health is always served on the ext_proc port.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    health_checking: Option<bool>,
    /// There is no lease without a cluster: every replica serves.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    ha_enable_leader_election: Option<bool>,
    /// /metrics is open: limit who reaches --metrics-port.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    metrics_endpoint_auth: Option<bool>,
    /// /metrics is plain HTTP.
    #[arg(long, value_name = "DIR")]
    metrics_cert_dir: Option<String>,
    /// /metrics asks for no client certificate.
    #[arg(long, value_name = "FILE")]
    metrics_client_ca_file: Option<String>,
    /// There are no plugins to allow.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    allow_experimental_plugins: Option<bool>,
}

const OPEN_PORT: &str = "let a network policy, or --bind-address, limit who reaches --metrics-port";

impl Accepted {
    /// One warning for each flag that asks for something that is not done.
    pub(super) fn warnings(&self) -> Vec<String> {
        let on = |flag: Option<bool>| flag == Some(true);
        let named = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let asked = [
            ("zap-devel", self.zap_devel.is_some(), "--log-format chooses text or json"),
            (
                "zap-stacktrace-level",
                self.zap_stacktrace_level.is_some(),
                "errors carry the chain of their causes, not stacks",
            ),
            (
                "zap-time-encoding",
                self.zap_time_encoding.is_some(),
                "times in the log are RFC 3339 in UTC",
            ),
            ("tracing", on(self.tracing), "no traces are sent yet; --tracing=false says so"),
            ("enable-pprof", on(self.enable_pprof), "use perf on the process instead"),
            (
                "refresh-prometheus-metrics-interval",
                self.refresh_prometheus_metrics_interval.is_some(),
                "gauges are set anew at every scrape of /metrics",
            ),
            (
                "metrics-staleness-threshold",
                self.metrics_staleness_threshold.is_some(),
                "the one limit of age is metricsStalenessThreshold of --params",
            ),
            (
                "enable-grpc-stream-metrics",
                on(self.enable_grpc_stream_metrics),
                "plumbline_ext_proc_streams is always there",
            ),
            (
                "health-checking",
                on(self.health_checking),
                "health is always served on --grpc-port too, and tells the truth there",
            ),
            (
                "ha-enable-leader-election",
                on(self.ha_enable_leader_election),
                "there is no lease without a cluster, every replica serves",
            ),
            ("metrics-endpoint-auth", on(self.metrics_endpoint_auth), OPEN_PORT),
            (
                "metrics-cert-dir",
                // With a client CA it is the CA's warning that tells.
                named(&self.metrics_cert_dir) && !named(&self.metrics_client_ca_file),
                OPEN_PORT,
            ),
            ("metrics-client-ca-file", named(&self.metrics_client_ca_file), OPEN_PORT),
            (
                "allow-experimental-plugins",
                on(self.allow_experimental_plugins),
                "there is no plugin configuration yet, --params is all there is to set",
            ),
        ];
        let asked = asked.into_iter().filter(|(_, asked, _)| *asked);
        asked.map(|(name, _, instead)| format!("--{name} does nothing here: {instead}")).collect()
    }
}

/// Flags that end a start.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Refused")]
pub(super) struct Refused {
    /// Not supported yet: use --params.
    #[arg(long, value_name = "FILE")]
    config_file: Option<String>,
    /// Not supported yet: use --params.
    #[arg(long, value_name = "YAML")]
    config_text: Option<String>,
    #[arg(long, hide = true)]
    total_queued_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    total_running_requests_metric: Option<String>,
    #[arg(long, hide = true)]
    kv_cache_usage_percentage_metric: Option<String>,
    #[arg(long, hide = true)]
    lora_info_metric: Option<String>,
    #[arg(long, hide = true)]
    cache_info_metric: Option<String>,
}

impl Refused {
    /// One error for each.
    pub(super) fn errors(&self, accepted: &Accepted) -> Vec<String> {
        let mut errors = Vec::new();
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let (file, text) = (given(&self.config_file), given(&self.config_text));
        if file && text {
            errors.push("--config-file and --config-text exclude each other".to_owned());
        }
        for (name, given) in [("config-file", file), ("config-text", text)] {
            if given {
                errors.push(format!(
                    "--{name} is not supported yet; give the utilization detector's parameters as \
                     JSON by --params"
                ));
            }
        }
        for (name, flag) in [
            ("total-queued-requests-metric", &self.total_queued_requests_metric),
            ("total-running-requests-metric", &self.total_running_requests_metric),
            ("kv-cache-usage-percentage-metric", &self.kv_cache_usage_percentage_metric),
            ("lora-info-metric", &self.lora_info_metric),
            ("cache-info-metric", &self.cache_info_metric),
        ] {
            if flag.is_some() {
                errors.push(format!(
                    "--{name} is gone, upstream refuses it too; the engine of an endpoint decides \
                     its metric names"
                ));
            }
        }
        let auth = accepted.metrics_endpoint_auth.unwrap_or(true);
        match (given(&accepted.metrics_cert_dir), given(&accepted.metrics_client_ca_file)) {
            (false, true) => {
                errors.push("--metrics-client-ca-file needs --metrics-cert-dir".to_owned());
            }
            (true, false) if !auth => errors.push(
                "--metrics-cert-dir needs --metrics-client-ca-file or --metrics-endpoint-auth"
                    .to_owned(),
            ),
            _ => {}
        }
        errors
    }
}
