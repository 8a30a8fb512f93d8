//! Guards A, B and C: what no optimizer may do to a pool, whatever analyzer it listened to.
//!
//! Decides how far a target may fall and when one must rise, from readings as scraped; raises targets
//! only. Does not see minimum and maximum of a lowered target (they are clamped afterwards), nor zero
//! and waking, which are the enforcer's. Scores are ratios to the line, loads requests and tokens.

use std::collections::BTreeSet;

use super::allotment::{Allotment, by_cost, by_cost_per_capacity, ordered};
use super::input::{Reading, Replica, Role};
use super::limiter::Inventory;
use super::plan::Step;
use crate::thresholds::Thresholds;

/// What kept a scope at the line from growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bound {
    /// Every variant is at its maximum.
    Max,
    /// No GPUs are left for a replica.
    Gpu,
    /// A replica is starting.
    Pending,
    /// The model was moved just now.
    Settle,
    /// Nobody acts on the plan.
    Advisory,
}

impl Bound {
    /// Its name in a plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Max => "max",
            Self::Gpu => "gpu",
            Self::Pending => "pending",
            Self::Settle => "settle",
            Self::Advisory => "advisory",
        }
    }
}

/// What is measured of the replicas of one variant. Sums run in the order of the replicas.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Measured {
    /// Replicas whose every signal is fresh.
    read: u32,
    /// Whether a replica that should be read is missing, stale or partly unknown.
    blind: bool,
    waiting: f64,
    kv: f64,
    used: f64,
    /// KV tokens of the `i` smallest replicas; `None` when the capacity of one is unknown.
    smallest: Option<Vec<f64>>,
    scores: f64,
    scored: u32,
}

impl Measured {
    /// Sums up `replicas` of a variant that has `ready` ones; a reading up to `limit` seconds old is
    /// fresh.
    pub fn of<'a>(
        replicas: impl IntoIterator<Item = &'a Replica>,
        ready: u32,
        line: &Thresholds,
        limit: f64,
    ) -> Self {
        let mut sum = Self::default();
        let mut capacities = Some(Vec::new());
        for replica in replicas {
            let (queue, kv) = (replica.queue_reading(limit), replica.kv_reading(limit));
            let complete = !matches!(queue, Reading::Unknown)
                && !matches!(kv, Reading::Unknown)
                && !matches!((queue, kv), (Reading::Unmapped, Reading::Unmapped));
            let score = queue
                .value()
                .map(|waiting| line.queue_ratio(waiting))
                .into_iter()
                .chain(kv.value().map(|kv| line.kv_ratio(kv)))
                .reduce(f64::max);
            // Half a reading can show that a replica is at the line, but not that it is below.
            if let Some(score) = score.filter(|score| complete || *score >= 1.0) {
                sum.scores += score;
                sum.scored += 1;
            }
            if !complete {
                sum.blind = true;
                continue;
            }
            sum.read += 1;
            sum.waiting += queue.value().unwrap_or(0.0);
            let share = kv.value().unwrap_or(0.0);
            sum.kv += share;
            match (replica.kv_tokens(), &mut capacities) {
                (Some(tokens), Some(list)) => {
                    let in_use = super::input::known(replica.tokens_in_use);
                    sum.used += in_use.unwrap_or(share * tokens);
                    list.push(tokens);
                }
                _ => capacities = None,
            }
        }
        sum.blind |= sum.read < ready;
        sum.smallest = capacities.map(|mut list| {
            list.sort_by(f64::total_cmp);
            let mut total = 0.0;
            let sums = list.iter().map(|tokens| {
                total += tokens;
                total
            });
            std::iter::once(0.0).chain(sums).collect()
        });
        sum
    }

    /// Whether any replica tells anything.
    pub fn is_silent(&self) -> bool {
        self.scored == 0
    }

    /// Whether a replica that should be read is not.
    pub fn is_blind(&self) -> bool {
        self.blind
    }
}

/// What the guards need beside variants and readings.
#[derive(Debug, Default)]
pub struct Circumstances<'a> {
    /// GPUs that are left, where they are limited.
    pub inventory: Option<&'a mut Inventory>,
    /// The model may not be moved up now.
    pub settling: bool,
    /// Nobody acts on the plan.
    pub advisory: bool,
}

