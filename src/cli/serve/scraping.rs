//! How the model servers' metrics are reached, and as which engine they are read.
//!
//! Decides which combinations of flags make sense; what they mean on the wire is the poller's. The
//! first four keep the names that the Go picker gave them before they moved into its configuration.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args, ValueEnum};

use crate::causes;
use crate::cli::boolean;
use crate::poller::Scraping;
use crate::poller::access::{Access, METRICS_PATH};
use crate::poller::engines::{self, Engines};
use crate::poller::tls::{Tls, TlsFiles};
use crate::poller::token::Token;

/// Flags of the scrapes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Model servers")]
pub(super) struct Scraped {
    /// Path of the metrics page.
    #[arg(long, value_name = "PATH", default_value = METRICS_PATH,
          value_parser = Access::parse_path)]
    model_server_metrics_path: String,
    /// Port of the metrics page. Default: the endpoint's own.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    model_server_metrics_port: Option<u16>,
    /// http or https.
    #[arg(long, value_name = "SCHEME", value_enum, default_value_t = Scheme::Http)]
    model_server_metrics_scheme: Scheme,
    /// Believe any certificate of a model server. Default: yes, unless a CA file is given.
    #[arg(long, value_name = "BOOL", default_missing_value = "true", num_args = 0..=1,
          require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    model_server_metrics_https_insecure_skip_verify: Option<bool>,
    /// PEM file of the authorities that model servers' certificates come from.
    #[arg(long, value_name = "FILE")]
    model_server_metrics_ca_file: Option<PathBuf>,
    /// Name that their certificates must hold. Default: the endpoint's IP address.
    #[arg(long, value_name = "NAME")]
    model_server_metrics_server_name: Option<String>,
    /// PEM file of the certificate to show to a model server that asks for one.
    #[arg(long, value_name = "FILE", requires = "model_server_metrics_key_file")]
    model_server_metrics_cert_file: Option<PathBuf>,
    /// PEM file of that certificate's key.
    #[arg(long, value_name = "FILE", requires = "model_server_metrics_cert_file")]
    model_server_metrics_key_file: Option<PathBuf>,
    /// File with the bearer token of the scrapes; read again when it changes.
    #[arg(long, value_name = "FILE")]
    model_server_metrics_token_file: Option<PathBuf>,
    /// YAML or JSON file that maps engines to metric names: the parameters of upstream's
    /// core-metrics-extractor.
    #[arg(long, value_name = "FILE")]
    engines_file: Option<PathBuf>,
    /// Engine of endpoints without an engine label: vllm (the default), sglang, trtllm-serve,
    /// triton-tensorrt-llm, triton, or one of --engines-file.
    #[arg(long, value_name = "NAME")]
    default_engine: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Scheme {
    Http,
    Https,
}

impl Scraped {
    /// The flags as settings; with errors what comes back is of no use.
    pub(super) fn resolve(&self, errors: &mut Vec<String>, warnings: &mut Vec<String>) -> Scraping {
        let mut or_say = |flag: &str, error: String| errors.push(format!("--{flag}: {error}"));
        let engines = self.engines().unwrap_or_else(|(flag, error)| {
            or_say(flag, error);
            Engines::default()
        });
        let token = self.model_server_metrics_token_file.as_deref().and_then(|path| {
            let said = |error| or_say("model-server-metrics-token-file", told(&error));
            Token::open(path).map_err(said).ok()
        });
        let tls = self.tls(errors, warnings);
        if self.model_server_metrics_token_file.is_some() && !self.is_verified() {
            warnings.push(
                "--model-server-metrics-token-file: without https and a CA file anybody on the way \
                 can read the token"
                    .to_owned(),
            );
        }
        let access = Access {
            path: self.model_server_metrics_path.clone(),
            port: self.model_server_metrics_port,
            tls,
            token,
        };
        Scraping { engines: Arc::new(engines), access: Arc::new(access) }
    }

    fn engines(&self) -> Result<Engines, (&'static str, String)> {
        let default = self.default_engine.as_deref();
        match &self.engines_file {
            None => Engines::try_new(&[], default, None).map_err(|e| ("default-engine", told(&e))),
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("reading {}: {error}", path.display()));
                let read = text.and_then(|text| {
                    engines::read_document(&text, default)
                        .map_err(|error| format!("{}: {}", path.display(), told(&error)))
                });
                read.map_err(|error| ("engines-file", error))
            }
        }
    }

    /// Whether a server's certificate is held against the CA file.
    fn is_verified(&self) -> bool {
        self.model_server_metrics_scheme == Scheme::Https
            && self.model_server_metrics_ca_file.is_some()
            && self.model_server_metrics_https_insecure_skip_verify != Some(true)
    }

    fn tls(&self, errors: &mut Vec<String>, warnings: &mut Vec<String>) -> Option<Tls> {
        let ca = self.model_server_metrics_ca_file.clone();
        let skip = self.model_server_metrics_https_insecure_skip_verify;
        if self.model_server_metrics_scheme == Scheme::Http {
            for (flag, given) in [
                ("ca-file", ca.is_some()),
                ("server-name", self.model_server_metrics_server_name.is_some()),
                ("cert-file", self.model_server_metrics_cert_file.is_some()),
            ] {
                if given {
                    warnings.push(format!(
                        "--model-server-metrics-{flag} does nothing without \
                         --model-server-metrics-scheme=https"
                    ));
                }
            }
            return None;
        }
        match (skip, &ca) {
            (Some(false), None) => errors.push(
                "--model-server-metrics-https-insecure-skip-verify=false needs \
                 --model-server-metrics-ca-file: no authority is believed by default"
                    .to_owned(),
            ),
            (Some(true), Some(_)) => warnings.push(
                "--model-server-metrics-ca-file does nothing with \
                 --model-server-metrics-https-insecure-skip-verify"
                    .to_owned(),
            ),
            _ => {}
        }
        let client = self.model_server_metrics_cert_file.clone();
        let files = TlsFiles {
            ca: ca.filter(|_| skip != Some(true)),
            client: client.zip(self.model_server_metrics_key_file.clone()),
            server_name: self.model_server_metrics_server_name.clone(),
        };
        Tls::open(&files)
            .map_err(|error| {
                errors.push(format!("--model-server-metrics-scheme=https: {}", told(&error)))
            })
            .ok()
    }
}

