//! Flags of the scaling loop.
//!
//! Decides which of them make sense together; what they do is `app::scaling`'s.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::app::Security;
use crate::app::scaling::{Mode, Port, Scaler};
use crate::autoscaler::{Pace, Subject};
use crate::cli::{boolean, duration};
use crate::config::Model;
use crate::config::variants::Variants;
use crate::config::variants_file::VariantsFile;

/// Flags of the scaling loop.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scaling")]
pub(super) struct Scaling {
    /// advisory plans and shows, on lets autoscalers act on the plans, off does not plan.
    #[arg(long, value_name = "MODE", value_enum, default_value_t = ScalerMode::Advisory)]
    scaler: ScalerMode,
    /// Watched list of variants: which endpoints are replicas of what, at which price. Default: the list
    /// `variants` of --scaling-config, else all endpoints are replicas of one variant.
    #[arg(long, value_name = "FILE")]
    variants: Option<PathBuf>,
    /// Time between two plans that nothing hurries.
    #[arg(long, value_name = "DURATION", env = "GLOBAL_OPT_INTERVAL", default_value = "1s",
          value_parser = interval)]
    global_opt_interval: Duration,
    /// How long a new replica may take to start before nothing waits for it.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    startup_grace: Duration,
    /// How long the pool may be saturated while no target rises before that is an alarm.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    inert_after: Duration,
    /// HTTP ports (host:port) of other pickers of the same model: their held requests count, and
    /// while one cannot be read the model is not idle.
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',', value_parser = peer)]
    peers: Vec<String>,
    /// KEDA's external scaler; bound with --scaler=on only.
    #[arg(long, value_name = "PORT", default_value_t = 9004)]
    keda_port: u16,
    /// TLS on that port; self-signed unless --keda-cert-path.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    keda_secure: bool,
    /// Folder with tls.crt and tls.key of that port; watched.
    #[arg(long, value_name = "DIR")]
    keda_cert_path: Option<PathBuf>,
    /// PEM file of the authorities whose clients alone may ask KEDA's scaler.
    #[arg(long, value_name = "FILE")]
    keda_client_ca: Option<PathBuf>,
    /// Serve external.metrics.k8s.io, with --scaler=on only.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    external_metrics: bool,
    /// Port of external.metrics.k8s.io; always TLS.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    external_metrics_port: u16,
    /// Folder with tls.crt and tls.key of that port; watched. Default: self-signed.
    #[arg(long, value_name = "DIR")]
    external_metrics_cert_path: Option<PathBuf>,
    /// PEM file of the aggregator's authority (requestheader-client-ca-file): nobody else may ask.
    #[arg(long, value_name = "FILE")]
    external_metrics_client_ca: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScalerMode {
    Advisory,
    On,
    Off,
}

/// A plan takes milliseconds, and the readings behind it are seconds old at most.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(250) || interval > Duration::from_secs(3_600) {
        return Err("must be at least 250ms and at most 1h".to_owned());
    }
    Ok(interval)
}

/// A `host:port` that a URL can be made of.
fn peer(text: &str) -> Result<String, String> {
    let text = text.trim();
    let authority: Result<http::uri::Authority, _> = text.parse();
    match authority {
        Ok(authority) if authority.port_u16().is_some_and(|port| port > 0) => Ok(text.to_owned()),
        _ => Err("must be host:port".to_owned()),
    }
}

impl Scaling {
    /// The flags as settings; `file` is the scaling configuration, `look` the scrape interval.
    pub(super) fn resolve(
        &self,
        model: &Model,
        (ip, look, file): (IpAddr, Duration, Option<&PathBuf>),
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> Scaler {
        let (file, variants) = self.variants(file, errors);
        for other in variants.models() {
            if let Some(id) = model.id.as_deref().filter(|id| *id != other) {
                errors.push(format!("--model-id {id:?}: the variants name the model {other:?}"));
            }
        }
        let on = self.scaler == ScalerMode::On;
        if self.external_metrics && !on {
            warnings.push("--external-metrics does nothing without --scaler=on".to_owned());
        }
        if !self.keda_secure && (self.keda_cert_path.is_some() || self.keda_client_ca.is_some()) {
            errors.push(
                "--keda-cert-path and --keda-client-ca need TLS: leave --keda-secure true"
                    .to_owned(),
            );
        }
        let security = |secure: bool, folder: &Option<PathBuf>| match (secure, folder) {
            (false, _) => Security::Plaintext,
            (true, None) => Security::SelfSigned,
            (true, Some(folder)) => Security::Files { folder: folder.clone(), reload: true },
        };
        let keda = Port {
            address: SocketAddr::new(ip, self.keda_port),
            security: security(self.keda_secure, &self.keda_cert_path),
            client_ca: self.keda_client_ca.clone(),
        };
        let external_metrics = Port {
            address: SocketAddr::new(ip, self.external_metrics_port),
            security: security(true, &self.external_metrics_cert_path),
            client_ca: self.external_metrics_client_ca.clone(),
        };
        Scaler {
            mode: match self.scaler {
                ScalerMode::Advisory => Mode::Advisory,
                ScalerMode::On => Mode::On,
                ScalerMode::Off => Mode::Off,
            },
            subject: Subject { model_id: model.id.clone(), namespace: model.namespace.clone() },
            variants,
            file,
            pace: Pace {
                interval: self.global_opt_interval,
                look,
                startup_grace: self.startup_grace,
                inert_after: self.inert_after,
            },
            peers: self.peers.clone(),
            keda: Some(keda),
            external_metrics: self.external_metrics.then_some(external_metrics),
        }
    }

    fn variants(
        &self,
        scaling_config: Option<&PathBuf>,
        errors: &mut Vec<String>,
    ) -> (Option<VariantsFile>, Variants) {
        let (path, optional) = match (&self.variants, scaling_config) {
            (Some(path), _) => (path, false),
            (None, Some(path)) => (path, true),
            (None, None) => return (None, Variants::one("default")),
        };
        match VariantsFile::open(path, optional) {
            Ok((file, found)) => (Some(file), found.unwrap_or_else(|| Variants::one("default"))),
            Err(error) => {
                errors.push(error);
                (None, Variants::one("default"))
            }
        }
    }
}
