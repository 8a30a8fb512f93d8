//! The HPA of a real cluster scales a Deployment by what Plumbline's external metrics say, through the
//! API server's aggregator. The test plays the kubelet: an endpoint for each replica.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use plumbline::sim;
use serde_json::Value;

use crate::api::Api;
use crate::cluster::Cluster;
use crate::harness::pool_file::{PoolFile, replace};
use crate::harness::{Picker, free_port, start_sim, wait_for, wait_within};
use crate::keys::{self, Authority, Pair};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/models/deployments/llama";
const HPA: &str = "/apis/autoscaling/v2/namespaces/models/horizontalpodautoscalers/llama";
const METRIC: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/models/\
    plumbline_desired_replicas?labelSelector=variant_name%3Dllama";

/// Longest wait for the aggregator, which asks an API that was away again after half a minute at most.
const AGGREGATOR: Duration = Duration::from_secs(90);

/// A cluster, a Plumbline behind its aggregator, and three model servers to be replicas.
struct World {
    cluster: Cluster,
    picker: Picker,
    /// Where external metrics are served, and who signed for it.
    metrics: SocketAddr,
    authority: Authority,
    pool: PoolFile,
    /// Endpoints in the pool.
    endpoints: usize,
    sims: Vec<sim::Handle>,
    variants: PathBuf,
    _folder: tempfile::TempDir,
}

impl World {
    /// Everything at rest, with one replica.
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::new("plumbline");
        // By this name the aggregator knows it.
        let pair = authority.server(&["plumbline.models.svc", "127.0.0.1"]);
        std::fs::write(folder.path().join("tls.crt"), &pair.crt).unwrap();
        std::fs::write(folder.path().join("tls.key"), &pair.key).unwrap();
        let sims: Vec<_> = (0..3).map(|i| start_sim(i, ([127, 0, 0, 1], 0).into())).collect();
        let pool = PoolFile::empty();
        pool.write(&[&sims[0].addr().to_string()]);
        let variants = folder.path().join("variants.yaml");
        replace(&variants, &at_most(3));
        let [keda, metrics] = [free_port(), free_port()];
        let flags = vec![
            format!("--endpoints-file={}", pool.path.display()),
            r#"--params={"metricsStalenessThreshold":"10s"}"#.to_owned(),
            "--secure-serving=false".to_owned(),
            "--drain-timeout=0s".to_owned(),
            "--cores=1".to_owned(),
            "--scaler=on".to_owned(),
            format!("--variants={}", variants.display()),
            format!("--keda-port={}", keda.port()),
            "--external-metrics".to_owned(),
            format!("--external-metrics-port={}", metrics.port()),
            format!("--external-metrics-cert-path={}", folder.path().display()),
            format!(
                "--external-metrics-client-ca={}",
                cluster.keys.path("front-proxy-authority.crt")
            ),
        ];
        let picker = Picker::process(flags, folder.path()).await;
        picker.ready().await;
        let documents = include_str!("hpa.yaml")
            .replace("$PORT", &metrics.port().to_string())
            .replace("$AUTHORITY", &base64(authority.pem.as_bytes()));
        cluster.admin.apply(&documents).await.unwrap();
        Self {
            cluster,
            picker,
            metrics,
            authority,
            pool,
            endpoints: 1,
            sims,
            variants,
            _folder: folder,
        }
    }

    /// A queue of so many requests at every server.
    fn queue(&self, waiting: u64) {
        let (waiting, kv) = (Some(Some(waiting)), Some(Some(0.1)));
        self.sims.iter().for_each(|sim| {
            sim.set(&sim::Change { waiting, kv, ..sim::Change::default() });
        });
    }

    /// Waits until the Deployment has so many replicas. Each replica is an endpoint at once.
    async fn reach(&mut self, replicas: u64) {
        let Self { cluster, pool, sims, endpoints, .. } = self;
        wait_within(AGGREGATOR, &format!("{replicas} replicas"), async || {
            let seen = count(&cluster.admin).await?;
            let wanted = (seen as usize).min(sims.len());
            if wanted != *endpoints {
                let list: Vec<_> = sims.iter().map(|sim| sim.addr().to_string()).collect();
                let list: Vec<_> = list.iter().map(String::as_str).collect();
                pool.write(&list[..wanted]);
                *endpoints = wanted;
            }
            if seen == replicas { Ok(()) } else { Err(standing(&cluster.admin, seen).await) }
        })
        .await;
    }

    /// Waits until the HPA says of its metric that it is so, for this reason.
    async fn active(&self, status: &str, reason: &str) {
        wait_within(AGGREGATOR, reason, async || {
            let hpa = self.cluster.admin.get(HPA).await?;
            let condition = condition(&hpa, "ScalingActive");
            if condition["status"] == status && condition["reason"] == reason {
                Ok(())
            } else {
                Err(hpa["status"].to_string())
            }
        })
        .await;
    }

    /// How often anyone has changed what the Deployment should be.
    async fn changes(&self) -> Value {
        self.cluster.admin.get(DEPLOYMENT).await.unwrap()["metadata"]["generation"].clone()
    }
}

