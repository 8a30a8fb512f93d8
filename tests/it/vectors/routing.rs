//! Detector, filter, scorers, pickers and profiles against the recorded answers.
//!
//! A reading that is negative or not finite counts as missing here, as the exposition reader leaves it
//! out before it could reach a decision.

use std::collections::BTreeMap;
use std::time::Duration;

use plumbline::config::{self, Params};
use plumbline::endpoint::{Endpoint, Load, Signal};
use plumbline::pool::{Member, PoolView, Slot};
use plumbline::routing::filter::Filter;
use plumbline::routing::picker::{Choice, Picker, Scored};
use plumbline::routing::scorer::Scorer;
use plumbline::routing::{self, Ask, Profile, Scratch};
use plumbline::saturation;
use plumbline::thresholds::Thresholds;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::{Difference, close, replay};

const NAN: &str = "NaN, infinite and negative readings count as missing";
const IDLE: &str = "a never-scraped or stale endpoint is never idle to a scorer";
const PANIC: &str = "the Go code panics on missing metrics; here they are unknown";

/// The endpoint table of a case, as members and loads.
struct Table {
    members: Vec<Member>,
    loads: Vec<Load>,
}

impl Table {
    fn of(input: &Value) -> Self {
        let rows = input["endpoints"].as_array().unwrap();
        let members = rows.iter().enumerate().map(|(index, row)| {
            let mut endpoint =
                Endpoint::new("ns", row["id"].as_str().unwrap(), ([10, 0, 0, 1], 8000).into());
            for (key, value) in row["labels"].as_object().into_iter().flatten() {
                endpoint.labels.insert(key.clone(), value.as_str().unwrap().to_owned());
            }
            let destination = endpoint.address.to_string().into();
            Member { endpoint, slot: Slot(index as u32), destination }
        });
        Self { members: members.collect(), loads: rows.iter().map(load).collect() }
    }

    fn view(&self) -> PoolView<'_> {
        PoolView { members: &self.members, loads: &self.loads }
    }

    fn id(&self, index: usize) -> String {
        self.members[index].endpoint.id.as_str().trim_start_matches("ns/").to_owned()
    }
}

fn load(row: &Value) -> Load {
    let unread = row["no_metrics"] == true || row["never_scraped"] == true;
    let late = Duration::from_nanos(row["age_ns_over_200ms"].as_u64().unwrap_or(0));
    let age = match row["age_ms"].as_i64() {
        // A time in the future is an age of zero.
        Some(ms) => Duration::from_millis(u64::try_from(ms).unwrap_or(0)),
        None if late.is_zero() => Duration::ZERO,
        None => Duration::from_millis(200) + late,
    };
    let signal = |value: &Value| match value {
        _ if unread => Signal::Never,
        Value::Null => Signal::Read { value: 0.0, age },
        value => match value.as_f64() {
            Some(value) if value >= 0.0 => Signal::Read { value, age },
            _ => Signal::Never,
        },
    };
    Load {
        waiting: signal(&row["waiting"]),
        running: signal(&row["running"]),
        kv: signal(&row["kv"]),
        in_flight: row["in_flight"]["requests"].as_u64().unwrap_or(0) as u32,
        in_flight_tokens: row["in_flight"]["tokens"].as_u64().unwrap_or(0),
        ranks: 1,
        ..Load::default()
    }
}

fn thresholds(input: &Value) -> Thresholds {
    let params = Params::parse(&input["params"].to_string()).unwrap();
    config::resolve(&params).unwrap().0
}

/// Mutants: mean to max, `>=` of the gate, age compared with `<`.
#[test]
fn utilization_detector() {
    let differences = [
        Difference {
            case: "utilization-detector/kv-negative",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/kv-nan",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/kv-nan-queue-full",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/kv-minus-inf",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/queue-negative",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/queue-minint64",
            ours: r#"{"gate_closed":true,"saturation":1.0}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector/nan-poisons-pool",
            ours: r#"{"gate_closed":true,"saturation":7.0}"#,
            why: NAN,
        },
    ];
    let answer = |input: &Value| {
        let table = Table::of(input);
        let saturation = saturation::pool_saturation(&table.loads, &thresholds(input));
        json!({ "gate_closed": saturation >= 1.0, "saturation": saturation })
    };
    replay("utilization-detector", &differences, answer, close);
}

