//! The membership writer: from a source's whole set to the next snapshot.
//!
//! Decides which slot an endpoint gets. A slot follows the id: it survives a change of address or
//! labels, and an endpoint that left keeps it until its last request in flight has ended, so a slot is
//! never counted for two endpoints.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{CAPACITY, Shared};
use crate::endpoint::{Endpoint, EndpointId};
use crate::pool::{Member, Pool, Slot};

/// What one applied set changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Change {
    /// Members that are new, or have another address than before.
    pub started: Vec<Member>,
    /// Members that left, or had another address before.
    pub stopped: Vec<Member>,
    /// Members with new labels at the address of before: how they were, and how they are.
    pub relabelled: Vec<(Endpoint, Member)>,
    /// Ids that found no free slot.
    pub refused: Vec<EndpointId>,
}

/// The only writer of the membership.
pub struct MembershipWriter {
    shared: Arc<Shared>,
    members: BTreeMap<EndpointId, Member>,
    /// Slots of endpoints that left with requests in flight, by id.
    leaving: BTreeMap<EndpointId, Slot>,
    free: Vec<Slot>,
    /// Slots never used so far start here.
    fresh: u32,
}

impl MembershipWriter {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            members: BTreeMap::new(),
            leaving: BTreeMap::new(),
            free: Vec::new(),
            fresh: 0,
        }
    }

    /// Makes `endpoints` the whole membership. Of several with one id the last counts.
    ///
    /// Readers see either the old set or the new one. An equal set publishes nothing.
    pub fn apply(&mut self, endpoints: Vec<Endpoint>) -> Change {
        self.reclaim();
        let mut change = Change::default();
        let mut wanted: BTreeMap<_, _> =
            endpoints.into_iter().map(|endpoint| (endpoint.id.clone(), endpoint)).collect();
        let gone = self.members.keys().filter(|id| !wanted.contains_key(*id)).cloned();
        for id in gone.collect::<Vec<_>>() {
            self.leave(&id, &mut change);
        }
        let mut changed = !change.stopped.is_empty();
        while let Some((id, endpoint)) = wanted.pop_first() {
            match self.members.get(&id) {
                Some(member) if member.endpoint == endpoint => continue,
                // The same server under new labels keeps its readings.
                Some(member) if member.endpoint.address == endpoint.address => {
                    let before = member.endpoint.clone();
                    let member = Member { endpoint, ..member.clone() };
                    change.relabelled.push((before, member.clone()));
                    self.members.insert(id, member);
                    changed = true;
                    continue;
                }
                Some(_) => self.leave(&id, &mut change),
                None => {}
            }
            changed |= self.join(id, endpoint, &mut change);
        }
        if changed {
            let generation = self.shared.pool.load().generation + 1;
            let members = self.members.values().cloned().collect();
            self.shared.pool.store(Arc::new(Pool { generation, members }));
        }
        change
    }

    /// Adds one endpoint, or refuses it when no slot is free.
    fn join(&mut self, id: EndpointId, endpoint: Endpoint, change: &mut Change) -> bool {
        let Some(slot) = self.slot_for(&id) else {
            change.refused.push(id);
            return false;
        };
        self.shared.slab.cell(slot).forget();
        self.shared.records[slot.0 as usize].store(None);
        let destination = endpoint.address.to_string().into();
        let member = Member { endpoint, slot, destination };
        change.started.push(member.clone());
        self.members.insert(id, member);
        true
    }

    fn leave(&mut self, id: &EndpointId, change: &mut Change) {
        if let Some(member) = self.members.remove(id) {
            self.leaving.insert(id.clone(), member.slot);
            change.stopped.push(member);
        }
    }

    /// The slot that `id` left behind, else a free one, else an unused one.
    fn slot_for(&mut self, id: &EndpointId) -> Option<Slot> {
        if let Some(slot) = self.leaving.remove(id).or_else(|| self.free.pop()) {
            return Some(slot);
        }
        let slot = Slot(self.fresh);
        ((self.fresh as usize) < CAPACITY).then(|| self.fresh += 1).map(|()| slot)
    }

    /// Frees the slots of endpoints that left and have nothing in flight any more.
    fn reclaim(&mut self) {
        let slab = &self.shared.slab;
        let free = &mut self.free;
        self.leaving.retain(|_, slot| {
            // Acquire pairs with the release of the last guard's end.
            let busy = slab.cell(*slot).scrape.in_flight.load(Ordering::Acquire) > 0;
            if !busy {
                free.push(*slot);
            }
            busy
        });
    }
}