/// The variant, of one replica or more.
fn at_most(replicas: u64) -> String {
    format!(
        "variants:\n- {{name: llama, modelID: m, namespace: models, minReplicas: 1, \
         maxReplicas: {replicas}}}\n"
    )
}

async fn count(admin: &Api) -> Result<u64, String> {
    let deployment = admin.get(DEPLOYMENT).await?;
    deployment["spec"]["replicas"].as_u64().ok_or_else(|| deployment.to_string())
}

fn condition<'a>(hpa: &'a Value, name: &str) -> &'a Value {
    let list = hpa["status"]["conditions"].as_array();
    list.and_then(|list| list.iter().find(|one| one["type"] == name)).unwrap_or(&Value::Null)
}

/// What is known where there are other replicas than were waited for.
async fn standing(admin: &Api, seen: u64) -> String {
    let (hpa, metric) = (admin.get(HPA).await, admin.get(METRIC).await);
    format!("{seen}; HPA {:?}; metric {metric:?}", hpa.map(|hpa| hpa["status"].to_string()))
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let quad = |chunk: &[u8]| {
        let bits = (0..3).fold(0, |bits, i| bits << 8 | u32::from(*chunk.get(i).unwrap_or(&0)));
        let digit = |i: usize| {
            let index = bits >> (18 - 6 * i) & 63;
            if i <= chunk.len() { char::from(DIGITS[index as usize]) } else { '=' }
        };
        [0, 1, 2, 3].map(digit)
    };
    bytes.chunks(3).flat_map(quad).collect()
}

/// A queue raises the target from replica to replica, a bound lowers it. Mutants: a value that is no
/// Quantity; a discovery page that the aggregator takes for none; a label that a selector cannot ask for;
/// a target that counts the replicas to be added only; a bound that waits for the clocks.
#[tokio::test]
async fn the_hpa_follows_the_target_up_and_down() {
    let mut world = World::start().await;
    world.queue(0);
    world.active("True", "ValidMetricFound").await;
    world.reach(1).await;
    world.queue(20);
    world.reach(3).await;
    replace(&world.variants, &at_most(2));
    world.reach(2).await;
}

/// Without Plumbline the replicas stay; with it they do again, and only then move on. Mutants: a loop
/// that plans before the pool is known, and publishes less than there is; a plan that is answered as an
/// empty list instead of an error.
#[tokio::test]
async fn replicas_stay_while_plumbline_is_away() {
    let mut world = World::start().await;
    world.queue(20);
    replace(&world.variants, &at_most(2));
    world.reach(2).await;
    world.active("True", "ValidMetricFound").await;
    let before = world.changes().await;
    world.picker.signal("KILL");
    world.picker.exit().await;
    world.active("False", "FailedGetExternalMetric").await;
    assert_eq!(count(&world.cluster.admin).await, Ok(2));
    world.picker.restart().await;
    world.active("True", "ValidMetricFound").await;
    assert_eq!(world.changes().await, before);
    replace(&world.variants, &at_most(3));
    world.reach(3).await;
}

/// The API server is killed under everybody and comes back: the HPA goes on. Mutant of the harness: a
/// server that starts with an empty store.
#[tokio::test]
async fn a_killed_api_server_comes_back_with_all_it_knew() {
    let mut world = World::start().await;
    world.active("True", "ValidMetricFound").await;
    let uid = world.cluster.admin.get(DEPLOYMENT).await.unwrap()["metadata"]["uid"].clone();
    world.cluster.restart_server().await;
    let after = world.cluster.admin.get(DEPLOYMENT).await.unwrap();
    assert_eq!(after["metadata"]["uid"], uid);
    world.queue(20);
    world.reach(3).await;
}

/// Only the aggregator may ask, and it asks for those only whom the cluster allows to. Mutants: client
/// certificates that are asked for and not demanded; any authority's taken.
#[tokio::test]
async fn nobody_but_the_front_proxy_is_answered() {
    let world = World::start().await;
    let direct = async |client: Option<&Pair>| {
        let api = Api::new(world.metrics, &world.authority.pem, client);
        api.ask(Method::GET, METRIC, None).await.map(|answer| answer.status)
    };
    let keys = &world.cluster.keys;
    let proxy = keys.front_proxy.client(keys::FRONT_PROXY);
    wait_for("a plan, for the front proxy", async || match direct(Some(&proxy)).await {
        Ok(200) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    let without = direct(None).await;
    assert!(without.is_err(), "{without:?}");
    let of_the_cluster = keys.cluster.client("admin");
    let of_another = direct(Some(&of_the_cluster)).await;
    assert!(of_another.is_err(), "{of_another:?}");

    let list = wait_within(AGGREGATOR, "the metric through the aggregator", async || {
        let list = world.cluster.admin.get(METRIC).await?;
        if list["items"][0]["value"].is_string() { Ok(list) } else { Err(list.to_string()) }
    })
    .await;
    assert_eq!(list["kind"], "ExternalMetricValueList");
    let nobody = world.cluster.client(keys::NOBODY).get(METRIC).await.unwrap_err();
    assert!(nobody.starts_with("403"), "{nobody}");
}
