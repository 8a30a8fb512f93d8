//! When a plan is made: every interval, and at once on what cannot wait.
//!
//! Decides that saturation has crossed the line (with 5 % between up and down, so that a pool that
//! hovers there plans no faster) and that plans out of turn come at most four times a second. Times
//! are milliseconds of the loop's clock; saturation is a ratio.

/// Least time between two plans.
const SPACING_MILLIS: u64 = 250;

/// Saturation falls below the line at this ratio, and rises above it at 1.
const BELOW: f64 = 0.95;

/// The clock of the plans.
#[derive(Debug)]
pub(super) struct Cadence {
    interval_millis: u64,
    last_millis: Option<u64>,
    urgent: bool,
    above: bool,
}

impl Cadence {
    /// Plans every `interval_millis`; at least 1.
    pub(super) fn new(interval_millis: u64) -> Self {
        Self { interval_millis, last_millis: None, urgent: false, above: false }
    }

    /// Something happened that the next plan should not wait for.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Notes the saturation of the pool; a crossing hurries. Returns whether it crossed.
    pub(super) fn saturation(&mut self, saturation: f64) -> bool {
        let above = if self.above { saturation >= BELOW } else { saturation >= 1.0 };
        let crossed = above != self.above;
        self.above = above;
        self.urgent |= crossed;
        crossed
    }

    /// Whether a plan is due; then it counts as made.
    pub(super) fn take(&mut self, now_millis: u64) -> bool {
        let due = match self.last_millis {
            None => true,
            Some(last) => {
                let wait = if self.urgent { SPACING_MILLIS } else { self.interval_millis };
                now_millis >= last + wait.min(self.interval_millis)
            }
        };
        if due {
            (self.last_millis, self.urgent) = (Some(now_millis), false);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: no spacing; an urgency that stays; one that is forgotten while it waits.
    #[test]
    fn urgent_plans_come_at_most_four_times_a_second() {
        let mut cadence = Cadence::new(1_000);
        let plans = |cadence: &mut Cadence, hurry: bool, from: u64| {
            let taken = |at: &u64| {
                if hurry {
                    cadence.hurry();
                }
                cadence.take(*at)
            };
            (from..from + 1_000).step_by(10).filter(taken).count()
        };
        assert_eq!(plans(&mut cadence, true, 0), 4);
        assert_eq!(plans(&mut cadence, false, 1_000), 1);
        cadence.hurry();
        assert!(cadence.take(2_500) && !cadence.take(2_800));
    }

    /// Mutants: one limit for both ways; a crossing downwards that does not count.
    #[test]
    fn a_pool_that_hovers_at_the_line_crosses_once() {
        let mut cadence = Cadence::new(1_000);
        let crossings: Vec<bool> =
            [0.5, 1.0, 0.97, 1.01, 0.96, 0.94, 0.99].map(|s| cadence.saturation(s)).into();
        assert_eq!(crossings, [false, true, false, false, false, true, false]);
    }
}
