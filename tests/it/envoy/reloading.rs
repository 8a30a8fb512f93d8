//! The line changes while requests run: in force for all that are not decided yet, and nobody is lost.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use serde_json::Value;

use crate::harness::{Ask, Plan, World, soon, wait_for};

/// Writes a version as careful people do: beside it, then in its place.
fn put(path: &Path, content: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content).unwrap();
    std::fs::rename(beside, path).unwrap();
}

fn thresholds(kv: f64, queue: f64) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: wva-saturation-scaling-config\ndata:\n  \
         default: |\n    analyzers: [{{name: saturation}}]\n    kvCacheThreshold: {kv}\n    \
         queueLengthThreshold: {queue}\n"
    )
}

async fn page(world: &World) -> Value {
    let page = Ask::get("/debug/policy").whole(world.picker.admin).await;
    serde_json::from_slice(&page.body).unwrap()
}

/// Waits until the newest version has been judged, and returns `/debug/policy`.
async fn judged(world: &World, level: &str, holds: impl Fn(&Value) -> bool) -> Value {
    wait_for(level, async || {
        let page = page(world).await;
        if holds(&page) { Ok(page) } else { Err(page.to_string()) }
    })
    .await
}

/// 500 requests are held when the thresholds are halved: every one is answered, by the server that is
/// below the new line. Mutants: the policy of the stream's begin; a request dropped by the swap; the
/// line read once at start.
#[tokio::test]
async fn halved_thresholds_decide_500_requests_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaling.yaml");
    // A queue line far above the 500, which count as waiting from the moment they are sent.
    put(&path, &thresholds(0.8, 100_000.0));
    let world = World::start(Plan { scaling_config: Some(path.clone()), ..Plan::default() }).await;
    world.pin(&[(0, 0.6), (0, 0.1), (0, 0.7)]).await;
    let at = world.gateway.listeners()[0].1;

    let body = br#"{"model":"sim-model","prompt":"straight down","max_tokens":1}"#;
    let (mut uploads, mut answers) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        let (ask, pieces) = Ask::upload("/v1/completions");
        let ask = ask.with("content-type", "application/json");
        answers.push(tokio::spawn(async move { ask.whole(at).await }));
        pieces.send(Bytes::from_static(&body[..20])).await.unwrap();
        uploads.push(pieces);
    }
    wait_for("500 requests are held", async || match world.picker.streams().await {
        500 => Ok(()),
        other => Err(other.to_string()),
    })
    .await;
    put(&path, &thresholds(0.4, 50_000.0));
    let page = judged(&world, "the new line", |page| page["generation"] == 2).await;
    assert_eq!(page["thresholds"]["kvCacheUtilThreshold"]["value"], 0.4, "{page}");
    assert_eq!(page["thresholds"]["queueDepthThreshold"]["source"], "scaling-default", "{page}");
    // Scaling is told the same number by the same version.
    let default = &page["scaling"]["entries"]["default"];
    assert_eq!(default["kvCacheThreshold"], 0.4, "{page}");
    assert_eq!(default["analyzers"][0]["scaleUpThreshold"], 0.85, "{page}");
    for pieces in uploads {
        pieces.send(Bytes::from_static(&body[20..])).await.unwrap();
    }
    for answer in answers {
        assert_eq!(soon("an answer", answer).await.unwrap().endpoint(), "sim-1");
    }
    world.at_rest("a reload").await;
}

