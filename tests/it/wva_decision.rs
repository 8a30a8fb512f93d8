//! What the real autoscaler decided when run, replayed on ours: optimizers, enforcer, limiter, and whole
//! plans. Equal, or in the table beside the data with our answer and the reason.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumbline::config::{Layers, scaling as entries};
use plumbline::scaling::allotment::Allotment;
use plumbline::scaling::analyzer::{AnalyzerResult, RoleCapacity};
use plumbline::scaling::enforcer::{self, Orders};
use plumbline::scaling::greedy::{self, Share};
use plumbline::scaling::input::{Input, ModelInput, Replica, Role, SchedulerQueue, Variant};
use plumbline::scaling::learned::Learned;
use plumbline::scaling::limiter::{self, Claim, Inventory, accelerator_name};
use plumbline::scaling::plan::{Action, Plan};
use plumbline::scaling::post_step::{Calibrated, Pair};
use plumbline::scaling::rules::Rules;
use plumbline::scaling::{cost_aware, plan};
use plumbline::scaling_entry::ScalingEntry;
use plumbline::scaling_entry::{ScalingScope, ScalingTable, Selection};
use plumbline::thresholds::{Draft, Thresholds};
use serde_json::{Map, Value, json};

use crate::wva_analysis::{count, number, replay, replay_against, spare, text, tokens};

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn allotment(v: &Value) -> Allotment {
    let current = count(&v["current_replicas"]);
    Allotment {
        name: text(&v["variant_name"]),
        role: tokens::role(&v["role"]),
        cost: number(&v["cost"]).unwrap_or(0.0),
        accelerator: text(&v["accelerator_name"]),
        gpus_per_replica: count(&v["gpus_per_replica"]).max(1),
        per_replica: number(&v["per_replica_capacity"]).unwrap_or(0.0),
        current,
        pending: count(&v["pending_replicas"]),
        min: count(&v["min_replicas"]),
        max: count(&v["max_replicas"]),
        target: v.get("target_replicas").map_or(current, count),
    }
}

/// Supply and demand whose needs are exactly these: only the post-step can state a need.
fn scope(v: &Value) -> RoleCapacity {
    let of = |name: &str| number(&v[name]).unwrap_or(0.0);
    let (required, spare) = (of("required_capacity"), of("spare_capacity"));
    RoleCapacity {
        total_demand: required,
        total_anticipated_supply: 0.0,
        total_supply: if spare > 0.0 { spare + 2.0 * required } else { 0.0 },
    }
}

fn needs(v: &Value) -> Calibrated {
    let model = scope(v);
    let roles = v["role_capacities"].as_object().into_iter().flatten();
    let result = AnalyzerResult {
        total_supply: model.total_supply,
        total_anticipated_supply: model.total_anticipated_supply,
        total_demand: model.total_demand,
        role_capacities: roles.map(|(name, v)| (tokens::role(&json!(name)), scope(v))).collect(),
        ..AnalyzerResult::default()
    };
    Calibrated::new(result, Pair { scale_up_threshold: 1.0, scale_down_boundary: 0.5 })
}

fn written(model: &str, variants: &[Allotment], targets: &mut Map<String, Value>) {
    for v in variants {
        targets.insert(format!("{model}/{}", v.name), json!(v.target));
    }
}

fn targets(recorded: &Value) -> Value {
    json!({ "targets": recorded["targets"] })
}

/// Mutants: growth by cost alone; a floor for the ceiling; the last replica given away.
#[test]
fn the_cost_aware_optimizer_moves_as_recorded() {
    let answer = |input: &Value| {
        let mut variants: Vec<_> = list(&input["variants"]).iter().map(allotment).collect();
        cost_aware::allot(&mut variants, &needs(input));
        let mut targets = Map::new();
        written("m", &variants, &mut targets);
        json!({ "targets": targets })
    };
    replay("optimizer_cost_aware", answer, targets);
}