fn told(error: &(dyn std::error::Error + 'static)) -> String {
    causes::in_one_line(error)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        scraped: Scraped,
    }

    /// Settings, errors and warnings; or what the parser says.
    fn resolve(flags: &[&str]) -> Result<(Scraping, Vec<String>, Vec<String>), String> {
        let line = Line::try_parse_from([&["x"], flags].concat()).map_err(|e| e.to_string())?;
        let (mut errors, mut warnings) = (Vec::new(), Vec::new());
        let scraping = line.scraped.resolve(&mut errors, &mut warnings);
        Ok((scraping, errors, warnings))
    }

    const HTTPS: &str = "--model-server-metrics-scheme=https";
    const SKIP: &str = "--model-server-metrics-https-insecure-skip-verify";

    /// Mutants: a default changed; two flags exchanged; the default engine not looked up.
    #[test]
    fn flags_reach_their_settings() {
        let (scraping, errors, warnings) = resolve(&[]).unwrap();
        assert_eq!((errors.len(), warnings.len()), (0, 0));
        assert_eq!((scraping.access.path.as_str(), scraping.access.port), ("/metrics", None));
        assert!(scraping.access.tls.is_none() && scraping.access.token.is_none());
        assert_eq!(scraping.engines.of(&BTreeMap::new()).name(), "vllm");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engines.yaml");
        std::fs::write(&path, "engineConfigs: [{name: mine, queuedRequestsSpec: q}]").unwrap();
        let file = format!("--engines-file={}", path.display());
        let (scraping, errors, warnings) = resolve(&[
            "--model-server-metrics-path=/m",
            "--model-server-metrics-port=9400",
            HTTPS,
            &file,
            "--default-engine=mine",
        ])
        .unwrap();
        assert_eq!((errors.len(), warnings.len()), (0, 0));
        assert_eq!((scraping.access.path.as_str(), scraping.access.port), ("/m", Some(9400)));
        assert!(scraping.access.tls.is_some());
        assert_eq!(scraping.engines.of(&BTreeMap::new()).name(), "mine");
    }

    /// Mutants: any rule dropped; an error that does not name its flag.
    #[test]
    fn mistakes_name_their_flag() {
        let file = "--model-server-metrics-ca-file=/nowhere/ca.pem";
        let refused_skip = format!("{SKIP}=false");
        for (flags, said) in [
            (&["--model-server-metrics-path=metrics"][..], "must begin with a slash"),
            (&["--model-server-metrics-port=0"], "0 is not in 1..=65535"),
            (&["--model-server-metrics-scheme=ftp"], "possible values: http, https"),
            (&["--model-server-metrics-cert-file=a"], "--model-server-metrics-key-file"),
            (&[HTTPS, file], "https: reading /nowhere/ca.pem"),
            (&[HTTPS, refused_skip.as_str()], "needs --model-server-metrics-ca-file"),
            (&["--model-server-metrics-token-file=/nowhere/token"], "token-file: reading /nowhere"),
            (&["--engines-file=/nowhere/engines"], "engines-file: reading /nowhere/engines"),
            (&["--default-engine=vlm"], "default-engine: defaultEngine \"vlm\""),
        ] {
            let errors = resolve(flags).map_or_else(|said| vec![said], |(_, errors, _)| errors);
            assert!(errors.iter().any(|error| error.contains(said)), "{flags:?}: {errors:?}");
        }
    }

    /// Mutants: a warning that is silent, or one for what is fine.
    #[test]
    fn what_is_hardly_meant_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let ca = format!("--model-server-metrics-ca-file={}", put("ca.pem", &made.cert.pem()));
        let token = format!("--model-server-metrics-token-file={}", put("token", "t\n"));
        for (flags, said) in [
            (&[ca.as_str()][..], Some("ca-file does nothing without")),
            (&["--model-server-metrics-server-name=x"], Some("server-name does nothing")),
            (&[HTTPS, &ca, SKIP], Some("ca-file does nothing with")),
            (&[&token], Some("can read the token")),
            (&[HTTPS, &token], Some("can read the token")),
            (&[HTTPS, &ca, &token], None),
            (&[HTTPS, SKIP], None),
        ] {
            let (_, errors, warnings) = resolve(flags).unwrap();
            assert!(errors.is_empty(), "{flags:?}: {errors:?}");
            assert_eq!(warnings.len(), usize::from(said.is_some()), "{flags:?}: {warnings:?}");
            assert!(warnings.iter().all(|warning| warning.contains(said.unwrap())), "{warnings:?}");
        }
    }
}
