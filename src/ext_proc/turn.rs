//! One stream's place in flow control: its ticket, and the wait for a verdict.
//!
//! Decides that a request keeps its ticket and its deadline when it has to wait again; who goes on when
//! is `flow`'s.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use crate::flow::{Arrival, Ticket, Verdict};
use crate::flow_control::{FlowControl, Waiting};

/// Empty as long as the request has not waited. Dropping it leaves the queue.
#[derive(Default)]
pub(super) struct Turn {
    ticket: Option<(Ticket, Instant)>,
    waiting: Option<Waiting>,
}

impl Turn {
    /// Asks for a verdict on a request of so many bytes.
    pub(super) fn wait(
        &mut self,
        flow: &FlowControl,
        bytes: usize,
        priority: i32,
        fairness: Option<Arc<str>>,
    ) {
        let (ticket, deadline) = *self.ticket.get_or_insert_with(|| flow.ticket());
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.waiting = Some(flow.arrive(Arrival { ticket, bytes, priority, fairness, deadline }));
    }

    /// The verdict, once; pending for ever while nothing waits.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Verdict> {
        let Some(waiting) = &mut self.waiting else { return Poll::Pending };
        let verdict = Pin::new(waiting).poll(cx);
        if verdict.is_ready() {
            self.waiting = None;
        }
        verdict
    }

    /// Leaves without a verdict; whether there was something to leave.
    pub(super) fn leave(&mut self) -> bool {
        self.waiting.take().is_some()
    }
}
