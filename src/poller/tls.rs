//! TLS of the scrapes: whom we believe and who we are.
//!
//! Decides what a server's certificate is held against and which client certificate is shown. Files
//! are read once, at start; the versions are TLS 1.2 and 1.3.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

/// What TLS is configured with.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsFiles {
    /// PEM file of the authorities that a server's certificate must come from; `None` believes any
    /// certificate.
    pub ca: Option<PathBuf>,
    /// PEM files of our certificate and its key, for servers that ask for one.
    pub client: Option<(PathBuf, PathBuf)>,
    /// The name that a server's certificate must hold; `None` is the endpoint's IP address.
    pub server_name: Option<String>,
}

/// TLS, ready to connect.
#[derive(Debug, Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
    name: Option<ServerName<'static>>,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as PEM.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: pem::Error,
    },
    /// The CA file holds no certificate.
    #[error("{path} holds no certificate")]
    NoCertificate {
        /// The file.
        path: PathBuf,
    },
    /// A certificate or key that cannot be used.
    #[error("using {path}")]
    Use {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls::Error,
    },
    /// No DNS name.
    #[error("{0:?} is no DNS name or IP address")]
    Name(String),
    /// The library's own settings do not fit together.
    #[error("choosing TLS versions")]
    Versions(#[source] rustls::Error),
}

// === impl Tls ===

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn open(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?;
        let builder = match &files.ca {
            Some(path) => builder.with_root_certificates(roots(path)?),
            None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider))),
        };
        let config = match &files.client {
            None => builder.with_no_client_auth(),
            Some((crt, key)) => builder
                .with_client_auth_cert(certificates(crt)?, private_key(key)?)
                .map_err(|source| TlsError::Use { path: crt.clone(), source })?,
        };
        let name = files.server_name.as_ref().map(|name| {
            ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name.clone()))
        });
        Ok(Self { config: Arc::new(config), name: name.transpose()? })
    }

    pub(super) fn connector(&self) -> TlsConnector {
        Arc::clone(&self.config).into()
    }

    /// What the certificate of the server at `ip` must hold.
    pub(super) fn name(&self, ip: IpAddr) -> ServerName<'static> {
        self.name.clone().unwrap_or_else(|| ip.into())
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    if found.is_empty() {
        Err(TlsError::NoCertificate { path: path.to_owned() })
    } else {
        Ok(found)
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path)
        .map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|source| TlsError::Use { path: path.to_owned(), source })?;
    }
    Ok(roots)
}

/// Believes any certificate whose owner proves to hold its key: pods have self-signed ones.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: an empty CA file that believes nobody, or a missing one that believes everybody.
    #[test]
    fn bad_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate here\n").unwrap();
        let ca = |path: PathBuf| TlsFiles { ca: Some(path), ..TlsFiles::default() };
        let said = |files: &TlsFiles| {
            let error = Tls::open(files).unwrap_err();
            crate::causes::in_one_line(&error)
        };
        assert!(said(&ca(empty.clone())).ends_with("empty.pem holds no certificate"));
        assert!(said(&ca("/nowhere/ca.pem".into())).starts_with("reading /nowhere/ca.pem: "));
        let client = Some((empty.clone(), empty));
        assert!(said(&TlsFiles { client, ..TlsFiles::default() }).contains("no certificate"));
        let server_name = Some("not a name".to_owned());
        assert!(said(&TlsFiles { server_name, ..TlsFiles::default() }).contains("no DNS name"));
    }
}
