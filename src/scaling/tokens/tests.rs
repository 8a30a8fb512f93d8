//! Scenarios of the reference that no recorded case has, the rules for what is learned, and the
//! properties of the sums.

use proptest::prelude::*;

use super::super::analyzer::{AnalyzerInput, AnalyzerResult, RoleCapacity};
use super::super::input::{ModelInput, Replica, Role, SchedulerQueue, Variant};
use super::super::learned::{CapacityRecord, Learned, LearnedFrom};
use super::{Workload, analyze, replicas};
use crate::thresholds::Thresholds;

const HOUR: u64 = 3_600_000;

fn row(pod: &str, kv: f64, queue: f64) -> Replica {
    Replica {
        pod: pod.to_owned(),
        variant: "v".to_owned(),
        kv: Some(kv),
        queue: Some(queue),
        num_gpu_blocks: Some(1000.0),
        block_size: Some(16.0),
        avg_input_tokens: Some(100.0),
        avg_output_tokens: Some(50.0),
        ..Replica::default()
    }
}

fn variant(name: &str, current: u32) -> Variant {
    Variant { name: name.to_owned(), current, accelerator: "A100".to_owned(), ..Variant::default() }
}

fn model(variants: Vec<Variant>, replicas: Vec<Replica>) -> ModelInput {
    let (model_id, namespace) = ("m".to_owned(), "ns".to_owned());
    ModelInput { model_id, namespace, variants, replicas, ..ModelInput::default() }
}

fn at(now_millis: u64, model: &ModelInput, learned: &mut Learned) -> AnalyzerResult {
    let line = Thresholds::default();
    let input = AnalyzerInput { model, line: &line, freshness_seconds: 30.0, now_millis };
    analyze(&input, learned)
}

fn fresh(model: &ModelInput) -> AnalyzerResult {
    at(0, model, &mut Learned::default())
}

fn record(from: LearnedFrom, kv_tokens: f64, effective: f64, args: Option<&str>) -> CapacityRecord {
    let line: Option<Vec<&str>> = args.map(|args| args.split(' ').collect());
    CapacityRecord {
        model_id: "m".to_owned(),
        accelerator: "A100".to_owned(),
        gpus_per_replica: 1,
        kv_tokens,
        effective,
        engine: line.map(|line| super::EngineArgs::parse(&line, &Default::default())),
        learned_from: from,
        touched_millis: 0,
    }
}

/// Vectors 38 to 40. Mutants: the output left out; truncated before the product.
#[test]
fn waiting_requests_weigh_what_their_role_will_hold() {
    let work = |input, output| Workload { input, output, hit_rate: 0.5 };
    assert_eq!(work(100.0, 50.0).waiting(4.0, Role::Prefill), 400.0);
    assert_eq!(work(100.0, 50.0).waiting(4.0, Role::Decode), 600.0);
    assert_eq!(work(100.0, 50.0).waiting(4.0, Role::Both), 600.0);
    assert_eq!(work(100.9, 0.0).waiting(3.0, Role::Prefill), 302.0);
    assert_eq!(work(500.0, 250.0).waiting(3.0, Role::Decode), 2250.0);
    assert_eq!(work(f64::MAX, 0.0).waiting(9.0, Role::Both), 0.0);
}

/// Vectors 29 to 32 and 36. Mutants: P2 before P1; a window of 9; one bucket for all.
#[test]
fn what_was_seen_at_the_line_holds_for_later_work_of_its_kind() {
    let mut learned = Learned::default();
    let one = |row: Replica| model(vec![variant("v", 1)], vec![row]);
    for n in 0..15 {
        let kv = (1000.0 + f64::from(n) * 500.0) / 16_000.0 + 0.1;
        at(u64::try_from(n).unwrap() * 30_000, &one(row("p", kv, 6.0)), &mut learned);
    }
    // The last ten of 2600, 3100, ... are 5100 to 9600, their mean 7350.
    let quiet = at(450_000, &one(row("p", 0.2, 2.0)), &mut learned);
    assert_eq!(quiet.variant_capacities[0].per_replica_capacity, 7350.0);
    assert_eq!(quiet.variant_capacities[0].reason, "P2-hist");
    let long = Replica { avg_output_tokens: Some(500.0), ..row("p", 0.2, 2.0) };
    assert_eq!(at(450_000, &one(long), &mut learned).variant_capacities[0].reason, "P4-k1");
}

