//! The one task that changes membership, and with it the set of scrape loops.
//!
//! Decides the order: a new set is published, then the loops of those that left are stopped and new
//! ones started, all before anything else runs on the control runtime, so that no loop ever writes a
//! slot that is no longer its own.

use std::collections::HashMap;

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use crate::discovery::Members;
use crate::lifecycle::{Latch, Lifecycle};
use crate::poller::Poller;
use crate::pool::Slot;
use crate::store::MembershipWriter;

/// What is missing until the first set was applied.
pub(super) const NOT_SYNCED: &str = "discovery has not synced";
/// What is missing until each endpoint of the first set was scraped or found unreachable.
const NOT_SCRAPED: &str = "first scrapes are not done";

/// Applies sets until the source is gone; `changed` tells of each, once readers see it.
pub(super) async fn run(
    mut sets: mpsc::Receiver<Members>,
    (mut writer, changed): (MembershipWriter, watch::Sender<()>),
    poller: Poller,
    lifecycle: Lifecycle,
    mut not_synced: Option<Latch>,
) {
    let mut loops: HashMap<Slot, AbortHandle> = HashMap::new();
    while let Some(Members(endpoints)) = sets.recv().await {
        let change = writer.apply(endpoints);
        changed.send_replace(());
        for member in &change.stopped {
            if let Some(handle) = loops.remove(&member.slot) {
                handle.abort();
            }
            poller.forget(member.slot);
            tracing::info!(endpoint = %member.endpoint.id, address = %member.destination, "left");
        }
        for member in &change.started {
            let first = not_synced.as_ref().map(|_| lifecycle.latch(NOT_SCRAPED));
            loops.insert(member.slot, poller.spawn(member, first).abort_handle());
            tracing::info!(endpoint = %member.endpoint.id, address = %member.destination, "joined");
        }
        for (before, member) in &change.relabelled {
            if poller.engine_differs(before, &member.endpoint) {
                if let Some(handle) = loops.remove(&member.slot) {
                    handle.abort();
                }
                loops.insert(member.slot, poller.spawn(member, None).abort_handle());
                tracing::info!(endpoint = %member.endpoint.id, "runs another engine");
            }
        }
        for id in &change.refused {
            tracing::error!(endpoint = %id, capacity = crate::store::CAPACITY, "no free slot");
        }
        not_synced = None;
    }
    loops.values().for_each(AbortHandle::abort);
}
