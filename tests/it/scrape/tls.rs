//! Scrapes over TLS: whom the poller believes, whom it proves to be, and the token it brings.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use plumbline::poller::Scraping;
use plumbline::poller::access::Access;
use plumbline::poller::tls::{Tls, TlsFiles};
use plumbline::poller::token::Token;
use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::server::WebPkiClientVerifier;
use tokio_rustls::TlsAcceptor;

use super::server::{Reply, Server};
use super::{PAGE, Watch};
use crate::harness::{Picker, Plan, wait_for};

/// An authority and what it signs, as files of one folder.
struct Authority {
    folder: tempfile::TempDir,
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    /// Each has a name of its own; of two with one name a client would compare the keys.
    fn new(name: &str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).unwrap();
        Self { folder, certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    fn sign(&self, name: &str) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// Certificate and key of a client, as files.
    fn client(&self) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.sign("poller");
        let at = |name: &str| self.folder.path().join(name);
        std::fs::write(at("client.crt"), certificate.pem()).unwrap();
        std::fs::write(at("client.key"), key.serialize_pem()).unwrap();
        (at("client.crt"), at("client.key"))
    }

    /// A server with a certificate for `name`; it asks clients for one where `clients` is given.
    fn acceptor(&self, name: &str, clients: Option<&Authority>) -> TlsAcceptor {
        let (certificate, key) = self.sign(name);
        let provider = Arc::new(ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.certificate.der().clone()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let chain = vec![certificate.der().clone()];
        Arc::new(builder.with_single_cert(chain, key.into()).unwrap()).into()
    }
}

fn access(files: &TlsFiles) -> Access {
    Access { tls: Some(Tls::open(files).unwrap()), ..Access::default() }
}

/// Mutants: no verification although a CA is given; verification although none is; a name ignored; a
/// client certificate not shown.
#[tokio::test]
async fn certificates_decide_who_is_believed() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let by_ip = Server::over(Some(ours.acceptor("127.0.0.1", None)), |_| Reply::page(PAGE)).await;
    let by_name = Server::over(Some(ours.acceptor("vllm.pool", None)), |_| Reply::page(PAGE)).await;
    let asking = ours.acceptor("127.0.0.1", Some(&other));
    let asking = Server::over(Some(asking), |_| Reply::page(PAGE)).await;
    let ca = |authority: &Authority| TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() };
    let named = TlsFiles { server_name: Some("vllm.pool".to_owned()), ..ca(&ours) };
    let shown = TlsFiles { client: Some(other.client()), ..ca(&ours) };
    let stranger = TlsFiles { client: Some(ours.client()), ..ca(&ours) };
    for (server, files, failure) in [
        (&by_ip, ca(&ours), None),
        (&by_ip, TlsFiles::default(), None),
        (&by_ip, ca(&other), Some("TLS handshake: invalid peer certificate: UnknownIssuer")),
        (&by_name, named, None),
        (&by_name, ca(&ours), Some("TLS handshake: invalid peer certificate")),
        (&asking, shown, None),
        (&asking, ca(&ours), Some("CertificateRequired")),
        (&asking, stranger, Some("received fatal alert")),
    ] {
        let watch = Watch::start(server.address, access(&files));
        match failure {
            None => {
                watch.until("pages", |w| w.count("ok") >= 2).await;
                assert_eq!(watch.load().waiting.value(), Some(4.0), "{files:?}");
            }
            Some(said) => {
                watch.until("a failure", |w| w.count("failed") >= 1).await;
                assert!(watch.error().contains(said), "{files:?}: {}", watch.error());
                assert_eq!(watch.count("ok"), 0, "{files:?}");
            }
        }
    }
    let plain = Server::start(|_| Reply::page(PAGE)).await;
    let watch = Watch::start(plain.address, access(&TlsFiles::default()));
    watch.until("a failure", |w| w.count("failed") >= 1).await;
    assert!(watch.error().starts_with("TLS handshake: "), "{}", watch.error());
}

/// Mutant: the error kept from the debug page.
#[tokio::test]
async fn a_wrong_authority_is_told_on_the_debug_page() {
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let tls = ours.acceptor("127.0.0.1", None);
    let server = Server::over(Some(tls), |_| Reply::page(PAGE)).await;
    let files = TlsFiles { ca: Some(other.ca()), ..TlsFiles::default() };
    let mut settings = Plan::default().settings(&server.address.to_string());
    settings.scraping = Scraping { access: Arc::new(access(&files)), ..Scraping::default() };
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    wait_for("the error", async || {
        let pool = picker.pool().await;
        match pool[0]["last_error"].as_str() {
            Some(error) if error.contains("UnknownIssuer") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

fn put(path: &Path, token: &str) {
    // As Kubernetes does it: a new file in place of the old one.
    let next = path.with_extension("next");
    std::fs::write(&next, token).unwrap();
    std::fs::rename(next, path).unwrap();
}

/// Mutants: no token sent; the token of the start kept; the token of another line.
#[tokio::test]
async fn the_token_is_sent_and_read_again() {
    let authority = Authority::new("ours");
    let answer = |head: &str| match head.contains("\r\nAuthorization: Bearer one\r\n")
        || head.contains("\r\nAuthorization: Bearer two\r\n")
    {
        true => Reply::page(PAGE),
        false => Reply::with("401 Who", "", b""),
    };
    let server = Server::over(Some(authority.acceptor("127.0.0.1", None)), answer).await;
    let path = authority.folder.path().join("token");
    put(&path, "one\n");
    let files = TlsFiles { ca: Some(authority.ca()), ..TlsFiles::default() };
    let access = Access { token: Some(Token::open(&path).unwrap()), ..access(&files) };
    let mut settings = Plan::default().settings(&server.address.to_string());
    settings.scraping = Scraping { access: Arc::new(access), ..Scraping::default() };
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    assert!(server.last_head().contains("Bearer one"), "{}", server.last_head());
    put(&path, "two\n");
    wait_for("the new token", async || {
        let head = server.last_head();
        if head.contains("Bearer two") { Ok(()) } else { Err(head) }
    })
    .await;
    assert_eq!(picker.pool().await[0]["last_error"], serde_json::Value::Null);
}