/// Mutants: samples every run; a sample below a tenth of k1; the clock shared by all replicas.
#[test]
fn a_standing_queue_is_one_observation_in_30_seconds() {
    let mut learned = Learned::default();
    let two = model(vec![variant("v", 2)], vec![row("p", 0.5, 6.0), row("q", 0.6, 6.0)]);
    for now in [0, 1_000, 29_999] {
        at(now, &two, &mut learned);
    }
    let samples = |learned: &Learned| -> Vec<f64> {
        learned.k2_history.values().flat_map(|history| history.samples.clone()).collect()
    };
    assert_eq!(samples(&learned), [8000.0, 9600.0]);
    at(30_000, &two, &mut learned);
    assert_eq!(samples(&learned).len(), 4);
    let mut none = Learned::default();
    let nearly_empty = model(vec![variant("v", 1)], vec![row("p", 0.0799, 60.0)]);
    let result = at(0, &nearly_empty, &mut none);
    assert_eq!(result.variant_capacities[0].per_replica_capacity, 12_800.0);
    assert!(samples(&none).is_empty());
}

/// Mutant: the floor left out, or laid under what the arguments say.
#[test]
fn a_history_is_never_taken_for_less_than_a_tenth_of_the_memory() {
    let mut learned = Learned::default();
    let one = |row: Replica, engine: Option<&str>| {
        let engine_args = engine.map(|args| vec![args.to_owned()]);
        model(vec![Variant { engine_args, ..variant("v", 1) }], vec![row])
    };
    at(0, &one(row("p", 0.09, 9.0), None), &mut learned);
    let larger = Replica { num_gpu_blocks: Some(10_000.0), ..row("p", 0.01, 0.0) };
    let result = at(1, &one(larger, None), &mut learned);
    assert_eq!(result.variant_capacities[0].per_replica_capacity, 12_800.0);
    let tiny = one(row("p", 0.01, 0.0), Some("--max-num-seqs=2"));
    assert_eq!(fresh(&tiny).variant_capacities[0].per_replica_capacity, 250.0);
}

/// Mutants: `<` for `<=` at either limit; a record that a run does not touch again.
#[test]
fn what_is_learned_expires() {
    let mut learned = Learned::default();
    let busy = model(vec![variant("v", 1)], vec![row("p", 0.5, 6.0)]);
    let zero = model(vec![variant("v", 0)], Vec::new());
    at(0, &busy, &mut learned);
    at(24 * HOUR, &zero, &mut learned);
    assert_eq!(learned.k2_history.len(), 1);
    at(24 * HOUR + 1, &zero, &mut learned);
    assert_eq!((learned.k2_history.len(), learned.k2_sampled_millis.len()), (0, 0));
    let kept = at(7 * 24 * HOUR, &zero, &mut learned);
    assert_eq!(kept.variant_capacities[0].per_replica_capacity, 8000.0);
    let forgotten = at(7 * 24 * HOUR + 1, &zero, &mut learned);
    assert_eq!(forgotten.variant_capacities[0].reason, "no-data");
    assert!(!forgotten.has_capacity());
}

/// Vectors 43 and 44. Mutants: the record's effective where it was derived; a bound left out.
#[test]
fn a_variant_without_replicas_is_priced_from_the_store() {
    let price = |records: &[(&str, CapacityRecord)], work: Option<f64>, args: Option<&str>| {
        let mut learned = Learned::default();
        for (name, record) in records {
            learned.capacities.insert(format!("ns/m/{name}"), record.clone());
        }
        let engine_args = args.map(|args| args.split(' ').map(str::to_owned).collect());
        let zero = Variant { engine_args, ..variant("v", 0) };
        let output = work.map(|input| (input, 100.0));
        let busy = Replica {
            variant: "w".to_owned(),
            num_gpu_blocks: None,
            avg_input_tokens: output.map(|(input, _)| input),
            avg_output_tokens: output.map(|(_, output)| output),
            ..row("q", 0.1, 0.0)
        };
        let other = Variant { accelerator: "H100".to_owned(), ..variant("w", 1) };
        let model = model(vec![zero, other], vec![busy]);
        at(1, &model, &mut learned).variant_capacities[0].per_replica_capacity
    };
    const ARGS: &str = "--max-num-batched-tokens=8192 --max-num-seqs=256";
    const BLOCKS: &str =
        "--max-num-batched-tokens=8192 --max-num-seqs=256 --num-gpu-blocks-override=1875";
    let live = |effective| record(LearnedFrom::Live, 50_000.0, effective, Some(ARGS));
    let unknown = record(LearnedFrom::Live, 15_000.0, 12_000.0, None);
    assert_eq!(price(&[("v", unknown.clone())], Some(500.0), None), 12_000.0);
    assert_eq!(price(&[], Some(500.0), Some(ARGS)), 140_800.0);
    assert_eq!(price(&[("x", live(40_000.0))], Some(500.0), Some(ARGS)), 40_000.0);
    assert_eq!(price(&[], Some(500.0), Some(BLOCKS)), 24_000.0);
    assert_eq!(price(&[], None, Some(ARGS)), 8192.0);
    assert_eq!(price(&[("x", unknown)], None, None), 12_000.0, "same hardware, nothing else known");
    assert_eq!(price(&[], Some(500.0), None), 0.0);
}

