//! The cost-aware optimizer: the cheapest capacity grows first, the dearest replica goes first.
//!
//! Decides targets of one model from its needs, without a limit on GPUs. Scopes are the roles where
//! the analyzer tells them apart, else the model. Capacities are tokens.

use super::allotment::{
    Allotment, by_cost_per_capacity, by_release, ordered, replicas_for, replicas_within,
};
use super::input::Role;
use super::post_step::{Calibrated, Need};

/// Moves the targets of one model's variants from where they are.
///
/// A need anywhere comes first: while a role needs more, no role gives back. A variant whose role has
/// no need of its own in a model that has roles stays as it is.
pub fn allot(variants: &mut [Allotment], needs: &Calibrated) {
    let scopes: Vec<_> = scopes(needs);
    if scopes.iter().any(|(_, need)| need.required() > 0.0) {
        for (role, need) in scopes {
            grow(variants, role, need.required());
        }
    } else if needs.need().spare() > 0.0 {
        for (role, need) in scopes {
            shrink(variants, role, need.spare());
        }
    }
}

/// The roles with a need, or the model as one scope.
pub(super) fn scopes(needs: &Calibrated) -> Vec<(Option<Role>, Need)> {
    let roles: Vec<_> = needs.roles().iter().map(|(role, need)| (Some(*role), *need)).collect();
    if roles.is_empty() { vec![(None, needs.need())] } else { roles }
}

/// Whether a variant belongs to a scope.
pub(super) fn within(variant: &Allotment, role: Option<Role>) -> bool {
    role.is_none_or(|role| variant.role == role)
}

fn grow(variants: &mut [Allotment], role: Option<Role>, mut required: f64) {
    let priced = |v: &Allotment| within(v, role) && v.per_replica > 0.0;
    for i in ordered(variants, priced, by_cost_per_capacity) {
        if required <= 0.0 {
            break;
        }
        let variant = &mut variants[i];
        let added = replicas_for(required, variant.per_replica).min(variant.headroom());
        variant.target += added;
        required -= f64::from(added) * variant.per_replica;
    }
}

/// Gives spare capacity back, by whole replicas; the last replica of the scope stays.
pub(super) fn shrink(variants: &mut [Allotment], role: Option<Role>, mut spare: f64) {
    for i in ordered(variants, |v| within(v, role), by_release) {
        let others: u32 = variants
            .iter()
            .enumerate()
            .filter(|(j, v)| *j != i && within(v, role))
            .fold(0, |sum, (_, v)| sum.saturating_add(v.target));
        let variant = &mut variants[i];
        if variant.per_replica <= 0.0 {
            continue;
        }
        let keep = variant.min.max(u32::from(others == 0));
        let removed =
            replicas_within(spare, variant.per_replica).min(variant.target.saturating_sub(keep));
        variant.target -= removed;
        spare -= f64::from(removed) * variant.per_replica;
    }
}
