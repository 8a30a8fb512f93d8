//! The loop: look at the pool every scrape, plan when it is time, publish on a watch channel.
//!
//! Decides nothing about replicas; it gathers, asks `scaling::plan` and hands on. One task, so that no
//! two plans overlap. Times are milliseconds since the loop began.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::beside::{Beside, Job, Runners};
use super::cadence::Cadence;
use super::gather::{Seen, Whole, gather};
use super::history::{History, Made, Snapshot};
use super::inert::Inert;
use super::observer::Observer;
use super::published::{Published, Standing};
use crate::config::variants::Variants;
use crate::config::variants_file::VariantsState;
use crate::endpoint::Load;
use crate::flow_control::FlowControl;
use crate::lifecycle::Lifecycle;
use crate::peers::{self, Heard};
use crate::policy::PolicyReader;
use crate::pool::{Member, Pool};
use crate::saturation;
use crate::scaling::input::{Input, SchedulerQueue};
use crate::scaling::learned::Learned;
use crate::scaling::plan::Plan;
use crate::scaling::registry::Registry;
use crate::scaling::rules::Rules;
use crate::store::{Store, VitalsView};
use crate::telemetry;
use crate::telemetry::metrics::Metrics;

/// Counters change slowly beside load: they are read once in this time.
const VITALS_MILLIS: u64 = 1_000;

/// What makes a plan that nothing hurries.
const INTERVAL: &str = "interval";

/// How the loop runs.
#[derive(Debug, Clone)]
pub struct Pace {
    /// Time between two plans that nothing hurries.
    pub interval: Duration,
    /// Time between two looks at the load: a scrape interval.
    pub look: Duration,
    /// How long a replica may take to start.
    pub startup_grace: Duration,
    /// How long a saturated pool may stand still before it is an alarm.
    pub inert_after: Duration,
}

/// What the loop reads.
pub struct Sources {
    /// Membership, load and vitals.
    pub store: Store,
    /// The line and everything else that can change.
    pub policy: PolicyReader,
    /// What waits for an endpoint; `None` where nothing may.
    pub flow: Option<FlowControl>,
    /// What other pickers of the model hold; empty where there are none.
    pub peers: watch::Receiver<Heard>,
    /// Which endpoints are replicas of what.
    pub variants: watch::Receiver<VariantsState>,
    /// Tells of each change of membership.
    pub membership: watch::Receiver<()>,
    /// Who may act on the plans.
    pub standing: watch::Receiver<Standing>,
    /// Tells when the pool is known: discovered, and each endpoint read or found unreachable.
    pub lifecycle: Lifecycle,
    /// Where plans are counted.
    pub metrics: Arc<Metrics>,
}

/// Whose replicas are planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The model, unless the variants name it.
    pub model_id: Option<String>,
    /// Its namespace, unless the variants name it.
    pub namespace: String,
}

/// The loop; [`Autoscaler::run`] it once.
pub struct Autoscaler {
    sources: Sources,
    subject: Subject,
    pace: Pace,
    registry: Registry,
    published: watch::Sender<Published>,
    history: History,
}

/// The loop between two plans.
struct State {
    cadence: Cadence,
    observer: Observer,
    learned: Learned,
    beside: Beside,
    runners: Runners,
    trigger: &'static str,
    held: usize,
    saturated: bool,
    inert: Inert,
    looked_at_vitals: Option<u64>,
    /// Model and namespace, while they are clear.
    whose: Option<(String, String)>,
    loads: Vec<Load>,
    zero: Instant,
}

impl Autoscaler {
    /// A loop that publishes on the second value.
    pub fn new(
        sources: Sources,
        subject: Subject,
        pace: Pace,
        registry: Registry,
        history: History,
    ) -> (Self, watch::Receiver<Published>) {
        let (published, reader) = watch::channel(Published::default());
        (Self { sources, subject, pace, registry, published, history }, reader)
    }

