//! The second analyzer: supply and demand in output tokens per second.
//!
//! Decides how the time between two tokens grows with the use of the KV cache, what a replica would
//! yield at the KV threshold, and how much of that is asked for. Its results are shown, they decide
//! nothing. Times between tokens (ITL) are seconds, KV use is a fraction, rates are requests per
//! second, supply and demand are tokens per second.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::analyzer::{
    Analyzer, AnalyzerInput, AnalyzerResult, Memory, VariantCapacity, totals, totals_by_role,
};
use super::input::{Replica, Role, Variant, known, positive};
use super::tokens::Workload;

/// ITL of an empty server, before any fit has told better.
const DEFAULT_INTERCEPT: f64 = 0.006;
/// KV use between which a pair says something about the slope.
const USEFUL_KV: std::ops::RangeInclusive<f64> = 0.15..=0.85;
/// Pairs and spread of KV use that a fit of both numbers needs.
const LEAST_PAIRS: usize = 10;
const LEAST_SPREAD: f64 = 0.30;
/// Pairs that are kept, and for how long.
const MOST_PAIRS: usize = 20;
const PAIR_MILLIS: u64 = 30 * 60_000;
/// Relative change of the usual request that makes old pairs worthless.
const SHAPE_CHANGE: f64 = 0.2;
/// ITLs at the threshold in which a held request should get its first turn.
const QUEUE_TURNS: f64 = 2.0;

/// The analyzer; what it remembers is in its [`Memory`].
#[derive(Debug, Clone, Copy)]
pub struct Throughput;

/// One observation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Pair {
    kv: f64,
    itl: f64,
    millis: u64,
}

/// What is remembered of one variant.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Past {
    pairs: VecDeque<Pair>,
    /// Mean prompt and output when the pairs were seen.
    shape: Option<(f64, f64)>,
    /// ITL of an empty server by the last fit.
    intercept: Option<f64>,
}

/// ITL = slope · KV use + intercept.
#[derive(Debug, Clone, Copy)]
struct Fit {
    slope: f64,
    intercept: f64,
    label: &'static str,
}

impl Fit {
    fn itl(&self, kv: f64) -> f64 {
        self.slope * kv + self.intercept
    }
}

impl Analyzer for Throughput {
    fn name(&self) -> &'static str {
        "throughput"
    }

    fn analyze(
        &self,
        input: &AnalyzerInput<'_>,
        memory: &mut Memory,
    ) -> Result<AnalyzerResult, String> {
        let mut past: BTreeMap<String, Past> = if memory.is_null() {
            BTreeMap::new()
        } else {
            serde_json::from_value(memory.clone()).map_err(|e| format!("memory: {e}"))?
        };
        past.retain(|name, _| input.model.variants.iter().any(|variant| variant.name == *name));
        let replicas = input.model.replicas_in_order();
        let variants = input.model.variants_in_order();
        let ready: f64 = variants.iter().map(|variant| f64::from(variant.ready())).sum();
        // Without any rate at the replicas, the model's own is shared out evenly.
        let each = if replicas.iter().any(|replica| rate(replica).is_some()) || ready == 0.0 {
            None
        } else {
            positive(input.model.arrival_rate).map(|rate| rate / ready)
        };
        let (mut capacities, mut saturated_itl) = (Vec::new(), Vec::new());
        for variant in variants {
            let own = replicas.iter().copied().filter(|r| r.variant == variant.name).collect();
            let past = past.entry(variant.name.clone()).or_default();
            if let Some((capacity, itl)) = of_variant(input, variant, own, each, past) {
                capacities.push(capacity);
                saturated_itl.push(itl);
            }
        }
        *memory = serde_json::to_value(&past).map_err(|e| format!("memory: {e}"))?;
        Ok(result(self.name(), input, capacities, &saturated_itl))
    }
}

fn result(
    name: &str,
    input: &AnalyzerInput<'_>,
    variants: Vec<VariantCapacity>,
    saturated_itl: &[f64],
) -> AnalyzerResult {
    let sums = totals(&variants);
    let held = input.model.scheduler_queue.map_or(0.0, |queue| queue.size as f64);
    let itl = saturated_itl.iter().sum::<f64>() / saturated_itl.len().max(1) as f64;
    let queue = if itl > 0.0 { held / (QUEUE_TURNS * itl) } else { 0.0 };
    let demand = sums.total_demand + queue;
    let mut roles = BTreeMap::new();
    if input.model.is_disaggregated() {
        roles = totals_by_role(&variants);
        for (role, scope) in &mut roles {
            if *role != Role::Prefill {
                scope.total_demand += queue;
            }
        }
    }
    AnalyzerResult {
        name: name.to_owned(),
        total_supply: sums.total_supply,
        total_anticipated_supply: sums.total_anticipated_supply,
        total_demand: demand,
        utilization: if sums.total_supply > 0.0 { demand / sums.total_supply } else { 0.0 },
        variant_capacities: variants,
        role_capacities: roles,
        steps: Vec::new(),
    }
}

