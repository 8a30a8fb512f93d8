//! One plan: analyzer, post-step, optimizer, limiter, clocks, guards, enforcer and bounds, in this
//! order, for all models at once.
//!
//! Decides the order alone; each part decides its own. Pure: the same input, rules, memory and time
//! give the same plan to the bit, whatever the order of the input's lists. Times are milliseconds.

mod falls;
mod report;

use std::collections::BTreeMap;

use super::allotment::Allotment;
use super::analyzer::{AnalyzerInput, SATURATION};
use super::enforcer::{self, Orders};
use super::greedy::{self, Share};
use super::guards::{self, Circumstances, Measured};
use super::input::{Input, ModelInput, Role};
use super::learned::Learned;
use super::limiter::{self, Claim, Inventory};
use super::plan::{Plan, Step};
use super::post_step::{Calibrated, Pair};
use super::rules::Rules;
use super::settle::{self, Clocks};
use super::spare::{self, SpareAnalysis, SpareLine};
use super::v1_targets::{self, Signal, Standing};
use super::{cost_aware, tokens};
use crate::scaling_entry::{ScalingEntry, Selection};

/// What the analyzer of a model found.
enum Verdict {
    /// V1, by role.
    Spare(BTreeMap<Role, SpareAnalysis>),
    /// V2.
    Tokens(Box<Calibrated>),
    /// V2 without any capacity to reckon with, so V1's arithmetic beside it.
    Fallback(Box<Calibrated>, BTreeMap<Role, SpareAnalysis>),
}

/// One model on its way through the plan.
struct Course<'a> {
    model: &'a ModelInput,
    entry: ScalingEntry,
    clocks: Clocks,
    verdict: Verdict,
    variants: Vec<Allotment>,
    measured: Vec<Measured>,
    /// Why each variant's target is what it is; beside `variants`.
    reasons: Vec<String>,
    steps: Vec<Step>,
}

impl Course<'_> {
    /// Runs one part and notes `why` beside every target that it changed.
    fn part(&mut self, why: &str, run: impl FnOnce(&mut Self)) {
        let before: Vec<u32> = self.variants.iter().map(|v| v.target).collect();
        run(self);
        for (i, before) in before.into_iter().enumerate() {
            if self.variants[i].target != before {
                self.reasons[i] = why.to_owned();
            }
        }
    }

    fn is_limited(&self) -> bool {
        self.entry.enable_limiter
    }

    fn spare(&self) -> Option<&BTreeMap<Role, SpareAnalysis>> {
        match &self.verdict {
            Verdict::Spare(spare) | Verdict::Fallback(_, spare) => Some(spare),
            Verdict::Tokens(_) => None,
        }
    }
}

/// Plans for every model of `input`. The second value is what the next plan needs to know; handing it
/// back in is the caller's.
pub fn plan(input: &Input, rules: &Rules, learned: &Learned, now_millis: u64) -> (Plan, Learned) {
    let input = input.clone().in_order();
    let mut learned = learned.clone();
    let freshness = input.freshness_seconds;
    let mut courses: Vec<Course<'_>> = input
        .models
        .iter()
        .map(|model| start(model, rules, &mut learned, freshness, now_millis))
        .collect();
    let limited = courses.iter().any(Course::is_limited);
    let mut inventory = match &input.gpus {
        Some(gpus) if limited => {
            Some(Inventory::new(gpus, courses.iter().flat_map(|course| &course.variants)))
        }
        _ => None,
    };
    optimize(&mut courses, &learned, inventory.as_mut(), rules, now_millis);
    let mut plan =
        Plan { generation: rules.generation, digest: rules.digest.clone(), ..Plan::default() };
    for mut course in courses {
        let stock = inventory.as_mut().filter(|_| course.is_limited());
        let moment = Moment { freshness, advisory: rules.advisory, now: now_millis };
        finish(&mut course, &mut learned, stock, moment);
        if !rules.advisory {
            let pending = |name: &str| {
                course.model.variants.iter().find(|v| v.name == name).map_or(0, |v| v.pending)
            };
            settle::publish(course.model, &course.variants, pending, &mut learned, now_millis);
        }
        plan.models.push(report::of(course));
    }
    (plan, learned)
}

