//! V1: is a replica wanted, and could one go, judged by the mean distance to the line.
//!
//! Decides which replicas are at the line, the mean spare KV use and queue of the others, and whether
//! removing one would leave enough. Does not choose a variant or a target. KV use is a fraction, the
//! queue is requests. A reading that is missing, stale or no number is unknown: it takes no part in a
//! mean, it never makes removal safe, and it does not hide what the other readings say.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::input::{ModelInput, Reading, Replica, Role};
use crate::thresholds::{Draft, Thresholds};

/// Replicas below the line that a scope needs before one of them may go.
const LEAST_TO_SHRINK: u32 = 2;

/// The four numbers that this arithmetic reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpareLine {
    /// KV use at which a replica is saturated, fraction.
    pub kv: f64,
    /// Waiting requests at which a replica is saturated.
    pub queue: f64,
    /// Mean spare KV use below which a replica is wanted.
    pub kv_trigger: f64,
    /// Mean spare queue below which a replica is wanted.
    pub queue_trigger: f64,
    /// Whether a trigger at or above its threshold counts. Such a trigger grows an idle pool for ever;
    /// who chose V1 gets it, who only fell back to this arithmetic does not.
    pub endless_triggers: bool,
}

impl SpareLine {
    /// The line of a model for which V1 was chosen.
    pub fn chosen(line: &Thresholds) -> Self {
        Self::of(line.numbers(), true)
    }

    /// The line of a model that V2 cannot price.
    pub fn fallback(line: &Thresholds) -> Self {
        Self::of(line.numbers(), false)
    }

    fn of(numbers: Draft, endless_triggers: bool) -> Self {
        Self {
            kv: numbers.kv_cache_util,
            queue: numbers.queue_depth,
            kv_trigger: numbers.kv_spare_trigger,
            queue_trigger: numbers.queue_spare_trigger,
            endless_triggers,
        }
    }

    /// The trigger, or 0 where it does not count.
    fn counting(&self, trigger: f64, threshold: f64) -> f64 {
        if self.endless_triggers || trigger < threshold { trigger } else { 0.0 }
    }

    /// Triggers that can never be met, by their user-facing names.
    pub fn endless(&self) -> Vec<&'static str> {
        let kv = (self.kv_trigger >= self.kv).then_some("kvSpareTrigger");
        let queue = (self.queue_trigger >= self.queue).then_some("queueSpareTrigger");
        kv.into_iter().chain(queue).collect()
    }
}

/// What V1 says of one scope: a model, or one role of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpareAnalysis {
    /// Replicas looked at.
    pub replicas: u32,
    /// Replicas known to be below the line on every signal.
    pub non_saturated: u32,
    /// Replicas that are not known to be at the line, and of which something is not known.
    pub unknown: u32,
    /// Mean distance to the KV threshold over replicas below the line; 0 without any.
    pub avg_spare_kv: f64,
    /// Mean distance to the queue threshold over replicas below the line; 0 without any.
    pub avg_spare_queue: f64,
    /// A replica is wanted.
    pub scale_up: bool,
    /// Why; empty unless one is wanted.
    pub reason: String,
    /// One replica could go.
    pub scale_down_safe: bool,
    /// By name.
    pub variants: Vec<SpareVariant>,
}

/// The same of one variant, as far as it concerns a variant.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpareVariant {
    /// Its name.
    pub name: String,
    /// Replicas looked at.
    pub replicas: u32,
    /// Replicas known to be below the line on every signal.
    pub non_saturated: u32,
    /// Replicas that are not known to be at the line, and of which something is not known.
    pub unknown: u32,
    /// Mean distance to the KV threshold over replicas below the line; 0 without any.
    pub avg_spare_kv: f64,
    /// Mean distance to the queue threshold over replicas below the line; 0 without any.
    pub avg_spare_queue: f64,
    /// Highest KV use read; 0 without any.
    pub max_kv: f64,
    /// Longest queue read; 0 without any.
    pub max_queue: f64,
    /// Names of the replicas at the line.
    pub saturated: Vec<String>,
}

/// A mean that remembers how many took part.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: u32,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    /// Takes over another mean by its weight, as the model's mean is made of its variants'.
    fn join(&mut self, other: Self) {
        self.sum += other.value() * f64::from(other.count);
        self.count += other.count;
    }

    fn value(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / f64::from(self.count) }
    }
}

/// One variant while its replicas are being read.
#[derive(Debug, Default)]
struct Tally {
    seen: SpareVariant,
    kv: Mean,
    queue: Mean,
}

