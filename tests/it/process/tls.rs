//! TLS of the ext_proc port, from a client's side of the handshake.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::harness::picker::{Picker, command};
use crate::harness::{soon, wait_for};

/// A certificate and its key.
struct Pair {
    der: Vec<u8>,
    crt: String,
    key: String,
}

fn pair() -> Pair {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    Pair {
        der: made.cert.der().to_vec(),
        crt: made.cert.pem(),
        key: made.signing_key.serialize_pem(),
    }
}

fn put(folder: &Path, pair: &Pair) {
    std::fs::write(folder.join("tls.crt"), &pair.crt).unwrap();
    std::fs::write(folder.join("tls.key"), &pair.key).unwrap();
}

/// A client that trusts these; it would resume a session if it could.
fn client(trusted: &[&Pair], versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for pair in trusted {
        roots.add(pair.der.clone().into()).unwrap();
    }
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

async fn dial(at: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::clone(config));
    let tcp = TcpStream::connect(at).await?;
    let name = ServerName::try_from("localhost").unwrap();
    soon("a handshake", connector.connect(name, tcp)).await
}

fn leaf(tls: &TlsStream<TcpStream>) -> Vec<u8> {
    tls.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

/// gRPC over a connection that is there already.
async fn channel(tls: TlsStream<TcpStream>) -> Channel {
    let mut io = Some(TokioIo::new(tls));
    let once = tower::service_fn(move |_| {
        let io = io.take().ok_or_else(|| io::Error::other("only one connection"));
        async move { io }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(once).await.unwrap()
}

async fn lives(channel: &Channel) {
    let mut client = HealthClient::new(channel.clone());
    soon("a health check", client.check(HealthCheckRequest::default())).await.unwrap();
}

async fn serves(at: SocketAddr, config: &Arc<ClientConfig>, pair: &Pair) {
    wait_for("the certificate is in force", async || {
        let tls = dial(at, config).await.map_err(|error| error.to_string())?;
        if leaf(&tls) == pair.der { Ok(()) } else { Err("another certificate".to_owned()) }
    })
    .await;
}

async fn picker(folder: &Path, flags: &[&str]) -> Picker {
    let base = ["--endpoints=127.0.0.1:1", "--cores=1"];
    let flags = base.iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
    let picker = Picker::process(flags, folder).await;
    picker.ready().await;
    picker
}

const RELOADS: &str = "plumbline_certificate_reloads_total";

/// As Kubernetes swaps a secret (a link to a folder of both files), as a tool rewrites files in place,
/// and as one renames them over the old: new connections meet the new certificate, of a client that
/// has been there before too, and a connection from the beginning lives through it all. Mutants: no
/// reload; sessions that resume; watching the files' inodes; connections that end with their
/// certificate.
#[tokio::test]
async fn a_new_certificate_is_met_by_new_connections() {
    let [first, swapped, rewritten, renamed] = [(); 4].map(|()| pair());
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let version = |name: &str, pair: &Pair| {
        std::fs::create_dir(at.join(name)).unwrap();
        put(&at.join(name), pair);
    };
    version("..1", &first);
    std::os::unix::fs::symlink("..1", at.join("..data")).unwrap();
    for file in ["tls.crt", "tls.key"] {
        std::os::unix::fs::symlink(format!("..data/{file}"), at.join(file)).unwrap();
    }
    let cert_path = format!("--cert-path={}", at.display());
    let picker = picker(at, &[&cert_path, "--enable-cert-reload"]).await;
    // Envoy's version by default, in which one session could be resumed again and again.
    let config = client(&[&first, &swapped, &rewritten, &renamed], &[&TLS12]);
    let config = Arc::new(config);
    let tls = dial(picker.grpc, &config).await.unwrap();
    assert_eq!(leaf(&tls), first.der);
    let old = channel(tls).await;
    lives(&old).await;

    version("..2", &swapped);
    std::os::unix::fs::symlink("..2", at.join("..new")).unwrap();
    std::fs::rename(at.join("..new"), at.join("..data")).unwrap();
    serves(picker.grpc, &config, &swapped).await;
    lives(&old).await;

    put(&at.join("..2"), &rewritten);
    serves(picker.grpc, &config, &rewritten).await;

    version("..3", &renamed);
    for file in ["tls.key", "tls.crt"] {
        std::fs::rename(at.join("..3").join(file), at.join(file)).unwrap();
    }
    serves(picker.grpc, &config, &renamed).await;
    lives(&old).await;
    assert_eq!(picker.metric(&format!("{RELOADS}{{result=\"ok\"}}")).await, 3);
}

/// A key that belongs to another certificate changes nothing, and is counted; when its certificate
/// follows, both are in force. Without the flag nothing is followed at all. Mutants: taking over half a
/// pair; giving up after a bad one; reloading without the flag.
#[tokio::test]
async fn a_bad_pair_keeps_the_old_one() {
    let [first, second] = [(); 2].map(|()| pair());
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &first);
    let cert_path = format!("--cert-path={}", folder.path().display());
    let [logs, other_logs] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let follows = picker(logs.path(), &[&cert_path, "--enable-cert-reload"]).await;
    let stays = picker(other_logs.path(), &[&cert_path]).await;
    let config = Arc::new(client(&[&first, &second], &[&TLS13]));

    std::fs::write(folder.path().join("tls.key"), &second.key).unwrap();
    let failed = format!("{RELOADS}{{result=\"failed\"}}");
    wait_for("the bad pair is counted", async || match follows.metric(&failed).await {
        0 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    assert_eq!(leaf(&dial(follows.grpc, &config).await.unwrap()), first.der);
    std::fs::write(folder.path().join("tls.crt"), &second.crt).unwrap();
    serves(follows.grpc, &config, &second).await;
    assert_eq!(leaf(&dial(stays.grpc, &config).await.unwrap()), first.der);

    std::fs::remove_file(folder.path().join("tls.crt")).unwrap();
    wait_for("the loss is counted", async || match follows.metric(&failed).await {
        0 | 1 => Err("not yet".to_owned()),
        _ => Ok(()),
    })
    .await;
    assert_eq!(leaf(&dial(follows.grpc, &config).await.unwrap()), second.der);
}

/// `check` and a start both refuse a pair that does not match, by the folder's name. Mutant: serving
/// with it, so that every handshake fails.
#[tokio::test]
async fn a_bad_pair_at_start_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &pair());
    std::fs::write(folder.path().join("tls.key"), pair().key).unwrap();
    let cert_path = format!("--cert-path={}", folder.path().display());
    let ports = ["--grpc-port=0", "--grpc-health-port=0", "--metrics-port=0"];
    let start = [&["--bind-address=127.0.0.1", &cert_path][..], &ports].concat();
    for arguments in [&["check", &cert_path][..], &start] {
        let output = soon("the binary", command(arguments).output()).await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(&format!("tls.key of {}", folder.path().display())), "{text}");
    }
}

/// Version and suite of a handshake, `None` where it fails.
async fn handshake(at: SocketAddr, config: ClientConfig) -> Option<CipherSuite> {
    let tls = dial(at, &Arc::new(config)).await.ok()?;
    Some(tls.get_ref().1.negotiated_cipher_suite()?.suite())
}

/// Mutants: a minimum that is ignored; 1.3 lost with it; ALPN demanded.
#[tokio::test]
async fn the_oldest_version_is_what_was_asked_for() {
    let certificate = pair();
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &certificate);
    let cert_path = format!("--cert-path={}", folder.path().display());
    for (flag, old) in [("", true), ("VersionTLS10", true), ("VersionTLS13", false)] {
        let flag = format!("--tls-min-version={flag}");
        let picker = picker(folder.path(), &[&cert_path, &flag]).await;
        let twelve = handshake(picker.grpc, client(&[&certificate], &[&TLS12])).await;
        assert_eq!(twelve.is_some(), old, "{flag}");
        assert!(handshake(picker.grpc, client(&[&certificate], &[&TLS13])).await.is_some());
        let mut plain = client(&[&certificate], &[&TLS13]);
        plain.alpn_protocols.clear();
        let tls = dial(picker.grpc, &Arc::new(plain)).await.unwrap();
        lives(&channel(tls).await).await;
    }
}

/// The list binds TLS 1.2 and leaves 1.3 alone. Mutants: a list that is ignored, one that empties 1.3.
#[tokio::test]
async fn suites_are_those_that_were_asked_for() {
    use CipherSuite::{
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 as SMALL,
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 as CHACHA,
    };
    let certificate = pair();
    let folder = tempfile::tempdir().unwrap();
    put(folder.path(), &certificate);
    let cert_path = format!("--cert-path={}", folder.path().display());
    let list = "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305";
    let picker = picker(folder.path(), &[&cert_path, list]).await;
    let offering = |suite: CipherSuite| {
        let mut provider = ring::default_provider();
        provider.cipher_suites.retain(|known| known.suite() == suite);
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der.clone().into()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    };
    assert_eq!(handshake(picker.grpc, offering(SMALL)).await, None);
    assert_eq!(handshake(picker.grpc, offering(CHACHA)).await, Some(CHACHA));
    assert_eq!(handshake(picker.grpc, client(&[&certificate], &[&TLS12])).await, Some(CHACHA));
    assert!(handshake(picker.grpc, client(&[&certificate], &[&TLS13])).await.is_some());
}
