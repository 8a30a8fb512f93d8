//! TLS of our ports: certificates from files, or self-signed for clients that do not verify.
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
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::{
    ClientHello, NoServerSessionStorage, ResolvesServerCert, VerifierBuilderError,
};
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
    /// A file of client authorities has none.
    #[error("{path} holds no certificate")]
    NoAuthority {
        /// The file.
        path: PathBuf,
    },
    /// Client certificates cannot be checked against these authorities.
    #[error("checking client certificates")]
    Clients(#[source] VerifierBuilderError),
    /// They do not make a server configuration.
    #[error("using the certificate and its key")]
    Use(#[source] rustls::Error),
}

/// What a port speaks inside TLS, and whom it lets in.
#[derive(Debug, Clone)]
pub struct Face {
    alpn: &'static [&'static [u8]],
    clients: Option<Arc<RootCertStore>>,
}

impl Face {
    /// gRPC, for anyone.
    pub const GRPC: Self = Self { alpn: &[b"h2"], clients: None };
    /// HTTP, for anyone.
    pub const HTTP: Self = Self { alpn: &[b"h2", b"http/1.1"], clients: None };

    /// The same, for clients whose certificate is signed by an authority of this PEM file.
    ///
    /// # Errors
    /// A file that cannot be read, or holds no certificate that can sign.
    pub fn for_clients_of(self, file: &Path) -> Result<Self, Error> {
        let failed = |source| Error::Read { path: file.to_owned(), source };
        let bytes = std::fs::read(file).map_err(|source| failed(pem::Error::Io(source)))?;
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&bytes) {
            roots.add(authority.map_err(failed)?).map_err(Error::Use)?;
        }
        if roots.is_empty() {
            return Err(Error::NoAuthority { path: file.to_owned() });
        }
        Ok(Self { clients: Some(Arc::new(roots)), ..self })
    }
}

/// The acceptor of a certificate that is made now and of which nobody knows the issuer.
///
/// # Errors
/// [`Error`] names the step.
pub fn self_signed(protocol: &Protocol, face: &Face) -> Result<TlsAcceptor, Error> {
    let signed =
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(Error::SelfSigned)?;
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let chain = vec![signed.cert.der().clone()];
    let pair = CertifiedKey::from_der(chain, key.into(), &ring::default_provider());
    acceptor(protocol, face, Arc::new(Current::new(pair.map_err(Error::Use)?)))
}

/// The acceptor of `tls.crt` and `tls.key` in `folder`, and what takes over new ones if it is run.
///
/// # Errors
/// [`Error`] names the file and the step.
pub fn from_folder(
    folder: &Path,
    protocol: &Protocol,
    face: &Face,
) -> Result<(TlsAcceptor, Renewal), Error> {
    let read = |name: &str| {
        let path = folder.join(name);
        let read = std::fs::read(&path).map(Bytes::from);
        read.map_err(|source| Error::Read { path, source: pem::Error::Io(source) })
    };
    let files = Files { crt: read(CRT)?, key: read(KEY)? };
    let current = Arc::new(Current::new(files.pair(folder)?));
    let acceptor = acceptor(protocol, face, Arc::clone(&current))?;
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

fn acceptor(protocol: &Protocol, face: &Face, current: Arc<Current>) -> Result<TlsAcceptor, Error> {
    let builder = protocol.builder(face.clients.as_ref())?;
    let mut config = builder.with_cert_resolver(current);
    config.alpn_protocols = face.alpn.iter().map(|name| name.to_vec()).collect();
    // A resumed session would go on with the certificate of its first handshake. Gateways connect
    // once and stay, so resumption would save nothing.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
