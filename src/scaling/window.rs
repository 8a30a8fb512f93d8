//! The last minute of a signal, as sixty means of one second.
//!
//! Decides what scaling takes for the use of a replica: the highest of those means. A single scrape of
//! a gauge that an engine sets once a step says little, its mean over a second says what users felt,
//! and the highest second of a minute is what must be carried. Times are milliseconds of the loop's
//! clock; values are in the unit of the signal.

use super::input::known;
use super::learned::{Window, WindowSecond};

/// Seconds that are looked back on, the present one included.
const SECONDS: u64 = 60;

impl Window {
    /// Adds a reading. One that is no number, or of a second that is past, changes nothing.
    pub fn note(&mut self, value: f64, now_millis: u64) {
        let second = now_millis / 1000;
        self.forget(second);
        let Some(value) = known(Some(value)) else { return };
        match self.seconds.back_mut() {
            Some(last) if last.second == second => {
                last.sum += value;
                last.readings += 1;
            }
            Some(last) if last.second > second => {}
            _ => self.seconds.push_back(WindowSecond { second, sum: value, readings: 1 }),
        }
    }

    /// The highest mean of a second in the last minute; `None` without a reading in it.
    pub fn highest(&self, now_millis: u64) -> Option<f64> {
        let now = now_millis / 1000;
        self.seconds
            .iter()
            .filter(|entry| entry.second <= now && now - entry.second < SECONDS)
            .map(|entry| entry.sum / f64::from(entry.readings))
            .max_by(f64::total_cmp)
    }

    fn forget(&mut self, now: u64) {
        while self.seconds.front().is_some_and(|entry| now.saturating_sub(entry.second) >= SECONDS)
        {
            self.seconds.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: the highest reading for the highest mean; a mean over the minute.
    #[test]
    fn a_spike_within_a_second_counts_by_its_mean() {
        let mut window = Window::default();
        for (value, millis) in [(0.2, 0), (0.9, 100), (0.1, 900), (0.3, 1000), (0.3, 1500)] {
            window.note(value, millis);
        }
        let highest = window.highest(2000).unwrap();
        assert!((highest - 0.4).abs() < 1e-12, "{highest}");
        assert_eq!(window.seconds.len(), 2);
    }

    /// Mutants: 59 or 61 seconds; a window that only grows.
    #[test]
    fn a_minute_is_sixty_seconds() {
        let mut window = Window::default();
        window.note(0.9, 500);
        window.note(0.1, 30_000);
        assert_eq!(window.highest(59_999), Some(0.9));
        assert_eq!(window.highest(60_000), Some(0.1));
        window.note(0.2, 60_000);
        assert_eq!(window.seconds.len(), 2);
        assert_eq!(window.highest(119_999), Some(0.2));
        assert_eq!(window.highest(120_000), None);
    }

    /// Mutants: NaN in a sum; time turned back makes a second entry.
    #[test]
    fn what_is_no_reading_changes_nothing() {
        let mut window = Window::default();
        window.note(f64::NAN, 0);
        window.note(-1.0, 0);
        assert_eq!(window.highest(0), None);
        window.note(0.5, 2000);
        window.note(0.9, 1000);
        assert_eq!(window.highest(2000), Some(0.5));
        assert_eq!(window.highest(1000), None);
    }
}