/// Reads one model: clocks, analyzer and post-step.
fn start<'a>(
    model: &'a ModelInput,
    rules: &Rules,
    learned: &mut Learned,
    freshness: f64,
    now: u64,
) -> Course<'a> {
    let grace = rules.startup_grace_millis;
    let entry = rules.table.entry(&model.model_id, &model.namespace);
    let clocks = settle::read(model, learned, grace, now);
    let mut steps = Vec::new();
    let line = entry.thresholds;
    let verdict = match rules.table.selection {
        Selection::SpareCapacity => {
            let v1 = SpareLine::chosen(&line);
            for trigger in v1.endless() {
                let text =
                    format!("{trigger} is not below its threshold: it grows an idle pool too");
                steps.push(Step::new("analyzer", text, []));
            }
            Verdict::Spare(spare::analyze(model, &v1, freshness))
        }
        Selection::TokenCapacity => {
            let seen =
                AnalyzerInput { model, line: &line, freshness_seconds: freshness, now_millis: now };
            let result = tokens::analyze(&seen, learned);
            steps.extend(result.steps.iter().cloned());
            let unpriced = !result.has_capacity();
            let calibrated = Box::new(calibrate(&entry, result, &mut steps));
            if unpriced && model.variants.iter().any(|v| v.current > 0) {
                let text = "no capacity is known for any variant: the arithmetic of V1 stands in";
                steps.push(Step::new("analyzer", text.to_owned(), []));
                Verdict::Fallback(
                    calibrated,
                    spare::analyze(model, &SpareLine::fallback(&line), freshness),
                )
            } else {
                Verdict::Tokens(calibrated)
            }
        }
    };
    let variants: Vec<Allotment> = model
        .variants
        .iter()
        .map(|variant| Allotment {
            name: variant.name.clone(),
            role: variant.role,
            cost: variant.cost,
            accelerator: variant.accelerator.clone(),
            gpus_per_replica: variant.gpus_per_replica,
            per_replica: per_replica(&verdict, &variant.name),
            current: variant.current,
            pending: settle::awaited(model, &variant.name, variant.pending, learned, grace, now),
            min: variant.min_replicas,
            max: variant.max_replicas,
            target: variant.current,
        })
        .collect();
    let measured = model
        .variants
        .iter()
        .map(|variant| {
            let own = model.replicas.iter().filter(|replica| replica.variant == variant.name);
            Measured::of(own, variant.ready(), &line, freshness)
        })
        .collect();
    let reasons = vec!["nothing asks for a change".to_owned(); variants.len()];
    Course { model, entry, clocks, verdict, variants, measured, reasons, steps }
}

/// The post-step with the pair that the saturation analyzer has for this model.
fn calibrate(
    entry: &ScalingEntry,
    result: super::analyzer::AnalyzerResult,
    steps: &mut Vec<Step>,
) -> Calibrated {
    let calibrated = Calibrated::new(result, pair(entry, SATURATION, steps));
    let need = calibrated.need();
    let text = match (need.required() > 0.0, need.spare() > 0.0) {
        (true, _) => format!("{:.0} tokens are missing", need.required()),
        (false, true) => format!("{:.0} tokens could go", need.spare()),
        (false, false) => "between the bounds".to_owned(),
    };
    let numbers = [
        ("requiredCapacity", need.required()),
        ("spareCapacity", need.spare()),
        ("scaleUpThreshold", calibrated.pair().scale_up_threshold),
        ("scaleDownBoundary", calibrated.pair().scale_down_boundary),
    ];
    steps.push(Step::new("post-step", text, numbers));
    calibrated
}

/// The bounds of one analyzer: its own, else the model's.
fn pair(entry: &ScalingEntry, analyzer: &str, steps: &mut Vec<Step>) -> Pair {
    let line = entry.thresholds.numbers();
    let model = Pair {
        scale_up_threshold: line.scale_up_threshold,
        scale_down_boundary: line.scale_down_boundary,
    };
    let own = entry.analyzers.iter().find(|own| own.name == analyzer);
    let (up, down) =
        own.map_or((None, None), |own| (own.scale_up_threshold, own.scale_down_boundary));
    let (pair, warning) = model.for_analyzer(analyzer, up, down);
    steps.extend(warning.map(|text| Step::new("post-step", text, [])));
    pair
}

fn per_replica(verdict: &Verdict, variant: &str) -> f64 {
    match verdict {
        Verdict::Spare(_) => 0.0,
        Verdict::Tokens(calibrated) | Verdict::Fallback(calibrated, _) => {
            let variants = &calibrated.result().variant_capacities;
            variants.iter().find(|v| v.name == variant).map_or(0.0, |v| v.per_replica_capacity)
        }
    }
}

