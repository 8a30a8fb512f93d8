//! When a plan is made: every interval, and at once on what cannot wait.
//!
//! Decides that saturation has crossed the line (with 5 % between up and down, so that a pool that
//! hovers there plans no faster), that plans out of turn come at most four times a second, and that a
//! request which nobody can serve does not even wait for that. Times are milliseconds of the loop's
//! clock; saturation is a ratio.

/// Least time between two plans.
const SPACING_MILLIS: u64 = 250;

/// Saturation falls below the line at this ratio, and rises above it at 1.
const BELOW: f64 = 0.95;

/// How long after a crossing plans are in a hurry that find nothing to do: the readings that they work
/// on are means, in which the line is crossed later.
const INSIST_MILLIS: u64 = 3_000;

/// The clock of the plans.
#[derive(Debug)]
pub(super) struct Cadence {
    interval_millis: u64,
    last_millis: Option<u64>,
    urgent: bool,
    /// The next plan is not spaced.
    at_once: bool,
    /// When the last plan was made that was not spaced.
    unspaced_millis: Option<u64>,
    /// When the pool rose above the line, while it is there.
    above_millis: Option<u64>,
}

impl Cadence {
    /// Plans every `interval_millis`; at least 1.
    pub(super) fn new(interval_millis: u64) -> Self {
        Self {
            interval_millis,
            last_millis: None,
            urgent: false,
            at_once: false,
            unspaced_millis: None,
            above_millis: None,
        }
    }

    /// Something happened that the next plan should not wait for.
    pub(super) fn hurry(&mut self) {
        self.urgent = true;
    }

    /// Something happened that nothing can wait for; spaced among its own kind only.
    pub(super) fn hurry_at_once(&mut self) {
        self.urgent = true;
        self.at_once = true;
    }

    /// Notes the saturation of the pool; a crossing hurries. Returns whether it crossed.
    pub(super) fn saturation(&mut self, saturation: f64, now_millis: u64) -> bool {
        let was_above = self.above_millis.is_some();
        let above = if was_above { saturation >= BELOW } else { saturation >= 1.0 };
        let crossed = above != was_above;
        if crossed {
            self.above_millis = above.then_some(now_millis);
        }
        self.urgent |= crossed;
        crossed
    }

    /// Notes whether the plan that was just made lets any target rise. If not, soon after a crossing,
    /// the next one is in a hurry; returns whether.
    pub(super) fn planned(&mut self, rises: bool, now_millis: u64) -> bool {
        let insists =
            !rises && self.above_millis.is_some_and(|above| now_millis < above + INSIST_MILLIS);
        self.urgent |= insists;
        insists
    }

    /// Whether a plan is due; then it counts as made.
    pub(super) fn take(&mut self, now_millis: u64) -> bool {
        let past = |mark: Option<u64>, wait: u64| mark.is_none_or(|at| now_millis >= at + wait);
        let wait = if self.urgent { SPACING_MILLIS } else { self.interval_millis };
        let due = past(self.last_millis, wait.min(self.interval_millis));
        let unspaced = !due && self.at_once && past(self.unspaced_millis, SPACING_MILLIS);
        if unspaced {
            self.unspaced_millis = Some(now_millis);
        }
        if due || unspaced {
            (self.last_millis, self.urgent, self.at_once) = (Some(now_millis), false, false);
        }
        due || unspaced
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
            [0.5, 1.0, 0.97, 1.01, 0.96, 0.94, 0.99].map(|s| cadence.saturation(s, 0)).into();
        assert_eq!(crossings, [false, true, false, false, false, true, false]);
    }

    /// Mutants: a held request that waits for the spacing; a stream of them that plans without end.
    #[test]
    fn what_nothing_can_wait_for_is_spaced_among_its_own_kind_only() {
        let mut cadence = Cadence::new(1_000);
        assert!(cadence.take(0));
        cadence.hurry_at_once();
        assert!(cadence.take(1), "not spaced");
        cadence.hurry_at_once();
        let next = (2..1_000).find(|at| cadence.take(*at));
        assert_eq!(next, Some(251));
    }

    /// Mutants: a plan after a crossing that is not made again; one that insists although a target
    /// rises, or for ever, or below the line.
    #[test]
    fn a_crossing_insists_until_a_target_rises() {
        let mut cadence = Cadence::new(1_000);
        assert!(!cadence.planned(false, 0), "nothing was crossed");
        cadence.saturation(1.2, 100);
        assert!(cadence.planned(false, 100) && !cadence.planned(true, 200));
        assert!(cadence.planned(false, 3_099) && !cadence.planned(false, 3_100));
        cadence.saturation(0.5, 200);
        assert!(!cadence.planned(false, 201));
    }
}
