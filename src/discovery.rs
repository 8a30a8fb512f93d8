//! Where endpoints come from: one trait, one event stream, one task that applies the events.
//!
//! Decides the contract between a source and the store; each source is a submodule. A source never
//! touches the store: it sends whole sets, so a half-applied file cannot be seen.

use std::future::Future;

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
