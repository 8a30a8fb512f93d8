//! The alarm of an autoscaler that does not help: saturated for long, and nothing was asked for.
//!
//! Decides when it sounds. Times are milliseconds of the loop's clock.

use crate::scaling::plan::{ModelPlan, Plan};

/// What was seen since the pool became saturated.
#[derive(Debug, Clone, Copy)]
struct Saturated {
    since_millis: u64,
    replicas: u32,
}

/// The alarm.
#[derive(Debug)]
pub(super) struct Inert {
    after_millis: u64,
    saturated: Option<Saturated>,
}

impl Inert {
    /// Sounds after this long.
    pub(super) fn new(after_millis: u64) -> Self {
        Self { after_millis, saturated: None }
    }

    /// Notes a plan that was made while the pool was at the line or not; whether the alarm sounds.
    pub(super) fn note(&mut self, plan: &Plan, saturated: bool, now_millis: u64) -> bool {
        let replicas = plan
            .models
            .iter()
            .flat_map(|model| &model.variants)
            .fold(0_u32, |sum, variant| sum.saturating_add(variant.target));
        let bound = plan.models.iter().any(is_bound);
        if !saturated || bound {
            self.saturated = None;
            return false;
        }
        let begun = Saturated { since_millis: now_millis, replicas };
        let since = self.saturated.get_or_insert(begun);
        if replicas > since.replicas {
            *since = begun;
        }
        now_millis >= since.since_millis.saturating_add(self.after_millis)
    }
}

/// Whether the plan says what keeps a target down.
fn is_bound(model: &ModelPlan) -> bool {
    model.steps.iter().any(|step| step.text.contains("bound by: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::plan::{Step, VariantPlan};

    fn plan(target: u32, text: &str) -> Plan {
        let model = ModelPlan {
            variants: vec![VariantPlan { target, ..VariantPlan::default() }],
            steps: vec![Step::new("guard", text.to_owned(), [])],
            ..ModelPlan::default()
        };
        Plan { models: vec![model], ..Plan::default() }
    }

    /// Mutants: an alarm in spite of a rise; in spite of a bound; without the wait; one that stays.
    #[test]
    fn it_sounds_when_a_saturated_pool_stands_still() {
        let mut inert = Inert::new(1_000);
        assert!(!inert.note(&plan(2, ""), true, 0));
        assert!(!inert.note(&plan(2, ""), true, 999));
        assert!(inert.note(&plan(2, ""), true, 1_000));
        assert!(!inert.note(&plan(3, ""), true, 1_100));
        assert!(!inert.note(&plan(3, ""), true, 2_000));
        assert!(inert.note(&plan(3, ""), true, 2_100));
        assert!(!inert.note(&plan(3, "held, bound by: max"), true, 2_200));
        assert!(!inert.note(&plan(3, ""), false, 9_000));
    }
}
