//! A fixed list of endpoints from the command line, `a:p,b:p`.
//!
//! Decides how the list reads; the list never changes afterwards.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;

use super::{Discovery, Drain, Members, Sink, drained, parse_ip, parse_port};
use crate::endpoint::Endpoint;

/// Endpoints that are known at start and stay.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StaticList(Vec<Endpoint>);

/// Everything that is wrong with a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticListError(Vec<String>);

impl fmt::Display for StaticListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for StaticListError {}

impl StaticList {
    /// Reads `ip:port` or `[ipv6]:port` items, separated by commas, each with an optional `name=`
    /// before it. Without a name an item is `endpoint-N`, N its position from 0.
    ///
    /// # Errors
    /// [`StaticListError`] with every fault at once: items that do not read, host names, a name or an
    /// address that comes twice, an empty list.
    pub fn parse(list: &str) -> Result<Self, StaticListError> {
        if list.trim().is_empty() {
            return Err(StaticListError(vec!["the list is empty".to_owned()]));
        }
        let mut endpoints = Vec::new();
        let mut faults = Vec::new();
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for (index, item) in list.split(',').map(str::trim).enumerate() {
            match parse_item(index, item) {
                Err(rule) => faults.push(format!("item {index} {item:?}: {rule}")),
                Ok(endpoint) => {
                    // Names hold a slash and addresses do not, so one map serves both.
                    for key in [endpoint.address.to_string(), endpoint.id.to_string()] {
                        if let Some(first) = seen.insert(key.clone(), index) {
                            faults
                                .push(format!("item {index} {item:?}: {key} is item {first} too"));
                        }
                    }
                    endpoints.push(endpoint);
                }
            }
        }
        if faults.is_empty() { Ok(Self(endpoints)) } else { Err(StaticListError(faults)) }
    }

    /// The endpoints in the order of the list.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.0
    }
}

fn parse_item(index: usize, item: &str) -> Result<Endpoint, String> {
    let (name, address) = match item.split_once('=') {
        Some((name, address)) => (name.trim().to_owned(), address.trim()),
        None => (format!("endpoint-{index}"), item),
    };
    if name.is_empty() || name.contains('/') {
        return Err(format!("name {name:?} must not be empty nor hold a slash"));
    }
    let (host, port) = address.rsplit_once(':').ok_or("must be ip:port or name=ip:port")?;
    let ip = match host.strip_prefix('[').map(|rest| rest.strip_suffix(']')) {
        Some(inside) => parse_ip(inside.ok_or("bracket is not closed")?),
        // Without brackets nobody can tell where the address ends and the port begins.
        None if host.contains(':') => return Err("IPv6 must stand in brackets, [ip]:port".into()),
        None => parse_ip(host),
    };
    let ip = ip.map_err(|rule| format!("address {host:?} {rule}"))?;
    let port = parse_port(port).map_err(|rule| format!("port {port:?} {rule}"))?;
    Ok(Endpoint::new("default", &name, SocketAddr::new(ip, port)))
}

impl Discovery for StaticList {
    type Error = Infallible;

    async fn run(self, sink: Sink, mut drain: Drain) -> Result<(), Infallible> {
        // A receiver that is gone needs no endpoints.
        let _ = sink.send(Members(self.0)).await;
        drained(&mut drain).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, watch};

    use super::*;

    fn texts(list: &StaticList) -> Vec<String> {
        list.endpoints().iter().map(|e| format!("{}={}", e.id, e.address)).collect()
    }

    /// Mutants: numbering from 1, no canonical form, names ignored.
    #[test]
    fn a_list_reads_addresses_and_names() {
        let list = "10.0.0.1:8000, b=10.0.0.2:8001,[::1]:8000,v4=[::ffff:10.0.0.3]:80";
        assert_eq!(
            texts(&StaticList::parse(list).unwrap()),
            [
                "default/endpoint-0=10.0.0.1:8000",
                "default/b=10.0.0.2:8001",
                "default/endpoint-2=[::1]:8000",
                "default/v4=10.0.0.3:80",
            ]
        );
    }

    /// Mutant: returning at the first fault leaves out the later ones.
    #[test]
    fn all_faults_are_named_at_once() {
        let list = "localhost:8000,10.0.0.1,10.0.0.1:0,10.0.0.1:+80,::1:80,[::1:80,,=1.1.1.1:1,\
                    10.0.0.9:1,x=10.0.0.9:1,endpoint-8=10.0.0.8:1";
        let error = StaticList::parse(list).unwrap_err();
        let expected = [
            r#"item 0 "localhost:8000": address "localhost" is not an IP address (host names"#,
            r#"item 1 "10.0.0.1": must be ip:port"#,
            r#"item 2 "10.0.0.1:0": port "0" is not a number from 1 to 65535"#,
            r#"item 3 "10.0.0.1:+80": port "+80""#,
            r#"item 4 "::1:80": IPv6 must stand in brackets"#,
            r#"item 5 "[::1:80": bracket is not closed"#,
            r#"item 6 "": must be ip:port"#,
            r#"item 7 "=1.1.1.1:1": name """#,
            r#"item 9 "x=10.0.0.9:1": 10.0.0.9:1 is item 8 too"#,
            r#"item 10 "endpoint-8=10.0.0.8:1": default/endpoint-8 is item 8 too"#,
        ];
        assert_eq!(error.0.len(), expected.len(), "{error}");
        for (fault, start) in error.0.iter().zip(expected) {
            assert!(fault.starts_with(start), "{fault}");
        }
        assert_eq!(StaticList::parse(" ").unwrap_err().to_string(), "the list is empty");
    }

    /// Mutants: sending twice, or returning before the drain.
    #[tokio::test]
    async fn one_set_is_sent_and_the_drain_ends_it() {
        let list = StaticList::parse("10.0.0.1:8000").unwrap();
        let (sink, mut sets) = mpsc::channel(4);
        let (drain, draining) = watch::channel(false);
        let running = tokio::spawn(list.clone().run(sink, draining));
        assert_eq!(sets.recv().await, Some(Members(list.0)));
        assert!(!running.is_finished());
        drain.send(true).unwrap();
        running.await.unwrap().unwrap();
        assert_eq!(sets.recv().await, None);
    }
}
