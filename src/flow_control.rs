//! The owner of flow control: one task, arrivals and departures in by channel, verdicts out by slot.
//!
//! Decides nothing about requests, that is `flow`'s; it keeps the time, hears of the pool and of the
//! drain, and sees to it that each request gets its verdict or is forgotten when it leaves. Sizes are
//! bytes.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant as StdInstant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::flow::{Arrival, Event, Limits, Reason, Room, Ticket, Verdict};
use crate::lifecycle::Lifecycle;
use crate::store::Store;

#[cfg(test)]
mod tests;

/// Asks for verdicts; cheap to clone, one for every data thread.
#[derive(Clone)]
pub struct FlowControl {
    inbox: mpsc::UnboundedSender<Message>,
    shared: Arc<Shared>,
}

/// What the handles and the owner share.
struct Shared {
    limits: Limits,
    tickets: AtomicU64,
    requests: AtomicUsize,
    bytes: AtomicU64,
    /// Nanoseconds from `zero` to the arrival of the oldest, plus one; 0 without any.
    oldest: AtomicU64,
    zero: StdInstant,
}

/// What waits now, to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Requests.
    pub requests: usize,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Age of the oldest.
    pub oldest: Option<Duration>,
}

/// What the owner is told by requests.
enum Message {
    Arrival(Arrival, oneshot::Sender<Verdict>),
    Left(Ticket),
}

/// The side that decides; [`Owner::run`] it once.
pub struct Owner {
    room: Room,
    slots: HashMap<Ticket, oneshot::Sender<Verdict>>,
    verdicts: Vec<(Ticket, Verdict)>,
    inbox: mpsc::UnboundedReceiver<Message>,
    shared: Arc<Shared>,
    store: Store,
}

impl FlowControl {
    /// The two sides. Nothing is answered before the owner runs.
    pub fn new(limits: Limits, store: Store) -> (Self, Owner) {
        let (sender, inbox) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            limits,
            tickets: AtomicU64::new(0),
            requests: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            oldest: AtomicU64::new(0),
            zero: Instant::now().into_std(),
        });
        let owner = Owner {
            room: Room::new(limits),
            slots: HashMap::new(),
            verdicts: Vec::new(),
            inbox,
            shared: Arc::clone(&shared),
            store,
        };
        (Self { inbox: sender, shared }, owner)
    }

    /// A ticket for a request that has none yet, and when its wait must end.
    pub fn ticket(&self) -> (Ticket, StdInstant) {
        let ticket = Ticket(self.shared.tickets.fetch_add(1, Ordering::Relaxed));
        (ticket, Instant::now().into_std() + self.shared.limits.wait)
    }

    /// Asks for a verdict. Dropping what is returned takes the request back.
    pub fn arrive(&self, arrival: Arrival) -> Waiting {
        let ticket = arrival.ticket;
        let (slot, verdict) = oneshot::channel();
        // Without an owner the slot is dropped, and that is a verdict too.
        let _ = self.inbox.send(Message::Arrival(arrival, slot));
        Waiting { ticket, verdict, inbox: self.inbox.clone(), answered: false }
    }

    /// The limits in force.
    pub fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// What waits now.
    pub fn held(&self) -> Held {
        let Shared { requests, bytes, oldest, zero, .. } = &*self.shared;
        let oldest = oldest.load(Ordering::Relaxed).checked_sub(1);
        let age = |since| {
            let now = Instant::now().into_std();
            now.saturating_duration_since(*zero + Duration::from_nanos(since))
        };
        Held {
            requests: requests.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
            oldest: oldest.map(age),
        }
    }
}

/// A request that waits for its verdict. Dropped before it, the request has left.
#[must_use = "a request that nobody waits for has left"]
pub struct Waiting {
    ticket: Ticket,
    verdict: oneshot::Receiver<Verdict>,
    inbox: mpsc::UnboundedSender<Message>,
    answered: bool,
}

impl Future for Waiting {
    type Output = Verdict;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Verdict> {
        let verdict = ready!(Pin::new(&mut self.verdict).poll(cx));
        self.answered = true;
        // The owner ends with the process.
        Poll::Ready(verdict.unwrap_or(Verdict::Reject(Reason::ShuttingDown)))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.answered {
            let _ = self.inbox.send(Message::Left(self.ticket));
        }
    }
}

impl Owner {
    /// Answers until every handle is gone, or `stop` turns true. `pool` changes with every change of the
    /// membership; what it then is, the store knows.
    pub async fn run(
        mut self,
        mut pool: watch::Receiver<()>,
        lifecycle: Lifecycle,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut status = lifecycle.watch();
        let (mut pool_lives, mut draining) = (true, false);
        loop {
            let wake_at = self.room.wake_at();
            // Without a deadline the branch is off, whatever the instant.
            let deadline = wake_at.map_or_else(Instant::now, Instant::from_std);
            let event = tokio::select! {
                message = self.inbox.recv() => match message {
                    Some(Message::Arrival(arrival, slot)) => {
                        self.slots.insert(arrival.ticket, slot);
                        self.hear_of_pool();
                        Some(Event::Arrival(arrival))
                    }
                    Some(Message::Left(ticket)) => {
                        self.slots.remove(&ticket);
                        Some(Event::Left(ticket))
                    }
                    None => return,
                },
                changed = pool.changed(), if pool_lives => {
                    pool_lives = changed.is_ok();
                    self.hear_of_pool();
                    None
                }
                _ = status.wait_for(crate::lifecycle::Status::is_draining), if !draining => {
                    draining = true;
                    Some(Event::Drain)
                }
                () = sleep_until(deadline), if wake_at.is_some() => None,
                _ = stop.wait_for(|stop| *stop) => return,
            };
            let now = Instant::now().into_std();
            match event {
                Some(event) => self.room.on(event, now, &mut self.verdicts),
                None => self.room.expire(now, &mut self.verdicts),
            }
            self.answer();
        }
    }

    /// A request that arrives because it saw an empty pool must not meet an older picture of it here.
    fn hear_of_pool(&mut self) {
        let endpoints = self.store.pool().members.len();
        let now = Instant::now().into_std();
        self.room.on(Event::Pool(endpoints), now, &mut self.verdicts);
    }

    /// Shows the new level, then hands out the verdicts: who is answered is not counted any more.
    fn answer(&mut self) {
        let level = self.room.level();
        let Shared { requests, bytes, oldest, zero, .. } = &*self.shared;
        let since = level.oldest.map(|at| at.saturating_duration_since(*zero).as_nanos());
        let since = since.and_then(|nanos| u64::try_from(nanos).ok()?.checked_add(1));
        requests.store(level.requests, Ordering::Relaxed);
        bytes.store(level.bytes, Ordering::Relaxed);
        oldest.store(since.unwrap_or(0), Ordering::Relaxed);
        for (ticket, verdict) in self.verdicts.drain(..) {
            if let Some(slot) = self.slots.remove(&ticket) {
                // Who left a moment ago hears nothing.
                let _ = slot.send(verdict);
            }
        }
    }
}
