//! The recorded subset hints: which endpoints were ever picked under each.
//!
//! The hint is handed over as the adapter would; on which message it may stand is the session's.

use std::collections::BTreeSet;

use plumbline::endpoint::{Endpoint, Load};
use plumbline::pool::{Member, PoolView, Slot};
use plumbline::routing::subset::{Hint, HintItem};
use plumbline::routing::{self, Ask, Profile, Refusal, Scratch, Subset};
use plumbline::thresholds::Thresholds;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

use super::{Difference, close, replay};

const DIFFERENCES: [Difference; 4] = [
    Difference {
        case: "subset/ip-port",
        ours: r#"{"destinations_seen":["10.0.0.1:8000"]}"#,
        why: "a hint that names a port means that port; a bare IP means all",
    },
    Difference {
        case: "subset/string",
        ours: r#"{"destinations_seen":["10.0.0.2:8000"]}"#,
        why: "gateways send strings too, and a restriction must not be dropped for its form",
    },
    Difference {
        case: "subset/comma-in-one",
        ours: r#"{"destinations_seen":["10.0.0.1:8000","10.0.0.2:8000"]}"#,
        why: "a comma separates addresses in a string, in a list's item as well",
    },
    Difference {
        case: "subset/on-headers-message-only",
        ours: r#"{"destinations_seen":["10.0.0.2:8000"]}"#,
        why: "a hint counts whichever message before the pick carries it; Envoy sends it with the headers",
    },
];

fn hint(value: &Value) -> Hint {
    match value {
        Value::Null => Hint::Absent,
        Value::String(text) => Hint::Text(text.clone()),
        Value::Array(items) => Hint::List(
            items
                .iter()
                .map(|item| {
                    item.as_str().map_or(HintItem::Other, |text| HintItem::Text(text.to_owned()))
                })
                .collect(),
        ),
        _ => Hint::Other,
    }
}

fn answer(input: &Value) -> Value {
    let members: Vec<Member> = input["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .zip(0..)
        .map(|(endpoint, slot)| {
            let address = endpoint["address"].as_str().unwrap();
            let id = endpoint["id"].as_str().unwrap();
            Member {
                endpoint: Endpoint::new("ns", id, address.parse().unwrap()),
                slot: Slot(slot),
                destination: address.into(),
            }
        })
        .collect();
    let loads = vec![Load::default(); members.len()];
    let view = PoolView { members: &members, loads: &loads };
    let subset = Subset::from_hint(&hint(&input["subset"]));
    let ask = Ask { subset: subset.as_ref(), ..Ask::default() };
    let (profile, thresholds) = (Profile::default(), Thresholds::default());
    let (mut rng, mut scratch) = (SmallRng::seed_from_u64(9), Scratch::default());
    let mut seen = BTreeSet::new();
    for _ in 0..200 {
        let order = routing::schedule(&view, &ask, &profile, &thresholds, &mut rng, &mut scratch);
        match order {
            Ok(mut order) => _ = seen.insert(&*members[order.next().unwrap()].destination),
            Err(Refusal::EmptyPool | Refusal::NoEndpoints) => return json!({ "refused": true }),
            Err(other) => return json!({ "refused": format!("{other:?}") }),
        }
    }
    json!({ "destinations_seen": seen })
}

/// A refusal was recorded by its status and reason.
fn agrees(ours: &Value, output: &Value) -> bool {
    match output["status"].as_u64() {
        None => close(ours, output),
        Some(status) => {
            let reason = &output["headers"]["x-llm-d-request-dropped-reason"];
            status == 503 && reason == "rejected-no-endpoints" && ours["refused"] == true
        }
    }
}

/// Mutants: an empty list as no restriction, the whole pool when nothing matches.
#[test]
fn hints_restrict_as_recorded() {
    replay("subset", &DIFFERENCES, answer, agrees);
}
