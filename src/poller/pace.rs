//! When the next scrape is due.
//!
//! Decides that scrapes stay on their own grid, one point an interval, shifted from endpoint to
//! endpoint so that a pool's scrapes do not bunch; that points missed are not made up for; that a
//! connection which cannot be made is tried less and less often; that a slow server rests as long as
//! its last page took.

use std::time::Duration;

use tokio::time::Instant;

use crate::pool::Slot;

/// Longest pause after a connection that could not be made.
const MAX_BACKOFF: Duration = Duration::from_secs(1);
/// A scrape that takes so long is a burden to the server: it has other things to answer, its health
/// for one.
const SLOW: Duration = Duration::from_millis(250);

/// The grid of one endpoint, and how far its scrapes are stretched.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    interval: Duration,
    /// The first point of the grid.
    zero: Instant,
    /// The last pause after a failed connection.
    backoff: Option<Duration>,
}

/// How a scrape went, as far as the pace is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The server answered, well or badly, or was cut off.
    Answered,
    /// No connection could be made.
    Unreachable,
}

impl Pace {
    /// The grid of `slot`, of which the first point is at least an interval after `now`, as the first
    /// scrape is made at once.
    pub(super) fn new(now: Instant, slot: Slot, interval: Duration) -> Self {
        Self { interval, zero: now + interval + spread(slot, interval), backoff: None }
    }

    /// When to scrape again after a scrape from `begin` to `end`.
    pub(super) fn next(&mut self, begin: Instant, end: Instant, outcome: Outcome) -> Instant {
        let took = end.duration_since(begin);
        self.backoff = match outcome {
            Outcome::Answered => None,
            Outcome::Unreachable => {
                Some((self.backoff.unwrap_or(self.interval) * 2).min(MAX_BACKOFF))
            }
        };
        let rest = if took >= SLOW { took } else { Duration::ZERO };
        self.on_grid(end + self.backoff.unwrap_or(rest))
    }

    /// The first point of the grid after `earliest`.
    fn on_grid(&self, earliest: Instant) -> Instant {
        let Some(since) = earliest.checked_duration_since(self.zero) else { return self.zero };
        let passed = since.as_nanos() % self.interval.as_nanos().max(1);
        let left = self.interval.as_nanos() - passed;
        earliest + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
    }
}

/// A share of the interval, different for neighbouring slots.
fn spread(slot: Slot, interval: Duration) -> Duration {
    // Multiples of the golden ratio, the most even spacing for any number of points.
    interval.mul_f64((f64::from(slot.0) * 0.618_033_988_749_895).fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// The distances from one begin to the next, in milliseconds, when each scrape takes `took`.
    fn distances(took: u32, outcome: Outcome, count: usize) -> Vec<u128> {
        let start = Instant::now();
        let mut pace = Pace::new(start, Slot(0), 50 * MS);
        let mut begin = start;
        let next = |_| {
            let next = pace.next(begin, begin + took * MS, outcome);
            let distance = next.duration_since(begin).as_millis();
            begin = next;
            distance
        };
        (0..count).map(next).collect()
    }

    /// Mutants: missed points made up for; a rest of zero for a slow server, or one for a fast one;
    /// a grid that begins anew at each scrape (the 60 ms scrape would come every 110 ms or 60).
    #[test]
    fn scrapes_stay_on_the_grid_and_a_slow_server_rests() {
        assert_eq!(distances(5, Outcome::Answered, 3), [50, 50, 50]);
        assert_eq!(distances(60, Outcome::Answered, 3), [100, 100, 100]);
        assert_eq!(distances(240, Outcome::Answered, 2), [250, 250]);
        assert_eq!(distances(1000, Outcome::Answered, 2), [2050, 2050]);
    }

    /// Mutants: no growth; growth without end; a pause that outlives the failure.
    #[test]
    fn a_dead_port_is_tried_less_and_less() {
        assert_eq!(
            distances(0, Outcome::Unreachable, 7),
            [150, 250, 450, 850, 1050, 1050, 1050],
            "100, 200, 400, 800 ms and then 1 s, each to the next point"
        );
        let now = Instant::now();
        let mut pace = Pace::new(now, Slot(0), 50 * MS);
        for _ in 0..5 {
            pace.next(now, now, Outcome::Unreachable);
        }
        assert_eq!(pace.next(now, now, Outcome::Answered), now + 50 * MS);
        assert_eq!(pace.next(now, now, Outcome::Unreachable), now + 150 * MS);
    }

    /// Mutant: one phase for all.
    #[test]
    fn ticks_are_spread_over_the_interval() {
        let interval = 50 * MS;
        let mut phases: Vec<_> = (0..10).map(|slot| spread(Slot(slot), interval)).collect();
        phases.sort();
        let gaps = phases.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps.clone().all(|gap| gap >= 2 * MS), "{phases:?}");
        assert!(phases.iter().all(|phase| *phase < interval));
    }
}