/// Scopes of a model: every role where it has several, then the model.
pub fn scopes(variants: &[Allotment]) -> Vec<Option<Role>> {
    let roles: BTreeSet<Role> = variants.iter().map(|v| v.role).collect();
    let mut scopes: Vec<Option<Role>> = Vec::new();
    if roles.len() > 1 {
        scopes.extend(roles.into_iter().map(Some));
    }
    scopes.push(None);
    scopes
}

/// Applies all guards to the targets of one model. `measured` stands beside `variants`.
pub fn apply(
    variants: &mut [Allotment],
    measured: &[Measured],
    line: &Thresholds,
    mut circumstances: Circumstances<'_>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    let scopes = scopes(variants);
    for role in &scopes {
        steps.extend(Scope::new(*role, variants, measured).hold_what_is_needed(variants, line));
    }
    for role in &scopes {
        let scope = Scope::new(*role, variants, measured);
        steps.extend(scope.rise_at_the_line(variants, &mut circumstances));
    }
    steps
}

/// After the clamp: names the maximum for a scope at the line that does not grow because the clamp cut
/// what was `wanted`, beside `variants`.
pub fn explain_clamp(
    variants: &[Allotment],
    wanted: &[u32],
    measured: &[Measured],
    steps: &mut Vec<Step>,
) {
    for role in scopes(variants) {
        let scope = Scope::new(role, variants, measured);
        let Some(mean) = scope.mean_score().filter(|mean| *mean >= 1.0) else { continue };
        let named = steps.iter().any(|step| {
            step.stage == "guard"
                && step.text.starts_with(&scope.at_the_line())
                && !step.text.contains("raised")
        });
        let cut = scope.members.iter().any(|i| variants[*i].target < wanted[*i]);
        if cut && !named && scope.targets(variants) <= scope.current(variants) {
            steps.push(scope.bounded(mean, &BTreeSet::from([Bound::Max])));
        }
    }
}

struct Scope<'a> {
    role: Option<Role>,
    members: Vec<usize>,
    measured: &'a [Measured],
}

impl<'a> Scope<'a> {
    fn new(role: Option<Role>, variants: &[Allotment], measured: &'a [Measured]) -> Self {
        let members = (0..variants.len())
            .filter(|i| role.is_none_or(|role| variants[*i].role == role))
            .collect();
        Self { role, members, measured }
    }

