//! Milliseconds that one plan takes: 100 models of 4 variants with 50 replicas each.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::sync::Arc;

use plumbline::scaling::input::{Input, ModelInput, Replica, SchedulerQueue, Variant};
use plumbline::scaling::learned::Learned;
use plumbline::scaling::plan;
use plumbline::scaling::rules::Rules;
use plumbline::scaling_entry::{ScalingEntry, ScalingScope, ScalingTable, Selection};

const MODELS: usize = 100;
const VARIANTS: usize = 4;
const REPLICAS: usize = 50;
const PLANS: u64 = 20;

fn main() {
    let input = input();
    for (name, selection, enable_limiter) in [
        ("V1", Selection::SpareCapacity, false),
        ("V2", Selection::TokenCapacity, false),
        ("V2, limited GPUs", Selection::TokenCapacity, true),
    ] {
        let default = ScalingEntry { enable_limiter, ..ScalingEntry::default() };
        let global = ScalingScope { default, models: BTreeMap::new() };
        let table = Arc::new(ScalingTable { selection, global, ..ScalingTable::default() });
        let rules = Rules { table, ..Rules::default() };
        let mut learned = Learned::default();
        let mut best = f64::INFINITY;
        for tick in 0..PLANS {
            let start = tokio::time::Instant::now();
            let (made, after) = plan(&input, &rules, &learned, tick * 1_000);
            best = best.min(start.elapsed().as_secs_f64() * 1e3);
            assert_eq!(made.models.len(), MODELS);
            learned = after;
        }
        println!(
            "{name}: {best:.2} ms a plan ({MODELS} models x {VARIANTS} variants x {REPLICAS} replicas)"
        );
    }
}

fn input() -> Input {
    let models = (0..MODELS).map(|model| {
        let variants = (0..VARIANTS).map(|v| Variant {
            name: format!("v{v}"),
            cost: 5.0 + v as f64,
            accelerator: format!("gpu{}", v % 2),
            current: u32::try_from(REPLICAS).unwrap(),
            engine_args: Some(vec!["--max-num-seqs=256".to_owned()]),
            ..Variant::default()
        });
        let replicas = (0..VARIANTS * REPLICAS).map(|r| Replica {
            pod: format!("p{r}"),
            variant: format!("v{}", r % VARIANTS),
            kv: Some(((r * 37 + model * 11) % 100) as f64 / 100.0),
            queue: Some(((r + model) % 7) as f64),
            num_gpu_blocks: Some(1000.0 + r as f64),
            block_size: Some(16.0),
            avg_input_tokens: Some(500.0),
            avg_output_tokens: Some(150.0),
            ..Replica::default()
        });
        ModelInput {
            model_id: format!("m{model}"),
            namespace: "ns".to_owned(),
            replicas: replicas.collect(),
            variants: variants.collect(),
            scheduler_queue: Some(SchedulerQueue { size: 20, bytes: 8_000 }),
            ..ModelInput::default()
        }
    });
    let gpus = (0..2).map(|n| (format!("gpu{n}"), 11_000)).collect();
    Input { models: models.collect(), gpus: Some(gpus), ..Input::default() }
}
