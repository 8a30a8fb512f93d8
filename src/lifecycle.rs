//! Whether this process should get traffic: readiness latches and the drain.
//!
//! Decides readiness from named reasons; who asks (gRPC health, `/readyz`) and what draining stops is
//! decided elsewhere. Imports nothing of the crate.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// What keeps the process from being ready, and whether it is on its way out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Status {
    /// Latch name to the number of its holders that are not done.
    pending: BTreeMap<&'static str, usize>,
    draining: bool,
}

impl Status {
    /// Ready: nothing pending and not draining.
    pub fn is_ready(&self) -> bool {
        self.pending.is_empty() && !self.draining
    }

    /// Whether the drain has begun.
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// What is missing, in words; empty when ready.
    pub fn reasons(&self) -> Vec<&'static str> {
        let mut reasons: Vec<_> = self.pending.keys().copied().collect();
        if self.draining {
            reasons.push("draining");
        }
        reasons
    }
}

/// The lifecycle of one process; cheap to clone.
#[derive(Clone)]
pub struct Lifecycle(Arc<watch::Sender<Status>>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Status::default())))
    }
}

/// Keeps the process unready until it is dropped.
#[must_use = "the process is ready as soon as its last latch is dropped"]
pub struct Latch {
    lifecycle: Lifecycle,
    name: &'static str,
}

impl Lifecycle {
    /// A reason to be unready, such as `discovery has not synced`.
    pub fn latch(&self, name: &'static str) -> Latch {
        self.0.send_modify(|status| *status.pending.entry(name).or_default() += 1);
        Latch { lifecycle: self.clone(), name }
    }

    /// Begins the drain; there is no way back.
    pub fn drain(&self) {
        self.0.send_if_modified(|status| !std::mem::replace(&mut status.draining, true));
    }

    /// The status now.
    pub fn status(&self) -> Status {
        self.0.borrow().clone()
    }

    /// Follows the status.
    pub fn watch(&self) -> watch::Receiver<Status> {
        self.0.subscribe()
    }
}

impl Drop for Latch {
    fn drop(&mut self) {
        self.lifecycle.0.send_modify(|status| {
            if let Some(holders) = status.pending.get_mut(self.name) {
                *holders -= 1;
                if *holders == 0 {
                    status.pending.remove(self.name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: removing the name with its first holder.
    #[test]
    fn ready_only_when_every_latch_dropped_and_not_draining() {
        let lifecycle = Lifecycle::default();
        let first = lifecycle.latch("first scrapes");
        let second = lifecycle.latch("first scrapes");
        drop(first);
        assert_eq!(lifecycle.status().reasons(), ["first scrapes"]);
        drop(second);
        assert!(lifecycle.status().is_ready());
        lifecycle.drain();
        assert_eq!(lifecycle.status().reasons(), ["draining"]);
        assert!(!lifecycle.status().is_ready());
    }
}