/// Bad, empty, torn, missing versions change nothing and are told; a good one heals. Mutants: a
/// default where the file is bad; an error that is not shown; a link that is not followed.
#[tokio::test]
async fn bad_versions_are_told_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaling.yaml");
    let data = folder.path().join("first");
    std::fs::write(&data, thresholds(0.7, 5.0)).unwrap();
    // As a mounted ConfigMap: what is watched is a link.
    std::os::unix::fs::symlink(&data, &path).unwrap();
    let plan = Plan { sims: 1, scaling_config: Some(path.clone()), ..Plan::default() };
    let world = World::start(plan).await;
    let first = page(&world).await;
    assert_eq!(first["lastReload"]["result"], "ok", "{first}");
    assert_eq!(first["conflicts"], serde_json::json!([]));

    let mut failed = 0;
    let good = thresholds(0.7, 5.0);
    let over = good.replace("0.7", "7");
    let bad = ["", "default: [", &good[..good.len() / 2], &over, "\0\u{1}", "- a\n"];
    let mut told = Vec::new();
    for content in bad {
        put(&path, content);
        failed += 1;
        let now =
            judged(&world, content, |page| page["lastReload"]["loads_failed"] == failed).await;
        assert_eq!(now["generation"], first["generation"], "{content:?}");
        assert_eq!(now["thresholds"], first["thresholds"], "{content:?}");
        assert_eq!(now["lastReload"]["result"], "failed");
        assert!(now["lastReload"]["at"].as_str().unwrap().ends_with('Z'));
        told.push(now["lastReload"]["error"].as_str().unwrap().to_owned());
    }
    assert!(told[3].contains("kvCacheThreshold must be between 0 and 1, got 7.00"), "{told:?}");
    std::fs::remove_file(&path).unwrap();
    failed += 1;
    let gone = judged(&world, "gone", |page| page["lastReload"]["loads_failed"] == failed).await;
    assert_eq!(gone["thresholds"], first["thresholds"]);
    assert_eq!(
        world.picker.metric("plumbline_scaling_config_loads_total{result=\"failed\"}").await,
        7
    );

    // A swapped link, as the kubelet does.
    let second = folder.path().join("second");
    std::fs::write(&second, thresholds(0.6, 5.0)).unwrap();
    let beside = folder.path().join("link");
    std::os::unix::fs::symlink(&second, &beside).unwrap();
    std::fs::rename(&beside, &path).unwrap();
    let healed = judged(&world, "healed", |page| page["generation"] == 2).await;
    assert_eq!(healed["thresholds"]["kvCacheUtilThreshold"]["value"], 0.6);
    let healed = judged(&world, "counted", |page| page["lastReload"]["result"] == "ok").await;
    assert_eq!(healed["lastReload"]["error"], Value::Null);
    let series = "plumbline_threshold{name=\"kvCacheUtilThreshold\",source=\"scaling-default\"}";
    let metrics = Ask::get("/metrics").whole(world.picker.admin).await.text();
    assert!(metrics.contains(&format!("{series} 0.6")), "{metrics}");
    assert!(metrics.contains("plumbline_threshold_conflicts 0"), "{metrics}");
}

/// Reload after reload under load: each is in force, and every request is answered;
/// `PLUMBLINE_RELOADS` says how many (`make soak`: 10,000). Mutants: a version that is passed over; a
/// stream ended by a swap.
#[tokio::test]
async fn reloads_under_load_lose_nothing() {
    let count = std::env::var("PLUMBLINE_RELOADS").ok();
    let count = count.map_or(10, |count| count.parse::<u64>().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaling.yaml");
    put(&path, &thresholds(0.8, 5.0));
    let world = World::start(Plan { scaling_config: Some(path.clone()), ..Plan::default() }).await;
    let at = world.gateway.listeners()[0].1;
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    // Panics on anything but an answer of a server.
                    Ask::completion(1, false).whole(at).await.endpoint();
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for round in 1..=count {
        let queue = 5 + round % 2;
        put(&path, &thresholds(0.8, queue as f64));
        let now = judged(&world, "in force", |page| page["generation"] == round + 1).await;
        assert_eq!(now["thresholds"]["queueDepthThreshold"]["value"], queue);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        soon("a client", client).await.unwrap();
    }
    assert!(answered.load(Ordering::Relaxed) >= 4);
    world.at_rest("reloads").await;
}

/// The binary says what it did, in the specification's words. Mutants: any text; a rejected entry that
/// is not named; the wrong count of entries.
#[tokio::test]
async fn the_log_tells_of_every_version() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaling.yaml");
    let own = "  m#ns: |\n    kvCacheThreshold: 0.6\n";
    put(&path, &(thresholds(0.8, 5.0) + own));
    let scaling_config = Some(path.clone());
    let world =
        World::start(Plan { sims: 1, process: true, scaling_config, ..Plan::default() }).await;
    let logged = async |texts: &[&str]| {
        wait_for("the log", async || {
            let log = world.picker.log();
            match texts.iter().find(|text| !log.contains(**text)) {
                None => Ok(()),
                Some(text) => Err(format!("no {text:?} in {log}")),
            }
        })
        .await;
    };
    logged(&["Saturation scaling configuration loaded entries=2 has_default=true"]).await;
    put(&path, &thresholds(0.8, 5.0).replace("default:", "m#ns:").replace("0.8", "1.5"));
    logged(&[
        "Saturation scaling ConfigMap changed, reloading cache",
        "Invalid saturation scaling config entry, skipping key=m#ns error=kvCacheThreshold must be \
         between 0 and 1, got 1.50",
        "No 'default' entry in saturation scaling ConfigMap, using hardcoded defaults",
        "Saturation scaling config cache updated entries=1 has_default=false",
    ])
    .await;
}
