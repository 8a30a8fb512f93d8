//! A client of an API server, or of whoever answers in its place: JSON over TLS, one connection a request.
//!
//! Decides paths of documents, and nothing about what is right: a refusal comes back as status and words.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::harness::client::Error;
use crate::keys::Pair;

/// Longest wait for one answer; a server that is being killed may never give it.
const ANSWER: Duration = Duration::from_secs(10);

/// Who asks, and whom.
#[derive(Clone)]
pub struct Api {
    at: SocketAddr,
    tls: TlsConnector,
    token: Option<String>,
}

/// A response; the body is text where it is no JSON.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Api {
    /// A client that trusts one authority (PEM) and shows a certificate if it has one.
    pub fn new(at: SocketAddr, authority: &str, client: Option<&Pair>) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        let config = match client {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let chain = vec![CertificateDer::from_pem_slice(pair.crt.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        Self { at, tls: TlsConnector::from(Arc::new(config)), token: None }
    }

    /// The same, with a bearer token.
    pub fn with_token(self, token: &str) -> Self {
        Self { token: Some(token.to_owned()), ..self }
    }

    /// Sends a request; `body` is its type and its bytes.
    pub async fn ask(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Answer, Error> {
        timeout(ANSWER, self.send(method, path, body)).await?
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, String)>,
    ) -> Result<Answer, Error> {
        let mut request =
            Request::builder().method(method).uri(path).header(header::HOST, self.at.to_string());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let (kind, body) = body.unwrap_or(("application/json", String::new()));
        let request =
            request.header(header::CONTENT_TYPE, kind).body(Full::new(Bytes::from(body)))?;
        let tcp = TcpStream::connect(self.at).await?;
        let tls = self.tls.connect(ServerName::from(self.at.ip()), tcp).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await?;
        let connection = tokio::spawn(connection);
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        connection.abort();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
        Ok(Answer { status, body })
    }

    /// The object, list or page at `path`; a refusal is an error.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        good(self.ask(Method::GET, path, None).await)
    }

    /// Makes or changes the objects of a YAML text of one or more documents, on the server's side.
    pub async fn apply(&self, text: &str) -> Result<(), String> {
        for document in text.split("\n---\n") {
            let object: Value =
                serde_saphyr::from_str(document).map_err(|error| error.to_string())?;
            let path = format!("{}?fieldManager=tests&force=true", path(&object));
            let body = ("application/apply-patch+yaml", object.to_string());
            good(self.ask(Method::PATCH, &path, Some(body)).await)?;
        }
        Ok(())
    }
}

fn good(answer: Result<Answer, Error>) -> Result<Value, String> {
    match answer {
        Ok(Answer { status: 200..=299, body }) => Ok(body),
        Ok(Answer { status, body }) => Err(format!("{status} {body}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Where an object lives. Its kind's plural ends in `s`, as that of all that the tests make.
fn path(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&object["apiVersion"]);
    let root = if version.contains('/') { "apis" } else { "api" };
    let namespace = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    let (kind, name) = (text(&object["kind"]).to_lowercase(), text(&object["metadata"]["name"]));
    format!("/{root}/{version}{namespace}/{kind}s/{name}")
}
