//! The recorded requests of the Go picker without flow control, through our whole service.
//!
//! The pool's loads are written in place of the poller; all else is as it is served. Compared are the
//! destination of a request that goes on, and status, text and reason of one that does not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plumbline::config::{self, Params};
use plumbline::endpoint::Endpoint;
use plumbline::ext_proc::server::{self, Threads};
use plumbline::ext_proc::{Options, Picking};
use plumbline::policy::PolicyWriter;
use plumbline::routing::filter::Filter;
use plumbline::routing::scorer::Scorer;
use plumbline::routing::{Objectives, Profile};
use plumbline::store::{HeldBytes, Page, Scraped, Store};
use plumbline::telemetry::metrics::Metrics;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::service::Routes;

use super::{Difference, replay};
use crate::harness::script::{Heard, SUBSET, Script, connect, list};

const REASON: &str = "a shed request says why, as every refused one does";
const NOBODY: &str = "nobody there is not somebody busy, whatever the priority";
const RULES: &str = "a request without a body meets the same rules";
const LATER: &str = "comes with the plugin configuration";
const NO_ENDPOINTS: &str = r#"{"body":"inference error: ServiceUnavailable - failed to find endpoint candidates for serving the request","reason":"rejected-no-endpoints","status":503}"#;
const SHED: &str = r#"{"body":"inference error: ResourceExhausted - system saturated, sheddable request dropped","reason":"rejected-saturated","retry-after":"1","status":429}"#;
const UNSUPPORTED: &str = r#"{"unsupported":"config"}"#;

const DIFFERENCES: &[Difference] = &[
    Difference { case: "legacy-gate/saturated-negative", ours: SHED, why: REASON },
    Difference { case: "legacy-gate/saturated-very-negative", ours: SHED, why: REASON },
    Difference { case: "legacy-gate/saturated-old-header", ours: SHED, why: REASON },
    Difference { case: "legacy-gate/exactly-one", ours: SHED, why: REASON },
    Difference { case: "legacy-gate/subset-full", ours: SHED, why: REASON },
    Difference {
        case: "legacy-gate/nan-opens",
        ours: SHED,
        why: "one reading that is no number does not open the gate of a full pool",
    },
    Difference { case: "legacy-gate/empty-pool-negative", ours: NO_ENDPOINTS, why: NOBODY },
    Difference { case: "legacy-gate/header-only-get-negative-saturated", ours: SHED, why: RULES },
    Difference { case: "legacy-gate/header-only-get-empty-pool", ours: NO_ENDPOINTS, why: RULES },
    Difference {
        case: "legacy-gate/header-only-get-subset-ignored",
        ours: NO_ENDPOINTS,
        why: RULES,
    },
    Difference {
        case: "legacy-gate/header-only-ipv6",
        ours: r#"{"destination":"[fd00::1]:8000"}"#,
        why: "an address that somebody can connect to",
    },
    Difference {
        case: "legacy-gate/subset-ipv6",
        ours: r#"{"destination":"[fd00::1]:8000"}"#,
        why: "a hint may spell IPv6 as the destination does",
    },
    Difference {
        case: "legacy-gate/subset-ipv6-bare",
        ours: r#"{"destination":"[fd00::1]:8000"}"#,
        why: "a bare IP stands for every port, of IPv6 too",
    },
    Difference {
        case: "legacy-gate/subset-ipv6-unbracketed-port",
        ours: NO_ENDPOINTS,
        why: "without brackets it is the address fd00::1:9999, which nobody has",
    },
    Difference {
        case: "legacy-gate/filter-drain-429",
        ours: r#"{"body":"inference error: ServiceUnavailable - decode-filter left no endpoint for the request","reason":"rejected-no-endpoints","status":503}"#,
        why: "a pool without a fitting server is not busy; the filter is named",
    },
    Difference { case: "legacy-gate/detector-entry-own-name", ours: UNSUPPORTED, why: LATER },
    Difference { case: "legacy-gate/detector-entry-renamed", ours: UNSUPPORTED, why: LATER },
    Difference {
        case: "legacy-gate/detector-entry-renamed-referenced",
        ours: UNSUPPORTED,
        why: LATER,
    },
    Difference { case: "legacy-gate/detector-two-entries", ours: UNSUPPORTED, why: LATER },
    Difference { case: "legacy-gate/concurrency-detector-as-gate", ours: UNSUPPORTED, why: LATER },
    Difference { case: "legacy-gate/admitter-denial-is-500", ours: UNSUPPORTED, why: LATER },
    Difference { case: "legacy-gate/concurrency-filter-drains", ours: UNSUPPORTED, why: LATER },
    Difference {
        case: "legacy-gate/concurrency-filter-after-abort",
        ours: UNSUPPORTED,
        why: LATER,
    },
    Difference { case: "legacy-gate/header-profile-unknown", ours: UNSUPPORTED, why: LATER },
    Difference { case: "legacy-gate/header-profile-default", ours: UNSUPPORTED, why: LATER },
];

/// The profile of a configuration, as far as its plugins exist.
fn profile(text: &str) -> Option<Profile> {
    match text {
        "" => Some(Profile::default()),
        some if some.contains("decode-filter") => Some(Profile {
            filters: vec![Filter::Decode],
            scorers: vec![(Scorer::Queue, 1.0)],
            ..Profile::default()
        }),
        _ => None,
    }
}

