//! Where endpoints come from: one trait, one event stream, one task that applies the events.
//!
//! Decides the contract between a source and the store; each source is a submodule. A source never
//! touches the store: it sends whole sets, so a half-applied file cannot be seen.

pub mod document;
pub mod file;
pub mod static_list;

use std::future::Future;
use std::net::IpAddr;

use tokio::sync::{mpsc, watch};

use crate::endpoint::Endpoint;

/// The whole membership as a source knows it now. Replaces what was there before.
#[derive(Debug, Clone, PartialEq)]
pub struct Members(pub Vec<Endpoint>);

/// Where a source sends its sets; the receiving task is the only writer of the membership.
pub type Sink = mpsc::Sender<Members>;

/// Becomes `true` when the process drains; a source then returns.
pub type Drain = watch::Receiver<bool>;

/// A source of endpoints.
pub trait Discovery: Send + 'static {
    /// Why a source cannot go on.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Sends the set known at start, then a set after every change, until `drain` turns true.
    ///
    /// # Errors
    /// Only for what cannot heal by itself; a bad change is logged, counted and leaves the old set.
    fn run(self, sink: Sink, drain: Drain) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Returns when the process drains, or when nobody is left who could say so.
async fn drained(drain: &mut Drain) {
    let _ = drain.wait_for(|draining| *draining).await;
}

/// An IP literal. An IPv4 address written inside IPv6 becomes plain IPv4, since the gateway compares
/// destinations as text.
fn parse_ip(text: &str) -> Result<IpAddr, &'static str> {
    text.parse::<IpAddr>()
        .map(|ip| ip.to_canonical())
        .map_err(|_| "is not an IP address (host names are not resolved)")
}

/// A port in its one canonical spelling; `+8000` and `08000` would reach the destination header as
/// something that nobody can connect to.
fn parse_port(text: &str) -> Result<u16, &'static str> {
    text.parse::<u16>().ok().filter(|port| *port != 0 && port.to_string() == text).ok_or(PORT_RULE)
}

/// What a port must be, for error texts.
const PORT_RULE: &str = "is not a number from 1 to 65535 without sign or leading zeros";
