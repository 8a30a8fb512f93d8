//! Conservation, slot stability and freshness, under paused arithmetic time.

use std::time::Duration;

use super::*;
use crate::endpoint::{Endpoint, Signal};

fn endpoint(name: &str, port: u16) -> Endpoint {
    Endpoint::new("default", name, ([127, 0, 0, 1], port).into())
}

fn page(waiting: Scraped, running: Scraped, kv: Scraped) -> Page {
    Page { waiting, running, kv, ranks: 1, capacity_tokens: Some(1000.0) }
}

fn slot_of(store: &Store, name: &str) -> Option<Slot> {
    let id = crate::endpoint::EndpointId::new("default", name);
    store.pool().members.iter().find(|m| m.endpoint.id == id).map(|m| m.slot)
}

#[allow(clippy::disallowed_methods)] // The zero of the arithmetic below, not a measurement.
fn new_store() -> (Store, MembershipWriter, Instant) {
    let now = Instant::now();
    let (store, writer) = Store::new(now);
    (store, writer, now)
}

/// Mutant: stamping with a constant, or `Missing` erasing the value.
#[test]
fn readings_age_and_missing_signals_keep_theirs() {
    let (store, mut writer, now) = new_store();
    writer.apply(vec![endpoint("a", 1)]);
    let mut load_writer = store.load_writer(slot_of(&store, "a").unwrap());
    load_writer.publish(&page(Scraped::Value(3.0), Scraped::Value(2.0), Scraped::Value(0.5)), now);
    let later = now + Duration::from_millis(70);
    load_writer.publish(&page(Scraped::Value(4.0), Scraped::Unmapped, Scraped::Missing), later);
    let mut loads = Vec::new();
    store.read_loads(&store.pool(), later + Duration::from_millis(30), &mut loads);
    let read = |value, ms| Signal::Read { value, age: Duration::from_millis(ms) };
    assert_eq!(loads[0].waiting, read(4.0, 30));
    assert_eq!(loads[0].running, Signal::Unmapped);
    assert_eq!(loads[0].kv, read(0.5, 100));
}

/// Mutant: handing out the slot of a leaver at once (the new endpoint would inherit its requests).
#[test]
fn a_slot_is_not_reused_before_its_last_request_ended() {
    let (store, mut writer, now) = new_store();
    writer.apply(vec![endpoint("a", 1)]);
    let slot = slot_of(&store, "a").unwrap();
    let guard = store.begin(slot, Weight::default(), now);
    writer.apply(vec![]);
    writer.apply(vec![endpoint("b", 2)]);
    assert_ne!(slot_of(&store, "b").unwrap(), slot);
    writer.apply(vec![endpoint("a", 1), endpoint("b", 2)]);
    assert_eq!(slot_of(&store, "a").unwrap(), slot, "the id finds its own count again");
    writer.apply(vec![endpoint("b", 2)]);
    drop(guard);
    writer.apply(vec![endpoint("b", 2), endpoint("c", 3)]);
    assert_eq!(slot_of(&store, "c").unwrap(), slot, "and a free slot is used again");
}

/// Mutant: always publishing, or not forgetting the readings of another address.
#[test]
fn equal_sets_publish_nothing_and_a_new_address_is_unread() {
    let (store, mut writer, now) = new_store();
    writer.apply(vec![endpoint("a", 1)]);
    let slot = slot_of(&store, "a").unwrap();
    let fresh = Scraped::Value(0.0);
    store.load_writer(slot).publish(&page(fresh, fresh, fresh), now);
    assert_eq!(writer.apply(vec![endpoint("a", 1)]), Change::default());
    assert_eq!(store.pool().generation, 1);
    let change = writer.apply(vec![endpoint("a", 9)]);
    assert_eq!((change.started.len(), change.stopped.len()), (1, 1));
    let mut loads = Vec::new();
    store.read_loads(&store.pool(), now, &mut loads);
    assert_eq!(loads[0].waiting, Signal::Never);
    assert_eq!(slot_of(&store, "a").unwrap(), slot);
}

/// Mutant: taking the slot index without the bound.
#[test]
fn a_full_store_refuses_by_name_and_keeps_the_rest() {
    let (store, mut writer, _) = new_store();
    let many = (0..=CAPACITY).map(|i| endpoint(&format!("e{i:05}"), 1)).collect();
    let change = writer.apply(many);
    assert_eq!(change.refused.len(), 1);
    assert_eq!(store.pool().members.len(), CAPACITY);
}

mod ledger;