/// Mutants: `<=` at a limit, no fail-open, no cap.
#[test]
fn utilization_detector_filter() {
    // `kv-limit-not-capped` agrees by the other road: ours drops all three and then fails open.
    let differences = [
        Difference {
            case: "utilization-detector-filter/negative-queue-kept",
            ours: r#"{"kept":["neg","minint","full"]}"#,
            why: NAN,
        },
        Difference {
            case: "utilization-detector-filter/headroom-as-percent",
            ours: r#"{"kept":["q104","q105"]}"#,
            why: "the seed caps the KV limit at 1.0, which the Go code forgot, so none is left here",
        },
    ];
    let answer = |input: &Value| {
        let table = Table::of(input);
        let mut candidates: Vec<u32> = (0..table.loads.len() as u32).collect();
        Filter::Utilization.apply(
            &table.view(),
            &thresholds(input),
            &mut candidates,
            &mut Vec::new(),
        );
        json!({ "kept": candidates.iter().map(|i| table.id(*i as usize)).collect::<Vec<_>>() })
    };
    replay("utilization-detector-filter", &differences, answer, close);
}

fn scorer(name: &str, params: &Value) -> Scorer {
    match name {
        "queue-scorer" => Scorer::Queue,
        "kv-cache-utilization-scorer" => Scorer::KvCache,
        "active-request-scorer" => {
            let idle = params["idleThreshold"].as_i64().unwrap_or(0).max(0) as u32;
            let busy = params["maxBusyScore"].as_f64().filter(|v| (0.0..=1.0).contains(v));
            Scorer::InFlight { idle_threshold: idle, max_busy_score: busy.unwrap_or(1.0) }
        }
        "running-requests-size-scorer" => Scorer::RunningRequests,
        "load-aware-scorer" => match params["threshold"].as_i64() {
            Some(threshold @ 1..) => Scorer::LoadAware { threshold: threshold as u32 },
            _ => Scorer::LOAD_AWARE,
        },
        "token-load-scorer" => match params["queueThresholdTokens"].as_i64() {
            Some(threshold @ 1..) => Scorer::TokenLoad { threshold: threshold as u64 },
            _ => Scorer::TOKEN_LOAD,
        },
        other => panic!("no scorer {other}"),
    }
}

fn scores(input: &Value) -> Value {
    scores_of(input, &Ask::default())
}

fn scores_of(input: &Value, ask: &Ask<'_>) -> Value {
    let table = Table::of(input);
    let candidates: Vec<u32> = (0..table.loads.len() as u32).collect();
    let mut totals = vec![0.0; candidates.len()];
    let scorer = scorer(input["plugin"].as_str().unwrap(), &input["params"]);
    scorer.add(&table.view(), &Thresholds::default(), ask, &candidates, 1.0, &mut totals);
    let scores: BTreeMap<_, _> =
        totals.iter().enumerate().map(|(i, total)| (table.id(i), *total)).collect();
    json!({ "scores": scores })
}

/// Recorded scores are raw; ours are clamped as the profile clamps them.
fn close_after_clamp(ours: &Value, recorded: &Value) -> bool {
    let mut clamped = recorded.clone();
    for (_, score) in clamped["scores"].as_object_mut().into_iter().flatten() {
        if let Some(raw) = score.as_f64() {
            *score = json!(raw.clamp(0.0, 1.0));
        }
    }
    close(ours, &clamped)
}

