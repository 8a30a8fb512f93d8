//! The waiting room: requests that met an empty pool, first in, first out.
//!
//! Decides who waits, who is refused and who goes on; an endpoint lets all go on that wait. Every call
//! first answers whoever is past its deadline, so nobody goes on who is. What a request weighs is its
//! body; its priority and its flow do not matter here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::{Arrival, Event, Level, Limits, Reason, Ticket, Verdict};

/// The state machine; `now` must not go back between calls.
#[derive(Debug)]
pub struct Room {
    limits: Limits,
    /// By ticket, which is the order of arrivals.
    held: BTreeMap<Ticket, Held>,
    deadlines: BTreeSet<(Instant, Ticket)>,
    bytes: u64,
    endpoints: usize,
    draining: bool,
}

/// A request that waits.
#[derive(Debug, Clone, Copy)]
struct Held {
    bytes: u64,
    since: Instant,
    deadline: Instant,
}

impl Room {
    /// An empty room before an empty pool.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            held: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            bytes: 0,
            endpoints: 0,
            draining: false,
        }
    }

    /// Takes one event and appends the verdicts that follow from it, in the order of the tickets.
    pub fn on(&mut self, event: Event, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        self.expire(now, verdicts);
        match event {
            Event::Arrival(arrival) => {
                let ticket = arrival.ticket;
                if let Some(verdict) = self.arrive(&arrival, now) {
                    self.remove(ticket);
                    verdicts.push((ticket, verdict));
                }
            }
            Event::Left(ticket) => _ = self.remove(ticket),
            Event::Pool(endpoints) => {
                self.endpoints = endpoints;
                if endpoints > 0 {
                    self.empty(Verdict::Dispatch, verdicts);
                }
            }
            Event::Drain => {
                self.draining = true;
                self.empty(Verdict::Reject(Reason::ShuttingDown), verdicts);
            }
        }
    }

    /// Answers every request whose deadline has come. A deadline itself is too late.
    pub fn expire(&mut self, now: Instant, verdicts: &mut Vec<(Ticket, Verdict)>) {
        while let Some((_, ticket)) = self.deadlines.first().filter(|(at, _)| *at <= now).copied() {
            self.remove(ticket);
            verdicts.push((ticket, Verdict::Reject(Reason::Expired)));
        }
    }

    /// When [`Room::expire`] has something to do next.
    pub fn wake_at(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// What waits.
    pub fn level(&self) -> Level {
        Level {
            requests: self.held.len(),
            bytes: self.bytes,
            oldest: self.held.values().map(|held| held.since).min(),
        }
    }

    /// The verdict where there is one at once; else the request is held.
    fn arrive(&mut self, arrival: &Arrival, now: Instant) -> Option<Verdict> {
        let Arrival { ticket, bytes, deadline, .. } = *arrival;
        if self.draining {
            return Some(Verdict::Reject(Reason::ShuttingDown));
        }
        if deadline <= now {
            return Some(Verdict::Reject(Reason::Expired));
        }
        if self.endpoints > 0 {
            return Some(Verdict::Dispatch);
        }
        let before = self.remove(ticket);
        // An exact fit is allowed.
        let fits = self.held.len() < self.limits.requests
            && self.bytes.checked_add(bytes).is_some_and(|sum| sum <= self.limits.bytes);
        if !fits {
            return Some(Verdict::Reject(Reason::Full));
        }
        let since = before.map_or(now, |held| held.since);
        self.held.insert(ticket, Held { bytes, since, deadline });
        self.deadlines.insert((deadline, ticket));
        self.bytes += bytes;
        None
    }

    fn remove(&mut self, ticket: Ticket) -> Option<Held> {
        let held = self.held.remove(&ticket)?;
        self.deadlines.remove(&(held.deadline, ticket));
        self.bytes -= held.bytes;
        Some(held)
    }

    fn empty(&mut self, verdict: Verdict, verdicts: &mut Vec<(Ticket, Verdict)>) {
        verdicts.extend(self.held.keys().map(|ticket| (*ticket, verdict)));
        self.held.clear();
        self.deadlines.clear();
        self.bytes = 0;
    }
}
