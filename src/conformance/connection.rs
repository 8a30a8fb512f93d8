//! The way to a picker: plaintext HTTP/2 or TLS without verification.
//!
//! Decides that a certificate is never checked: pickers serve self-signed ones, and what is tried here
//! is the protocol, not who speaks it.

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// Where a picker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `host:port`.
    pub address: String,
    /// Whether it speaks TLS.
    pub tls: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not a `host:port`.
    #[error("{0:?} is no host:port")]
    Address(String, #[source] tonic::codegen::http::uri::InvalidUri),
    /// TLS could not be set up.
    #[error("setting up TLS")]
    Tls(#[source] rustls::Error),
    /// Nobody listens there, or it speaks something else.
    #[error("connecting to {0}")]
    Connect(String, #[source] tonic::transport::Error),
}

/// One HTTP/2 connection; clones share it.
///
/// # Errors
/// [`Error`] says at which step it failed.
pub async fn connect(target: &Target) -> Result<Channel, Error> {
    let uri = format!("http://{}", target.address)
        .parse()
        .map_err(|error| Error::Address(target.address.clone(), error))?;
    let endpoint = Endpoint::from(tonic::transport::Uri::clone(&uri)).connect_timeout(CONNECT);
    let failed = |error| Error::Connect(target.address.clone(), error);
    if !target.tls {
        return endpoint.connect().await.map_err(failed);
    }
    let tls = TlsConnector::from(Arc::new(unverified().map_err(Error::Tls)?));
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let address = target.address.clone();
    let dial = tower::service_fn(move |_| {
        let (tls, host, address) = (tls.clone(), host.clone(), address.clone());
        async move {
            let name = ServerName::try_from(host).map_err(std::io::Error::other)?;
            let tcp = TcpStream::connect(address).await?;
            std::io::Result::Ok(TokioIo::new(tls.connect(name, tcp).await?))
        }
    });
    endpoint.connect_with_connector(dial).await.map_err(failed)
}

fn unverified() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

/// Takes every certificate; that the peer holds its key is still checked.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
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
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
