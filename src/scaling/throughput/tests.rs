//! The tiers of the fit, what it forgets, and the sums.

use super::super::analyzer::{Analyzer, AnalyzerInput, AnalyzerResult, Memory};
use super::super::input::{ModelInput, Replica, Role, SchedulerQueue, Variant};
use super::Throughput;
use crate::thresholds::Thresholds;

const MINUTE: u64 = 60_000;

/// A replica on the line ITL = 0.03 · KV use + 0.01.
fn row(pod: usize, kv: f64) -> Replica {
    Replica {
        pod: format!("p{pod:02}"),
        variant: "v".to_owned(),
        kv: Some(kv),
        num_gpu_blocks: Some(100_000.0),
        block_size: Some(1.0),
        avg_input_tokens: Some(500.0),
        avg_output_tokens: Some(200.0),
        itl_seconds: Some(0.03 * kv + 0.01),
        request_rate: Some(2.0),
        ..Replica::default()
    }
}

fn model(replicas: Vec<Replica>) -> ModelInput {
    let current = u32::try_from(replicas.len()).unwrap();
    let variant = Variant { name: "v".to_owned(), current, ..Variant::default() };
    ModelInput { variants: vec![variant], replicas, ..ModelInput::default() }
}

fn at(now_millis: u64, model: &ModelInput, memory: &mut Memory) -> AnalyzerResult {
    let line = Thresholds::default();
    let input = AnalyzerInput { model, line: &line, freshness_seconds: 30.0, now_millis };
    Throughput.analyze(&input, memory).unwrap()
}

fn label(result: &AnalyzerResult) -> &str {
    &result.variant_capacities[0].reason
}

fn spread() -> ModelInput {
    model((0..10).map(|n| row(n, 0.2 + 0.05 * n as f64)).collect())
}

/// Mutants: 9 pairs; a spread of 0.2; the intercept of the last fit forgotten; pairs kept for ever.
#[test]
fn a_fit_needs_pairs_and_spread_and_leaves_its_intercept() {
    let mut memory = Memory::Null;
    let narrow = model((0..10).map(|n| row(n, 0.2 + 0.029 * n as f64)).collect());
    assert_eq!(label(&at(0, &narrow, &mut memory.clone())), "T2-default");
    let nine = model((0..9).map(|n| row(n, 0.2 + 0.05 * n as f64)).collect());
    assert_eq!(label(&at(0, &nine, &mut memory.clone())), "T2-default");
    let fitted = at(0, &spread(), &mut memory);
    assert_eq!(label(&fitted), "T1-ols");
    let expected = 0.8 * 100_000.0 / 600.0 / (0.03 * 0.8 + 0.01);
    let seen = fitted.variant_capacities[0].per_replica_capacity;
    assert!((seen - expected).abs() < 1e-6, "{seen} {expected}");
    let one = model(vec![row(0, 0.5)]);
    assert_eq!(label(&at(30 * MINUTE, &one, &mut memory.clone())), "T1-ols");
    let later = at(30 * MINUTE + 1, &one, &mut memory);
    assert_eq!(label(&later), "T2-pinned");
    let seen = later.variant_capacities[0].per_replica_capacity;
    assert!((seen - expected).abs() < 1e-6, "{seen} {expected}");
}

/// Mutant: the shape not compared.
#[test]
fn another_kind_of_request_makes_old_pairs_worthless() {
    let mut memory = Memory::Null;
    at(0, &spread(), &mut memory);
    let mut other = model(vec![row(0, 0.5)]);
    other.replicas[0].avg_input_tokens = Some(599.0);
    assert_eq!(label(&at(1, &other, &mut memory)), "T1-ols");
    other.replicas[0].avg_input_tokens = Some(601.0);
    assert_eq!(label(&at(2, &other, &mut memory)), "T2-pinned");
}

/// Mutants: a falling line taken; a stale reading as a pair.
#[test]
fn noise_and_stale_readings_make_no_fit() {
    let mut falling = spread();
    for replica in &mut falling.replicas {
        replica.itl_seconds = replica.kv.map(|kv| 0.05 - 0.03 * kv);
    }
    assert_eq!(label(&at(0, &falling, &mut Memory::Null)), "T2-default");
    let stale = model(vec![Replica { age_seconds: 31.0, ..row(0, 0.5) }]);
    assert!(!at(0, &stale, &mut Memory::Null).has_capacity());
    let line = Thresholds::default();
    let input =
        AnalyzerInput { model: &stale, line: &line, freshness_seconds: 30.0, now_millis: 0 };
    assert!(Throughput.analyze(&input, &mut Memory::from("x")).is_err());
}

/// Mutants: the queue in a variant; the model's rate on top of the replicas'.
#[test]
fn demand_is_arrivals_and_the_queue() {
    let mut model = model(vec![row(0, 0.5), row(1, 0.5)]);
    model.arrival_rate = Some(100.0);
    assert_eq!(at(0, &model, &mut Memory::Null).total_demand, 800.0);
    model.replicas[1].arrival_rate = Some(3.0);
    assert_eq!(at(0, &model, &mut Memory::Null).total_demand, 1000.0);
    for replica in &mut model.replicas {
        (replica.arrival_rate, replica.request_rate) = (None, None);
    }
    assert_eq!(at(0, &model, &mut Memory::Null).total_demand, 20_000.0);
    model.scheduler_queue = Some(SchedulerQueue { size: 10, bytes: 0 });
    model.variants[0].role = Role::Decode;
    let result = at(0, &model, &mut Memory::Null);
    let queue = result.total_demand - result.variant_capacities[0].total_demand;
    assert!(queue > 0.0);
    assert_eq!(result.role_capacities[&Role::Decode].total_demand, result.total_demand);
}

/// Mutant: replicas taken as they come.
#[test]
fn the_order_of_replicas_is_no_matter() {
    let (one, mut two) = (spread(), spread());
    two.replicas.reverse();
    let (mut first, mut second) = (Memory::Null, Memory::Null);
    assert_eq!(at(0, &one, &mut first), at(0, &two, &mut second));
    assert_eq!(first.to_string(), second.to_string());
}
