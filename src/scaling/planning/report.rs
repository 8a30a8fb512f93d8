//! From a finished course to the plan that people and programs read.
//!
//! Decides which numbers of which analyzer a plan shows.

use super::super::analyzer::AnalyzerResult;
use super::super::plan::{Action, AnalyzerVersion, ModelPlan, OtherPlan, RolePlan, VariantPlan};
use super::super::post_step::Calibrated;
use super::{Course, Verdict, pair};

/// The plan of one model.
pub(super) fn of(mut course: Course<'_>) -> ModelPlan {
    let others = others(&mut course);
    let mut plan = ModelPlan {
        model_id: course.model.model_id.clone(),
        namespace: course.model.namespace.clone(),
        others,
        ..ModelPlan::default()
    };
    match &course.verdict {
        Verdict::Spare(_) => plan.analyzer = AnalyzerVersion::V1,
        Verdict::Tokens(calibrated) | Verdict::Fallback(calibrated, _) => {
            plan.analyzer = AnalyzerVersion::V2;
            tokens(&mut plan, calibrated);
        }
    }
    if let Some(spare) = course.spare() {
        let count = |of: fn(&super::SpareAnalysis) -> u32| spare.values().map(of).sum::<u32>();
        let below = count(|scope| scope.non_saturated);
        let weighted = |of: fn(&super::SpareAnalysis) -> f64| {
            let sum: f64 =
                spare.values().map(|scope| of(scope) * f64::from(scope.non_saturated)).sum();
            // One scope keeps its own mean to the bit.
            match spare.len() {
                1 => spare.values().map(of).sum(),
                _ if below == 0 => 0.0,
                _ => sum / f64::from(below),
            }
        };
        plan.non_saturated = Some(below);
        plan.avg_spare_kv = Some(weighted(|scope| scope.avg_spare_kv));
        plan.avg_spare_queue = Some(weighted(|scope| scope.avg_spare_queue));
        plan.scale_up = Some(spare.values().any(|scope| scope.scale_up));
        plan.scale_down_safe = Some(spare.values().any(|scope| scope.scale_down_safe));
    }
    plan.variants = variants(&course);
    plan.steps = course.steps;
    plan
}

fn tokens(plan: &mut ModelPlan, calibrated: &Calibrated) {
    let result = calibrated.result();
    plan.total_supply = Some(result.total_supply);
    plan.total_anticipated_supply = Some(result.total_anticipated_supply);
    plan.total_demand = Some(result.total_demand);
    plan.utilization = Some(result.utilization);
    plan.required_capacity = Some(calibrated.need().required());
    plan.spare_capacity = Some(calibrated.need().spare());
    plan.roles = roles(calibrated);
}

fn roles(
    calibrated: &Calibrated,
) -> std::collections::BTreeMap<super::super::input::Role, RolePlan> {
    let scopes = calibrated.result().role_capacities.iter();
    scopes
        .map(|(role, scope)| {
            let need = calibrated.roles().get(role).copied().unwrap_or_default();
            let plan = RolePlan {
                total_supply: scope.total_supply,
                total_anticipated_supply: scope.total_anticipated_supply,
                total_demand: scope.total_demand,
                required_capacity: need.required(),
                spare_capacity: need.spare(),
            };
            (*role, plan)
        })
        .collect()
}

/// Further analyzers go through the same post-step; they are shown, not followed.
fn others(course: &mut Course<'_>) -> Vec<OtherPlan> {
    let results: Vec<AnalyzerResult> = course.model.others.clone();
    results
        .into_iter()
        .map(|result| {
            let bounds = pair(&course.entry, &result.name, &mut course.steps);
            let calibrated = Calibrated::new(result, bounds);
            let result = calibrated.result();
            OtherPlan {
                name: result.name.clone(),
                total_supply: result.total_supply,
                total_anticipated_supply: result.total_anticipated_supply,
                total_demand: result.total_demand,
                utilization: result.utilization,
                required_capacity: calibrated.need().required(),
                spare_capacity: calibrated.need().spare(),
                roles: roles(&calibrated),
            }
        })
        .collect()
}

fn variants(course: &Course<'_>) -> Vec<VariantPlan> {
    let result = match &course.verdict {
        Verdict::Spare(_) => None,
        Verdict::Tokens(calibrated) | Verdict::Fallback(calibrated, _) => Some(calibrated.result()),
    };
    let rows = course.model.variants.iter().zip(&course.variants).zip(&course.reasons);
    rows.map(|((variant, allotment), reason)| {
        let seen = result
            .and_then(|result| result.variant_capacities.iter().find(|v| v.name == variant.name));
        VariantPlan {
            name: variant.name.clone(),
            role: variant.role,
            cost: variant.cost,
            accelerator: variant.accelerator.clone(),
            per_replica_capacity: seen.map(|v| v.per_replica_capacity),
            total_capacity: seen.map(|v| v.total_capacity),
            total_demand: seen.map(|v| v.total_demand),
            utilization: seen.map(|v| v.utilization),
            current: variant.current,
            pending: variant.pending,
            target: allotment.target,
            action: Action::between(variant.current, allotment.target),
            reason: reason.clone(),
        }
    })
    .collect()
}