/// Mutants: the mean left out; priority left out; a replica granted for part of its GPUs.
#[test]
fn the_greedy_optimizer_shares_as_recorded() {
    let answer = |input: &Value| {
        let models = list(&input["models"]);
        let mut variants: Vec<Vec<Allotment>> =
            models.iter().map(|m| list(&m["variants"]).iter().map(allotment).collect()).collect();
        let pools = input["gpu_pools"].as_object().unwrap().iter();
        let free = pools.map(|(name, pool)| {
            let of = |key: &str| pool[key].as_u64().unwrap();
            (name.clone(), of("limit").saturating_sub(of("used")))
        });
        let mut inventory = Inventory::new(&free.collect(), []);
        let needs: Vec<Calibrated> = models.iter().map(needs).collect();
        let shares = variants.iter_mut().zip(&needs).zip(models);
        let shares = shares.map(|((variants, needs), model)| Share {
            variants,
            needs,
            priority: number(&model["priority"]).unwrap(),
        });
        greedy::allot(shares.collect(), &mut inventory);
        let mut targets = Map::new();
        for (model, variants) in models.iter().zip(&variants) {
            written(&text(&model["model_id"]), variants, &mut targets);
        }
        json!({ "targets": targets })
    };
    replay("optimizer_greedy", answer, targets);
}

/// Mutants: served in the order given; part of a replica granted; a fall limited too.
#[test]
fn the_limiter_cuts_as_recorded() {
    let answer = |input: &Value| {
        let decisions = list(&input["decisions"]);
        let mut variants: Vec<_> = decisions.iter().map(allotment).collect();
        let mut limits: BTreeMap<String, u64> = BTreeMap::new();
        for node in input["nodes"].as_object().unwrap().values() {
            for (label, gpus) in node.as_object().unwrap() {
                *limits.entry(accelerator_name(label)).or_default() += gpus.as_u64().unwrap();
            }
        }
        let mut inventory = Inventory::new(&limits, &variants);
        let mut claims: Vec<_> = variants
            .iter_mut()
            .zip(decisions)
            .map(|(variant, v)| Claim { variant, spare: number(&v["spare_capacity"]).unwrap() })
            .collect();
        let grants = limiter::limit(&mut claims, &mut inventory);
        let rows = variants.iter().zip(&grants).map(|(v, grant)| {
            json!({
                "variant_name": v.name,
                "target_replicas": v.target,
                "gpus_allocated": grant.gpus,
                "was_limited": grant.limited,
            })
        });
        json!(rows.collect::<Vec<_>>())
    };
    let recorded = |recorded: &Value| {
        let rows = list(&recorded["decisions"]).iter().map(|row| {
            let names = ["variant_name", "target_replicas", "gpus_allocated", "was_limited"];
            names.iter().map(|name| ((*name).to_owned(), row[*name].clone())).collect::<Value>()
        });
        rows.collect()
    };
    replay("gpu_limiter", answer, recorded);
}

