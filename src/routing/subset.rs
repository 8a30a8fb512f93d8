//! Subset hints: the gateway's word on which endpoints a request may use.
//!
//! Decides what a hint says and whom it admits; where a hint stands in a message is the adapter's
//! knowledge. A hint only restricts: it is matched against members, so it never adds an address.

use std::net::{IpAddr, SocketAddr};

/// A hint as the adapter found it, in plain strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Hint {
    /// No such key, or `null`: every endpoint may be used.
    #[default]
    Absent,
    /// A list, the usual form.
    List(Vec<HintItem>),
    /// One string, addresses separated by commas.
    Text(String),
    /// Another kind of value. It restricts like a list that names nobody: the gateway asked for a
    /// restriction, and an endpoint it may not have meant is worse than a refusal.
    Other,
}

/// One item of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HintItem {
    /// An address, or several separated by commas.
    Text(String),
    /// Another kind of value; it names nobody.
    Other,
}

/// The addresses that a request may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Subset {
    /// One port of an address; sorted.
    exact: Vec<(IpAddr, u16)>,
    /// Every port of an address; sorted.
    any_port: Vec<IpAddr>,
}

impl Subset {
    /// What `hint` restricts a request to; `None` is no restriction.
    ///
    /// `ip:port` and `[v6]:port` name one endpoint, a bare IP, in brackets or not, every port of it.
    /// Spaces around an address are ignored, and so is what is no address.
    pub fn from_hint(hint: &Hint) -> Option<Self> {
        let mut subset = Self::default();
        match hint {
            Hint::Absent => return None,
            Hint::Other => {}
            Hint::Text(text) => subset.add(text),
            Hint::List(items) => {
                for item in items {
                    if let HintItem::Text(text) = item {
                        subset.add(text);
                    }
                }
            }
        }
        subset.exact.sort_unstable();
        subset.any_port.sort_unstable();
        Some(subset)
    }

    fn add(&mut self, text: &str) {
        for part in text.split(',').map(str::trim) {
            let bare = part.strip_prefix('[').and_then(|p| p.strip_suffix(']')).unwrap_or(part);
            if let Ok(ip) = bare.parse::<IpAddr>() {
                self.any_port.push(ip.to_canonical());
            } else if let Ok(address) = part.parse::<SocketAddr>() {
                self.exact.push((address.ip().to_canonical(), address.port()));
            }
        }
    }

    /// Whether a request may use the endpoint at `address`.
    pub fn admits(&self, address: SocketAddr) -> bool {
        // An IPv4 address written as IPv6 is the same server.
        let ip = address.ip().to_canonical();
        self.exact.binary_search(&(ip, address.port())).is_ok()
            || self.any_port.binary_search(&ip).is_ok()
    }
}

#[cfg(test)]
mod tests;
