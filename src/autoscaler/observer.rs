//! What the loop has seen of each server: a minute of load, five minutes of counters, and how many
//! requests the engines have finished.
//!
//! Decides that a reading counts once, in the second in which its scrape ended, and when the number of
//! finished requests is known: only after every server was read throughout the time asked for. Times
//! are milliseconds of the loop's clock.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::counter::Counter;
use crate::endpoint::{EndpointId, Load, Signal};
use crate::scaling::learned::Window;
use crate::store::{Vital, VitalsView};

/// A reading this old says nothing of now; as planning's own freshness.
const FRESH: Duration = Duration::from_secs(30);

/// Finished requests are counted by this many milliseconds.
const BUCKET_MILLIS: u64 = 1_000;

/// One signal, reading by reading.
#[derive(Debug, Clone, Default)]
pub(super) struct Gauge {
    pub(super) window: Window,
    read_millis: Option<u64>,
}

impl Gauge {
    fn note(&mut self, signal: Signal, now_millis: u64) {
        let Signal::Read { value, age } = signal else { return };
        let at = before(now_millis, age);
        if self.read_millis.is_none_or(|read| at > read) {
            self.read_millis = Some(at);
            self.window.note(value, at);
        }
    }
}

fn before(now_millis: u64, age: Duration) -> u64 {
    now_millis.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX))
}

/// One server.
#[derive(Debug, Clone, Default)]
pub(super) struct Track {
    pub(super) kv: Gauge,
    pub(super) queue: Gauge,
    pub(super) used: Gauge,
    counters: [Counter; COUNTED.len()],
    finished: Counter,
    /// Its finished requests were told at least once.
    told: bool,
}

/// The counters that are followed.
const COUNTED: [Vital; 7] = [
    Vital::RequestPromptTokensSum,
    Vital::RequestPromptTokensCount,
    Vital::RequestGenerationTokensSum,
    Vital::RequestGenerationTokensCount,
    Vital::PrefixHits,
    Vital::PrefixQueries,
    Vital::GenerationTokens,
];

impl Track {
    /// A counter that is followed; nothing for others.
    pub(super) fn counter(&self, vital: Vital) -> Option<&Counter> {
        COUNTED.iter().position(|counted| *counted == vital).map(|at| &self.counters[at])
    }
}

/// All servers.
#[derive(Debug, Default)]
pub(super) struct Observer {
    tracks: BTreeMap<EndpointId, Track>,
    finished: VecDeque<(u64, f64)>,
    /// When a server last could not be read, or was found with a past that nobody saw.
    blind_millis: Option<u64>,
    began_millis: Option<u64>,
}

impl Observer {
    /// Notes the load of one server, as scraped.
    pub(super) fn load(&mut self, id: &EndpointId, load: &Load, now_millis: u64) {
        let track = self.tracks.entry(id.clone()).or_default();
        track.kv.note(load.kv, now_millis);
        let per_rank = f64::from(load.ranks.max(1));
        track.queue.note(load.waiting.map(|waiting| waiting / per_rank), now_millis);
    }

    /// Notes what one server tells beside its load; once a second is often enough.
    pub(super) fn vitals(&mut self, id: &EndpointId, vitals: &VitalsView, now_millis: u64) {
        let track = self.tracks.entry(id.clone()).or_default();
        track.used.note(vitals.get(Vital::KvUsed), now_millis);
        for (vital, counter) in COUNTED.iter().zip(&mut track.counters) {
            if let Some(value) = vitals.get(*vital).fresh(FRESH) {
                counter.note(value, now_millis);
            }
        }
        let done = [
            Vital::Succeeded,
            Vital::RequestGenerationTokensCount,
            Vital::RequestPromptTokensCount,
        ]
        .into_iter()
        .map(|vital| vitals.get(vital))
        .find(|signal| signal.is_mapped());
        match done.and_then(|signal| signal.fresh(FRESH)) {
            Some(value) => {
                // What it did before it was first read may have been a moment ago.
                if !std::mem::replace(&mut track.told, true) && value > 0.0 {
                    self.blind_millis = Some(now_millis);
                }
                let grown = track.finished.note(value, now_millis);
                if grown > 0.0 {
                    let bucket = now_millis / BUCKET_MILLIS;
                    match self.finished.back_mut() {
                        Some((last, sum)) if *last == bucket => *sum += grown,
                        _ => self.finished.push_back((bucket, grown)),
                    }
                }
            }
            None => self.blind_millis = Some(now_millis),
        }
    }

    /// A server about which nothing is known but that it exists.
    pub(super) fn unread(&mut self, now_millis: u64) {
        self.blind_millis = Some(now_millis);
    }

    /// Ends a round over all servers: `stays` says who is still there.
    pub(super) fn round(
        &mut self,
        stays: impl Fn(&EndpointId) -> bool,
        retention_millis: u64,
        now_millis: u64,
    ) {
        self.began_millis.get_or_insert(now_millis);
        self.tracks.retain(|id, _| stays(id));
        let oldest = now_millis.saturating_sub(retention_millis) / BUCKET_MILLIS;
        while self.finished.front().is_some_and(|(bucket, _)| *bucket < oldest) {
            self.finished.pop_front();
        }
    }

    /// Requests that the engines finished over the last `retention_millis`; `None` while that is not
    /// known for all of them and all of that time.
    pub(super) fn finished(&self, retention_millis: u64, now_millis: u64) -> Option<f64> {
        let seen_since = self.began_millis?.max(self.blind_millis.unwrap_or(0));
        let oldest = now_millis.checked_sub(retention_millis)?;
        let counted = self.finished.iter().filter(|(bucket, _)| *bucket >= oldest / BUCKET_MILLIS);
        (seen_since <= oldest).then(|| counted.map(|(_, grown)| grown).sum())
    }

    /// What was seen of one server.
    pub(super) fn track(&self, id: &EndpointId) -> Option<&Track> {
        self.tracks.get(id)
    }

    /// The windows by `prefix/endpoint/signal`, for those who look at the memory.
    pub(super) fn windows(&self, prefix: &str) -> BTreeMap<String, Window> {
        let of = |(id, track): (&EndpointId, &Track)| {
            [("kv", &track.kv), ("queue", &track.queue), ("used", &track.used)]
                .map(|(signal, gauge)| (format!("{prefix}/{id}/{signal}"), gauge.window.clone()))
        };
        self.tracks.iter().flat_map(of).filter(|(_, window)| !window.seconds.is_empty()).collect()
    }
}
