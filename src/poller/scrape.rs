//! The loop of one endpoint: fetch, read, publish, wait.
//!
//! Decides what a failure means: the old reading stays and ages. Ages count from the end of a scrape.
//! What goes wrong is logged when it begins and when it ends, not at every scrape in between.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter};
use tokio::time::{Instant, sleep_until, timeout};

use super::Scrapes;
use super::connection::Connection;
use super::engine::Engine;
use super::life::Life;
use super::pace::{Outcome, Pace};
use super::reading::{Reading, read_page};
use crate::causes;
use crate::endpoint::EndpointId;
use crate::lifecycle::Latch;
use crate::pool::Slot;
use crate::store::{LoadWriter, Page, Scraped, Told, Vital, VitalsWriter};
use crate::telemetry::metrics::Residuals;

/// Longest time of one scrape, connecting and body included.
const SCRAPE_LIMIT: Duration = Duration::from_secs(1);

/// What the loop of one endpoint needs.
pub(super) struct Scrape {
    pub(super) load: LoadWriter,
    pub(super) vitals: VitalsWriter,
    pub(super) slot: Slot,
    pub(super) engine: Arc<Engine>,
    pub(super) connection: Connection,
    pub(super) endpoint: EndpointId,
    pub(super) ok: IntCounter,
    pub(super) failed: IntCounter,
    pub(super) seconds: Histogram,
    pub(super) scrapes: Scrapes,
    /// Tells a restarted server from the one before.
    pub(super) life: Life,
    /// How far expectations were from what then came.
    pub(super) residuals: Residuals,
    /// Whether the last scrape brought no page.
    pub(super) failing: bool,
}

impl Scrape {
    /// Scrapes at once and then for ever; `first` is dropped when the first scrape was tried.
    pub(super) async fn run(mut self, mut pace: Pace, first: Option<Latch>) {
        let mut first = first;
        loop {
            let begin = Instant::now();
            let outcome = self.once().await;
            drop(first.take());
            let end = Instant::now();
            self.seconds.observe(end.duration_since(begin).as_secs_f64());
            sleep_until(pace.next(begin, end, outcome)).await;
        }
    }

    async fn once(&mut self) -> Outcome {
        self.load.begin();
        let (error, outcome) = match timeout(SCRAPE_LIMIT, self.connection.get()).await {
            Ok(Ok(fetched)) => {
                let reading = read_page(fetched.page(), &self.engine);
                drop(fetched);
                self.publish(&reading);
                self.ok.inc();
                self.brought_a_page();
                self.scrapes.set(self.slot, faults(&reading));
                return Outcome::Answered;
            }
            Ok(Err(failure)) if failure.is_connect() => {
                (causes::in_one_line(&failure.error), Outcome::Unreachable)
            }
            Ok(Err(failure)) => (causes::in_one_line(&failure.error), Outcome::Answered),
            Err(_) => (format!("no answer within {SCRAPE_LIMIT:?}"), Outcome::Answered),
        };
        self.failed.inc();
        self.brought_none(&error);
        self.scrapes.set(self.slot, Some(error));
        outcome
    }

    fn publish(&mut self, reading: &Reading) {
        let scraped = |mapped: bool, value: Option<f64>| match value {
            _ if !mapped => Scraped::Unmapped,
            None => Scraped::Missing,
            Some(value) => Scraped::Value(value),
        };
        let mapping = self.engine.mapping();
        let page = Page {
            waiting: scraped(mapping.waiting.is_some(), reading.waiting),
            running: scraped(mapping.running.is_some(), reading.running),
            kv: scraped(mapping.kv.is_some(), reading.kv),
            ranks: reading.ranks,
            capacity_tokens: reading.vitals[Vital::KvCapacity as usize],
        };
        let told = Told {
            vitals: reading.vitals,
            lora: reading.lora.as_ref(),
            model: reading.model.as_deref(),
            caches: &reading.caches,
            custom: &reading.custom,
        };
        if self.life.is_another(&reading.vitals) {
            tracing::info!(endpoint = %self.endpoint, "the server has restarted");
            self.load.restarted();
        }
        let now = Instant::now().into_std();
        let residual = self.load.publish(&page, now);
        self.residuals.observe(&residual);
        self.vitals.publish(&told, now);
    }

    fn brought_a_page(&mut self) {
        if std::mem::take(&mut self.failing) {
            tracing::info!(endpoint = %self.endpoint, "scrapes bring pages again");
        }
    }

    fn brought_none(&mut self, error: &str) {
        if std::mem::replace(&mut self.failing, true) {
            tracing::debug!(endpoint = %self.endpoint, %error, "scrape");
        } else {
            tracing::warn!(endpoint = %self.endpoint, %error, "scrapes bring no page");
        }
    }
}

/// What was missing or unreadable in a page.
fn faults(reading: &Reading) -> Option<String> {
    let faults: Vec<_> = reading.faults.iter().map(ToString::to_string).collect();
    (!faults.is_empty()).then(|| faults.join("; "))
}