/// A table of entries as the two ConfigMaps give them.
fn table(saturation: &Value, zero: &Value) -> ScalingTable {
    let mut file = String::new();
    for (name, data) in
        [("wva-saturation-scaling-config", saturation), ("wva-model-scale-to-zero-config", zero)]
    {
        if data.as_object().is_some_and(|data| !data.is_empty()) {
            let map = json!({"kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            file += &format!("---\n{map}\n");
        }
    }
    let mut layers = Layers::default();
    if !file.is_empty() {
        let document = entries::read(file.as_bytes()).unwrap();
        layers.scaling = layers.scaling.next(&document).0;
    }
    layers.table().0
}

/// Mutants: the floor of one left out; a cost of 0 taken for the cheapest; an unknown count taken for 0.
#[test]
fn the_enforcer_acts_as_recorded() {
    let answer = |input: &Value| {
        let before = input["targets"].as_object().unwrap();
        let mut variants: Vec<Allotment> = before
            .iter()
            .map(|(name, target)| Allotment {
                name: name.clone(),
                role: Role::Both,
                cost: number(&input["costs"][name]).unwrap_or(0.0),
                accelerator: String::new(),
                gpus_per_replica: 1,
                per_replica: 0.0,
                // Only variants that somebody started are enforced there.
                current: count(target).max(1),
                pending: 0,
                min: 0,
                max: 0,
                target: count(target),
            })
            .collect();
        let (model_id, namespace) = (text(&input["model_id"]), text(&input["namespace"]));
        let requests = &input["request_count"];
        let zero = table(&Value::Null, &input["scale_to_zero_config"])
            .entry(&model_id, &namespace)
            .scale_to_zero;
        // Everything else is known and idle: the case asks about the count alone.
        let model = ModelInput {
            request_count: if requests == "error" { None } else { number(requests) },
            scheduler_queue: Some(SchedulerQueue::default()),
            in_flight: Some(0),
            ..ModelInput::default()
        };
        let busy = enforcer::busy(&model, &variants, &[], 30.0);
        let orders = Orders {
            scale_to_zero: zero.enabled,
            busy: busy.as_deref(),
            may_fall: true,
            at_zero: false,
            held: 0,
        };
        enforcer::enforce(&mut variants, &orders, None);
        let after = variants.iter().map(|v| (v.name.clone(), json!(v.target)));
        json!({
            "targets": after.collect::<Map<_, _>>(),
            "scale_to_zero_enabled": zero.enabled,
            "retention_seconds": zero.retention.as_secs(),
        })
    };
    let recorded = |recorded: &Value| {
        let retention = text(&recorded["retention_period"]);
        json!({
            "targets": recorded["targets"],
            "scale_to_zero_enabled": recorded["scale_to_zero_enabled"],
            "retention_seconds":
                plumbline::units::GoDuration::parse(&retention).unwrap().nanos / 1_000_000_000,
        })
    };
    replay("enforcer", answer, recorded);
}

fn chosen(plan: &Plan, listed: impl Fn(&str) -> bool) -> Value {
    let variants = plan.models.iter().flat_map(|model| &model.variants);
    let rows = variants.filter(|v| listed(&v.name)).map(|v| (v.name.clone(), json!(v.target)));
    Value::Object(rows.collect())
}

fn rules(selection: Selection, line: Thresholds) -> Rules {
    let default = ScalingEntry { thresholds: line, ..ScalingEntry::default() };
    let global = ScalingScope { default, models: BTreeMap::new() };
    let table = ScalingTable { selection, global, ..ScalingTable::default() };
    Rules { table: Arc::new(table), ..Rules::default() }
}

/// Mutant: any guard left out turns a row of the table untrue.
#[test]
fn v1_targets_are_as_recorded_or_the_guards_say_why() {
    let answer = |input: &Value| {
        let config = &input["config"];
        let of = |name: &str| number(&config[name]).unwrap();
        let draft = Draft {
            kv_cache_util: of("kv_cache_threshold"),
            queue_depth: of("queue_length_threshold"),
            kv_spare_trigger: of("kv_spare_trigger"),
            queue_spare_trigger: of("queue_spare_trigger"),
            ..Draft::default()
        };
        let Ok(line) = Thresholds::try_new(draft) else { return json!("refused") };
        let mut model = spare::model(input);
        for (variant, state) in model.variants.iter_mut().zip(list(&input["variants"])) {
            variant.min_replicas = count(&state["min_replicas"]);
            variant.max_replicas = count(&state["max_replicas"]);
            let rows = list(&input["replicas"]).iter();
            let row = rows.into_iter().find(|row| row["variant_name"] == variant.name.as_str());
            variant.cost = row.and_then(|row| number(&row["cost"])).unwrap_or(variant.cost);
        }
        let input = Input { models: vec![model.clone()], ..Input::default() };
        let rules = rules(Selection::SpareCapacity, line);
        let (plan, _) = plan(&input, &rules, &Learned::default(), 0);
        let rows = |name: &str| {
            model.replicas.is_empty() || model.replicas.iter().any(|row| row.variant == name)
        };
        chosen(&plan, rows)
    };
    let recorded = |recorded: &Value| {
        let first = recorded["nondeterministic_outcomes"].get(0).unwrap_or(recorded);
        first.get("targets").cloned().unwrap_or(Value::Null)
    };
    replay_against("saturation_v1", "saturation_v1_targets", answer, recorded);
}

/// Mutant: any guard left out turns a row of the table untrue.
#[test]
fn v2_targets_are_as_recorded_or_the_guards_say_why() {
    let answer = |input: &Value| {
        let Ok(line) = tokens::thresholds(&input["config"]) else { return json!("refused") };
        let rules = rules(Selection::TokenCapacity, line);
        let mut learned = Learned::default();
        let cycles = list(&input["cycles"]).iter().zip(0..).map(|(cycle, n)| {
            let variants = list(&input["variants"]).iter().map(tokens::variant).collect();
            let replicas = list(&cycle["replicas"]).iter().map(tokens::replica).collect();
            let model = tokens::model(replicas, variants, &cycle["scheduler_queue"]);
            let input = Input { models: vec![model], ..Input::default() };
            let (plan, mut after) = plan(&input, &rules, &learned, n * 30_000);
            // Each cycle starts from what it states, as if nothing had been published.
            after.published.clear();
            after.settle.clear();
            learned = after;
            let variants = plan.models.iter().flat_map(|model| &model.variants);
            for v in variants {
                assert_eq!(v.action, Action::between(v.current, v.target));
            }
            chosen(&plan, |_| true)
        });
        json!(cycles.collect::<Vec<_>>())
    };
    let recorded = |recorded: &Value| {
        let cycles = list(&recorded["cycles"]).iter();
        json!(cycles.map(|cycle| cycle["targets"].clone()).collect::<Vec<_>>())
    };
    replay_against("saturation_v2", "saturation_v2_targets", answer, recorded);
}

fn cycle_model(input: &Value) -> ModelInput {
    let failed: Vec<&str> = list(&input["query_errors"]).iter().filter_map(Value::as_str).collect();
    let variants = list(&input["variants"]).iter().map(|v| {
        let state = (count(&v["status_replicas"]), count(&v["spec_replicas"]));
        let current = if state.0 > 0 { state.0 } else { state.1 };
        Variant {
            name: text(&v["variant_name"]),
            cost: text(&v["cost"]).parse().unwrap_or(10.0),
            accelerator: text(&v["accelerator_name"]),
            gpus_per_replica: count(&v["gpus_per_replica"]),
            role: tokens::role(&v["role"]),
            current,
            desired: 0,
            pending: current.saturating_sub(count(&v["ready_replicas"])),
            min_replicas: count(&v["min_replicas"]),
            max_replicas: count(&v["max_replicas"]),
            engine_args: serde_json::from_value(v["engine_args"].clone()).unwrap(),
            ..Variant::default()
        }
    });
    let replicas = list(&input["samples"]).iter().map(|row| {
        let mut replica = tokens::replica(row);
        for name in &failed {
            match *name {
                "kv_cache_usage" => replica.kv = None,
                "avg_input_tokens" => replica.avg_input_tokens = None,
                other => panic!("{other}"),
            }
        }
        Replica { running: Some(0.0), ..replica }
    });
    let queue = &input["scheduler_queue"];
    ModelInput {
        model_id: "m".to_owned(),
        namespace: "ns".to_owned(),
        replicas: replicas.collect(),
        variants: variants.collect(),
        scheduler_queue: Some(SchedulerQueue {
            size: queue["queue_size"].as_u64().unwrap_or(0),
            bytes: queue["queue_bytes"].as_u64().unwrap_or(0),
        }),
        request_count: number(&input["request_count"]),
        in_flight: Some(0),
        ..ModelInput::default()
    }
}

/// Mutant: zero without asking what waits; a missing reading read as 0.
#[test]
fn whole_cycles_end_as_recorded_or_the_table_says_why() {
    let answer = |input: &Value| {
        let table = table(&input["config_data"], &input["scale_to_zero_data"]);
        let rules = Rules { table: Arc::new(table), ..Rules::default() };
        let input = Input { models: vec![cycle_model(input)], ..Input::default() };
        chosen(&plan(&input, &rules, &Learned::default(), 0).0, |_| true)
    };
    replay("cycle", answer, |recorded| recorded["wva_desired_replicas"].clone());
}