/// Mutants: min and max swapped, stale candidates in the range.
#[test]
fn queue_scorer() {
    let differences = [
        Difference {
            case: "queue-scorer/never-scraped-wins",
            ours: r#"{"scores":{"busy":1,"new":0}}"#,
            why: IDLE,
        },
        Difference { case: "queue-scorer/negative", ours: r#"{"scores":{"a":0,"b":1}}"#, why: NAN },
        Difference {
            case: "queue-scorer/minint64",
            ours: r#"{"scores":{"nan":0,"b":1,"c":0}}"#,
            why: NAN,
        },
        Difference {
            case: "queue-scorer/no-metrics",
            ours: r#"{"scores":{"a":0,"b":1}}"#,
            why: PANIC,
        },
    ];
    replay("queue-scorer", &differences, scores, close_after_clamp);
}

/// Mutant: `kv` for `1 - kv`.
#[test]
fn kv_cache_scorer() {
    let differences = [
        Difference {
            case: "kv-cache-utilization-scorer/negative",
            ours: r#"{"scores":{"a":0,"b":1}}"#,
            why: NAN,
        },
        Difference {
            case: "kv-cache-utilization-scorer/nan",
            ours: r#"{"scores":{"a":0,"b":0.9}}"#,
            why: NAN,
        },
        Difference {
            case: "kv-cache-utilization-scorer/never-scraped",
            ours: r#"{"scores":{"new":0,"b":0.95}}"#,
            why: IDLE,
        },
        Difference {
            case: "kv-cache-utilization-scorer/no-metrics",
            ours: r#"{"scores":{"a":0}}"#,
            why: PANIC,
        },
    ];
    replay("kv-cache-utilization-scorer", &differences, scores, close_after_clamp);
}

/// Mutants: `max - min` for `max`, `<` at the idle threshold.
#[test]
fn active_request_scorer() {
    replay("active-request-scorer", &[], scores, close_after_clamp);
}

/// Mutants: the range of the waiting requests; the most scoring 1.
#[test]
fn running_requests_size_scorer() {
    replay("running-requests-size-scorer", &[], scores, close_after_clamp);
}

/// Mutants: no lower bound; an empty queue that scores 1; a threshold of 0 taken as it is.
#[test]
fn load_aware_scorer() {
    let differences = [Difference {
        case: "load-aware-scorer/negative-queue",
        ours: r#"{"scores":{"a":0}}"#,
        why: NAN,
    }];
    replay("load-aware-scorer", &differences, scores, close_after_clamp);
}

/// Recorded is a request whose uncached part differs by endpoint; a score looks at one endpoint only, so
/// each is asked for with its own. Mutants: the request's own tokens left out; a threshold below 1 taken
/// as it is.
#[test]
fn token_load_scorer() {
    let answer = |input: &Value| {
        let mut all = json!({});
        for row in input["endpoints"].as_array().unwrap() {
            let mut one = input.clone();
            one["endpoints"] = json!([row]);
            let prompt_tokens = row["uncached"].as_u64().unwrap_or(0);
            let ask = Ask { prompt_tokens, ..Ask::default() };
            let scores = scores_of(&one, &ask)["scores"].as_object().unwrap().clone();
            all.as_object_mut().unwrap().extend(scores);
        }
        json!({ "scores": all })
    };
    replay("token-load-scorer", &[], answer, close_after_clamp);
}

/// Mutant: dividing by the sum of the weights, or no clamp.
#[test]
fn profile_sum() {
    let later = "the prefix scorer comes with the prefix index";
    let drained = "a pool without a fitting server is not busy: 503, and the filter is named";
    let differences = [
        Difference {
            case: "profile-sum/default-weights-like",
            ours: r#"{"unsupported":"prefix-cache-scorer"}"#,
            why: later,
        },
        Difference {
            case: "profile-sum/filter-drains",
            ours: r#"{"refused":"Drained(Decode)"}"#,
            why: drained,
        },
        Difference {
            case: "profile-sum/clamp-over-one",
            ours: r#"{"picked":["a","b"],"totals":{"a":0,"b":0}}"#,
            why: NAN,
        },
        Difference {
            case: "profile-sum/nan-total",
            ours: r#"{"picked":["nan"],"totals":{"nan":0}}"#,
            why: NAN,
        },
    ];
    let answer = |input: &Value| {
        let table = Table::of(input);
        let mut profile =
            Profile { filters: vec![], scorers: vec![], picker: Picker::one(Choice::MaxScore) };
        for plugin in input["plugins"].as_array().unwrap() {
            let name = plugin["plugin"].as_str().unwrap();
            match name {
                "prefix-cache-scorer" => return json!({ "unsupported": name }),
                "decode-filter" => {
                    profile.filters.push(Filter::Decode);
                    continue;
                }
                _ => {}
            }
            let weight = plugin["weight"].as_f64().unwrap();
            profile.scorers.push((scorer(name, &Value::Null), weight));
        }
        let (mut rng, mut scratch) = (SmallRng::seed_from_u64(1), Scratch::default());
        let mut picked = std::collections::BTreeSet::new();
        for _ in 0..64 {
            let order = routing::schedule(
                &table.view(),
                &Ask::default(),
                &profile,
                &Thresholds::default(),
                &mut rng,
                &mut scratch,
            );
            match order {
                Ok(mut order) => picked.insert(table.id(order.next().unwrap())),
                Err(refusal) => return json!({ "refused": format!("{refusal:?}") }),
            };
        }
        let totals: BTreeMap<_, _> =
            scratch.totals().map(|(index, total)| (table.id(index), total)).collect();
        json!({ "picked": picked, "totals": totals })
    };
    replay("profile-sum", &differences, answer, close);
}

/// Draws as often as was recorded and compares shares within two points.
fn draw(input: &Value) -> Value {
    let scored = input["scored"].as_array().unwrap();
    let choice = match input["plugin"].as_str().unwrap() {
        "max-score-picker" => Choice::MaxScore,
        "random-picker" => Choice::Random,
        "weighted-random-picker" => Choice::WeightedRandom,
        other => panic!("no picker {other}"),
    };
    let wanted = input["params"]["maxNumOfEndpoints"].as_i64().unwrap_or(1);
    let picker = Picker { choice, max_endpoints: usize::try_from(wanted).unwrap_or(0) };
    let mut rng = SmallRng::seed_from_u64(11);
    let (mut first, mut orders) = (BTreeMap::<String, u32>::new(), BTreeMap::<String, u32>::new());
    let mut lengths = std::collections::BTreeSet::new();
    const DRAWS: u32 = 10_000;
    for _ in 0..DRAWS {
        let mut list: Vec<Scored> = (0..scored.len() as u32)
            .map(|index| Scored {
                index,
                score: scored[index as usize]["score"].as_f64().unwrap_or(f64::NAN),
            })
            .collect();
        picker.pick(&mut list, &mut rng);
        let ids: Vec<_> = list
            .iter()
            .map(|s| scored[s.index as usize]["id"].as_str().unwrap().to_owned())
            .collect();
        *first.entry(ids[0].clone()).or_default() += 1;
        *orders.entry(ids.join(">")).or_default() += 1;
        lengths.insert(ids.len());
    }
    let share = |counts: BTreeMap<String, u32>| {
        counts
            .into_iter()
            .map(|(key, n)| (key, f64::from(n) / f64::from(DRAWS)))
            .collect::<BTreeMap<_, _>>()
    };
    json!({ "first": share(first), "orders": share(orders), "lengths": lengths })
}

fn same_shares(ours: &Value, recorded: &Value) -> bool {
    let draws = recorded["draws"].as_f64().unwrap();
    let same = |key: &str| {
        let Some(counts) = recorded[key].as_object() else { return true };
        let mine = ours[key].as_object().unwrap();
        mine.len() == counts.len()
            && counts.iter().all(|(id, count)| {
                let theirs = count.as_f64().unwrap() / draws;
                mine.get(id).is_some_and(|m| (m.as_f64().unwrap() - theirs).abs() < 0.02)
            })
    };
    ours["lengths"] == recorded["lengths"] && same("first") && same("orders")
}

/// Mutants: no random ties, ascending order, `U^(1/w)` without the logarithm.
#[test]
fn pickers() {
    let underflow = "the Go sampler underflows for small scores; ours works on logarithms";
    let why = "NaN is the worst score, not an equal of all";
    for (name, expected, reason) in [
        ("picker/max-nan-present", vec![("b", 1.0)], why),
        ("picker/weighted-tiny-0005-vs-zero", vec![("tiny", 1.0)], underflow),
        ("picker/weighted-tiny-ratio-1-9", vec![("a", 0.1), ("b", 0.9)], underflow),
    ] {
        let (_, input, recorded) =
            super::cases("picker").into_iter().find(|(case, ..)| case == name).unwrap();
        let ours = draw(&input);
        assert!(!same_shares(&ours, &recorded), "{name}: agrees, yet differs by table: {reason}");
        let first = ours["first"].as_object().unwrap();
        assert_eq!(first.len(), expected.len(), "{name}: {ours}");
        for (id, share) in expected {
            assert!((first[id].as_f64().unwrap() - share).abs() < 0.02, "{name}: {ours}");
        }
    }
    let odd = [
        "picker/max-nan-present",
        "picker/weighted-tiny-0005-vs-zero",
        "picker/weighted-tiny-ratio-1-9",
    ];
    let (mut equal, mut wrong) = (0, Vec::new());
    for (name, input, recorded) in super::cases("picker") {
        if odd.contains(&name.as_str()) {
            continue;
        }
        let ours = draw(&input);
        if same_shares(&ours, &recorded) {
            equal += 1;
        } else {
            wrong.push(format!("{name}: {ours} instead of {recorded}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    println!("picker: {equal} equal, {} differ on purpose", odd.len());
}

/// The detector's parameters: accepted and refused alike, and for the same field. Mutant: any rule of
/// `Params` left out.
#[test]
fn detector_params() {
    let (_, _, recorded) = super::cases("plugin-params")
        .into_iter()
        .find(|(case, ..)| case == "plugin-params/utilization-detector")
        .unwrap();
    assert!(Params::parse("{}").is_ok());
    let unknown = Params::parse(r#"{"zzNoSuchKey": 1}"#).unwrap_err();
    assert!(unknown[0].contains("zzNoSuchKey") && unknown[0].contains("headroom"), "{unknown:?}");
    for (text, answer) in recorded["tried"].as_object().unwrap() {
        let answer = answer.as_str().unwrap();
        let ours = Params::parse(text);
        assert_eq!(ours.is_ok(), answer == "ok", "{text}: {ours:?} but Go says {answer}");
        // Where Go names a rule of a field, ours is the same sentence.
        if let (Err(ours), Some(rules)) =
            (ours, answer.strip_prefix("error: invalid utilization detector configuration: "))
        {
            assert_eq!(ours.join("\n"), rules, "{text}");
        }
    }
}
