//! The scaling loop through the real parts: simulated servers that are scraped, the served picker, the
//! pages, and a client that asks as KEDA does.

mod keda;

use std::time::Duration;

use plumbline::app::scaling::{Mode, Port, Scaler};
use plumbline::app::{Security, Settings};
use plumbline::config::variants;
use plumbline::flow::Limits;
use plumbline::sim;
use serde_json::Value;
use tonic::Code;

use self::keda::{Keda, object};
use crate::harness::pool_file::PoolFile;
use crate::harness::script::{Script, connect};
use crate::harness::{Ask, Picker, Plan, soon, start_sim, wait_for};

/// Scaling with these variants, KEDA's port in plaintext.
fn scaler(mode: Mode, document: &str) -> Scaler {
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let port = |security| Port { address: any, security, client_ca: None };
    Scaler {
        mode,
        variants: variants::read(document.as_bytes()).unwrap().unwrap(),
        keda: Some(port(Security::Plaintext)),
        external_metrics: Some(port(Security::SelfSigned)),
        ..Scaler::default()
    }
}

async fn page(picker: &Picker, path: &str) -> Value {
    let page = Ask::get(path).whole(picker.admin).await;
    assert_eq!(page.status, 200, "{}", page.text());
    serde_json::from_slice(&page.body).unwrap()
}

fn pinned(waiting: u64) -> sim::Change {
    sim::Change { waiting: Some(Some(waiting)), kv: Some(Some(0.5)), ..sim::Change::default() }
}

/// Two servers of one variant, both with this queue.
async fn two(waiting: u64, mode: Mode, document: &str) -> (Vec<sim::Handle>, Picker) {
    let sims: Vec<_> = (0..2).map(|i| start_sim(i, ([127, 0, 0, 1], 0).into())).collect();
    sims.iter().for_each(|sim| sim.set(&pinned(waiting)));
    let list: Vec<_> = sims.iter().map(|sim| sim.addr().to_string()).collect();
    let settings = Plan::default().settings(&list.join(","));
    let picker = Picker::inside(Settings { scaler: scaler(mode, document), ..settings }).await;
    picker.ready().await;
    (sims, picker)
}

const ONE: &str =
    "variants:\n- {name: v, modelID: m, namespace: ns, accelerator: L4, minReplicas: 1}\n";

