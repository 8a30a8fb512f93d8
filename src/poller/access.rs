//! How a model server's page is reached: scheme, path, port, certificates, bearer token.
//!
//! Decides the bytes of the request and where a redirection may lead; the same for all endpoints of a
//! process. What the token file says now is read at every request.

use std::io::Write as _;
use std::net::SocketAddr;

use super::tls::Tls;
use super::token::Token;

/// The path of the page unless configured otherwise.
pub const METRICS_PATH: &str = "/metrics";

/// How to reach the metrics of every endpoint.
#[derive(Debug, Clone)]
pub struct Access {
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Port of the page where it is not the endpoint's own.
    pub port: Option<u16>,
    /// TLS; `None` is plain HTTP.
    pub tls: Option<Tls>,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Token>,
}

impl Default for Access {
    /// Plain HTTP, `/metrics`, the endpoint's own port.
    fn default() -> Self {
        Self { path: METRICS_PATH.to_owned(), port: None, tls: None, token: None }
    }
}

impl Access {
    /// A path as a request line can carry it.
    ///
    /// # Errors
    /// The rule that `text` breaks.
    pub fn parse_path(text: &str) -> Result<String, String> {
        if text.is_empty() {
            return Ok("/".to_owned());
        }
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        if text.starts_with('/') && printable {
            Ok(text.to_owned())
        } else {
            Err(format!(
                "{text:?} is no path: it must begin with a slash and hold no blanks or `#`"
            ))
        }
    }

    /// Writes the request for `path`, or the usual page, to the server at `address`.
    ///
    /// No compression is asked for: a page costs the server more to compress, twenty times a second,
    /// than the network to carry.
    pub(super) fn request(&self, out: &mut Vec<u8>, path: Option<&str>, address: SocketAddr) {
        out.clear();
        let path = path.unwrap_or(&self.path);
        // Writing to memory does not fail.
        let _ = write!(
            out,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: plumbline\r\n\
             Accept: text/plain;version=0.0.4,*/*;q=0.1\r\nAccept-Encoding: identity\r\n"
        );
        if let Some(token) = &self.token {
            out.extend_from_slice(b"Authorization: Bearer ");
            out.extend_from_slice(token.now().as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The path that `location` means on this server; `None` when it leads elsewhere. A page of
    /// another server is not this endpoint's, and the token is not for it.
    pub(super) fn local_path(&self, location: &str, address: SocketAddr) -> Option<String> {
        let scheme = if self.tls.is_some() { "https://" } else { "http://" };
        let path = match location.strip_prefix(scheme) {
            Some(rest) => {
                let rest = rest.strip_prefix(&address.to_string())?;
                if rest.is_empty() { "/" } else { rest }
            }
            None => location,
        };
        // Two slashes begin another authority.
        let here = path.starts_with('/') && !path.starts_with("//");
        here.then(|| Self::parse_path(path).ok()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: any absolute location followed; the double slash let through; a blank in a path.
    #[test]
    fn redirections_stay_on_the_server() {
        let access = Access::default();
        let address: SocketAddr = "[::1]:8000".parse().unwrap();
        for (location, path) in [
            ("/metrics/", Some("/metrics/")),
            ("http://[::1]:8000/m?x=1", Some("/m?x=1")),
            ("http://[::1]:8000", Some("/")),
            ("http://[::1]:80001/m", None),
            ("https://[::1]:8000/m", None),
            ("http://10.0.0.1/m", None),
            ("//10.0.0.1/m", None),
            ("/a b", None),
            ("", None),
        ] {
            assert_eq!(access.local_path(location, address).as_deref(), path, "{location}");
        }
        for bad in ["metrics", "/a b", "/a\r\nX: y", "/a#b"] {
            assert!(Access::parse_path(bad).unwrap_err().contains("no path"), "{bad}");
        }
    }
}
