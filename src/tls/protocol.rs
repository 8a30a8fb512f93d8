//! Which TLS versions and cipher suites are spoken.
//!
//! Decides how Go's names are understood: a list of suites concerns TLS 1.2 alone, as in Go, and the
//! three suites of TLS 1.3 are always there. What is older than 1.2 does not exist here.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::{WantsServerCert, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ConfigBuilder, RootCertStore, ServerConfig, SupportedCipherSuite};

/// The oldest version that a gateway may speak. Envoy offers 1.2 to its upstreams unless told
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MinVersion {
    /// TLS 1.2.
    #[default]
    V12,
    /// TLS 1.3.
    V13,
}

/// Versions and suites; the default is all there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Protocol {
    min: MinVersion,
    /// Empty: all.
    suites: Vec<CipherSuite>,
}

/// A cipher suite that is not to be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown or unsafe cipher suite {name:?}; known are {}", known().collect::<Vec<_>>().join(", "))]
pub struct UnknownSuite {
    /// As given.
    pub name: String,
}

impl Protocol {
    /// From `min` up, with the suites of these names for TLS 1.2; none means all.
    ///
    /// # Errors
    /// The first name that is not known.
    pub fn new<'n>(
        min: MinVersion,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Self, UnknownSuite> {
        let suites = names.into_iter().map(suite).collect::<Result<_, _>>()?;
        Ok(Self { min, suites })
    }

    /// Whether TLS 1.2 is spoken at all: a list without any of its suites rules it out.
    pub fn speaks_12(&self) -> bool {
        self.min == MinVersion::V12 && self.offered().any(|suite| suite.tls13().is_none())
    }

    /// Whether a client of TLS 1.2 can use an ECDSA key, as that of the self-signed certificate.
    pub fn speaks_12_with_ecdsa(&self) -> bool {
        let ecdsa =
            |suite: SupportedCipherSuite| go_name(suite).is_some_and(|n| n.contains("_ECDSA_"));
        self.speaks_12() && self.offered().any(ecdsa)
    }

    fn offered(&self) -> impl Iterator<Item = SupportedCipherSuite> + '_ {
        ring::ALL_CIPHER_SUITES.iter().copied().filter(|suite| {
            suite.tls13().is_some()
                || self.suites.is_empty()
                || self.suites.contains(&suite.suite())
        })
    }

    /// A configuration that still wants its own certificate. Clients need one of theirs, signed by
    /// `clients`, where that is given.
    pub(super) fn builder(
        &self,
        clients: Option<&Arc<RootCertStore>>,
    ) -> Result<ConfigBuilder<ServerConfig, WantsServerCert>, super::Error> {
        let mut provider = ring::default_provider();
        provider.cipher_suites = self.offered().collect();
        let provider = Arc::new(provider);
        let versions = if self.speaks_12() { &[&TLS13, &TLS12][..] } else { &[&TLS13] };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_protocol_versions(versions).map_err(super::Error::Use)?;
        Ok(match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let roots = Arc::clone(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build().map_err(super::Error::Clients)?)
            }
        })
    }
}

/// Names in Go's spelling, which is IANA's.
fn known() -> impl Iterator<Item = String> {
    ring::ALL_CIPHER_SUITES.iter().copied().filter_map(go_name)
}

fn go_name(suite: SupportedCipherSuite) -> Option<String> {
    suite.suite().as_str().map(|name| name.replacen("TLS13_", "TLS_", 1))
}

fn suite(name: &str) -> Result<CipherSuite, UnknownSuite> {
    // Go still knows two suites by a name from before the standard gave it a hash.
    let long = format!("{name}_SHA256");
    let named = |suite: &&SupportedCipherSuite| {
        let known = go_name(**suite);
        known.as_deref() == Some(name)
            || (name.ends_with("_CHACHA20_POLY1305") && known.as_ref() == Some(&long))
    };
    let found = ring::ALL_CIPHER_SUITES.iter().find(named);
    found.map(|suite| suite.suite()).ok_or_else(|| UnknownSuite { name: name.to_owned() })
}
