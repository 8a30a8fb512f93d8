//! A real Prometheus server scrapes a picker: what it reads, and what an HPA behind it would do.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;

use plumbline::app::Settings;
use plumbline::app::scaling::{Mode, Scaler};
use plumbline::config::variants;
use plumbline::sim;
use serde_json::Value;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};

use crate::harness::{Ask, Picker, Plan, free_port, start_sim, wait_for};

/// `make test` puts it there and says where.
fn binary(name: &str) -> PathBuf {
    let server = std::env::var_os("PLUMBLINE_PROMETHEUS").map(PathBuf::from);
    let folder = server.as_deref().and_then(std::path::Path::parent);
    let found = folder.map(|folder| folder.join(name)).filter(|path| path.exists());
    found.unwrap_or_else(|| PathBuf::from(name))
}

/// A server that scrapes `target` four times a second.
struct Prometheus {
    at: SocketAddr,
    _process: Child,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("prometheus.yml");
        let text = format!(
            "global: {{scrape_interval: 250ms}}\n\
             scrape_configs:\n- job_name: plumbline\n  static_configs: [{{targets: ['{target}']}}]\n"
        );
        std::fs::write(&config, text).unwrap();
        let at = free_port();
        let process = Command::new(binary("prometheus"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={at}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .expect("prometheus: `make test` fetches it, PLUMBLINE_PROMETHEUS names another");
        Self { at, _process: process, _folder: folder }
    }

    /// The series of an instant query: labels and value.
    async fn query(&self, query: &str) -> Result<Vec<(Value, f64)>, String> {
        let encoded: String =
            form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
        let ask = Ask::get(&format!("/api/v1/query?{encoded}"));
        let page = ask.send(self.at).await.map_err(|error| error.to_string())?;
        let page = page.whole().await.map_err(|error| error.to_string())?;
        let page: Value = serde_json::from_slice(&page.body).map_err(|error| error.to_string())?;
        let series = page["data"]["result"].as_array().ok_or_else(|| page.to_string())?;
        let value = |series: &Value| series["value"][1].as_str().and_then(|v| v.parse().ok());
        Ok(series.iter().filter_map(|s| Some((s["metric"].clone(), value(s)?))).collect())
    }
}

const VARIANTS: &str = "variants:\n- {name: v, modelID: m, namespace: ns, accelerator: L4}\n";

async fn saturated(mode: Mode) -> (Vec<sim::Handle>, Picker) {
    let sims: Vec<_> = (0..2).map(|i| start_sim(i, ([127, 0, 0, 1], 0).into())).collect();
    for sim in &sims {
        let (waiting, kv) = (Some(Some(10)), Some(Some(0.5)));
        sim.set(&sim::Change { waiting, kv, ..sim::Change::default() });
    }
    let list: Vec<_> = sims.iter().map(|sim| sim.addr().to_string()).collect();
    let settings = Plan::default().settings(&list.join(","));
    let variants = variants::read(VARIANTS.as_bytes()).unwrap().unwrap();
    let scaler = Scaler { mode, variants, ..Scaler::default() };
    let picker = Picker::inside(Settings { scaler, ..settings }).await;
    picker.ready().await;
    (sims, picker)
}

/// The series under WVA's names and labels, and the HPA's formula over them: an external metric of type
/// `AverageValue` with a goal of 1 asks for the ceiling of the sum. Mutants: another label; two series of
/// one variant, which an HPA would add up; the ratio upside down.
#[tokio::test]
async fn an_hpa_behind_prometheus_arrives_at_the_target() {
    let (_sims, picker) = saturated(Mode::On).await;
    let prometheus = Prometheus::start(picker.admin);
    let target = async || {
        let page = Ask::get("/debug/plan").whole(picker.admin).await;
        let plan: Value = serde_json::from_slice(&page.body).map_err(|error| error.to_string())?;
        let variant = &plan["models"][0]["variants"][0];
        let target = variant["target"].as_f64().filter(|target| *target > 2.0);
        target.ok_or_else(|| plan.to_string())
    };
    wait_for("Prometheus reads the target", async || {
        let target = target().await?;
        let labels = r#"{variant_name="v",accelerator_type="L4",job="plumbline"}"#;
        let found = prometheus.query(&format!("wva_desired_replicas{labels}")).await?;
        let wanted =
            prometheus.query(&format!("ceil(sum(wva_desired_replicas{labels}) / 1)")).await?;
        let seen = format!("{found:?}, {wanted:?}, target {target}");
        // What the HPA computes is what the plan says, and the namespace is told beside its own.
        let [(labels, value)] = found.as_slice() else { return Err(seen) };
        let equal = *value == target && wanted.first().map(|(_, value)| *value) == Some(target);
        if equal && labels["namespace"] == "ns" { Ok(()) } else { Err(seen) }
    })
    .await;
    wait_for("the ratio is desired over current", async || {
        let of = |family: &str| format!("sum by (variant_name) ({family})");
        let [ratio, current, desired] =
            ["wva_desired_ratio", "wva_current_replicas", "wva_desired_replicas"].map(of);
        let found = prometheus.query(&format!("{ratio} * {current} - {desired}")).await?;
        match found.as_slice() {
            [(_, rest)] if rest.abs() < 1e-9 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Mutants: a family without help; a counter without `_total`; a page that is no exposition.
#[tokio::test]
async fn promtool_finds_nothing_of_ours_to_complain_of() {
    let (_sims, picker) = saturated(Mode::On).await;
    wait_for("a plan", async || {
        let page = Ask::get("/debug/plan").whole(picker.admin).await;
        if page.status == 200 { Ok(()) } else { Err(page.text()) }
    })
    .await;
    let page = Ask::get("/metrics").whole(picker.admin).await.text();
    let mut tool = Command::new(binary("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool");
    tool.stdin.take().unwrap().write_all(page.as_bytes()).await.unwrap();
    let output = tool.wait_with_output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}
