//! KEDA's and the HPA's rules, as functions of what the scaler answered.
//!
//! Decides what KEDA would do with an answer: it alone moves between zero and one, the HPA it makes
//! moves everything above. Polls and cooldown are shorter here than there, the rules are the same.
//! Counts are replicas.

use std::time::Duration;

/// Time between two polls; KEDA's default is 30 s.
pub(super) const POLL: Duration = Duration::from_secs(1);
/// How long a variant must have been inactive before it goes to zero; KEDA's default is 300 s.
pub(super) const COOLDOWN: Duration = Duration::from_secs(5);
/// Changes below this share are none, as the HPA has it.
const TOLERANCE: f64 = 0.1;

/// What the scaler said at one poll.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Answer {
    /// `IsActive`.
    pub(super) active: bool,
    /// The value of the metric.
    pub(super) metric: f64,
    /// Its target for each replica.
    pub(super) goal: f64,
}

/// What KEDA remembers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Actuator {
    last_active: Option<Duration>,
}

impl Actuator {
    /// The number of replicas that there should be from now on.
    pub(super) fn decide(&mut self, answer: Answer, replicas: u32, now: Duration) -> u32 {
        if answer.active {
            self.last_active = Some(now);
            return if replicas == 0 { 1 } else { hpa(answer, replicas) };
        }
        let since = self.last_active.get_or_insert(now);
        if now.saturating_sub(*since) >= COOLDOWN { 0 } else { replicas }
    }
}

/// An HPA on a metric of type `AverageValue`, at least one replica.
fn hpa(answer: Answer, replicas: u32) -> u32 {
    let wanted = answer.metric / answer.goal;
    if (wanted / f64::from(replicas) - 1.0).abs() <= TOLERANCE {
        return replicas;
    }
    // The metric is a count of replicas, far below the largest u32.
    (wanted.ceil() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn answer(active: bool, metric: f64) -> Answer {
        Answer { active, metric, goal: 1.0 }
    }

    /// Mutants: a goal that is not divided by; a tolerance of nothing; the HPA at zero replicas.
    #[test]
    fn above_zero_the_metric_over_its_goal_counts() {
        let mut actuator = Actuator::default();
        assert_eq!(actuator.decide(answer(true, 4.0), 2, s(0)), 4);
        assert_eq!(actuator.decide(Answer { goal: 2.0, ..answer(true, 5.0) }, 1, s(1)), 3);
        assert_eq!(actuator.decide(answer(true, 12.0), 11, s(2)), 11);
        assert_eq!(actuator.decide(answer(true, 0.0), 2, s(3)), 1);
        assert_eq!(actuator.decide(answer(true, 9.0), 0, s(4)), 1);
    }

    /// Mutants: zero at once; a cooldown that does not begin anew.
    #[test]
    fn zero_comes_after_the_cooldown() {
        let mut actuator = Actuator::default();
        actuator.decide(answer(true, 1.0), 1, s(0));
        assert_eq!(actuator.decide(answer(false, 0.0), 1, s(4)), 1);
        actuator.decide(answer(true, 1.0), 1, s(5));
        assert_eq!(actuator.decide(answer(false, 0.0), 1, s(9)), 1);
        assert_eq!(actuator.decide(answer(false, 0.0), 1, s(10)), 0);
    }
}
