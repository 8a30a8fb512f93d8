//! A plan as text: for each model a line of numbers, a table of variants, and the steps.
//!
//! Decides columns and rounding; leaves out nothing that was decided.

use std::fmt::Write as _;

use crate::scaling::plan::{Action, AnalyzerVersion, ModelPlan, Plan, VariantPlan};

/// The whole plan.
pub(super) fn of(plan: &Plan) -> String {
    let mut text = String::new();
    for model in &plan.models {
        text += &of_model(model);
    }
    if plan.models.is_empty() {
        text += "no models: nothing to plan\n";
    }
    text
}

fn of_model(model: &ModelPlan) -> String {
    let mut text = String::new();
    let version = match model.analyzer {
        AnalyzerVersion::V1 => "V1, spare capacity",
        AnalyzerVersion::V2 => "V2, tokens",
    };
    // Writing to a string cannot fail.
    let _ = writeln!(text, "model {} in {} ({version})", model.model_id, model.namespace);
    let _ = writeln!(text, "  {}", numbers(model));
    for (role, scope) in &model.roles {
        let _ = writeln!(
            text,
            "  {}: demand {:.0} of supply {:.0}, missing {:.0}, could go {:.0}",
            role.as_str(),
            scope.total_demand,
            scope.total_supply,
            scope.required_capacity,
            scope.spare_capacity
        );
    }
    text += &table(&model.variants);
    for step in &model.steps {
        let _ = writeln!(text, "  {:<10} {}", step.stage, step.text);
    }
    for other in &model.others {
        let _ = writeln!(
            text,
            "  {:<10} demand {:.1} of supply {:.1} (its own unit; shown, not deciding)",
            other.name, other.total_demand, other.total_supply
        );
    }
    text
}

fn numbers(model: &ModelPlan) -> String {
    let mut parts = Vec::new();
    if let (Some(demand), Some(supply)) = (model.total_demand, model.total_supply) {
        parts.push(format!("demand {demand:.0} of supply {supply:.0} tokens"));
    }
    if let Some(anticipated) = model.total_anticipated_supply
        && Some(anticipated) != model.total_supply
    {
        parts.push(format!("{anticipated:.0} with what is starting"));
    }
    if let Some(utilization) = model.utilization {
        parts.push(format!("utilization {:.1} %", utilization * 100.0));
    }
    if let (Some(required), Some(spare)) = (model.required_capacity, model.spare_capacity) {
        parts.push(format!("missing {required:.0}, could go {spare:.0}"));
    }
    if let Some(below) = model.non_saturated {
        let (kv, queue) = (model.avg_spare_kv, model.avg_spare_queue);
        parts.push(format!(
            "{below} replicas below the line, mean spare KV {:.3} and queue {:.1}",
            kv.unwrap_or(0.0),
            queue.unwrap_or(0.0)
        ));
    }
    parts.join(", ")
}

fn table(variants: &[VariantPlan]) -> String {
    let width = variants.iter().map(|v| v.name.chars().count()).max().unwrap_or(0).max(7);
    let mut text = format!("  {:<width$}  role     current  pending  target  why\n", "variant");
    for variant in variants {
        let arrow = match variant.action {
            Action::ScaleUp => "+",
            Action::ScaleDown => "-",
            Action::NoChange => "=",
        };
        let _ = writeln!(
            text,
            "  {:<width$}  {:<7}  {:>7}  {:>7}  {:>5}{arrow}  {}",
            variant.name,
            variant.role.as_str(),
            variant.current,
            variant.pending,
            variant.target,
            variant.reason
        );
    }
    text
}
