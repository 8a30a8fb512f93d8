//! Properties of whole plans, counter-examples that make the guards necessary, clocks, and replay.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::scaling::input::{Replica, SchedulerQueue, Variant};
use crate::scaling_entry::{ScaleToZero, ScalingScope, ScalingTable};
use crate::thresholds::Thresholds;

fn rules(selection: Selection, entry: ScalingEntry) -> Rules {
    let global = ScalingScope { default: entry, models: BTreeMap::new() };
    let zero = global.default.scale_to_zero;
    let table = ScalingTable { selection, global, zero, ..ScalingTable::default() };
    Rules { table: Arc::new(table), ..Rules::default() }
}

fn replica(variant: &str, pod: usize, kv: f64, queue: f64) -> Replica {
    Replica {
        pod: format!("{variant}-{pod}"),
        variant: variant.to_owned(),
        kv: Some(kv),
        queue: Some(queue),
        running: Some(0.0),
        num_gpu_blocks: Some(1000.0),
        block_size: Some(16.0),
        avg_input_tokens: Some(100.0),
        avg_output_tokens: Some(50.0),
        ..Replica::default()
    }
}

fn variant(name: &str, current: u32) -> Variant {
    Variant { name: name.to_owned(), current, ..Variant::default() }
}

fn one(replicas: Vec<Replica>, variants: Vec<Variant>) -> Input {
    let model = ModelInput {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        replicas,
        variants,
        scheduler_queue: Some(SchedulerQueue::default()),
        in_flight: Some(0),
        ..ModelInput::default()
    };
    Input { models: vec![model], ..Input::default() }
}

fn pool(loads: &[(f64, f64)]) -> Input {
    let replicas = loads.iter().enumerate().map(|(i, (kv, q))| replica("v", i, *kv, *q));
    one(replicas.collect(), vec![variant("v", u32::try_from(loads.len()).unwrap())])
}

fn target(plan: &Plan) -> u32 {
    plan.models[0].variants[0].target
}

fn says(plan: &Plan, text: &str) -> bool {
    plan.models[0].steps.iter().any(|step| step.text.contains(text))
}

fn reading(valid: f64) -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        40 => (0.0..valid).prop_map(Some),
        1 => Just(None),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)].prop_map(Some),
    ]
}

fn any_replica(variants: usize) -> impl Strategy<Value = Replica> {
    let tokens = prop_oneof![20 => (100.0..2000.0).prop_map(Some), 1 => Just(None)];
    let queue = prop_oneof![4 => reading(3.0), 1 => reading(12.0)];
    let age = prop_oneof![40 => 0.0..30.0, 1 => 31.0..99.0];
    (0..variants, 0_u32..40, reading(1.0), queue, age, tokens).prop_map(
        |(of, pod, kv, queue, age_seconds, num_gpu_blocks)| Replica {
            pod: format!("p{pod}"),
            variant: format!("v{of}"),
            kv,
            queue,
            age_seconds,
            num_gpu_blocks: num_gpu_blocks.map(f64::trunc),
            ..replica("", 0, 0.0, 0.0)
        },
    )
}

fn any_variant() -> impl Strategy<Value = Variant> {
    let role =
        prop_oneof![4 => Just(Role::Both), 1 => Just(Role::Prefill), 1 => Just(Role::Decode)];
    let pending = prop_oneof![12 => Just(0_u32), 1 => 1_u32..3];
    let extra = prop_oneof![12 => Just(0_u32), 1 => 1_u32..4];
    (1_u32..9, role, pending, extra, 0_u32..3, prop_oneof![2 => Just(0_u32), 1 => 3_u32..9])
        .prop_map(|(cost, role, pending, current, min_replicas, max_replicas)| Variant {
            cost: f64::from(cost),
            role,
            pending,
            current,
            min_replicas,
            max_replicas,
            accelerator: if cost % 2 == 0 { "A100".to_owned() } else { "L4".to_owned() },
            ..Variant::default()
        })
}

prop_compose! {
    fn any_model()(variants in prop::collection::vec(any_variant(), 1..4))
        (replicas in prop::collection::vec(any_replica(variants.len()), 0..14),
         size in prop_oneof![3 => Just(0_u64), 1 => 1_u64..300],
         requests in prop_oneof![Just(None), Just(Some(0.0)), Just(Some(7.0))],
         variants in Just(variants)) -> ModelInput {
        let mut variants = variants;
        for (i, v) in variants.iter_mut().enumerate() {
            v.name = format!("v{i}");
            // Ready replicas are mostly those that report; what was drawn for `current` is unread.
            let rows = replicas.iter().filter(|r| r.variant == v.name).count();
            v.current += u32::try_from(rows).unwrap() + v.pending;
        }
        ModelInput {
            model_id: "m".to_owned(), namespace: "ns".to_owned(), replicas, variants,
            scheduler_queue: Some(SchedulerQueue { size, bytes: size * 400 }),
            request_count: requests, in_flight: Some(0), ..ModelInput::default()
        }
    }
}

