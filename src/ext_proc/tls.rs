//! The certificate of the ext_proc port: given files, or self-signed for gateways that do not verify.
//!
//! Decides protocol versions (1.2 and 1.3; Envoy speaks 1.2 to its upstreams) and ALPN. Nothing is
//! written to disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::TlsAcceptor;

/// Why there is no certificate to serve with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of `--cert-path` cannot be read as PEM.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Making the self-signed certificate failed.
    #[error("making a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    /// Certificate and key do not make a server configuration.
    #[error("using the certificate and its key")]
    Use(#[source] rustls::Error),
}

/// The acceptor of `tls.crt` and `tls.key` in `cert_path`, or of a new self-signed certificate.
///
/// # Errors
/// [`Error`] names the file and the step.
pub fn acceptor(cert_path: Option<&Path>) -> Result<TlsAcceptor, Error> {
    let (chain, key) = match cert_path {
        Some(folder) => from_files(folder)?,
        None => self_signed()?,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Use)?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(Error::Use)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

type Pair = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn from_files(folder: &Path) -> Result<Pair, Error> {
    let (crt, key) = (folder.join("tls.crt"), folder.join("tls.key"));
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Read { path, source }
    };
    let chain = CertificateDer::pem_file_iter(&crt)
        .and_then(|certificates| certificates.collect::<Result<Vec<_>, _>>())
        .map_err(failed(&crt))?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(failed(&key))?;
    Ok((chain, key))
}

fn self_signed() -> Result<Pair, Error> {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(Error::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    Ok((vec![signed.cert.der().clone()], key.into()))
}