    fn name(&self) -> &'static str {
        self.role.map_or("model", Role::as_str)
    }

    fn at_the_line(&self) -> String {
        format!("{} at the line", self.name())
    }

    fn sum(&self, of: impl Fn(&Measured) -> f64) -> f64 {
        self.members.iter().map(|i| of(&self.measured[*i])).sum()
    }

    fn targets(&self, variants: &[Allotment]) -> u64 {
        self.members.iter().map(|i| u64::from(variants[*i].target)).sum()
    }

    fn current(&self, variants: &[Allotment]) -> u64 {
        self.members.iter().map(|i| u64::from(variants[*i].current)).sum()
    }

    fn is_pending(&self, variants: &[Allotment]) -> bool {
        self.members.iter().any(|i| variants[*i].pending > 0)
    }

    fn mean_score(&self) -> Option<f64> {
        let scored = self.sum(|m| f64::from(m.scored));
        (scored > 0.0).then(|| self.sum(|m| m.scores) / scored)
    }

    /// Guards B and C: a lowered target is taken back where the load would not fit on what is left,
    /// and where anything is unknown or starting.
    fn hold_what_is_needed(&self, variants: &mut [Allotment], line: &Thresholds) -> Option<Step> {
        let lowered = |v: &Allotment| v.target < v.current;
        if !self.members.iter().any(|i| lowered(&variants[*i])) {
            return None;
        }
        let before = self.targets(variants);
        let why = if self.members.iter().all(|i| self.measured[*i].is_silent()) {
            Some("no fresh reading")
        } else if self.members.iter().any(|i| self.measured[*i].blind) {
            Some("not every replica is read freshly")
        } else if self.is_pending(variants) {
            Some("a replica is starting")
        } else {
            None
        };
        let inside = |v: &Allotment| self.role.is_none_or(|role| v.role == role);
        let order = ordered(variants, |v| inside(v) && lowered(v), by_cost_per_capacity);
        for i in order {
            let variant = variants[i].current;
            if why.is_some() {
                variants[i].target = variant;
            }
            while variants[i].target < variants[i].current && !self.fits(variants, line) {
                variants[i].target += 1;
            }
        }
        let after = self.targets(variants);
        let why = why.unwrap_or("the load would not fit on fewer");
        let text = format!("{} keeps {} replicas: {why}", self.name(), after - before);
        (after > before).then(|| {
            Step::new("guard", text, [("keeps", (after - before) as f64), ("total", after as f64)])
        })
    }

    /// Whether all measured load stays below the line on the smallest replicas that would be left.
    fn fits(&self, variants: &[Allotment], line: &Thresholds) -> bool {
        let left = |i: &usize| variants[*i].target.min(self.measured[*i].read);
        let survivors: f64 = self.members.iter().map(|i| f64::from(left(i))).sum();
        let capacity = self.members.iter().try_fold(0.0, |sum, i| {
            let tokens = self.measured[*i].smallest.as_ref()?.get(left(i) as usize)?;
            Some(sum + tokens)
        });
        let kv = match capacity {
            Some(capacity) => self.sum(|m| m.used) / capacity,
            None => self.sum(|m| m.kv) / survivors,
        };
        let queue = self.sum(|m| m.waiting) / survivors;
        survivors > 0.0 && line.queue_ratio(queue) < 1.0 && line.kv_ratio(kv) < 1.0
    }

    /// Guard A: a scope whose mean score is at the line gets a replica more, or the bound is named.
    fn rise_at_the_line(
        &self,
        variants: &mut [Allotment],
        circumstances: &mut Circumstances<'_>,
    ) -> Option<Step> {
        let mean = self.mean_score().filter(|mean| *mean >= 1.0)?;
        let mut bounds = BTreeSet::new();
        if circumstances.advisory {
            bounds.insert(Bound::Advisory);
        }
        let mut raised = None;
        if circumstances.settling {
            if self.targets(variants) <= self.current(variants) {
                bounds.insert(Bound::Settle);
            }
        } else {
            for i in &self.members {
                variants[*i].target = variants[*i].target.max(variants[*i].current);
            }
            if self.targets(variants) <= self.current(variants) {
                raised =
                    self.add_one(variants, circumstances.inventory.as_deref_mut(), &mut bounds);
            }
        }
        match raised {
            _ if !bounds.is_empty() => Some(self.bounded(mean, &bounds)),
            Some(i) => {
                let text = format!(
                    "{} (mean score {mean:.2}): {} raised",
                    self.at_the_line(),
                    variants[i].name
                );
                Some(Step::new("guard", text, [("meanScore", mean)]))
            }
            None => None,
        }
    }

    fn add_one(
        &self,
        variants: &mut [Allotment],
        mut inventory: Option<&mut Inventory>,
        bounds: &mut BTreeSet<Bound>,
    ) -> Option<usize> {
        if self.is_pending(variants) {
            bounds.insert(Bound::Pending);
            return None;
        }
        let inside = |v: &Allotment| self.role.is_none_or(|role| v.role == role);
        let mut met = BTreeSet::new();
        for i in ordered(variants, inside, by_cost) {
            if variants[i].headroom() == 0 {
                met.insert(Bound::Max);
            } else if inventory.as_deref_mut().is_some_and(|free| free.take(&variants[i], 1) == 0) {
                met.insert(Bound::Gpu);
            } else {
                variants[i].target += 1;
                return Some(i);
            }
        }
        bounds.extend(met);
        None
    }

    fn bounded(&self, mean: f64, bounds: &BTreeSet<Bound>) -> Step {
        let names: Vec<_> = bounds.iter().map(|bound| bound.name()).collect();
        let text = format!(
            "{} (mean score {mean:.2}), bound by: {}",
            self.at_the_line(),
            names.join(", ")
        );
        Step::new("guard", text, [("meanScore", mean)])
    }
}
