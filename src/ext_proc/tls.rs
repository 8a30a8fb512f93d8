//! The certificate of the ext_proc port: given files, or self-signed for gateways that do not verify.
//!
//! Decides ALPN and that no session is resumed: a connection that begins after a new certificate is in
//! force has seen it. Versions and suites are `protocol`'s, new pairs are `renewal`'s. Nothing is
//! written to disk.

mod protocol;
mod renewal;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio_rustls::TlsAcceptor;

pub use protocol::{MinVersion, Protocol, UnknownSuite};
pub use renewal::Renewal;

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
        source: pem::Error,
    },
    /// Making the self-signed certificate failed.
    #[error("making a self-signed certificate")]
    SelfSigned(#[source] rcgen::Error),
    /// Certificate and key do not belong together, or are of a kind that is not served.
    #[error("using tls.crt with tls.key of {folder}")]
    Pair {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with them.
        #[source]
        source: rustls::Error,
    },
    /// They do not make a server configuration.
    #[error("using the certificate and its key")]
    Use(#[source] rustls::Error),
}

/// The acceptor of a certificate that is made now and of which nobody knows the issuer.
///
/// # Errors
/// [`Error`] names the step.
pub fn self_signed(protocol: &Protocol) -> Result<TlsAcceptor, Error> {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(Error::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let chain = vec![signed.cert.der().clone()];
    let pair = CertifiedKey::from_der(chain, key.into(), &ring::default_provider());
    acceptor(protocol, Arc::new(Current::new(pair.map_err(Error::Use)?)))
}

/// The acceptor of `tls.crt` and `tls.key` in `folder`, and what takes over new ones if it is run.
///
/// # Errors
/// [`Error`] names the file and the step.
pub fn from_folder(folder: &Path, protocol: &Protocol) -> Result<(TlsAcceptor, Renewal), Error> {
    let read = |name: &str| {
        let path = folder.join(name);
        let read = std::fs::read(&path).map(Bytes::from);
        read.map_err(|source| Error::Read { path, source: pem::Error::Io(source) })
    };
    let files = Files { crt: read(CRT)?, key: read(KEY)? };
    let current = Arc::new(Current::new(files.pair(folder)?));
    let acceptor = acceptor(protocol, Arc::clone(&current))?;
    Ok((acceptor, Renewal::new(folder.to_owned(), current, files)))
}

/// Names of the files, as a Kubernetes TLS secret has them.
const CRT: &str = "tls.crt";
const KEY: &str = "tls.key";

/// What the two files say.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Files {
    crt: Bytes,
    key: Bytes,
}

impl Files {
    /// The pair, if key and certificate belong together.
    fn pair(&self, folder: &Path) -> Result<CertifiedKey, Error> {
        let failed = |name: &str| {
            let path = folder.join(name);
            move |source| Error::Read { path, source }
        };
        let chain = CertificateDer::pem_slice_iter(&self.crt)
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed(CRT))?;
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(failed(KEY))?;
        CertifiedKey::from_der(chain, key, &ring::default_provider())
            .map_err(|source| Error::Pair { folder: folder.to_owned(), source })
    }
}

/// The pair in force; one reader a handshake, one writer.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl Current {
    fn new(pair: CertifiedKey) -> Self {
        Self(ArcSwap::from_pointee(pair))
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn acceptor(protocol: &Protocol, current: Arc<Current>) -> Result<TlsAcceptor, Error> {
    let mut config = protocol.builder().map_err(Error::Use)?.with_cert_resolver(current);
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would go on with the certificate of its first handshake. Gateways connect
    // once and stay, so resumption would save nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