/// Vectors 41 and 42 by the choice for them. Mutants: the store before the neighbours; the threshold
/// applied to the use; no step.
#[test]
fn a_replica_of_unknown_capacity_is_priced_from_others_then_from_the_store() {
    let blind = |kv, queue| Replica { num_gpu_blocks: None, ..row("p", kv, queue) };
    let mut learned = Learned::default();
    learned
        .capacities
        .insert("ns/m/v".to_owned(), record(LearnedFrom::Live, 10_000.0, 8000.0, None));
    let alone = model(vec![variant("v", 1)], vec![blind(0.6, 0.0)]);
    let result = at(1, &alone, &mut learned.clone());
    let seen = &result.variant_capacities[0];
    assert_eq!((seen.per_replica_capacity, seen.total_demand), (8000.0, 6000.0));
    assert!(result.steps[0].text.contains("1 of 1 replicas with unknown capacity"));
    assert!(result.steps[0].text.contains("capacity store"));
    let beside = model(vec![variant("v", 2)], vec![blind(0.6, 0.0), row("q", 0.5, 0.0)]);
    let result = at(1, &beside, &mut learned);
    let seen = &result.variant_capacities[0];
    assert_eq!((seen.per_replica_capacity, seen.total_demand), (12_800.0, 17_600.0));
    assert!(result.steps[0].text.contains("from its other replicas"));
    let args = vec!["--max-num-batched-tokens=8192".to_owned(), "--max-num-seqs=256".to_owned()];
    let argued = Variant { engine_args: Some(args), ..variant("v", 1) };
    let unfinished = Replica { avg_input_tokens: None, avg_output_tokens: None, ..blind(0.1, 2.0) };
    let result = fresh(&model(vec![argued], vec![unfinished]));
    let seen = &result.variant_capacities[0];
    assert_eq!((seen.per_replica_capacity, seen.reason.as_str()), (6553.0, "P0-store"));
    assert_eq!(seen.total_demand, 819.0 + 2.0 * 640.0);
}

/// Vectors 51, 52 and 54. Mutants: the queue once a role at model scope; hits taken off the output.
#[test]
fn the_queue_before_all_replicas_belongs_to_no_variant() {
    let hits = |rate| Replica { prefix_hit_rate: Some(rate), ..row("p", 0.3125, 0.0) };
    let queued = |rate, bytes| {
        let mut model = model(vec![variant("v", 1)], vec![hits(rate)]);
        model.scheduler_queue = Some(SchedulerQueue { size: 10, bytes });
        fresh(&model).total_demand
    };
    assert_eq!(queued(0.5, 4000), 6000.0);
    assert_eq!(queued(0.0, 20_000), 10_500.0);
    let role = |name: &str, role| Variant { role, ..variant(name, 1) };
    let on = |name: &str, kv| Replica { variant: name.to_owned(), ..row(name, kv, 0.0) };
    let mut both = model(
        vec![role("a", Role::Prefill), role("b", Role::Decode)],
        vec![on("a", 0.125), on("b", 0.1875)],
    );
    both.scheduler_queue = Some(SchedulerQueue { size: 10, bytes: 0 });
    let result = fresh(&both);
    assert_eq!(result.role_capacities[&Role::Prefill].total_demand, 3000.0);
    assert_eq!(result.role_capacities[&Role::Decode].total_demand, 4500.0);
    assert_eq!(result.total_demand, 6500.0);
    both.variants[1].role = Role::Prefill;
    assert_eq!(fresh(&both).role_capacities.keys().collect::<Vec<_>>(), [&Role::Prefill]);
}