/// Mutants: a target that no plan raises; KEDA answered with current replicas; a metric with one of its
/// two numbers; a stream that says nothing on opening.
#[tokio::test]
async fn keda_hears_the_target_of_a_saturated_pool() {
    let (_sims, picker) = two(10, Mode::On, ONE).await;
    let keda = Keda::connect(picker.keda.unwrap()).await;
    let variant = || object(&[("variantName", "v")]);
    wait_for("a target above two", async || match keda.wanted(variant()).await {
        Ok(wanted) if wanted > 2 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    assert!(keda.is_active(variant()).await.unwrap());
    let mut active = keda.stream_is_active(variant()).await.unwrap();
    let first = soon("the state on opening", active.message()).await.unwrap().unwrap();
    assert!(first.result);
    let mut specs = keda.stream_specs(variant()).await.unwrap();
    let first = soon("the specification on opening", specs.message()).await.unwrap().unwrap();
    assert_eq!(first.specs, keda.specs(variant()).await.unwrap());

    let plan = page(&picker, "/debug/plan").await;
    assert_eq!(plan["standing"], "holder");
    let model = &plan["models"][0];
    assert_eq!((&model["modelID"], &model["namespace"]), (&"m".into(), &"ns".into()));
    assert!(model["variants"][0]["target"].as_u64() > Some(2), "{plan}");
    let labels = r#"{accelerator_type="L4",namespace="ns",variant_name="v"}"#;
    assert!(picker.metric(&format!("wva_desired_replicas{labels}")).await > 2);
    assert_eq!(picker.metric("plumbline_autoscaler_inert").await, 0);
}

/// What an HPA reads, over TLS by a client that is no code of ours. Mutants: a target of another
/// variant; a port that speaks plaintext; a namespace that shows another's variants.
#[tokio::test]
async fn external_metrics_tell_the_same_target() {
    let (_sims, picker) = two(10, Mode::On, ONE).await;
    let keda = Keda::connect(picker.keda.unwrap()).await;
    let at = picker.external_metrics.unwrap();
    let get = async |path: &str| {
        let url = format!("https://{at}/apis/external.metrics.k8s.io/v1beta1{path}");
        let output = tokio::process::Command::new("curl").args(["-sk", &url]).output();
        let output = output.await.expect("curl");
        serde_json::from_slice::<Value>(&output.stdout).map_err(|error| error.to_string())
    };
    let metric = "plumbline_desired_replicas?labelSelector=variant_name%3Dv";
    wait_for("the target of KEDA", async || {
        let wanted = keda.wanted(object(&[("variantName", "v")])).await;
        let wanted = wanted.map_err(|status| status.to_string())?;
        let list = get(&format!("/namespaces/ns/{metric}")).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let quantity = Value::from(wanted.to_string());
        match items.as_slice() {
            [item] if wanted > 2 && item["value"] == quantity => Ok(()),
            _ => Err(format!("{wanted}, {list}")),
        }
    })
    .await;
    assert_eq!(get("").await.unwrap()["kind"], "APIResourceList");
    let other = get(&format!("/namespaces/other/{metric}")).await.unwrap();
    assert!(other["items"].as_array().is_none_or(Vec::is_empty), "{other}");
}

/// Mutants: a missing name taken for any variant; NOT_FOUND without the names there are.
#[tokio::test]
async fn a_question_without_an_answer_says_why() {
    let (_sims, picker) = two(0, Mode::On, ONE).await;
    let keda = Keda::connect(picker.keda.unwrap()).await;
    wait_for("the first plan", async || {
        let answer = keda.is_active(object(&[("variantName", "v")])).await;
        answer.map(|_| ()).map_err(|status| status.to_string())
    })
    .await;
    let missing = keda.is_active(object(&[])).await.unwrap_err();
    assert_eq!(missing.code(), Code::InvalidArgument);
    assert!(missing.message().contains("variantName"), "{missing}");
    let unknown = keda.stream_is_active(object(&[("variantName", "x")])).await;
    let unknown = match unknown {
        Ok(mut stream) => stream.message().await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(unknown.code(), Code::NotFound);
    assert!(unknown.message().contains("ns/m/v"), "{unknown}");
    let other = object(&[("variantName", "v"), ("modelID", "other")]);
    assert_eq!(keda.wanted(other.clone()).await.unwrap_err().code(), Code::NotFound);
    let metric = keda.metrics(object(&[("variantName", "v")]), "cpu").await.unwrap_err();
    assert_eq!(metric.code(), Code::NotFound);
}

/// Nobody can act on advice, and everything is shown. The page is what `plumbline plan` plans from: it
/// comes to the same plan. Mutants: KEDA's port or `wva_desired_replicas` in spite of advice; a snapshot
/// with the memory of after the plan, or without the results of further analyzers.
#[tokio::test]
async fn advice_is_shown_and_replays() {
    let (_sims, picker) = two(10, Mode::Advisory, ONE).await;
    assert_eq!((picker.keda, picker.external_metrics), (None, None));
    wait_for("a second of plans", async || {
        let plans = page(&picker, "/debug/plan/history").await;
        let plans = plans.as_array().unwrap();
        let target = |plan: &Value| plan["models"][0]["variants"][0]["target"].as_u64();
        if plans.len() > 1 && target(plans.last().unwrap()) > Some(2) {
            Ok(())
        } else {
            Err(format!("{} plans", plans.len()))
        }
    })
    .await;
    let metrics = Ask::get("/metrics").whole(picker.admin).await.text();
    assert!(!metrics.contains("wva_desired_"), "{metrics}");
    assert!(metrics.contains("plumbline_plan_target_replicas{"), "{metrics}");
    assert!(metrics.contains("wva_current_replicas{"), "{metrics}");

    // The newest plan and its snapshot are two pages; a plan between the two is tried again.
    wait_for("a plan that its snapshot comes to", async || {
        let snapshot = Ask::get("/debug/snapshot").whole(picker.admin).await;
        let plan = page(&picker, "/debug/plan").await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &snapshot.body).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let mut command =
            crate::harness::picker::command(&["plan", "--output=json", "--input", &path]);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let again: Value = serde_json::from_slice(&output.stdout).unwrap();
        let (ours, theirs) = (&plan["models"][0], &again["models"][0]);
        if ours["variants"] == theirs["variants"] && ours["totalDemand"] == theirs["totalDemand"] {
            Ok(())
        } else {
            Err(format!("{ours} is not {theirs}"))
        }
    })
    .await;
}

/// A pool that nobody has found yet is not an empty one: a restart must not publish zero replicas.
/// Mutant: a loop that begins at once.
#[tokio::test]
async fn nothing_is_planned_before_the_pool_is_known() {
    let file = PoolFile::empty();
    let settings = file.source(Plan::default().settings(""));
    std::fs::remove_file(&file.path).unwrap();
    let sim = start_sim(0, ([127, 0, 0, 1], 0).into());
    let settings = Settings { scaler: scaler(Mode::On, ONE), ..settings };
    let picker = Picker::inside(settings).await;
    let keda = Keda::connect(picker.keda.unwrap()).await;
    let early = keda.wanted(object(&[("variantName", "v")])).await.unwrap_err();
    assert_eq!(early.code(), Code::Unavailable);
    assert_eq!(Ask::get("/debug/plan").whole(picker.admin).await.status, 503);
    file.set(&picker, &[&sim.addr().to_string()]).await;
    wait_for("a plan", async || {
        let plan = Ask::get("/debug/plan").whole(picker.admin).await;
        if plan.status == 200 { Ok(()) } else { Err(plan.text()) }
    })
    .await;
    let first = &page(&picker, "/debug/plan/history").await[0];
    let variant = &first["models"][0]["variants"][0];
    assert_eq!((&variant["current"], &variant["target"]), (&1.into(), &1.into()), "{first}");
}

/// Mutants: the first of several taken; a plan that goes on in spite of it.
#[tokio::test]
async fn the_model_is_the_one_that_the_servers_report() {
    let (sims, picker) = two(0, Mode::Advisory, "variants: [{name: v}]").await;
    let plan = wait_for("a plan", async || {
        let plan = Ask::get("/debug/plan").whole(picker.admin).await;
        if plan.status == 200 { Ok(plan.text()) } else { Err(plan.text()) }
    })
    .await;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["models"][0]["modelID"], sim::Settings::default().model);
    drop((sims, picker));

    let start = |model: &str| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = sim::Settings { model: model.to_owned(), ..sim::Settings::default() };
        sim::Server::start(model.to_owned(), listener, settings).unwrap()
    };
    let sims = [start("a"), start("b")];
    let list = sims.each_ref().map(|sim| sim.addr().to_string()).join(",");
    let settings = Plan::default().settings(&list);
    let scaler = scaler(Mode::Advisory, "variants: [{name: v}]");
    let picker = Picker::inside(Settings { scaler, ..settings }).await;
    picker.ready().await;
    wait_for("the reason", async || {
        let plan = Ask::get("/debug/plan").whole(picker.admin).await;
        let text = plan.text();
        if plan.status == 503 && text.contains("(a, b)") { Ok(()) } else { Err(text) }
    })
    .await;
}