    /// Plans until `stop` turns true. Begins when the pool is known: before that, a plan would take a
    /// pool that nobody has found yet for an empty one.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut status = self.sources.lifecycle.watch();
        tokio::select! {
            _ = status.wait_for(|status| status.is_ready() || status.is_draining()) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let mut state = State {
            cadence: Cadence::new(millis(self.pace.interval).max(1)),
            observer: Observer::default(),
            learned: Learned::default(),
            beside: Beside::default(),
            runners: Runners::new(&mut self.registry),
            trigger: "start",
            held: 0,
            saturated: false,
            inert: Inert::new(millis(self.pace.inert_after)),
            looked_at_vitals: None,
            whose: None,
            loads: Vec::new(),
            zero: Instant::now(),
        };
        let mut policy = self.sources.policy.subscribe();
        let mut looks = tokio::time::interval(self.pace.look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopping = stop.clone();
        loop {
            let trigger = tokio::select! {
                _ = looks.tick() => None,
                Ok(()) = policy.changed() => Some("policy"),
                Ok(()) = self.sources.membership.changed() => Some("membership"),
                Ok(()) = self.sources.variants.changed() => Some("variants"),
                Ok(()) = self.sources.standing.changed() => Some("standing"),
                _ = stopping.wait_for(|stop| *stop) => return,
            };
            if let Some(trigger) = trigger {
                state.hurry(trigger);
            }
            let pool = self.look(&mut state);
            let now = state.now();
            let Some(whose) = state.whose.clone() else { continue };
            if !state.cadence.take(now) {
                continue;
            }
            let jobs = self.plan(&mut state, &pool, &whose, now);
            // After the plan is out: whatever they find is beside the next one.
            tokio::select! {
                beside = state.runners.turn(jobs, &mut state.learned) => state.beside = beside,
                _ = stop.wait_for(|stop| *stop) => return,
            }
        }
    }

    /// Notes what the pool shows now, and whether it is a reason to plan; returns the members of whom
    /// `state.loads` tells.
    fn look(&self, state: &mut State) -> Arc<Pool> {
        let now = Instant::now();
        let pool = Arc::clone(&self.sources.store.pool());
        self.sources.store.read_loads(&pool, now.into_std(), &mut state.loads);
        let millis = state.now();
        for (member, load) in pool.members.iter().zip(&state.loads) {
            state.observer.load(&member.endpoint.id, load, millis);
        }
        let due = state.looked_at_vitals.is_none_or(|last| millis >= last + VITALS_MILLIS);
        if due {
            state.looked_at_vitals = Some(millis);
            let mut reported = BTreeSet::new();
            for member in &pool.members {
                match self.sources.store.vitals(member.slot, now.into_std()) {
                    Some(vitals) => {
                        state.observer.vitals(&member.endpoint.id, &vitals, millis);
                        reported.extend(vitals.model());
                    }
                    None => state.observer.unread(millis),
                }
            }
            self.identify(state, &reported);
            let stays = |id: &_| find(&pool, id).is_some();
            let retention = state.whose.as_ref().map_or(0, |whose| self.retention(whose));
            state.observer.round(stays, retention, millis);
        }
        let policy = self.sources.policy.load();
        // An empty pool is none that serves at the line; who is held there is seen below.
        let saturation = if pool.members.is_empty() {
            0.0
        } else {
            saturation::pool_saturation(&state.loads, &policy.thresholds)
        };
        state.saturated = saturation >= 1.0;
        if state.cadence.saturation(saturation, millis) {
            state.hurry("saturation");
        }
        let held = self.sources.flow.as_ref().map_or(0, |flow| flow.held().requests);
        if state.held == 0 && held > 0 {
            state.hurry("held");
            state.cadence.hurry_at_once();
        }
        state.held = held;
        pool
    }

    /// Whose replicas these are: what flags or variants say, else the one model that the servers report.
    /// A model that was clear once stays while nobody reports another.
    fn identify(&self, state: &mut State, reported: &BTreeSet<Arc<String>>) {
        let variants = Arc::clone(&self.sources.variants.borrow().variants);
        let (named, namespace) = self.subject.named(&variants);
        let known = state.whose.as_ref().map(|(model, _)| model.clone());
        let mut reports = reported.iter();
        let (model, fault) = match (named, reports.next(), reports.next()) {
            (Some(named), _, _) => (Some(named), None),
            (None, None, _) => (Some(known.unwrap_or_else(|| "default".to_owned())), None),
            (None, Some(one), None) => (Some(one.to_string()), None),
            (None, Some(_), Some(_)) => {
                let all: Vec<&str> = reported.iter().map(|model| model.as_str()).collect();
                let fault = format!(
                    "the servers report several models ({}): say --model-id, or modelID in the variants",
                    all.join(", ")
                );
                (None, Some(fault))
            }
        };
        if let Some(error) = self.history.fault(fault) {
            tracing::error!(%error, "no plan can be made");
        }
        state.whose = model.map(|model| (model, namespace));
    }

    /// One plan; returns what the further analyzers are to look at.
    fn plan(&self, state: &mut State, pool: &Pool, whose: &(String, String), now: u64) -> Vec<Job> {
        let began = Instant::now();
        let policy = Arc::clone(&self.sources.policy.load());
        let standing = self.sources.standing.borrow().clone();
        let rules = Rules {
            generation: policy.generation,
            digest: policy.digest.clone(),
            advisory: standing != Standing::Holder,
            startup_grace_millis: millis(self.pace.startup_grace),
            table: Arc::clone(&policy.scaling),
        };
        let (mut input, strangers) = self.input(state, pool, whose, now);
        for model in &mut input.models {
            model.others = state.beside.results.get(&model.key()).cloned().unwrap_or_default();
        }
        forget(&mut state.learned, &input);
        let (mut plan, learned) = crate::scaling::plan(&input, &rules, &state.learned, now);
        for model in &mut plan.models {
            let key = format!("{}/{}", model.namespace, model.model_id);
            model.steps.extend(state.beside.steps.get(&key).into_iter().flatten().cloned());
        }
        let before = std::mem::replace(&mut state.learned, learned);
        let trigger = std::mem::replace(&mut state.trigger, INTERVAL);
        self.publish(&plan, standing);
        let mut variants = plan.models.iter().flat_map(|model| &model.variants);
        if state.cadence.planned(variants.any(|v| v.target > v.current), now) {
            state.hurry("saturation");
        }
        let metrics = &self.sources.metrics.scaling;
        metrics.planned(trigger, began.elapsed());
        metrics.inert(state.inert.note(&plan, state.saturated, now));
        let jobs = input.models.iter().map(|model| Job {
            line: rules.table.entry(&model.model_id, &model.namespace).thresholds,
            model: model.clone(),
            freshness_seconds: input.freshness_seconds,
            now_millis: now,
        });
        let jobs = jobs.collect();
        let windows = input.models.first().map(|model| state.observer.windows(&model.key()));
        let learned = Learned { windows: windows.unwrap_or_default(), ..before };
        let snapshot = Snapshot { input, learned, now_millis: now };
        self.history.keep(Made { at: telemetry::timestamp(), trigger, plan }, snapshot, strangers);
        jobs
    }

    /// Hands a plan on; logs and counts every target that differs from the plan before.
    fn publish(&self, plan: &Plan, standing: Standing) {
        let before = self.published.borrow();
        for model in &plan.models {
            let old = before.plan.models.iter().find(|old| old.model_id == model.model_id);
            for variant in &model.variants {
                let old = old.and_then(|old| old.variants.iter().find(|v| v.name == variant.name));
                let stood = old.map_or(variant.current, |old| old.target);
                if standing == Standing::Holder {
                    self.sources.metrics.scaling.moved(model, variant, stood);
                }
                if old.map(|old| old.target) == Some(variant.target) {
                    continue;
                }
                tracing::info!(
                    model = model.model_id,
                    variant = variant.name,
                    current = variant.current,
                    target = variant.target,
                    reason = variant.reason,
                    generation = plan.generation,
                    "target"
                );
            }
        }
        drop(before);
        self.published.send_replace(Published { standing, plan: plan.clone() });
    }

    fn input(
        &self,
        state: &State,
        pool: &Pool,
        whose: &(String, String),
        now: u64,
    ) -> (Input, Vec<String>) {
        let at = Instant::now().into_std();
        let vitals: Vec<Option<VitalsView>> =
            pool.members.iter().map(|member| self.sources.store.vitals(member.slot, at)).collect();
        let all = pool.members.iter().zip(&state.loads).zip(&vitals);
        let seen: Vec<Seen<'_>> = all
            .map(|((member, load), vitals)| Seen { member, load, vitals: vitals.as_ref() })
            .collect();
        let variants = Arc::clone(&self.sources.variants.borrow().variants);
        let held = self.sources.flow.as_ref().map(FlowControl::held).unwrap_or_default();
        let others = peers::sum(&self.sources.peers.borrow(), Instant::now());
        let own = self.sources.store.in_flight();
        let (model_id, namespace) = whose;
        let whole = Whole {
            model_id,
            namespace,
            variants: &variants,
            held: SchedulerQueue {
                size: held.requests as u64 + others.held,
                bytes: held.bytes + others.held_bytes,
            },
            in_flight: others.in_flight.map(|others| own + others),
            retention_millis: self.retention(whose),
            grace_millis: millis(self.pace.startup_grace),
        };
        gather(&whole, &seen, &state.observer, &state.learned, now)
    }

    fn retention(&self, (model_id, namespace): &(String, String)) -> u64 {
        let entry = self.sources.policy.load().scaling.entry(model_id, namespace);
        millis(entry.scale_to_zero.retention)
    }
}

impl Subject {
    /// Model, if one is named at all, and namespace: what the flags say, else what the variants name.
    pub fn named(&self, variants: &Variants) -> (Option<String>, String) {
        let named = || variants.models().first().map(|model| (*model).to_owned());
        let namespace = variants.list.iter().find_map(|spec| spec.namespace.clone());
        let namespace = namespace.unwrap_or_else(|| self.namespace.clone());
        (self.model_id.clone().or_else(named), namespace)
    }
}

impl State {
    fn now(&self) -> u64 {
        millis(self.zero.elapsed())
    }

    fn hurry(&mut self, trigger: &'static str) {
        self.cadence.hurry();
        // The first cause since the last plan names it.
        if self.trigger == INTERVAL {
            self.trigger = trigger;
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn find<'p>(pool: &'p Pool, id: &crate::endpoint::EndpointId) -> Option<&'p Member> {
    let at = pool.members.binary_search_by(|member| member.endpoint.id.cmp(id)).ok()?;
    pool.members.get(at)
}

/// What was published for variants that are gone is forgotten: they may come back as something else.
fn forget(learned: &mut Learned, input: &Input) {
    let known = |key: &str| {
        input.models.iter().any(|model| {
            let prefix = format!("{}/", model.key());
            let name = key.strip_prefix(&prefix);
            name.is_some_and(|name| model.variants.iter().any(|variant| variant.name == name))
        })
    };
    learned.published.retain(|key, _| known(key));
    learned.falls.retain(|key, _| known(key));
    learned.settle.retain(|key, _| input.models.iter().any(|model| model.key() == *key));
}
