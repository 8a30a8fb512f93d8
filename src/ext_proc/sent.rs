//! A request that has gone to an endpoint, and how long it counts there.
//!
//! Decides by what the gateway shows: a response seen to its end counts no longer, one that the gateway
//! does not show counts until scrapes show it, one that failed keeps its count for a while, so that a
//! server that fails fast does not look idle.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::reckoning::FAILURE_HOLD;
use crate::store::{InFlight, Store};

/// Where the request went, and its count there.
pub(super) struct Sent {
    destination: Arc<str>,
    guard: InFlight,
    failed: bool,
}

impl Sent {
    /// `guard` counts the request at `destination`.
    pub(super) fn new(destination: Arc<str>, guard: InFlight) -> Self {
        Self { destination, guard, failed: false }
    }

    /// The gateway says who served (a retry, a fallback): the request counts there.
    pub(super) fn served_by(&mut self, served: &str, store: &Store) {
        if *self.destination == *served {
            return;
        }
        let pool = store.pool();
        if let Some(member) = pool.members.iter().find(|member| *member.destination == *served) {
            self.guard.move_to(member.slot, Instant::now().into_std());
            self.destination = Arc::clone(&member.destination);
        }
    }

    /// Response headers came with this status. The server's own errors are failures; so is a gateway's
    /// answer in its place, when it could not be reached.
    pub(super) fn answered(&mut self, status: u16) {
        if status >= 500 && !self.failed {
            self.failed = true;
            self.guard.fail(Instant::now().into_std());
        }
    }

    /// A chunk of the response came.
    pub(super) fn chunk(&mut self) {
        if !self.failed {
            self.guard.first_chunk(Instant::now().into_std());
        }
    }

    /// The response ended, with so many output tokens where it said so.
    pub(super) fn end(self, output_tokens: Option<u64>) {
        if self.failed {
            linger(self.guard, FAILURE_HOLD);
        } else {
            self.guard.end(output_tokens, Instant::now().into_std());
        }
    }

    /// The stream is gone before the response ended. Where the gateway resets it at dispatch, the
    /// endpoint has only begun: the count stays for `unseen`.
    pub(super) fn cut(self, unseen: Option<Duration>) {
        match unseen {
            _ if self.failed => linger(self.guard, FAILURE_HOLD),
            Some(unseen) => linger(self.guard, unseen),
            None => drop(self.guard),
        }
    }
}

fn linger(guard: InFlight, time: Duration) {
    // Without a runtime the process is on its way out.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            tokio::time::sleep(time).await;
            drop(guard);
        });
    }
}