/// Targets of all models: each on its own, or sharing what GPUs there are.
fn optimize(
    courses: &mut [Course<'_>],
    learned: &Learned,
    inventory: Option<&mut Inventory>,
    rules: &Rules,
    now: u64,
) {
    for course in courses.iter_mut() {
        if course.is_limited() && inventory.is_none() {
            let text = "enableLimiter is set, but the GPUs are unknown: not limited".to_owned();
            course.steps.push(Step::new("limiter", text, []));
        }
        if course.spare().is_some() {
            move_one(course, learned, rules.startup_grace_millis, now);
        } else if let Verdict::Tokens(needs) = &course.verdict
            && !(course.is_limited() && inventory.is_some())
        {
            let needs = needs.clone();
            let why = why_tokens("cost-aware", &needs);
            course.part(&why, |c| cost_aware::allot(&mut c.variants, &needs));
            note_optimizer(course, "cost-aware");
        }
    }
    let Some(inventory) = inventory else { return };
    share(courses, inventory);
    limit(courses, inventory);
}

fn why_tokens(optimizer: &str, needs: &Calibrated) -> String {
    let need = needs.need();
    if need.spare() > 0.0
        && need.required() <= 0.0
        && needs.roles().values().all(|n| n.required() <= 0.0)
    {
        format!("{optimizer}: {:.0} tokens could go", need.spare())
    } else {
        format!("{optimizer}: {:.0} tokens are missing", need.required())
    }
}

/// One step that sums up what an optimizer did to a model.
fn note_optimizer(course: &mut Course<'_>, name: &str) {
    let moves: Vec<String> = course
        .variants
        .iter()
        .filter(|v| v.target != v.current)
        .map(|v| format!("{} {} -> {}", v.name, v.current, v.target))
        .collect();
    let text = if moves.is_empty() { "no move".to_owned() } else { moves.join(", ") };
    course.steps.push(Step::new("optimizer", format!("{name}: {text}"), []));
}

/// V1: one replica of one variant in every scope.
fn move_one(course: &mut Course<'_>, learned: &Learned, grace: u64, now: u64) {
    let Some(spare) = course.spare().cloned() else { return };
    if !course.clocks.v1_may_move {
        let model = course.model;
        course.part("settle: moved less than 30 s ago", |c| {
            for variant in &mut c.variants {
                if let Some(target) = settle::published(model, &variant.name, learned) {
                    variant.target = target;
                }
            }
        });
        let text = "V1 moved this model less than 30 s ago, bound by: settle".to_owned();
        course.steps.push(Step::new("optimizer", text, []));
        return;
    }
    let model = course.model;
    let standings: Vec<Standing> = model
        .variants
        .iter()
        .map(|variant| Standing {
            has_rows: model.replicas.iter().any(|replica| replica.variant == variant.name),
            underway: (variant.desired != 0 && variant.desired != variant.current)
                .then_some(variant.desired)
                .filter(|_| settle::on_its_way(model, &variant.name, learned, grace, now)),
        })
        .collect();
    for (role, analysis) in &spare {
        let members: Vec<usize> =
            (0..course.variants.len()).filter(|i| course.variants[*i].role == *role).collect();
        if !members.iter().any(|i| standings[*i].has_rows) {
            continue;
        }
        let (signal, why) = match (analysis.scale_up, analysis.scale_down_safe) {
            (true, _) => (Signal::Up, format!("V1: {}", analysis.reason)),
            (false, true) => (Signal::Down, "V1: the others carry the load of one".to_owned()),
            (false, false) => (Signal::Hold, "V1: a published target is being reached".to_owned()),
        };
        course.part(&why, |c| v1_targets::allot(&mut c.variants, &standings, &members, signal));
    }
    note_optimizer(course, "V1");
}

/// Limited models under V2 share the GPUs.
fn share(courses: &mut [Course<'_>], inventory: &mut Inventory) {
    let mut sharing: Vec<&mut Course<'_>> = courses
        .iter_mut()
        .filter(|course| course.is_limited() && matches!(course.verdict, Verdict::Tokens(_)))
        .collect();
    let needs: Vec<Box<Calibrated>> = sharing
        .iter()
        .filter_map(|course| match &course.verdict {
            Verdict::Tokens(needs) => Some(needs.clone()),
            _ => None,
        })
        .collect();
    let shares = sharing
        .iter_mut()
        .zip(&needs)
        .map(|(course, needs)| Share {
            priority: course.entry.priority,
            variants: &mut course.variants,
            needs,
        })
        .collect();
    greedy::allot(shares, inventory);
    for (course, needs) in sharing.into_iter().zip(&needs) {
        let why = why_tokens("greedy-fair-share", needs);
        for (variant, reason) in course.variants.iter().zip(&mut course.reasons) {
            if variant.target != variant.current {
                reason.clone_from(&why);
            }
        }
        note_optimizer(course, "greedy-fair-share");
    }
}

/// Limited models under V1 are cut to the GPUs.
fn limit(courses: &mut [Course<'_>], inventory: &mut Inventory) {
    let mut owners = Vec::new();
    let mut claims = Vec::new();
    for (at, course) in courses.iter_mut().enumerate() {
        let (Verdict::Spare(spare) | Verdict::Fallback(_, spare), true) =
            (&course.verdict, course.entry.enable_limiter)
        else {
            continue;
        };
        for (i, variant) in course.variants.iter_mut().enumerate() {
            let analysis = spare.values().flat_map(|scope| &scope.variants);
            let own = analysis.into_iter().find(|seen| seen.name == variant.name);
            owners.push((at, i));
            claims.push(Claim { variant, spare: own.map_or(0.0, |seen| seen.avg_spare_kv) });
        }
    }
    let grants = limiter::limit(&mut claims, inventory);
    for ((at, i), grant) in owners.into_iter().zip(grants) {
        let course = &mut courses[at];
        let variant = &course.variants[i];
        if grant.limited {
            let text = format!(
                "{}: {} GPUs for +{} replicas, bound by: gpu",
                variant.name,
                grant.gpus,
                variant.target.saturating_sub(variant.current)
            );
            course.steps.push(Step::new("limiter", text, [("gpus", grant.gpus as f64)]));
            course.reasons[i] = "limiter: no GPUs left for more".to_owned();
        }
    }
}

/// What holds for a whole plan.
#[derive(Clone, Copy)]
struct Moment {
    /// Age in seconds at which a reading counts as none.
    freshness: f64,
    /// Nobody acts on it.
    advisory: bool,
    /// Milliseconds.
    now: u64,
}

/// Clocks, guards, enforcer and bounds of one model.
fn finish(
    course: &mut Course<'_>,
    learned: &mut Learned,
    mut inventory: Option<&mut Inventory>,
    Moment { freshness, advisory, now }: Moment,
) {
    course.part("settle: a lower target is being reached", |c| falls::keep(c, learned));
    if matches!(course.verdict, Verdict::Tokens(_)) {
        course.part("settle: the fall still grows", |c| falls::ripen(c, learned, now));
    }
    if !course.clocks.may_fall {
        course.part("settle: the last change has not settled", |c| falls::hold(c, learned));
    }
    let settling = course.spare().is_some() && !course.clocks.v1_may_move;
    let line = course.entry.thresholds;
    course.part("guard: see the steps", |c| {
        let circumstances =
            Circumstances { inventory: inventory.as_deref_mut(), settling, advisory };
        c.steps.extend(guards::apply(&mut c.variants, &c.measured, &line, circumstances));
    });
    let held = course.model.scheduler_queue.map_or(0, |queue| queue.size);
    let may_fall = course.clocks.may_fall;
    let at_zero = !course.model.variants.is_empty()
        && course
            .model
            .variants
            .iter()
            .all(|v| settle::published(course.model, &v.name, learned) == Some(0));
    let scale_to_zero = course.entry.scale_to_zero.enabled;
    let before: u32 = course.variants.iter().fold(0, |sum, v| sum.saturating_add(v.target));
    course.part("enforcer: see the steps", |c| {
        let busy = enforcer::busy(c.model, &c.variants, &c.measured, freshness);
        let orders = Orders { scale_to_zero, busy: busy.as_deref(), may_fall, at_zero, held };
        c.steps.extend(enforcer::enforce(&mut c.variants, &orders, inventory));
    });
    let zeroed = before > 0 && course.variants.iter().all(|v| v.target == 0);
    let wanted: Vec<u32> = course.variants.iter().map(|v| v.target).collect();
    course.part("bounds: minReplicas or maxReplicas", clamp);
    if !zeroed {
        guards::explain_clamp(&course.variants, &wanted, &course.measured, &mut course.steps);
    }
}

fn clamp(course: &mut Course<'_>) {
    for variant in &mut course.variants {
        let wanted = variant.target;
        let top = if variant.max == 0 { u32::MAX } else { variant.max };
        variant.target = wanted.max(variant.min).min(top);
        if variant.target != wanted {
            let (name, to) = (&variant.name, variant.target);
            let bound = if to < wanted { "max" } else { "min" };
            let text = format!("{name}: {wanted} becomes {to}, bound by: {bound}");
            course.steps.push(Step::new("bounds", text, [("wanted", f64::from(wanted))]));
        }
    }
}

#[cfg(test)]
mod tests;