/// Vectors 37 and 53. Mutants: an upper median; pending replicas in the supply.
#[test]
fn supply_is_the_median_times_the_ready_replicas() {
    let blocks = |pod: &str, n| Replica { num_gpu_blocks: Some(n), ..row(pod, 0.1, 0.0) };
    let pending = Variant { pending: 1, ..variant("v", 3) };
    let result = fresh(&model(vec![pending], vec![blocks("p", 1000.0), blocks("q", 2000.0)]));
    assert_eq!(result.variant_capacities[0].per_replica_capacity, 19_200.0);
    assert_eq!((result.total_supply, result.total_anticipated_supply), (38_400.0, 57_600.0));
    assert_eq!(super::median([1.0, 7.0, 3.0, 5.0].into_iter()), Some(4.0));
    assert_eq!(super::median([1.0, 2.0].into_iter()), Some(1.0));
    assert_eq!(super::median(std::iter::empty()), None);
}

/// Mutants: a stale queue observed; a missing reading as 0 in P1.
#[test]
fn unknown_readings_take_part_in_nothing() {
    let unread = |replica: Replica| {
        let model = model(vec![variant("v", 2)], vec![row("p", 0.5, 0.0), replica]);
        let result = fresh(&model);
        let seen = &result.variant_capacities[0];
        (seen.per_replica_capacity, seen.total_demand, seen.reason.clone())
    };
    let quiet = (12_800.0, 8000.0, "P4-k1".to_owned());
    assert_eq!(unread(Replica { age_seconds: 30.1, ..row("q", 0.9, 9.0) }), quiet);
    assert_eq!(unread(Replica { age_seconds: f64::NAN, ..row("q", 0.9, 9.0) }), quiet);
    assert_eq!(unread(Replica { queue_age_seconds: Some(31.0), ..row("q", 0.0, 9.0) }), quiet);
    assert_eq!(unread(Replica { queue: None, ..row("q", 0.0, 0.0) }), quiet);
    assert_eq!(unread(row("q", f64::INFINITY, -1.0)), quiet);
}

/// Mutant: load of a replica without a variant in the demand.
#[test]
fn replicas_of_no_variant_are_named() {
    let stray = Replica { variant: "ghost".to_owned(), ..row("q", 0.9, 9.0) };
    let result = fresh(&model(vec![variant("v", 1)], vec![row("p", 0.5, 0.0), stray]));
    assert_eq!(result.total_demand, 8000.0);
    assert!(result.steps[0].text.contains("\"ghost\""), "{:?}", result.steps);
}

fn any_reading(top: f64) -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        8 => (0.0..top).prop_map(Some),
        1 => Just(None),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0)].prop_map(Some),
    ]
}

fn any_replica() -> impl Strategy<Value = Replica> {
    let sizes = (any_reading(5000.0), any_reading(64.0), any_reading(2000.0), any_reading(800.0));
    let readings = (any_reading(1.2), any_reading(12.0), 0.0..40.0, any_reading(1.0));
    (0..4_u8, 0..6_u8, readings, sizes).prop_map(|(variant, pod, readings, sizes)| Replica {
        pod: format!("p{pod}"),
        variant: format!("v{variant}"),
        kv: readings.0,
        queue: readings.1,
        age_seconds: readings.2,
        prefix_hit_rate: readings.3,
        num_gpu_blocks: sizes.0,
        block_size: sizes.1,
        avg_input_tokens: sizes.2,
        avg_output_tokens: sizes.3,
        ..Replica::default()
    })
}

fn any_variant(n: u8) -> impl Strategy<Value = Variant> {
    let role = prop_oneof![Just(Role::Both), Just(Role::Prefill), Just(Role::Decode)];
    let seqs = proptest::option::of(0..300_u32);
    (role, 0..9_u32, 0..9_u32, 1..3_u32, seqs).prop_map(
        move |(role, current, pending, gpus, seqs)| Variant {
            name: format!("v{n}"),
            role,
            current,
            pending,
            gpus_per_replica: gpus,
            accelerator: format!("gpu{}", n % 2),
            engine_args: seqs.map(|seqs| vec![format!("--max-num-seqs={seqs}")]),
            ..Variant::default()
        },
    )
}

