//! Targets that fall: when one stays as published, and when none may.
//!
//! Decides nothing about how far: that is the optimizer's and the guards'. Counts are replicas.

use super::{Course, Step, Verdict, settle};
use crate::scaling::learned::{Fall, Learned};

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

/// How long a plan wants a lower target before it is published, if it does not want a still lower one
/// meanwhile. The readings are means over a minute: where load ends they empty second by second, and
/// the first and smallest fall would bind the rest for the time that it settles.
const STEADY_MILLIS: u64 = 10_000;
/// Longest wait of a fall that grows all the time.
const GROWING_MILLIS: u64 = 30_000;

/// A fall waits until it stops growing. The first plan that knows nothing of any earlier one does not
/// wait: it stands for all before it.
pub(super) fn ripen(course: &mut Course<'_>, learned: &mut Learned, now: u64) {
    let mut held = Vec::new();
    for variant in &mut course.variants {
        let key = settle::key(course.model, &variant.name);
        let Some(floor) = settle::published(course.model, &variant.name, learned) else {
            continue;
        };
        if variant.target >= floor {
            learned.falls.remove(&key);
            continue;
        }
        let new = Fall { target: variant.target, since_millis: now, grown_millis: now };
        let fall = learned.falls.entry(key).or_insert(new);
        if variant.target < fall.target {
            fall.grown_millis = now;
        }
        fall.target = variant.target;
        let ripe = now >= fall.grown_millis.saturating_add(STEADY_MILLIS)
            || now >= fall.since_millis.saturating_add(GROWING_MILLIS);
        if !ripe {
            held.push(format!("{} at {floor}", variant.name));
            variant.target = floor;
        }
    }
    if !held.is_empty() {
        let text = format!("held while the fall grows, bound by: settle ({})", held.join(", "));
        course.steps.push(Step::new("settle", text, []));
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

    /// Load ends, and the means of a minute empty second by second. Mutants: the first and smallest fall
    /// published; a growing one that waits for ever; a wait that begins anew while nothing grows.
    #[test]
    fn a_fall_is_published_once_it_stops_growing() {
        let rules = rules(false);
        let mut learned = Learned::default();
        assert_eq!(step(&pool(5, 0.57), &rules, &mut learned, 0), 5);
        for second in 61..65 {
            let kv = 0.44 - 0.13 * f64::from(second as u32 - 61);
            assert_eq!(step(&pool(5, kv), &rules, &mut learned, second), 5, "at {second} s");
        }
        assert!(learned.falls.contains_key("ns/m/v"));
        for second in 65..74 {
            assert_eq!(step(&pool(5, 0.05), &rules, &mut learned, second), 5, "at {second} s");
        }
        assert_eq!(step(&pool(5, 0.05), &rules, &mut learned, 74), 1);
        assert_eq!(step(&pool(5, 0.05), &rules, &mut learned, 75), 1);
        assert!(learned.falls.is_empty());
    }

    /// Mutant: a fall that is wanted again and again a little more is never published.
    #[test]
    fn a_fall_that_grows_for_long_is_published_as_it_is() {
        let (rules, mut learned) = (rules(false), Learned::default());
        step(&pool(40, 0.57), &rules, &mut learned, 0);
        let mut fell = None;
        for second in 61..120 {
            let kv = 0.5 - 0.005 * f64::from(second as u32 - 61);
            let target = step(&pool(40, kv), &rules, &mut learned, second);
            if fell.is_none() && target < 40 {
                fell = Some(second);
            }
        }
        assert_eq!(fell, Some(91));
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