/// At zero, a request that waits in the room wakes the variant, and KEDA is told by push. Mutants: held
/// requests left out of the plan; the push left to the next interval's end.
#[tokio::test]
async fn a_held_request_wakes_a_variant_at_zero() {
    let file = PoolFile::empty();
    let limits = Limits { wait: Duration::from_secs(60), ..Limits::default() };
    let plan = Plan { waiting_room: Some(limits), ..Plan::default() };
    let zero = "variants:\n- {name: v, modelID: m}\n";
    let settings = Settings { scaler: scaler(Mode::On, zero), ..file.source(plan.settings("")) };
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    let keda = Keda::connect(picker.keda.unwrap()).await;
    let variant = || object(&[("variantName", "v")]);
    wait_for("a plan of zero", async || match keda.wanted(variant()).await {
        Ok(0) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let mut active = keda.stream_is_active(variant()).await.unwrap();
    let first = soon("the state on opening", active.message()).await.unwrap().unwrap();
    assert!(!first.result);
    let channel = connect(picker.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(&[(":method", "POST"), (":path", "/v1/completions")], false);
    script.request_body(br#"{"model":"m","prompt":"hi"}"#, true);
    let pushed = soon("the push", active.message()).await.unwrap().unwrap();
    assert!(pushed.result);
    assert_eq!(keda.wanted(variant()).await.unwrap(), 1);
}

/// What a peer holds counts here, and a peer that is gone leaves unknown whether the model is idle.
/// Mutants: peers that are not read; their requests beside the plan; an unread peer as an idle one.
#[tokio::test]
async fn what_peers_hold_counts() {
    let file = PoolFile::empty();
    let limits = Limits { wait: Duration::from_secs(60), ..Limits::default() };
    let plan = Plan { waiting_room: Some(limits), ..Plan::default() };
    let peer = Picker::inside(file.source(plan.settings(""))).await;
    peer.ready().await;
    let mut scaler = scaler(Mode::On, "variants:\n- {name: v, modelID: m}\n");
    scaler.peers = vec![peer.admin.to_string()];
    let settings = Settings { scaler, ..file.source(Plan::default().settings("")) };
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    let channel = connect(peer.grpc).await;
    let mut script = Script::open(&channel).await;
    script.request_headers(&[(":method", "POST"), (":path", "/v1/completions")], false);
    script.request_body(br#"{"model":"m","prompt":"hi"}"#, true);
    wait_for("the peer's request is in the plan", async || {
        let snapshot = page(&picker, "/debug/snapshot").await;
        let model = &snapshot["models"][0];
        let seen = (model["schedulerQueue"]["size"].as_u64(), model["inFlight"].as_u64());
        if seen == (Some(1), Some(0)) { Ok(()) } else { Err(model.to_string()) }
    })
    .await;
    let name = peer.admin;
    drop((script, peer));
    wait_for("nobody knows", async || {
        let snapshot = page(&picker, "/debug/snapshot").await;
        let model = &snapshot["models"][0];
        if model["inFlight"].is_null() { Ok(()) } else { Err(model.to_string()) }
    })
    .await;
    assert_eq!(picker.metric(&format!("plumbline_peer_up{{peer=\"{name}\"}}")).await, 0);
}
