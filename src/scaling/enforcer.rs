//! The enforcer: down to zero where nothing is left to do, one replica where there must be one, and
//! awake again when somebody waits.
//!
//! Decides zero, the floor of one and waking, for prefill and decode together; nothing in between.
//! Counts are requests and replicas.

use std::collections::BTreeSet;

use super::allotment::{Allotment, by_cost, ordered};
use super::guards::Measured;
use super::input::{DEFAULT_COST, ModelInput, Role, known};
use super::limiter::Inventory;
use super::plan::Step;

/// Why a model is not idle; `None` when it is: nothing runs, waits, is held or in flight, all of it
/// read freshly, and no request finished over the retention period.
pub fn busy(
    model: &ModelInput,
    variants: &[Allotment],
    measured: &[Measured],
    limit: f64,
) -> Option<String> {
    let said = |text: &str| Some(text.to_owned());
    match known(model.request_count) {
        None => return said("the number of finished requests is unknown"),
        Some(count) if count > 0.0 => {
            return Some(format!("{count} requests finished over the retention period"));
        }
        Some(_) => {}
    }
    match model.scheduler_queue {
        None => return said("the scheduler's queue is unknown"),
        Some(queue) if queue.size > 0 => return Some(format!("{} requests are held", queue.size)),
        Some(_) => {}
    }
    match model.in_flight {
        None => return said("the number of requests in flight is unknown"),
        Some(0) => {}
        Some(count) => return Some(format!("{count} requests are in flight")),
    }
    if variants.iter().any(|v| v.pending > 0) {
        return said("a replica is starting");
    }
    if measured.iter().any(Measured::is_blind) {
        return said("not every replica is read freshly");
    }
    model.replicas.iter().find_map(|replica| {
        let pod = &replica.pod;
        let kv = replica.kv_reading(limit).value();
        let waiting = replica.queue_reading(limit).value();
        // A request that runs holds KV blocks, so their use stands in where nothing else is told.
        match (replica.running_reading(limit), kv) {
            (Some(running), _) if running > 0.0 => Some(format!("{pod} runs {running} requests")),
            (None, Some(kv)) if kv > 0.0 => Some(format!("{pod} uses its KV cache")),
            (None, None) => Some(format!("what {pod} runs is unknown")),
            _ if waiting.is_some_and(|waiting| waiting > 0.0) => {
                Some(format!("requests wait at {pod}"))
            }
            _ => None,
        }
    })
}

/// What the enforcer is told of one model.
#[derive(Debug)]
pub struct Orders<'a> {
    /// Whether the model may go to zero.
    pub scale_to_zero: bool,
    /// Why it is not idle; see [`busy`].
    pub busy: Option<&'a str>,
    /// Whether a target may fall now.
    pub may_fall: bool,
    /// Zero was published already and may not have arrived.
    pub at_zero: bool,
    /// Requests that are held before any replica.
    pub held: u64,
}

/// Applies the orders to the targets of one model.
pub fn enforce(
    variants: &mut [Allotment],
    orders: &Orders<'_>,
    mut inventory: Option<&mut Inventory>,
) -> Vec<Step> {
    let mut steps = Vec::new();
    if variants.is_empty() {
        return steps;
    }
    let has_floor = variants.iter().any(|v| v.min > 0);
    if orders.scale_to_zero && !has_floor {
        let stays = match orders.busy {
            Some(busy) => Some(format!("not to zero: {busy}")),
            None if !orders.may_fall && !orders.at_zero => {
                Some("not to zero: the last change has not settled".to_owned())
            }
            None => None,
        };
        match stays {
            None => {
                variants.iter_mut().for_each(|v| v.target = 0);
                let text = "idle over the retention period: to zero".to_owned();
                return vec![Step::new("enforcer", text, [])];
            }
            Some(text) => steps.push(Step::new("enforcer", text, [])),
        }
    }
    let asleep = variants.iter().all(|v| v.current == 0);
    let wake = asleep && orders.held > 0;
    let reason = match (wake, orders.scale_to_zero) {
        (true, _) => format!("{} requests are held: waking", orders.held),
        (false, false) if !asleep => "the last replica stays".to_owned(),
        // A model that sleeps goes on sleeping, whoever sent it there.
        _ => return steps,
    };
    for role in needed_roles(variants) {
        steps.extend(one_of(variants, role, &reason, inventory.as_deref_mut()));
    }
    steps
}

/// The roles without which no request is served: both phases in one, where a variant does both and
/// that is no dearer than a pair.
fn needed_roles(variants: &[Allotment]) -> Vec<Role> {
    let roles: BTreeSet<Role> = variants.iter().map(|v| v.role).collect();
    let alive = |role: Role| variants.iter().any(|v| v.role == role && v.target > 0);
    let pair = roles.contains(&Role::Prefill) && roles.contains(&Role::Decode);
    if !roles.contains(&Role::Both) || (pair && (alive(Role::Prefill) || alive(Role::Decode))) {
        return roles.into_iter().filter(|role| *role != Role::Both).collect();
    }
    let cheapest = |role: Role| {
        variants.iter().filter(|v| v.role == role).map(price).reduce(f64::min).unwrap_or(0.0)
    };
    let dearer = cheapest(Role::Both) > cheapest(Role::Prefill) + cheapest(Role::Decode);
    if pair && dearer && !alive(Role::Both) {
        vec![Role::Decode, Role::Prefill]
    } else {
        vec![Role::Both]
    }
}

/// A cost that is missing or none costs what a variant costs by default.
fn price(variant: &Allotment) -> f64 {
    if variant.cost > 0.0 { variant.cost } else { DEFAULT_COST }
}

/// One replica of the cheapest variant of a role that has none.
fn one_of(
    variants: &mut [Allotment],
    role: Role,
    reason: &str,
    mut inventory: Option<&mut Inventory>,
) -> Option<Step> {
    if variants.iter().any(|v| v.role == role && v.target > 0) {
        return None;
    }
    let cheapest =
        |a: &Allotment, b: &Allotment| price(a).total_cmp(&price(b)).then_with(|| by_cost(a, b));
    for i in ordered(variants, |v| v.role == role, cheapest) {
        // A replica that is there already holds its GPUs.
        let fits = variants[i].current > 0
            || inventory.as_deref_mut().is_none_or(|free| free.take(&variants[i], 1) == 1);
        if fits {
            variants[i].target = 1;
            let text = format!("{reason} ({}: {})", role.as_str(), variants[i].name);
            return Some(Step::new("enforcer", text, []));
        }
    }
    let text = format!("{reason}, but no {} variant fits, bound by: gpu", role.as_str());
    Some(Step::new("enforcer", text, []))
}