/// A pool as recorded; readings that are no numbers are missing, as the exposition reader leaves them.
fn store(rows: &[Value]) -> Store {
    let now = Instant::now().into_std();
    // Readings in the past need a store that is older than they are.
    let past = now.checked_sub(Duration::from_secs(600)).unwrap_or(now);
    let (store, mut writer) = Store::new(past);
    let endpoint = |row: &Value| {
        let address: SocketAddr = row["address"].as_str().unwrap().parse().unwrap();
        let mut endpoint = Endpoint::new("ns", row["id"].as_str().unwrap(), address);
        for (key, value) in row["labels"].as_object().into_iter().flatten() {
            endpoint.labels.insert(key.clone(), value.as_str().unwrap().to_owned());
        }
        endpoint
    };
    writer.apply(rows.iter().map(endpoint).collect());
    let scraped = |value: &Value| match value {
        Value::Null => Scraped::Value(0.0),
        value => value.as_f64().map_or(Scraped::Missing, Scraped::Value),
    };
    for row in rows {
        let page = Page {
            waiting: scraped(&row["waiting"]),
            running: scraped(&row["running"]),
            kv: scraped(&row["kv"]),
            ranks: 1,
            capacity_tokens: None,
        };
        let age = Duration::from_millis(row["age_ms"].as_u64().unwrap_or(0));
        let pool = store.pool();
        let id = format!("ns/{}", row["id"].as_str().unwrap());
        let member = pool.members.iter().find(|m| m.endpoint.id.as_str() == id).unwrap();
        store.load_writer(member.slot).publish(&page, now - age);
    }
    store
}

/// Serves one pool and one policy; ends with the sender.
async fn serve(input: &Value, profile: Profile) -> (SocketAddr, watch::Sender<bool>) {
    // Only what was recorded as old is old, however slow the machine.
    let params = Params::parse(r#"{"metricsStalenessThreshold":"30s"}"#).unwrap();
    let mut policy = config::policy(&params, Profile::default()).unwrap();
    policy.profile = profile;
    let objectives = input["objectives"].as_object().into_iter().flatten();
    let objectives = objectives.map(|(name, priority)| {
        (name.clone(), priority.as_i64().map(|priority| i32::try_from(priority).unwrap()))
    });
    let rewrites = Arc::clone(&policy.rewrites);
    let policy = policy.with_documents(rewrites, Arc::new(Objectives::new(objectives)));
    let picking = Picking {
        store: store(input["endpoints"].as_array().unwrap()),
        policy: PolicyWriter::new(policy).1,
        metrics: Arc::new(Metrics::new().unwrap()),
        max_body: 1 << 20,
        held: HeldBytes::default(),
        max_held: 1 << 20,
        flow: None,
        linger: Duration::ZERO,
        options: Options::default(),
    };
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let service = picking.into_service(Routes::default());
    tokio::spawn(server::serve(listener, None, service, Threads::Here, stopped));
    (address, stop)
}

async fn play(input: &Value) -> Value {
    let Some(profile) = input["endpoints"]
        .is_array()
        .then(|| profile(input["config"].as_str().unwrap()))
        .flatten()
        .filter(|_| input["history"].is_null())
    else {
        return json!({ "unsupported": "config" });
    };
    let (address, _stop) = serve(input, profile).await;
    let request = &input["request"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let method = request["method"].as_str().unwrap_or("POST");
    let mut headers = vec![
        (":method".to_owned(), method.to_owned()),
        (":path".to_owned(), text(&request["path"])),
        ("content-type".to_owned(), "application/json".to_owned()),
    ];
    let map = request["headers"].as_object().into_iter().flatten();
    headers.extend(map.map(|(key, value)| (key.clone(), text(value))));
    let pairs = request["header_list"].as_array().into_iter().flatten();
    headers.extend(pairs.map(|pair| (text(&pair[0]), text(&pair[1]))));
    let headers: Vec<_> = headers.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let subset = request["subset"]
        .as_array()
        .map(|items| items.iter().map(|item| item.as_str().unwrap()).collect::<Vec<_>>());

    let mut script = Script::open(&connect(address).await).await;
    let bodiless = request["no_body"] == true;
    if let (true, Some(subset)) = (bodiless, &subset) {
        script.metadata(SUBSET, list(subset));
    }
    script.request_headers(&headers, bodiless);
    if !bodiless {
        if let Some(subset) = &subset {
            script.metadata(SUBSET, list(subset));
        }
        script.request_body(request["body"].as_str().unwrap().as_bytes(), true);
    }
    match script.routed_or_refused().await {
        Ok(heard @ Heard::RequestHeaders { .. }) => json!({ "destination": heard.destination() }),
        Ok(other) => panic!("{other:?}"),
        Err(refused) => {
            let mut answer = json!({ "status": refused.status, "body": refused.body });
            for (key, value) in [("reason", refused.reason), ("retry-after", refused.retry_after)] {
                if let Some(value) = value {
                    answer[key] = value.into();
                }
            }
            answer
        }
    }
}

fn agrees(ours: &Value, recorded: &Value) -> bool {
    if recorded["status"] == "forwarded" {
        let to = &recorded["destination"];
        return ours["destination"] == *to
            || *to == "(one of the endpoints)" && ours["destination"].is_string();
    }
    let reason = &recorded["headers"]["x-llm-d-request-dropped-reason"];
    ours["status"] == recorded["status"]
        && ours["body"] == recorded["body"]
        && ours["reason"] == *reason
}

/// Mutants: priority 0 shed, an unknown objective shed, the old header preferred, the whole pool's
/// saturation under a subset, a gate that stands open at exactly 1.0, a GET that walks past it.
#[test]
fn requests_pass_the_gate_as_recorded() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    replay("legacy-gate", DIFFERENCES, |input| runtime.block_on(play(input)), agrees);
}
