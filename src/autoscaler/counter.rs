//! Counters of a server as increases over the last minutes.
//!
//! Decides what a counter has grown by, restarts included, over at most five minutes. Times are
//! milliseconds of the loop's clock.

use std::collections::VecDeque;

/// How far back a rate looks.
const HORIZON_MILLIS: u64 = 300_000;

/// Time between two points that are kept.
const STEP_MILLIS: u64 = 5_000;

/// One counter.
#[derive(Debug, Clone, Default)]
pub(super) struct Counter {
    last: Option<f64>,
    total: f64,
    newest_millis: u64,
    points: VecDeque<(u64, f64)>,
}

impl Counter {
    /// Notes a reading; returns what it has grown by since the one before.
    pub(super) fn note(&mut self, value: f64, now_millis: u64) -> f64 {
        let grown = match self.last {
            None => 0.0,
            Some(last) if value >= last => value - last,
            // A counter that fell belongs to a new process, which has counted this much.
            Some(_) => value,
        };
        self.last = Some(value);
        self.total += grown;
        self.newest_millis = now_millis;
        if self.points.back().is_none_or(|(at, _)| now_millis >= at + STEP_MILLIS) {
            self.points.push_back((now_millis, self.total));
        }
        // One point at the horizon or before it stays, so that the increase spans all of it.
        while self.points.get(1).is_some_and(|(at, _)| at + HORIZON_MILLIS <= now_millis) {
            self.points.pop_front();
        }
        grown
    }

    /// What the last five minutes, or what there is of them, have added; and their length, seconds.
    pub(super) fn increase(&self) -> Option<(f64, f64)> {
        let (since, before) = self.points.front()?;
        let seconds = self.newest_millis.saturating_sub(*since) as f64 / 1e3;
        (seconds > 0.0).then_some((self.total - before, seconds))
    }

    /// Growth a second.
    pub(super) fn rate(&self) -> Option<f64> {
        self.increase().map(|(grown, seconds)| grown / seconds)
    }

    /// Growth a second over the last five to ten seconds.
    pub(super) fn recent_rate(&self) -> Option<f64> {
        let mut newest = self.points.iter().rev();
        let (last, before) = (newest.next()?, newest.next()?);
        let since = if self.newest_millis >= last.0 + STEP_MILLIS / 2 { last } else { before };
        let seconds = self.newest_millis.saturating_sub(since.0) as f64 / 1e3;
        (seconds > 0.0).then(|| (self.total - since.1) / seconds)
    }
}

/// What `sum` grew by for each one that `count` grew by.
pub(super) fn mean(sum: &Counter, count: &Counter) -> Option<f64> {
    let ((sum, _), (count, _)) = (sum.increase()?, count.increase()?);
    (count > 0.0).then(|| sum / count)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a fall as a negative growth; the first reading as growth.
    #[test]
    fn a_restart_counts_from_zero() {
        let mut counter = Counter::default();
        assert_eq!(counter.note(100.0, 0), 0.0);
        assert_eq!(counter.increase(), None);
        assert_eq!(counter.note(110.0, 10_000), 10.0);
        assert_eq!(counter.note(4.0, 20_000), 4.0);
        assert_eq!(counter.increase(), Some((14.0, 20.0)));
        assert_eq!(counter.rate(), Some(0.7));
        assert_eq!(counter.recent_rate(), Some(0.4));
    }

    /// Mutants: points that only grow; a horizon that drops the point it begins at.
    #[test]
    fn five_minutes_are_looked_back_on() {
        let mut counter = Counter::default();
        for second in 0..1_000_u32 {
            counter.note(f64::from(second), u64::from(second) * 1_000);
        }
        let (grown, seconds) = counter.increase().unwrap();
        assert_eq!(grown, seconds);
        assert!((300.0..=305.0).contains(&seconds), "{seconds}");
        assert!(counter.points.len() <= 63);
    }

    /// Mutant: the means of all times.
    #[test]
    fn a_mean_is_of_the_same_minutes() {
        let (mut sum, mut count) = (Counter::default(), Counter::default());
        sum.note(1_000.0, 0);
        count.note(1.0, 0);
        assert_eq!(mean(&sum, &count), None);
        sum.note(1_300.0, 1_000);
        count.note(4.0, 1_000);
        assert_eq!(mean(&sum, &count), Some(100.0));
    }
}
