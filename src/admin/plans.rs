//! The pages of the scaling loop: the newest plan, the last ones, and what the newest was made from.
//!
//! Decides field names around a plan; those of the plan itself are `scaling::plan`'s. A snapshot is
//! read by `plumbline plan --input`.

use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{Page, json as page, text};
use crate::autoscaler::{History, Published, Standing};
use crate::config::variants_file::VariantsState;
use crate::telemetry::scaling::{ScalingMetrics, Telling};

/// What the pages read.
#[derive(Clone)]
pub struct Plans {
    /// The last plans.
    pub history: History,
    /// The newest, and what it is worth.
    pub published: watch::Receiver<Published>,
    /// The variants, and what became of their file.
    pub variants: watch::Receiver<VariantsState>,
}

impl Plans {
    /// Sets the gauges to the newest plan.
    pub(super) fn mirror(&self, metrics: &ScalingMetrics) {
        let published = self.published.borrow();
        let targets = published.standing == Standing::Holder;
        let capacities = targets || published.standing == Standing::Advisory;
        metrics.mirror(&published.plan, Telling { targets, capacities });
    }
}

fn off() -> Page {
    text(StatusCode::NOT_FOUND, "--scaler is off: nothing plans\n")
}

fn value(of: &impl Serialize) -> Page {
    match serde_json::to_value(of) {
        Ok(value) => page(&value),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// `/debug/plan`.
pub(super) fn newest(plans: Option<&Plans>) -> Page {
    let Some(plans) = plans else { return off() };
    if let Some(why) = plans.history.why_none() {
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("no plan can be made: {why}\n"));
    }
    let Some(made) = plans.history.newest() else {
        return text(StatusCode::SERVICE_UNAVAILABLE, "no plan was made yet\n");
    };
    let mut plan = match serde_json::to_value(&*made) {
        Ok(plan) => plan,
        Err(error) => return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    };
    let standing = plans.published.borrow().standing.clone();
    let (name, holder) = match standing {
        Standing::Starting => ("starting", None),
        Standing::Advisory => ("advisory", None),
        Standing::Holder => ("holder", None),
        Standing::Standby { holder } => ("standby", holder),
    };
    plan["standing"] = name.into();
    plan["holder"] = holder.map_or(Value::Null, Value::from);
    plan["unmatchedEndpoints"] = plans.history.strangers().into();
    let variants = plans.variants.borrow();
    plan["variantsFile"] = json!({
        "loads_ok": variants.ok,
        "loads_failed": variants.failed,
        "last_error": variants.last_error,
    });
    page(&plan)
}

/// `/debug/plan/history`: oldest first.
pub(super) fn history(plans: Option<&Plans>) -> Page {
    let Some(plans) = plans else { return off() };
    let made = plans.history.plans();
    let made: Vec<&crate::autoscaler::history::Made> = made.iter().map(AsRef::as_ref).collect();
    value(&made)
}

/// `/debug/snapshot`.
pub(super) fn snapshot(plans: Option<&Plans>) -> Page {
    let Some(plans) = plans else { return off() };
    match plans.history.snapshot() {
        Some(snapshot) => value(&*snapshot),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "no plan was made yet\n"),
    }
}
