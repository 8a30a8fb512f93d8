//! GPUs: what is free of each type, and the limit that V1's growth meets there.
//!
//! Decides how many whole replicas fit and who is served first; not who wants to grow. What exists is
//! given; what is used is what the planned variants hold now. Counts are GPUs and replicas.

use std::collections::BTreeMap;

use super::allotment::Allotment;

/// Free GPUs by type. `None` in place of an inventory means no limit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inventory {
    free: BTreeMap<String, u64>,
}

impl Inventory {
    /// What is left of `limits` when the current replicas of `variants` are taken away. A type that is
    /// used beyond its limit has none left.
    pub fn new<'a>(
        limits: &BTreeMap<String, u64>,
        variants: impl IntoIterator<Item = &'a Allotment>,
    ) -> Self {
        let mut inventory = Self { free: limits.clone() };
        for variant in variants {
            let used = u64::from(variant.current) * u64::from(variant.gpus_per_replica);
            if let Some(free) = inventory.pool(&variant.accelerator) {
                *free = free.saturating_sub(used);
            }
        }
        inventory
    }

    /// The pool of a type. A variant without a type takes the only one there is.
    fn pool(&mut self, accelerator: &str) -> Option<&mut u64> {
        if accelerator.is_empty() && self.free.len() == 1 {
            return self.free.values_mut().next();
        }
        self.free.get_mut(accelerator)
    }

    /// Takes GPUs for up to `replicas` whole replicas more; the answer is how many fit.
    pub fn take(&mut self, variant: &Allotment, replicas: u32) -> u32 {
        let each = u64::from(variant.gpus_per_replica.max(1));
        let Some(free) = self.pool(&variant.accelerator) else { return 0 };
        let fit = (*free / each).min(u64::from(replicas));
        *free -= fit * each;
        // Not more than `replicas`, so it fits.
        u32::try_from(fit).unwrap_or(replicas)
    }

    /// Whether nothing is left of any type.
    pub fn is_empty(&self) -> bool {
        self.free.values().all(|free| *free == 0)
    }
}

/// A variant that V1 wants to move, and how urgent that is.
#[derive(Debug)]
pub struct Claim<'a> {
    /// The variant; its target is cut to what fits.
    pub variant: &'a mut Allotment,
    /// Mean spare KV-cache use of the variant, a fraction: the smallest is served first.
    pub spare: f64,
}

/// What became of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Grant {
    /// GPUs granted.
    pub gpus: u64,
    /// Whether less fitted than was wanted.
    pub limited: bool,
}

/// Cuts every growth to the GPUs that are free: most saturated first, then cheapest, then by name.
/// Targets at or below current pass. The answers stand in the order of the claims.
pub fn limit(claims: &mut [Claim<'_>], inventory: &mut Inventory) -> Vec<Grant> {
    let mut order: Vec<usize> = (0..claims.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&claims[*a], &claims[*b]);
        a.spare.total_cmp(&b.spare).then_with(|| super::allotment::by_cost(a.variant, b.variant))
    });
    let mut grants = vec![Grant::default(); claims.len()];
    for i in order {
        let variant = &mut *claims[i].variant;
        let wanted = variant.target.saturating_sub(variant.current);
        if wanted == 0 {
            continue;
        }
        let fit = inventory.take(variant, wanted);
        variant.target = variant.current + fit;
        let gpus = u64::from(fit) * u64::from(variant.gpus_per_replica.max(1));
        grants[i] = Grant { gpus, limited: fit < wanted };
    }
    grants
}

/// The short name of a GPU from the product label of its node: `NVIDIA-A100-PCIE-80GB` is an `A100`,
/// `Intel-Gaudi-2-96GB` a `Gaudi-2`. What no known vendor begins stays as it is.
pub fn accelerator_name(label: &str) -> String {
    let mut parts = label.split('-');
    let vendor = parts.next().unwrap_or_default();
    let (Some(model), "NVIDIA" | "AMD" | "Intel") = (parts.next(), vendor) else {
        return label.to_owned();
    };
    match (vendor, parts.next()) {
        ("Intel", Some(generation)) => format!("{model}-{generation}"),
        _ => model.to_owned(),
    }
}