fn any_model() -> impl Strategy<Value = ModelInput> {
    let variants = (any_variant(0), any_variant(1), any_variant(2));
    let queue = proptest::option::of((0..50_u64, 0..100_000_u64));
    let replicas = proptest::collection::vec(any_replica(), 0..14);
    (variants, queue, replicas).prop_map(|((a, b, c), queue, replicas)| ModelInput {
        scheduler_queue: queue.map(|(size, bytes)| SchedulerQueue { size, bytes }),
        ..model(vec![a, b, c], replicas)
    })
}

fn sums(result: &AnalyzerResult, role: Option<Role>) -> RoleCapacity {
    let mut sums = RoleCapacity::default();
    for v in result.variant_capacities.iter().filter(|v| role.is_none_or(|role| v.role == role)) {
        let (ready, pending) = (f64::from(v.replica_count), f64::from(v.pending_replicas));
        sums.total_supply += ready * v.per_replica_capacity;
        sums.total_anticipated_supply += (ready + pending) * v.per_replica_capacity;
        sums.total_demand += v.total_demand;
    }
    sums
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutants: a queue inside a variant; pending left out of what is anticipated; current for
    /// ready in the capacity.
    #[test]
    fn the_totals_are_the_sums_over_the_variants(model in any_model()) {
        let result = fresh(&model);
        let mut without = model.clone();
        without.scheduler_queue = None;
        let queue = result.total_demand - fresh(&without).total_demand;
        let all = sums(&result, None);
        prop_assert_eq!(result.total_supply, all.total_supply);
        prop_assert_eq!(result.total_anticipated_supply, all.total_anticipated_supply);
        prop_assert!((result.total_demand - all.total_demand - queue).abs() <= 1e-6);
        prop_assert!(queue >= 0.0);
        if model.scheduler_queue.is_none() {
            prop_assert_eq!(result.total_demand, all.total_demand);
        }
        for (role, scope) in &result.role_capacities {
            let of_role = sums(&result, Some(*role));
            prop_assert_eq!(scope.total_supply, of_role.total_supply);
            prop_assert_eq!(scope.total_anticipated_supply, of_role.total_anticipated_supply);
            prop_assert!(scope.total_demand >= of_role.total_demand);
        }
        for v in &result.variant_capacities {
            prop_assert!(v.per_replica_capacity.is_finite() && v.total_demand.is_finite());
            prop_assert!(v.per_replica_capacity >= 0.0 && v.total_demand >= 0.0);
            let own = f64::from(v.replica_count) * v.per_replica_capacity;
            prop_assert_eq!(v.total_capacity, own);
            let used = if own > 0.0 { v.total_demand / own } else { 0.0 };
            prop_assert_eq!(v.utilization, used);
        }
    }

    /// Mutants: `model.replicas` for `replicas_in_order()`; samples noted while they are read.
    #[test]
    fn a_permutation_changes_nothing_to_the_bit(
        (model, shuffled) in any_model().prop_flat_map(|model| {
            let replicas = Just(model.replicas.clone()).prop_shuffle();
            let variants = Just(model.variants.clone()).prop_shuffle();
            (Just(model), (replicas, variants))
        })
    ) {
        let (replicas, variants) = shuffled;
        let other = ModelInput { replicas, variants, ..model.clone() };
        let (mut one, mut two) = (Learned::default(), Learned::default());
        for now in [0, 30_000] {
            let first = at(now, &model, &mut one);
            let second = at(now, &other, &mut two);
            prop_assert_eq!(first, second);
        }
        prop_assert_eq!(&one, &two);
    }

    /// Mutant: `float_roundtrip` taken from serde_json.
    #[test]
    fn what_is_learned_reads_back_to_the_bit(model in any_model()) {
        let mut learned = Learned::default();
        at(7, &model, &mut learned);
        let text = serde_json::to_string(&learned).unwrap();
        let back: Learned = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &learned);
        let line = Thresholds::default();
        let input =
            AnalyzerInput { model: &model, line: &line, freshness_seconds: 30.0, now_millis: 7 };
        prop_assert_eq!(replicas(&input, "v0", &back), replicas(&input, "v0", &learned));
    }
}
