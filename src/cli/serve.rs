//! `plumbline` without a sub-command: serve.
//!
//! Decides how flags become [`Settings`]; every mistake is reported at once. The flags themselves are
//! in the submodules, grouped as `--help` shows them.

mod endpoints;
mod flags;
mod scaler;
mod scraping;
mod secure;
mod upstream;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use self::endpoints::Endpoints;
use self::flags::{Deciding, Listening, Logging};
use self::scaler::Scaling;
use self::scraping::Scraped;
use self::secure::Secure;
use self::upstream::{Accepted, Refused};
use crate::app::{App, Settings, Source};
use crate::config::{self, Model, Params, Surroundings};
use crate::ext_proc::Options;
use crate::manifests::{Content, Manifests};
use crate::telemetry;

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
    #[command(flatten)]
    endpoints: Endpoints,
    #[command(flatten)]
    deciding: Deciding,
    #[command(flatten)]
    scaling: Scaling,
    #[command(flatten)]
    scraped: Scraped,
    #[command(flatten)]
    listening: Listening,
    #[command(flatten)]
    secure: Secure,
    #[command(flatten)]
    logging: Logging,
    #[command(flatten)]
    accepted: Accepted,
    #[command(flatten)]
    refused: Refused,
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
        let mut errors = self.refused.errors(&self.accepted);
        let mut warnings = self.accepted.warnings();
        self.endpoints.judge(&mut errors, &mut warnings);
        let detector = self.detector().map_err(|broken| errors.extend(broken));
        let source = self.endpoints.source().map_err(|broken| errors.push(broken));
        let opened = self.endpoints.open_manifests().map_err(|broken| errors.push(broken));
        let scraping = self.scraped.resolve(&mut errors, &mut warnings);
        let (security, protocol) = self.secure.resolve(&mut errors, &mut warnings);
        let (max_message_in, max_message_out) = self.listening.message_limits(&mut warnings);
        let waiting_room = self.deciding.waiting_room(&mut warnings);
        let asked = self.deciding.refresh_metrics_interval;
        let scrape_interval = asked.max(MIN_SCRAPE_INTERVAL);
        let ip = self.listening.address();
        let around = (ip, scrape_interval, self.deciding.scaling_config.as_ref());
        let scaler = self.scaling.resolve(&self.model(), around, &mut errors, &mut warnings);
        // The model that the variants name is the model of the line, too.
        let model = scaler.model();
        if let Some(given) = self.deciding.namespace.as_ref().filter(|n| **n != model.namespace) {
            let named = &model.namespace;
            errors
                .push(format!("--namespace {given:?}: the variants name the namespace {named:?}"));
        }
        let (Ok(params), Ok(source), Ok((manifests, findings)), []) =
            (detector, source, opened, &errors[..])
        else {
            return Err(errors);
        };
        let Content { rewrites, objectives } =
            manifests.as_ref().map(Manifests::content).unwrap_or_default();
        let pool = self.endpoints.pool(std::env::var("NAMESPACE").ok());
        let line = self.deciding.line(params, model);
        let policy = line.policy(self.deciding.profile()).0;
        let policy = policy.with_documents(rewrites, objectives);
        if scrape_interval != asked {
            warnings.push("--refresh-metrics-interval is raised to its minimum of 50ms".to_owned());
        }
        let around = Surroundings {
            scrape_interval,
            endpoints: match &source {
                Source::Static(list) => Some(list.endpoints().len()),
                Source::File(_) => None,
            },
        };
        warnings.extend(config::lint::warnings(&line, &policy, &around));
        warnings.extend(findings.warnings);
        let listening = &self.listening;
        let at = |port| SocketAddr::new(ip, port);
        let settings = Settings {
            source,
            policy,
            line,
            manifests,
            grpc: at(listening.grpc_port),
            grpc_health: at(listening.grpc_health_port),
            admin: at(listening.metrics_port),
            security,
            protocol,
            options: Options {
                correct_in_flight: self.deciding.in_flight_correction,
                emit_scores: self.deciding.emit_endpoint_scores,
                disable_subset_filter: self.endpoints.disable_endpoint_subset_filter,
                max_message_in,
                max_message_out,
            },
            pool,
            scraping,
            scrape_interval,
            drain_timeout: listening.drain_timeout,
            threads: listening.threads(),
            max_body: listening.max_body_bytes,
            max_held: listening.max_held_bytes,
            waiting_room,
            debug_remote: listening.debug_remote,
            scaler,
        };
        Ok(Resolved { settings, warnings, left_out: findings.errors })
    }

    /// Whose line is asked for.
    pub(super) fn model(&self) -> Model {
        self.deciding.model(&self.endpoints.pool(std::env::var("NAMESPACE").ok()))
    }

    /// Whether the line alone is given: then no endpoints are no mistake of `check`.
    pub(super) fn is_line_alone(&self) -> bool {
        self.deciding.scaling_config.is_some() && !self.endpoints.is_given()
    }

    /// The endpoints file, if that is where endpoints come from.
    pub(super) fn endpoints_file(&self) -> Option<&PathBuf> {
        self.endpoints.endpoints_file.as_ref()
    }

    fn detector(&self) -> Result<Params, Vec<String>> {
        match self.deciding.params.as_deref().filter(|text| !text.trim().is_empty()) {
            None => Ok(Params::default()),
            Some(text) => Params::parse(text),
        }
    }
}

/// Serves until SIGTERM or SIGINT; a second signal exits with 1 at once.
pub(super) async fn run(args: ServeArgs) -> anyhow::Result<ExitCode> {
    telemetry::init(args.logging.level(), args.logging.format());
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

#[cfg(test)]
mod tests;