prop_compose! {
    fn any_case()(model in any_model(), v1 in any::<bool>(), limited in any::<bool>(),
                  zero in any::<bool>(), a100 in 0_u64..40, l4 in 0_u64..40) -> (Input, Rules) {
        let entry = ScalingEntry {
            enable_limiter: limited,
            scale_to_zero: ScaleToZero { enabled: zero, ..ScaleToZero::default() },
            ..ScalingEntry::default()
        };
        let selection = if v1 { Selection::SpareCapacity } else { Selection::TokenCapacity };
        let gpus = Some([("A100".to_owned(), a100), ("L4".to_owned(), l4)].into());
        (Input { models: vec![model], gpus, ..Input::default() }, rules(selection, entry))
    }
}

/// The seed's score of a replica on what is fresh; `None` where that is not everything.
fn score(replica: &Replica, line: &Thresholds) -> Option<f64> {
    let (kv, queue) = (replica.kv_reading(30.0).value()?, replica.queue_reading(30.0).value()?);
    Some(line.kv_ratio(kv).max(line.queue_ratio(queue)))
}

/// Guards A to C, written a second time and without sharing code with them.
fn check_guards(input: &Input, plan: &Plan, line: &Thresholds) -> Result<(), TestCaseError> {
    let (model, plan) = (&input.models[0], &plan.models[0]);
    let asleep = model.variants.iter().all(|v| v.current == 0);
    let zeroed = plan.variants.iter().all(|v| v.target == 0);
    if asleep || zeroed {
        return Ok(());
    }
    let mut scopes: Vec<Option<Role>> = vec![None];
    scopes.extend([Role::Both, Role::Prefill, Role::Decode].map(Some));
    for scope in scopes {
        let inside = |role: Role| scope.is_none_or(|scope| scope == role);
        let members: Vec<_> =
            model.variants.iter().zip(&plan.variants).filter(|(v, _)| inside(v.role)).collect();
        if members.is_empty() {
            continue;
        }
        let rows: Vec<&Replica> = model
            .replicas
            .iter()
            .filter(|r| members.iter().any(|(v, _)| v.name == r.variant))
            .collect();
        let scores: Vec<Option<f64>> = rows.iter().map(|r| score(r, line)).collect();
        let known: Vec<f64> = scores.iter().flatten().copied().collect();
        let (current, target) =
            members.iter().fold((0, 0), |(c, t), (v, p)| (c + v.current, t + p.target));
        let named = plan.steps.iter().any(|s| s.stage == "guard" && s.text.contains("bound by"));
        let all_read = scores.iter().all(Option::is_some);
        // Where all is read, the mean is the mean; half a reading may only add to the alarm.
        if all_read && !known.is_empty() {
            let mean = known.iter().sum::<f64>() / known.len() as f64;
            prop_assert!(
                mean < 1.0 + 1e-9 || target > current || named,
                "A at {scope:?}: {plan:?}"
            );
        }
        let capped = |v: &Variant| v.max_replicas > 0 && v.current > v.max_replicas;
        let lowered: Vec<_> =
            members.iter().filter(|(v, p)| p.target < v.current && !capped(v)).collect();
        if lowered.is_empty() || members.iter().any(|(v, _)| capped(v)) {
            continue;
        }
        let ready: u32 = members.iter().map(|(v, _)| v.ready()).sum();
        prop_assert!(all_read && rows.len() >= ready as usize, "C at {scope:?}: {plan:?}");
        prop_assert!(members.iter().all(|(v, _)| v.pending == 0), "B pending at {scope:?}");
        let (mut left, mut tokens) = (0.0, Some(0.0));
        for (v, p) in &members {
            let mut sizes: Vec<Option<f64>> =
                rows.iter().filter(|r| r.variant == v.name).map(|r| r.kv_tokens()).collect();
            sizes.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let keep = (p.target as usize).min(sizes.len());
            left += keep as f64;
            for size in &sizes[..keep] {
                tokens = tokens.zip(*size).map(|(sum, size)| sum + size);
            }
        }
        if rows.iter().any(|r| r.kv_tokens().is_none()) {
            tokens = None;
        }
        let waiting: f64 = rows.iter().filter_map(|r| r.queue).sum();
        prop_assert!(waiting / left < line.queue_depth(), "B queue at {scope:?}: {plan:?}");
        let kv = match tokens {
            Some(tokens) => {
                rows.iter().map(|r| r.kv.unwrap() * r.kv_tokens().unwrap()).sum::<f64>() / tokens
            }
            None => rows.iter().filter_map(|r| r.kv).sum::<f64>() / left,
        };
        prop_assert!(kv < line.kv_cache_util() + 1e-9, "B memory at {scope:?}: {kv} {plan:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutants: any guard left out; `>` for `>=` at the line; stale readings taken for fresh.
    #[test]
    fn guards_hold_for_every_input(case in any_case()) {
        let (input, rules) = case;
        let (plan, _) = plan(&input, &rules, &Learned::default(), 0);
        check_guards(&input, &plan, &rules.table.global.default.thresholds)?;
    }

    /// Mutants: the memory, the queue or the smallest survivors left out of guard B; readings of fewer
    /// replicas than are ready taken for all.
    #[test]
    fn guards_hold_whatever_the_optimizer_wants(
        case in any_case(), wishes in prop::collection::vec(0_u32..12, 4),
    ) {
        let (input, rules) = case;
        let input = input.in_order();
        let mut learned = Learned::default();
        let mut course = start(&input.models[0], &rules, &mut learned, 30.0, 0);
        for (variant, wish) in course.variants.iter_mut().zip(wishes) {
            variant.target = wish;
        }
        let moment = Moment { freshness: 30.0, advisory: false, now: 0 };
        finish(&mut course, &mut learned, None, moment);
        let plan = Plan { models: vec![report::of(course)], ..Plan::default() };
        check_guards(&input, &plan, &rules.table.global.default.thresholds)?;
    }

    /// Mutants: no clamp; the clamp before the enforcer.
    #[test]
    fn targets_keep_their_bounds(case in any_case()) {
        let (input, rules) = case;
        let (plan, _) = plan(&input, &rules, &Learned::default(), 0);
        for (v, p) in input.models[0].variants.iter().zip(&plan.models[0].variants) {
            let top = if v.max_replicas == 0 { u32::MAX } else { v.max_replicas };
            prop_assert!(v.min_replicas <= p.target && p.target <= top);
        }
    }

    /// Mutant: `in_order` left out.
    #[test]
    fn a_permuted_input_gives_the_same_plan_to_the_bit(case in any_case(), turn in 1_usize..9) {
        let (input, rules) = case;
        let mut other = input.clone();
        for model in &mut other.models {
            model.replicas.reverse();
            let turn = turn % model.replicas.len().max(1);
            model.replicas.rotate_left(turn);
            model.variants.reverse();
        }
        let text = |input: &Input| {
            serde_json::to_string(&plan(input, &rules, &Learned::default(), 5)).unwrap()
        };
        prop_assert_eq!(text(&input), text(&other));
    }

    /// Mutants: spare capacity that rises with demand; V1's spare taken for its load.
    #[test]
    fn more_demand_never_lowers_a_target(
        loads in prop::collection::vec((0.0..0.79, 0.0..1.0), 1..12),
        v1 in any::<bool>(),
    ) {
        let lighter: Vec<_> = loads.iter().map(|(kv, share): &(f64, f64)| (kv * share, 0.0)).collect();
        let heavier: Vec<_> = loads.iter().map(|(kv, _)| (*kv, 0.0)).collect();
        let selection = if v1 { Selection::SpareCapacity } else { Selection::TokenCapacity };
        let rules = rules(selection, ScalingEntry::default());
        let of = |loads: &[(f64, f64)]| target(&plan(&pool(loads), &rules, &Learned::default(), 0).0);
        prop_assert!(of(&lighter) <= of(&heavier));
    }
}

/// What the analyzers say without the guards, and what the plan says.
/// Mutant: guard A left out turns the first red, guard C the second, guard B the third.
#[test]
fn v1_and_v2_alone_break_the_guards() {
    let v1 = rules(Selection::SpareCapacity, ScalingEntry::default());
    let v2 = rules(Selection::TokenCapacity, ScalingEntry::default());
    let line = Thresholds::default();
    let mut loads = vec![(0.99, 40.0); 10];
    loads.extend([(0.0, 0.0); 2]);
    let saturated = pool(&loads);
    let alone = spare::analyze(&saturated.models[0], &SpareLine::chosen(&line), 30.0);
    assert!(alone[&Role::Both].scale_down_safe, "V1 alone takes one from a pool at the line");
    assert_eq!(target(&plan(&saturated, &v1, &Learned::default(), 0).0), 13);

    let mut unread = pool(&[(0.1, 0.0)]);
    unread.models[0].variants[0].current = 4;
    let seen = AnalyzerInput {
        model: &unread.models[0],
        line: &line,
        freshness_seconds: 30.0,
        now_millis: 0,
    };
    let result = tokens::analyze(&seen, &mut Learned::default());
    let pair = Pair { scale_up_threshold: 0.85, scale_down_boundary: 0.7 };
    assert!(Calibrated::new(result, pair).need().spare() > 12_800.0, "V2 alone takes the unread");
    let (held, _) = plan(&unread, &v2, &Learned::default(), 0);
    assert_eq!(target(&held), 4);
    assert!(says(&held, "not every replica is read freshly"), "{held:?}");

    let queued = pool(&[(0.01, 4.9), (0.01, 4.9), (0.01, 4.9)]);
    let (held, _) = plan(&queued, &v2, &Learned::default(), 0);
    assert_eq!(target(&held), 3, "14 waiting do not fit below 5 on 2: {held:?}");
}

/// Mutant: a bound that is met but not named.
#[test]
fn every_bound_of_guard_a_is_named() {
    let v2 = rules(Selection::TokenCapacity, ScalingEntry::default());
    let limited = ScalingEntry { enable_limiter: true, ..ScalingEntry::default() };
    let limited = rules(Selection::TokenCapacity, limited);
    let full = [(0.95, 9.0), (0.95, 9.0)];
    let named = |input: &Input, rules: &Rules, learned: &Learned, bound: &str| {
        let (plan, _) = plan(input, rules, learned, 10_000);
        assert!(says(&plan, &format!("bound by: {bound}")), "{bound}: {plan:?}");
    };
    let mut at_max = pool(&full);
    at_max.models[0].variants[0].max_replicas = 2;
    named(&at_max, &v2, &Learned::default(), "max");
    let mut no_gpu = pool(&full);
    no_gpu.gpus = Some([("A100".to_owned(), 2)].into());
    named(&no_gpu, &limited, &Learned::default(), "gpu");
    let mut starting = pool(&full);
    starting.models[0].variants[0].current = 12;
    starting.models[0].variants[0].pending = 10;
    named(&starting, &v2, &Learned::default(), "pending");
    let v1 = rules(Selection::SpareCapacity, ScalingEntry::default());
    let (_, moved) = plan(&pool(&full), &v1, &Learned::default(), 0);
    let mut reached = pool(&full);
    reached.models[0].variants[0].current = 3;
    reached.models[0].replicas.push(replica("v", 9, 0.95, 9.0));
    named(&reached, &v1, &moved, "settle");
    let advisory = Rules { advisory: true, ..v2.clone() };
    named(&pool(&full), &advisory, &Learned::default(), "advisory");
}

/// Mutants: a second move within 30 s; a fall within 60 s after the change has arrived.
#[test]
fn moves_settle_before_the_next() {
    let v1 = rules(Selection::SpareCapacity, ScalingEntry::default());
    let (first, learned) = plan(&pool(&[(0.9, 9.0)]), &v1, &Learned::default(), 0);
    assert_eq!(target(&first), 2, "the first move is immediate");
    let busy = pool(&[(0.9, 9.0), (0.9, 9.0)]);
    let (second, learned) = plan(&busy, &v1, &learned, 29_000);
    assert_eq!(target(&second), 2);
    let (third, learned) = plan(&busy, &v1, &learned, 30_000);
    assert_eq!(target(&third), 3);
    let idle = pool(&[(0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]);
    let (arrived, learned) = plan(&idle, &v1, &learned, 70_000);
    assert_eq!((target(&arrived), says(&arrived, "bound by: settle")), (3, true));
    let (early, learned) = plan(&idle, &v1, &learned, 129_000);
    assert_eq!(target(&early), 3);
    let (late, _) = plan(&idle, &v1, &learned, 130_000);
    assert_eq!(target(&late), 2);
}

/// Mutant: a change that never arrives holds for ever.
#[test]
fn no_block_outlives_the_time_to_start() {
    let v2 = rules(Selection::TokenCapacity, ScalingEntry::default());
    let (up, learned) = plan(&pool(&[(0.9, 9.0), (0.9, 9.0)]), &v2, &Learned::default(), 0);
    assert!(target(&up) > 2);
    let stuck = pool(&[(0.0, 0.0), (0.0, 0.0)]);
    let (held, learned) = plan(&stuck, &v2, &learned, 599_000);
    assert_eq!(target(&held), target(&up));
    let (settling, learned) = plan(&stuck, &v2, &learned, 600_000);
    assert_eq!(target(&settling), target(&up));
    let (free, _) = plan(&stuck, &v2, &learned, 660_000);
    assert_eq!(target(&free), 1);
}

/// Mutants: any of the conditions of idleness left out; one role sent to zero alone.
#[test]
fn zero_needs_everything_to_be_known_and_nothing_to_do() {
    let zero = ScaleToZero { enabled: true, ..ScaleToZero::default() };
    let entry = ScalingEntry { scale_to_zero: zero, ..ScalingEntry::default() };
    let rules = rules(Selection::TokenCapacity, entry);
    let mut idle = one(
        vec![replica("p", 0, 0.0, 0.0), replica("d", 0, 0.0, 0.0)],
        vec![
            Variant { role: Role::Prefill, ..variant("p", 1) },
            Variant { role: Role::Decode, ..variant("d", 1) },
        ],
    );
    idle.models[0].request_count = Some(0.0);
    let targets = |input: &Input| {
        let (plan, _) = plan(input, &rules, &Learned::default(), 0);
        plan.models[0].variants.iter().map(|v| v.target).collect::<Vec<_>>()
    };
    assert_eq!(targets(&idle), [0, 0]);
    type Change = fn(&mut ModelInput);
    let changes: [(&str, Change); 9] = [
        ("count unknown", |m| m.request_count = None),
        ("requests finished", |m| m.request_count = Some(1.0)),
        ("held", |m| m.scheduler_queue = Some(SchedulerQueue { size: 1, bytes: 1 })),
        ("queue unknown", |m| m.scheduler_queue = None),
        ("in flight", |m| m.in_flight = Some(1)),
        ("in flight unknown", |m| m.in_flight = None),
        ("running", |m| m.replicas[0].running = Some(1.0)),
        ("waiting", |m| m.replicas[0].queue = Some(1.0)),
        ("stale", |m| m.replicas[0].age_seconds = 31.0),
    ];
    for (name, change) in changes {
        let mut busy = idle.clone();
        change(&mut busy.models[0]);
        assert_eq!(targets(&busy), [1, 1], "{name}");
    }
    let mut asleep = idle.clone();
    asleep.models[0].replicas.clear();
    asleep.models[0].variants.iter_mut().for_each(|v| v.current = 0);
    assert_eq!(targets(&asleep), [0, 0]);
    asleep.models[0].scheduler_queue = Some(SchedulerQueue { size: 3, bytes: 1200 });
    assert_eq!(targets(&asleep), [1, 1], "prefill and decode wake together");
}

/// Mutant: anything that a plan depends on and that is not written with what is learned.
#[test]
fn a_thousand_ticks_replay_bit_for_bit() {
    let mut rules = rules(Selection::TokenCapacity, ScalingEntry::default());
    let (mut learned, mut current, mut seed) = (Learned::default(), 2_u32, 7_u64);
    for tick in 0..1_000_u64 {
        if tick == 500 {
            Arc::make_mut(&mut rules.table).selection = Selection::SpareCapacity;
        }
        let mut draw = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 40) as f64 / (1_u64 << 24) as f64
        };
        let load = 0.5 + 0.5 * (tick as f64 / 80.0).sin();
        let loads: Vec<_> = (0..current)
            .map(|_| ((load * (0.7 + 0.6 * draw())).min(1.0), (load * 9.0 * draw()).trunc()))
            .collect();
        let mut input = pool(&loads);
        input.models[0].variants[0].max_replicas = 12;
        let (made, after) = plan(&input, &rules, &learned, tick * 1_000);
        let recorded =
            (serde_json::to_string(&input).unwrap(), serde_json::to_string(&learned).unwrap());
        let again = plan(
            &serde_json::from_str(&recorded.0).unwrap(),
            &rules,
            &serde_json::from_str(&recorded.1).unwrap(),
            tick * 1_000,
        );
        let written = |plan: &(Plan, Learned)| serde_json::to_string(plan).unwrap();
        let original = (made, after);
        assert_eq!(written(&again), written(&original), "tick {tick}");
        // A replica takes ten ticks to come and none to go.
        let wanted = target(&original.0);
        current = if wanted > current && tick % 10 != 0 { current } else { wanted };
        learned = original.1;
    }
    assert!(learned.settle.values().any(|settle| settle.moved_millis.is_some()), "it moved");
}