/// One variant and its ITL at the threshold; `None` where too little is known of it.
fn of_variant(
    input: &AnalyzerInput<'_>,
    variant: &Variant,
    replicas: Vec<&Replica>,
    rate_each: Option<f64>,
    past: &mut Past,
) -> Option<(VariantCapacity, f64)> {
    let workload = Workload::mean_of(&replicas)?;
    let holds: Vec<f64> = replicas.iter().filter_map(|replica| replica.kv_tokens()).collect();
    let tokens = positive(Some(holds.iter().sum::<f64>() / holds.len() as f64))?;
    let now: Vec<Pair> = replicas.iter().filter_map(|replica| pair(replica, input)).collect();
    past.note(&now, workload, input.now_millis);
    let fit = past.fit(&now)?;
    let at_line = input.line.kv_cache_util();
    let itl = positive(Some(fit.itl(at_line)))?;
    let each = positive(Some(workload.input * (1.0 - workload.hit_rate) + workload.output / 2.0))?;
    let per_replica = positive(Some(at_line * tokens / each / itl))?;
    let rates: Vec<(f64, f64)> = replicas
        .iter()
        .filter_map(|r| Some((rate(r)?, Workload::of(r).unwrap_or(workload).output)))
        .collect();
    let demand = match rate_each {
        _ if !rates.is_empty() => rates.iter().map(|(rate, output)| rate * output).sum(),
        Some(rate) => rate * f64::from(variant.ready()) * workload.output,
        // Nobody counts arrivals: what the caches hold says how much is being generated.
        None => now.iter().fold(0.0, |sum, pair| sum + pair.kv * tokens / each / pair.itl),
    };
    let capacity = VariantCapacity::of(variant, per_replica, demand, fit.label);
    Some((capacity, itl))
}

/// Requests per second sent to a replica, or finished by it where that is all that is known.
fn rate(replica: &Replica) -> Option<f64> {
    positive(replica.arrival_rate).or_else(|| positive(replica.request_rate))
}

/// A fresh observation of a busy replica.
fn pair(replica: &Replica, input: &AnalyzerInput<'_>) -> Option<Pair> {
    let itl = positive(replica.itl_seconds)?;
    let fresh = replica.age_seconds <= input.freshness_seconds;
    let instant = known(replica.kv_instant).filter(|_| fresh);
    let kv = instant.or_else(|| replica.kv_reading(input.freshness_seconds).value())?;
    (fresh && kv > 0.0).then_some(Pair { kv, itl, millis: input.now_millis })
}

impl Past {
    fn note(&mut self, now: &[Pair], workload: Workload, now_millis: u64) {
        let shape = (workload.input, workload.output);
        let moved = |old: f64, new: f64| (new - old).abs() > SHAPE_CHANGE * old;
        if self.shape.is_none_or(|old| moved(old.0, shape.0) || moved(old.1, shape.1)) {
            self.pairs.clear();
            self.shape = Some(shape);
        }
        self.pairs.retain(|pair| now_millis.saturating_sub(pair.millis) <= PAIR_MILLIS);
        self.pairs.extend(now.iter().filter(|pair| USEFUL_KV.contains(&pair.kv)));
        let surplus = self.pairs.len().saturating_sub(MOST_PAIRS);
        self.pairs.drain(..surplus);
    }

    /// Slope and intercept where the pairs carry both, else the slope alone; from the present
    /// readings where no pair is kept.
    fn fit(&mut self, now: &[Pair]) -> Option<Fit> {
        if let Some(fit) = self.least_squares() {
            self.intercept = Some(fit.intercept);
            return Some(fit);
        }
        let intercept = self.intercept.unwrap_or(DEFAULT_INTERCEPT);
        let label = if self.intercept.is_some() { "T2-pinned" } else { "T2-default" };
        let kept: Vec<Pair> =
            if self.pairs.is_empty() { now.to_vec() } else { self.pairs.iter().copied().collect() };
        let squares = positive(Some(kept.iter().map(|pair| pair.kv * pair.kv).sum()))?;
        let products: f64 = kept.iter().map(|pair| (pair.itl - intercept) * pair.kv).sum();
        Some(Fit { slope: products / squares, intercept, label })
    }

    fn least_squares(&self) -> Option<Fit> {
        let n = self.pairs.len();
        let low = self.pairs.iter().map(|pair| pair.kv).fold(f64::INFINITY, f64::min);
        let high = self.pairs.iter().map(|pair| pair.kv).fold(0.0, f64::max);
        if n < LEAST_PAIRS || high - low < LEAST_SPREAD {
            return None;
        }
        let mean = |of: fn(&Pair) -> f64| self.pairs.iter().map(of).sum::<f64>() / n as f64;
        let (kv, itl) = (mean(|pair| pair.kv), mean(|pair| pair.itl));
        let deviations = self.pairs.iter().map(|pair| (pair.kv - kv, pair.itl - itl));
        let (mut squares, mut products) = (0.0, 0.0);
        for (x, y) in deviations {
            squares += x * x;
            products += x * y;
        }
        let slope = products / squares;
        let intercept = itl - slope * kv;
        // A line that falls, or starts below zero, is noise.
        (slope > 0.0 && intercept >= 0.0).then_some(Fit { slope, intercept, label: "T1-ols" })
    }
}
