//! The scrape loop: one task per endpoint, which alone writes that endpoint's load.
//!
//! Decides when to scrape and what a failure means: the old reading stays and ages. A page is read by
//! `exposition` and `reading`; which families an engine exports is `engines`'. Ages count from the end
//! of a scrape.

mod connection;
pub mod engine;
pub mod engines;
pub mod exposition;
pub mod labels;
pub mod reading;
pub mod spec;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::causes;
use crate::endpoint::Endpoint;
use crate::lifecycle::Latch;
use crate::pool::{Member, Slot};
use crate::store::{LoadWriter, Page, Scraped, Store};
use crate::telemetry::metrics::Metrics;
use engine::Engine;
use engines::Engines;

/// Longest time of one scrape, connecting and body included.
const SCRAPE_LIMIT: Duration = Duration::from_secs(1);
/// Longest pause after a connection that could not be made.
const MAX_BACKOFF: Duration = Duration::from_secs(1);

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
    /// Where readings go.
    pub store: Store,
    /// Where scrapes are counted.
    pub metrics: Arc<Metrics>,
    /// Where errors are kept.
    pub scrapes: Scrapes,
    /// Which families each engine exports.
    pub engines: Arc<Engines>,
    /// Time between two scrapes of one endpoint.
    pub interval: Duration,
}

impl Poller {
    /// Starts the loop of one member. `first` is dropped when its first scrape was tried. Abort the
    /// handle to stop.
    pub fn spawn(&self, member: &Member, first: Option<Latch>) -> JoinHandle<()> {
        let scrape = Scrape {
            writer: self.store.load_writer(member.slot),
            slot: member.slot,
            engine: Arc::clone(self.engines.of(&member.endpoint.labels)),
            connection: connection::Connection::new(member.endpoint.address),
            endpoint: member.endpoint.clone(),
            metrics: Arc::clone(&self.metrics),
            scrapes: self.scrapes.clone(),
        };
        let interval = self.interval;
        tokio::spawn(scrape.run(interval, spread(member.slot, interval), first))
    }

    /// Forgets the last error of an endpoint that left.
    pub fn forget(&self, slot: Slot) {
        self.scrapes.set(slot, None);
    }
}

/// A share of the interval, different for neighbouring slots, so that ticks do not bunch.
fn spread(slot: Slot, interval: Duration) -> Duration {
    // Multiples of the golden ratio, the most even spacing for any number of points.
    interval.mul_f64((f64::from(slot.0) * 0.618_033_988_749_895).fract())
}

/// The loop of one endpoint.
struct Scrape {
    writer: LoadWriter,
    slot: Slot,
    engine: Arc<Engine>,
    connection: connection::Connection,
    endpoint: Endpoint,
    metrics: Arc<Metrics>,
    scrapes: Scrapes,
}

impl Scrape {
    async fn run(mut self, interval: Duration, offset: Duration, first: Option<Latch>) {
        let start = Instant::now();
        let mut backoff = self.once(interval).await;
        drop(first);
        let mut ticks = interval_at(start + interval + offset, interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            if let Some(pause) = backoff {
                tokio::time::sleep(pause).await;
            }
            ticks.tick().await;
            let pause = self.once(backoff.unwrap_or(interval)).await;
            backoff = pause;
        }
    }

    /// One scrape; answers how long to pause when no connection could be made.
    async fn once(&mut self, last_pause: Duration) -> Option<Duration> {
        let page = timeout(SCRAPE_LIMIT, self.connection.get("/metrics")).await;
        let (result, error, pause) = match page {
            Ok(Ok(page)) => {
                let error = publish(page, &self.engine, &self.writer);
                ("ok", error, None)
            }
            Ok(Err(error)) => {
                let pause = error.is_connect().then(|| (last_pause * 2).min(MAX_BACKOFF));
                ("failed", Some(causes::in_one_line(&error)), pause)
            }
            Err(_) => {
                self.connection.reset();
                ("failed", Some(format!("no answer within {SCRAPE_LIMIT:?}")), None)
            }
        };
        self.metrics.scrapes.with_label_values(&[result]).inc();
        if let Some(error) = &error {
            tracing::debug!(endpoint = %self.endpoint.id, %error, "scrape");
        }
        self.scrapes.set(self.slot, error);
        pause
    }
}

/// Publishes what the page says; answers what was missing or unreadable in it.
fn publish(page: &[u8], engine: &Engine, writer: &LoadWriter) -> Option<String> {
    let reading = reading::read_page(page, engine);
    let scraped = |mapped: bool, value: Option<f64>| match value {
        _ if !mapped => Scraped::Unmapped,
        None => Scraped::Missing,
        Some(value) => Scraped::Value(value),
    };
    let mapping = engine.mapping();
    let page = Page {
        waiting: scraped(mapping.waiting.is_some(), reading.waiting),
        running: scraped(mapping.running.is_some(), reading.running),
        kv: scraped(mapping.kv.is_some(), reading.kv),
        ranks: reading.ranks,
    };
    writer.publish(&page, Instant::now().into_std());
    let faults: Vec<_> = reading.faults.iter().map(ToString::to_string).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}

#[cfg(test)]
mod tests;
