//! The pollers: one task per endpoint, which alone writes what is known of that endpoint.
//!
//! Decides what they share: how a page is reached, which engine an endpoint runs, where readings go.
//! When to scrape is `pace`'s, one scrape is `scrape`'s, a page is read by `exposition` and `reading`;
//! which families an engine exports is `engines`'.

pub mod access;
mod answer;
mod buffers;
mod connection;
pub mod engine;
pub mod engines;
pub mod exposition;
pub mod labels;
mod life;
mod pace;
pub mod reading;
mod scrape;
pub mod spec;
pub mod tls;
pub mod token;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::lifecycle::Latch;
use crate::pool::{Member, Slot};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;
use access::Access;
use buffers::Buffers;
use connection::Connection;
use engines::Engines;
use pace::Pace;
use scrape::Scrape;

/// How and as what endpoints are scraped; the same for all of a process.
#[derive(Debug, Clone, Default)]
pub struct Scraping {
    /// Which families each engine exports.
    pub engines: Arc<Engines>,
    /// How a page is reached.
    pub access: Arc<Access>,
}

/// Last scrape error of each endpoint, for the debug page.
#[derive(Clone, Default)]
pub struct Scrapes(Arc<Mutex<BTreeMap<Slot, String>>>);

impl Scrapes {
    /// Why the last scrape of `slot` brought nothing or not everything; `None` when it was whole.
    pub fn last_error(&self, slot: Slot) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&slot).cloned()
    }

    fn set(&self, slot: Slot, error: Option<String>) {
        let mut errors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => errors.insert(slot, error),
            None => errors.remove(&slot),
        };
    }
}

/// What every scrape loop needs.
#[derive(Clone)]
pub struct Poller {
    store: Store,
    metrics: Arc<Metrics>,
    scrapes: Scrapes,
    scraping: Scraping,
    interval: Duration,
    buffers: Buffers,
}

impl Poller {
    /// A poller that writes into `store`, counts in `metrics`, leaves errors in `scrapes` and scrapes
    /// each endpoint once an `interval`.
    pub fn new(
        store: Store,
        metrics: Arc<Metrics>,
        scrapes: Scrapes,
        scraping: Scraping,
        interval: Duration,
    ) -> Self {
        Self { store, metrics, scrapes, scraping, interval, buffers: Buffers::default() }
    }

    /// Starts the loop of one member. `first` is dropped when its first scrape was tried. Abort the
    /// handle to stop.
    pub fn spawn(&self, member: &Member, first: Option<Latch>) -> JoinHandle<()> {
        let engine = Arc::clone(self.scraping.engines.of(&member.endpoint.labels));
        let keys = engine.mapping().custom.iter().map(|(key, _)| key.clone());
        let access = Arc::clone(&self.scraping.access);
        let scrape = Scrape {
            load: self.store.load_writer(member.slot).every(self.interval),
            vitals: self.store.vitals_writer(member.slot, engine.vitals(), keys),
            slot: member.slot,
            connection: Connection::new(access, member.endpoint.address, self.buffers.clone()),
            endpoint: member.endpoint.id.clone(),
            ok: self.metrics.scrapes.with_label_values(&["ok"]),
            failed: self.metrics.scrapes.with_label_values(&["failed"]),
            seconds: self.metrics.scrape_seconds.clone(),
            scrapes: self.scrapes.clone(),
            failing: false,
            life: life::Life::default(),
            residuals: self.metrics.residuals.clone(),
            engine,
        };
        tokio::spawn(scrape.run(Pace::new(Instant::now(), member.slot, self.interval), first))
    }

    /// Whether an endpoint's labels name another engine now than before.
    pub fn engine_differs(&self, before: &Endpoint, now: &Endpoint) -> bool {
        let engines = &self.scraping.engines;
        !Arc::ptr_eq(engines.of(&before.labels), engines.of(&now.labels))
    }

    /// Forgets the last error of an endpoint that left.
    pub fn forget(&self, slot: Slot) {
        self.scrapes.set(slot, None);
    }
}

#[cfg(test)]
mod tests;
