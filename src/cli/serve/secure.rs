//! TLS of the ext_proc port.
//!
//! Decides which combinations of flags make sense; what they mean on the wire is `tls`'s.

use clap::{ArgAction, Args};

use crate::app::Security;
use crate::cli::boolean;
use crate::tls::{MinVersion, Protocol};

/// Flags of the ext_proc port's TLS.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct Secure {
    /// TLS on the ext_proc port; self-signed unless --cert-path.
    #[arg(long, value_name = "BOOL", default_value = "true", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    secure_serving: bool,
    /// Folder with tls.crt and tls.key; empty makes a self-signed certificate.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    cert_path: String,
    /// Take over a new pair in --cert-path while serving.
    #[arg(long, value_name = "BOOL", default_value = "false", default_missing_value = "true",
          num_args = 0..=1, require_equals = true, action = ArgAction::Set, value_parser = boolean)]
    enable_cert_reload: bool,
    /// Oldest version: VersionTLS12 (the default) or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true)]
    tls_min_version: String,
    /// Suites for TLS 1.2 by Go's names, comma-separated; those of 1.3 are always there.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', action = ArgAction::Append)]
    tls_cipher_suites: Vec<String>,
}

impl Secure {
    /// The flags as settings.
    pub(super) fn resolve(
        &self,
        errors: &mut Vec<String>,
        warnings: &mut Vec<String>,
    ) -> (Security, Protocol) {
        let security = match (self.secure_serving, self.cert_path.is_empty()) {
            (false, _) => Security::Plaintext,
            (true, true) => Security::SelfSigned,
            (true, false) => Security::Files {
                folder: self.cert_path.clone().into(),
                reload: self.enable_cert_reload,
            },
        };
        if self.enable_cert_reload && !matches!(security, Security::Files { .. }) {
            warnings
                .push("--enable-cert-reload does nothing without --cert-path and TLS".to_owned());
        }
        let names = self.tls_cipher_suites.iter().map(|name| name.trim());
        let names: Vec<_> = names.filter(|name| !name.is_empty()).collect();
        let min = self.min_version(errors, warnings);
        match Protocol::new(min, names.iter().copied()) {
            Err(error) => errors.push(format!("--tls-cipher-suites: {error}")),
            Ok(protocol) => {
                if !names.is_empty() {
                    warnings.extend(doubt(min, &protocol, &security));
                }
                return (security, protocol);
            }
        }
        (security, Protocol::default())
    }

    fn min_version(&self, errors: &mut Vec<String>, warnings: &mut Vec<String>) -> MinVersion {
        match self.tls_min_version.as_str() {
            "VersionTLS13" => return MinVersion::V13,
            "" | "VersionTLS12" => {}
            old @ ("VersionTLS10" | "VersionTLS11") => warnings.push(format!(
                "--tls-min-version {old} is raised to VersionTLS12: nothing older is spoken"
            )),
            other => errors.push(format!(
                "--tls-min-version must be VersionTLS10, VersionTLS11, VersionTLS12 or \
                 VersionTLS13, got {other:?}"
            )),
        }
        MinVersion::V12
    }
}

/// What a list of suites does that is hardly meant. Envoy speaks 1.2 to its upstreams by default.
fn doubt(min: MinVersion, protocol: &Protocol, security: &Security) -> Option<String> {
    let says = |what: &str| Some(format!("--tls-cipher-suites {what}"));
    if min == MinVersion::V13 {
        says("does nothing with --tls-min-version VersionTLS13: it concerns TLS 1.2 alone")
    } else if !protocol.speaks_12() {
        says("names no suite of TLS 1.2: only TLS 1.3 is spoken")
    } else if *security == Security::SelfSigned && !protocol.speaks_12_with_ecdsa() {
        says(
            "names no ECDSA suite, which the self-signed certificate needs in TLS 1.2: only TLS 1.3 \
              clients can connect; give --cert-path with an RSA pair",
        )
    } else {
        None
    }
}