impl Tally {
    fn add(&mut self, replica: &Replica, line: &SpareLine, freshness_seconds: f64) {
        let kv = replica.kv_reading(freshness_seconds);
        let queue = replica.queue_reading(freshness_seconds);
        self.seen.replicas += 1;
        self.seen.max_kv = self.seen.max_kv.max(kv.value().unwrap_or(0.0));
        self.seen.max_queue = self.seen.max_queue.max(queue.value().unwrap_or(0.0));
        let at = |reading: Reading, limit: f64| reading.value().is_some_and(|v| v >= limit);
        if at(kv, line.kv) || at(queue, line.queue) {
            self.seen.saturated.push(replica.pod.clone());
            return;
        }
        let nothing_mapped = kv == Reading::Unmapped && queue == Reading::Unmapped;
        if nothing_mapped || kv == Reading::Unknown || queue == Reading::Unknown {
            self.seen.unknown += 1;
        } else {
            self.seen.non_saturated += 1;
        }
        kv.value().into_iter().for_each(|v| self.kv.add(line.kv - v));
        queue.value().into_iter().for_each(|v| self.queue.add(line.queue - v));
    }

    fn finish(mut self, name: &str) -> (SpareVariant, Mean, Mean) {
        name.clone_into(&mut self.seen.name);
        self.seen.avg_spare_kv = self.kv.value();
        self.seen.avg_spare_queue = self.queue.value();
        (self.seen, self.kv, self.queue)
    }
}

/// Analyzes a model as one scope, or role by role where a variant serves one phase only. A replica of
/// a variant that is not listed counts for `both`.
pub fn analyze(
    model: &ModelInput,
    line: &SpareLine,
    freshness_seconds: f64,
) -> BTreeMap<Role, SpareAnalysis> {
    let roles: BTreeMap<&str, Role> =
        model.variants.iter().map(|variant| (variant.name.as_str(), variant.role)).collect();
    let mut scopes: BTreeMap<Role, Vec<&Replica>> = BTreeMap::new();
    for variant in &model.variants {
        scopes.entry(variant.role).or_default();
    }
    for replica in model.replicas_in_order() {
        let role = roles.get(replica.variant.as_str()).copied().unwrap_or_default();
        scopes.entry(role).or_default().push(replica);
    }
    scopes
        .into_iter()
        .map(|(role, replicas)| (role, analyze_scope(&replicas, line, freshness_seconds)))
        .collect()
}

/// Analyzes one scope. The replicas must be in their one order, because sums run along it.
fn analyze_scope(replicas: &[&Replica], line: &SpareLine, freshness_seconds: f64) -> SpareAnalysis {
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    for replica in replicas {
        tallies.entry(&replica.variant).or_default().add(replica, line, freshness_seconds);
    }
    let (mut kv, mut queue) = (Mean::default(), Mean::default());
    let mut out = SpareAnalysis::default();
    for (name, tally) in tallies {
        let (variant, its_kv, its_queue) = tally.finish(name);
        kv.join(its_kv);
        queue.join(its_queue);
        out.replicas += variant.replicas;
        out.non_saturated += variant.non_saturated;
        out.unknown += variant.unknown;
        out.variants.push(variant);
    }
    out.avg_spare_kv = kv.value();
    out.avg_spare_queue = queue.value();
    out.reason = wanted(&out, line, kv, queue);
    out.scale_up = !out.reason.is_empty();
    out.scale_down_safe = !out.scale_up
        && out.unknown == 0
        && out.non_saturated >= LEAST_TO_SHRINK
        && leaves_enough(kv, line.kv, line.counting(line.kv_trigger, line.kv))
        && leaves_enough(queue, line.queue, line.counting(line.queue_trigger, line.queue));
    out
}

/// Why a replica is wanted; empty if none is.
fn wanted(seen: &SpareAnalysis, line: &SpareLine, kv: Mean, queue: Mean) -> String {
    let saturated = seen.variants.iter().any(|variant| !variant.saturated.is_empty());
    // A replica of which something is not known may be at the line as well: it hides nothing.
    let none_below = saturated && seen.non_saturated == 0;
    let low = |mean: Mean, trigger: f64, limit: f64| {
        (mean.count > 0 || none_below) && mean.value() < line.counting(trigger, limit)
    };
    let kv_text = format!("({:.3} < {:.3})", kv.value(), line.kv_trigger);
    let queue_text = format!("({:.1} < {:.1})", queue.value(), line.queue_trigger);
    match (low(kv, line.kv_trigger, line.kv), low(queue, line.queue_trigger, line.queue)) {
        (true, true) => format!("both KV spare {kv_text} and queue spare {queue_text}"),
        (true, false) => format!("KV spare Saturation low {kv_text}"),
        (false, true) => format!("queue spare Saturation low {queue_text}"),
        // The strict comparison with a trigger of 0 would freeze a pool that is saturated throughout.
        (false, false) if none_below => "no replica is below the line".to_owned(),
        (false, false) => String::new(),
    }
}

/// Whether the load of the replicas below the line, on one fewer of them, still leaves the trigger. A
/// signal that no replica has does not stand in the way; one that a single replica has does.
fn leaves_enough(spare: Mean, threshold: f64, trigger: f64) -> bool {
    if spare.count == 0 {
        return true;
    }
    if spare.count < LEAST_TO_SHRINK {
        return false;
    }
    let n = f64::from(spare.count);
    let load = (threshold - spare.value()) * (n / (n - 1.0));
    threshold - load >= trigger
}
