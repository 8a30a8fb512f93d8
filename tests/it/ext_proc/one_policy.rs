//! One policy a request: its model and its endpoint are of the same version, whatever swaps meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumbline::config::{self, Params};
use plumbline::endpoint::Endpoint;
use plumbline::ext_proc::server::{Threads, serve};
use plumbline::ext_proc::{Options, Picking};
use plumbline::policy::{Policy, PolicyWriter};
use plumbline::routing::rewrite::{Matches, Rewrite, Rule, Target};
use plumbline::routing::{Profile, Rewrites};
use plumbline::store::{HeldBytes, Page, Scraped, Store};
use plumbline::telemetry::metrics::Metrics;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::service::Routes;

use super::{POOL, Script, connect};

const CHAT: &[(&str, &str)] = &[(":method", "POST"), (":path", "/v1/chat/completions")];

/// The model `m` goes on as `model`, to the one endpoint that is below these thresholds.
fn version(model: &str, params: &str) -> Policy {
    let target = Target { model: model.to_owned(), weight: None };
    let rule = Rule { matches: Matches::Any, targets: vec![target] };
    let rewrite = Rewrite { name: model.to_owned(), created: None, rules: vec![rule] };
    let policy = config::policy(&Params::parse(params).unwrap(), Profile::default()).unwrap();
    policy.with_documents(Rewrites::new([rewrite]).into(), Arc::default())
}

/// A store of two endpoints: the first has a long queue, the second a full cache.
fn loaded() -> (Store, impl Drop) {
    let now = tokio::time::Instant::now().into_std();
    let (store, mut members) = Store::new(now);
    let endpoints = POOL.iter().zip(["a", "b"]);
    let endpoints = endpoints.map(|(at, name)| Endpoint::new("ns", name, at.parse().unwrap()));
    members.apply(endpoints.collect());
    for (member, (waiting, kv)) in store.pool().members.iter().zip([(9.0, 0.1), (0.0, 0.9)]) {
        let [waiting, running, kv] = [waiting, 0.0, kv].map(Scraped::Value);
        let page = Page { waiting, running, kv, ranks: 1, capacity_tokens: None };
        let mut writer = store.load_writer(member.slot);
        writer.begin();
        writer.publish(&page, now);
    }
    (store, Kept(members))
}

/// Membership lives as long as its writer.
struct Kept<T>(#[allow(dead_code)] T);

impl<T> Drop for Kept<T> {
    fn drop(&mut self) {}
}

/// Mutants: `pick` in `ext_proc/stream.rs` loads the policy again after the rewrite, or before the
/// endpoint is chosen.
#[tokio::test]
async fn model_and_endpoint_are_of_one_version() {
    let (store, _kept) = loaded();
    let staleness = r#""metricsStalenessThreshold":"1h""#;
    let queue = format!(r#"{{"queueDepthThreshold":100,"kvCacheUtilThreshold":0.5,{staleness}}}"#);
    let cache = format!(r#"{{"queueDepthThreshold":5,"kvCacheUtilThreshold":1.0,{staleness}}}"#);
    let versions = [version("for-a", &queue), version("for-b", &cache)];
    let (writer, reader) = PolicyWriter::new(versions[0].clone());
    let picking = Picking {
        store: store.clone(),
        policy: reader,
        metrics: Arc::new(Metrics::new().unwrap()),
        max_body: 1 << 20,
        held: HeldBytes::default(),
        max_held: 1 << 20,
        flow: None,
        linger: Duration::from_millis(250),
        options: Options { correct_in_flight: false, ..Options::default() },
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let service = picking.into_service(Routes::default());
    let server = tokio::spawn(serve(listener, None, service, Threads::Own(1), stopped));
    let done = Arc::new(AtomicBool::new(false));
    let swapping = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let mut swaps = 0_usize;
            while !done.load(Ordering::Relaxed) {
                swaps += 1;
                writer.publish(versions[swaps % 2].clone());
            }
            swaps
        })
    };

    let channel = connect(at).await;
    let mut seen = [0, 0];
    for _ in 0..400 {
        let mut script = Script::open(&channel).await;
        script.request_headers(CHAT, false);
        script.request_body(br#"{"model":"m","messages":[{"role":"user","content":"x"}]}"#, true);
        let (destination, body) = script.sent_on().await;
        let body = String::from_utf8(body).unwrap();
        let which = usize::from(body.contains("for-b"));
        assert!(body.contains(["for-a", "for-b"][which]), "{body}");
        assert_eq!(destination, POOL[which], "{body}");
        seen[which] += 1;
    }
    done.store(true, Ordering::Relaxed);
    assert!(swapping.join().unwrap() > 400, "the policy changed all the time");
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    server.abort();
}
