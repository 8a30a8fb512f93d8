//! The greedy optimizer: models that need more share the GPUs there are, by priority and need.
//!
//! Decides targets of several models under a limit on GPUs. A model is worth its priority times its
//! missing capacity; the one worth most is served down to the mean, then the next. Capacities are
//! tokens, priority has no unit.

use super::allotment::{Allotment, by_cost_per_capacity, ordered};
use super::cost_aware::{scopes, shrink, within};
use super::input::Role;
use super::limiter::Inventory;
use super::post_step::Calibrated;

/// One model that takes part.
#[derive(Debug)]
pub struct Share<'a> {
    /// Its variants; targets are moved from where they are.
    pub variants: &'a mut [Allotment],
    /// Its needs.
    pub needs: &'a Calibrated,
    /// Its priority, >= 0.
    pub priority: f64,
}

/// What one scope of a model still wants.
struct Want {
    role: Option<Role>,
    required: f64,
    left: f64,
}

struct Model<'a> {
    variants: &'a mut [Allotment],
    wants: Vec<Want>,
    priority: f64,
    active: bool,
}

impl Model<'_> {
    fn left(&self) -> f64 {
        self.wants.iter().map(|want| want.left).sum()
    }

    fn value(&self) -> f64 {
        self.priority * self.left()
    }

    /// Adds replicas worth `grant` tokens, one at least, each to the scope that is covered least, so
    /// that prefill and decode grow together. The answer is whether anything fitted.
    fn grow(&mut self, grant: f64, inventory: &mut Inventory) -> bool {
        let (mut given, mut any) = (0.0, false);
        let mut open: Vec<usize> =
            (0..self.wants.len()).filter(|i| self.wants[*i].left > 0.0).collect();
        while !any || given < grant {
            let uncovered = |i: &usize| self.wants[*i].left / self.wants[*i].required;
            let Some(next) = open
                .iter()
                .copied()
                .reduce(|a, b| if uncovered(&b) > uncovered(&a) { b } else { a })
            else {
                break;
            };
            match self.add_one(next, inventory) {
                None => open.retain(|i| *i != next),
                Some(capacity) => {
                    any = true;
                    given += capacity;
                    let want = &mut self.wants[next];
                    want.left = (want.left - capacity).max(0.0);
                    open.retain(|i| self.wants[*i].left > 0.0);
                }
            }
        }
        any
    }

    /// One replica of the cheapest capacity that fits into a scope; the answer is its capacity.
    fn add_one(&mut self, want: usize, inventory: &mut Inventory) -> Option<f64> {
        let role = self.wants[want].role;
        let fits = |v: &Allotment| within(v, role) && v.per_replica > 0.0 && v.headroom() > 0;
        let order = ordered(self.variants, fits, by_cost_per_capacity);
        let i = order.into_iter().find(|i| inventory.take(&self.variants[*i], 1) == 1)?;
        self.variants[i].target += 1;
        Some(self.variants[i].per_replica)
    }
}

/// Moves the targets of all models: spare capacity goes back as without a limit, growth shares
/// `inventory`. Equal models are served in the order given.
pub fn allot(shares: Vec<Share<'_>>, inventory: &mut Inventory) {
    let mut models: Vec<Model<'_>> = shares.into_iter().map(start).collect();
    while !inventory.is_empty() {
        let values: Vec<(usize, f64)> = models
            .iter()
            .enumerate()
            .filter(|(_, model)| model.active)
            .map(|(i, model)| (i, model.value()))
            .collect();
        let Some((most, value)) =
            values.iter().copied().reduce(|a, b| if b.1 > a.1 { b } else { a })
        else {
            break;
        };
        let count = values.len() as f64;
        let mean = values.iter().map(|(_, value)| value).sum::<f64>() / count;
        // Where all are worth the same, nobody is above the mean: each visit then serves one Nth.
        let floor = match values.len() {
            1 => 0.0,
            _ if value <= mean => mean - value / count,
            _ => mean,
        };
        let model = &mut models[most];
        let grant = if model.priority > 0.0 { (value - floor) / model.priority } else { 0.0 };
        let grew = model.grow(grant, inventory);
        model.active = grew && model.left() > 0.0;
    }
}

fn start(share: Share<'_>) -> Model<'_> {
    let Share { variants, needs, priority } = share;
    let wants: Vec<Want> = scopes(needs)
        .into_iter()
        .map(|(role, need)| Want { role, required: need.required(), left: need.required() })
        .collect();
    let active = wants.iter().any(|want| want.left > 0.0);
    if !active && needs.need().spare() > 0.0 {
        for (role, need) in scopes(needs) {
            shrink(variants, role, need.spare());
        }
    }
    Model { variants, wants, priority, active }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::analyzer::{AnalyzerResult, RoleCapacity};
    use super::super::post_step::Pair;
    use super::*;

    fn variant(name: &str, role: Role) -> Allotment {
        Allotment {
            name: name.to_owned(),
            role,
            cost: 10.0,
            accelerator: "A100".to_owned(),
            gpus_per_replica: 2,
            per_replica: 10_000.0,
            current: 1,
            pending: 0,
            min: 0,
            max: 0,
            target: 1,
        }
    }

    fn needs(prefill: f64, decode: f64) -> Calibrated {
        let scope = |demand| RoleCapacity { total_demand: demand, ..RoleCapacity::default() };
        let roles =
            BTreeMap::from([(Role::Prefill, scope(prefill)), (Role::Decode, scope(decode))]);
        let result = AnalyzerResult {
            total_demand: prefill + decode,
            role_capacities: roles,
            ..AnalyzerResult::default()
        };
        Calibrated::new(result, Pair { scale_up_threshold: 1.0, scale_down_boundary: 0.5 })
    }

    /// Mutant: one role served whole before the other; a role without a need that holds back.
    #[test]
    fn prefill_and_decode_share_scarce_gpus_by_need() {
        for (prefill, decode, gpus, expected) in [
            (30_000.0, 30_000.0, 8, [3, 3]),
            (20_000.0, 40_000.0, 12, [3, 5]),
            (10_000.0, 30_000.0, 8, [2, 4]),
            (0.0, 30_000.0, 4, [1, 3]),
        ] {
            let mut variants = vec![variant("p", Role::Prefill), variant("d", Role::Decode)];
            let mut stock = Inventory::new(&BTreeMap::from([("A100".to_owned(), gpus)]), []);
            let needs = needs(prefill, decode);
            let share = Share { variants: &mut variants, needs: &needs, priority: 1.0 };
            allot(vec![share], &mut stock);
            let targets = [variants[0].target, variants[1].target];
            assert_eq!(targets, expected, "{prefill} and {decode} on {gpus} GPUs");
        }
    }
}
