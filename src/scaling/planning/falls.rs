//! Targets that fall: when one stays as published, and when none may.
//!
//! Decides nothing about how far: that is the optimizer's and the guards'. Counts are replicas.

use super::{Course, Step, Verdict, settle};
use crate::scaling::learned::Learned;

/// A published fall stays until it has arrived or capacity is missing. Whoever acts on it takes
/// seconds; a plan that took what is still there for its base would call it back, and settle anew, for
/// ever. Zero is the enforcer's.
pub(super) fn keep(course: &mut Course<'_>, learned: &Learned) {
    let Verdict::Tokens(needs) = &course.verdict else { return };
    let roles = needs.roles();
    if needs.need().required() > 0.0 || roles.values().any(|need| need.required() > 0.0) {
        return;
    }
    for variant in course.variants.iter_mut().filter(|v| v.target <= v.current) {
        if let Some(published) = settle::published(course.model, &variant.name, learned)
            && (1..variant.target).contains(&published)
        {
            variant.target = published;
        }
    }
}

/// Nothing falls below what was published, or below what there is, before the last change settled.
pub(super) fn hold(course: &mut Course<'_>, learned: &Learned) {
    let mut held = Vec::new();
    for variant in &mut course.variants {
        let floor = settle::published(course.model, &variant.name, learned);
        let floor = floor.unwrap_or(variant.current);
        if variant.target < floor {
            held.push(format!("{} at {floor}", variant.name));
            variant.target = floor;
        }
    }
    if !held.is_empty() {
        let text = format!("held, bound by: settle ({})", held.join(", "));
        course.steps.push(Step::new("settle", text, []));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use crate::scaling::input::{Input, ModelInput, Replica, SchedulerQueue, Variant};
    use crate::scaling::learned::Learned;
    use crate::scaling::plan;
    use crate::scaling::rules::Rules;
    use crate::scaling_entry::{ScaleToZero, ScalingTable};

    /// `current` replicas of one variant that are as full as `kv`; nothing finished lately.
    fn pool(current: u32, kv: f64) -> Input {
        let replica = |n: u32| Replica {
            pod: format!("p{n}"),
            variant: "v".to_owned(),
            kv: Some(kv),
            queue: Some(0.0),
            running: Some(0.0),
            num_gpu_blocks: Some(1000.0),
            block_size: Some(16.0),
            ..Replica::default()
        };
        let model = ModelInput {
            model_id: "m".to_owned(),
            namespace: "ns".to_owned(),
            replicas: (0..current).map(replica).collect(),
            variants: vec![Variant { name: "v".to_owned(), current, ..Variant::default() }],
            scheduler_queue: Some(SchedulerQueue::default()),
            request_count: Some(0.0),
            in_flight: Some(0),
            ..ModelInput::default()
        };
        Input { models: vec![model], ..Input::default() }
    }

    fn rules(zero: bool) -> Rules {
        let zero = ScaleToZero { enabled: zero, retention: Duration::from_secs(60) };
        let table = ScalingTable { zero, ..ScalingTable::default() };
        Rules { table: Arc::new(table), ..Rules::default() }
    }

    /// One plan at this second; its target.
    fn step(input: &Input, rules: &Rules, learned: &mut Learned, second: u64) -> u32 {
        let (plan, after) = plan(input, rules, learned, second * 1_000);
        *learned = after;
        plan.models[0].variants[0].target
    }

    /// Nobody has acted yet, and the load moves between the bounds. Mutants: a plan that goes back to
    /// what is there; a fall that stays although capacity is missing.
    #[test]
    fn a_published_fall_stays_while_nothing_is_missing() {
        let (rules, mut learned) = (rules(false), Learned::default());
        let low = pool(4, 0.41);
        let fallen = step(&low, &rules, &mut learned, 0);
        assert_eq!(fallen, 3);
        // 0.57 of a cache is 0.71 of what the line allows: between the bounds.
        assert_eq!(step(&pool(4, 0.57), &rules, &mut learned, 1), fallen);
        assert_eq!(learned.settle["ns/m"].moved_millis, Some(0));
        assert!(step(&pool(4, 0.79), &rules, &mut learned, 2) > 4);
    }

    /// Mutants: zero called back while the last replica still stops; zero kept for a busy model.
    #[test]
    fn zero_stays_zero_until_there_is_work() {
        let (rules, mut learned) = (rules(true), Learned::default());
        assert_eq!(step(&pool(1, 0.0), &rules, &mut learned, 0), 0);
        for second in 1..90 {
            assert_eq!(step(&pool(1, 0.0), &rules, &mut learned, second), 0, "at {second} s");
        }
        let mut busy = pool(1, 0.0);
        busy.models[0].in_flight = Some(1);
        assert_eq!(step(&busy, &rules, &mut learned, 90), 1);
    }
}
