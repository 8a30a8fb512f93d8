//! `plumbline demo --scale`: load comes and goes, replicas follow, down to zero and back.
//!
//! Decides the course and what must happen in it; KEDA's rules are `actuator`'s, the servers
//! `replicas`'. Everything is real but the model servers: Envoy, the Plumbline process, the gRPC calls
//! that KEDA would make. Times count from the start of the load.

mod actuator;
mod replicas;
mod scaler;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::End;
use super::client::Client;
use super::screen::Screen;
use super::stage::{Folder, Plumbline, start_envoy};
use crate::envoy::{Cluster, Envoy, free_port};
use actuator::{Actuator, COOLDOWN, POLL};
use replicas::{LOADING, Replicas};
use scaler::Scaler;

/// Clients that send one request after the other while the load lasts: three servers' work.
const CLIENTS: usize = 30;
/// How long the load lasts at least.
const LOAD: Duration = Duration::from_secs(30);
/// Longest time for each part of the course.
const LIMIT: Duration = Duration::from_secs(150);
/// Time between two looks at Plumbline.
const LOOK: Duration = Duration::from_millis(50);

const REQUEST: &str = r#"{"model":"sim-model","prompt":"Scale me.","max_tokens":120}"#;

const VARIANTS: &str = "\
variants:
- {name: sim, modelID: sim-model, accelerator: L4, maxReplicas: 5}
";

const SCALING: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-saturation-scaling-config}
data:
  default: |
    kvCacheThreshold: 0.8
    queueLengthThreshold: 5
    kvSpareTrigger: 0.1
    queueSpareTrigger: 3
    scaleUpThreshold: 0.85
    scaleDownBoundary: 0.7
    analyzers:
    - name: saturation
---
apiVersion: v1
kind: ConfigMap
metadata: {name: wva-model-scale-to-zero-config}
data:
  default: |
    enable_scale_to_zero: true
    retention_period: 90s
";

/// Runs the course and prints it. Everything it started has ended when this returns.
///
/// # Errors
/// Envoy is missing, something did not start, or ended by itself.
pub async fn run(stop: impl Future<Output = ()>) -> Result<End> {
    tokio::pin!(stop);
    let mut screen = Screen::new();
    screen.print(&screen.heading("Plumbline demo: scaling"))?;
    let mut stage = tokio::select! {
        stage = Stage::start() => stage?,
        () = &mut stop => return Ok(End::Stopped),
    };
    let end = tokio::select! {
        passed = stage.course(&mut screen) => match passed? {
            true => End::Passed,
            false => End::Failed,
        },
        () = &mut stop => End::Stopped,
    };
    stage.end().await;
    Ok(end)
}

/// What stands, and what was seen.
struct Stage {
    client: Client,
    envoy: Envoy,
    plumbline: Plumbline,
    gateway: SocketAddr,
    replicas: Replicas,
    actuator: Actuator,
    scaler: Scaler,
    start: Instant,
    next_poll: Instant,
    last: Seen,
    folder: Folder,
}

/// One look at Plumbline's pages.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Seen {
    saturation: f64,
    target: u64,
    pending: u64,
    /// Endpoints that Plumbline knows.
    endpoints: usize,
}

impl Stage {
    async fn start() -> Result<Self> {
        let folder = Folder::new().context("making a folder for the demo's files")?;
        let path = |name: &str| folder.0.join(name);
        std::fs::write(path("variants.yaml"), VARIANTS)?;
        std::fs::write(path("scaling.yaml"), SCALING)?;
        let mut replicas = Replicas::none(path("endpoints.yaml"))?;
        let keda = free_port()?;
        let flags = vec![
            format!("--variants={}", path("variants.yaml").display()),
            format!("--scaling-config={}", path("scaling.yaml").display()),
            "--scaler=on".to_owned(),
            format!("--keda-port={}", keda.port()),
            "--keda-secure=false".to_owned(),
            "--waiting-room=on".to_owned(),
        ];
        replicas.scale(1)?;
        sleep(LOADING).await;
        replicas.tend()?;
        let client = Client::new();
        let mut plumbline = Plumbline::start(&path("endpoints.yaml"), flags, &folder.0)?;
        plumbline.wait_ready(&client).await?;
        let (envoy, gateway) =
            start_envoy(&plumbline, Cluster::OriginalDst, None, &folder.0).await?;
        super::stage::wait_answered(&client, gateway).await?;
        let scaler = Scaler::new(keda, "sim")?;
        let (actuator, last) = (Actuator::default(), Seen::default());
        let start = Instant::now();
        Ok(Self {
            client,
            envoy,
            plumbline,
            gateway,
            replicas,
            actuator,
            scaler,
            start,
            next_poll: start,
            last,
            folder,
        })
    }

    /// The whole course; whether everything happened that must.
    async fn course(&mut self, screen: &mut Screen) -> Result<bool> {
        screen.print(&format!(
            "  One server, up to five; KEDA polls every {POLL:?}, cools down in {COOLDOWN:?}; a server \
             loads for {LOADING:?}.\n"
        ))?;
        self.start = Instant::now();
        self.say(screen, &format!("load: {CLIENTS} clients, one server"))?;
        let load = Load::start(&self.client, self.gateway);
        let crossed =
            self.wait(screen, "the pool is at the line", |seen, _| seen.saturation >= 1.0);
        let crossed = crossed.await?;
        let published =
            self.wait(screen, "a higher target is published", |seen, _| seen.target > 1);
        let published = published.await?;
        let ready = self.wait(screen, "a second server is ready", |_, ready| ready > 1).await?;
        let back = self.wait(screen, "saturation is back below the line", |seen, _| {
            seen.saturation < 0.95 && seen.pending == 0
        });
        let back = back.await?;
        while self.start.elapsed() < LOAD {
            self.step(screen).await?;
        }
        let served = load.end().await;
        self.say(
            screen,
            &format!("the load ends: {} answers of 200, {} others", served.0, served.1),
        )?;
        self.wait(screen, "at most one server is left", |_, ready| ready <= 1).await?;
        // Going straight to zero skips a step that this demo promises; the rest is shown all the same.
        let rested_at_one = self.replicas.ready() == 1;
        self.wait(screen, "no server is needed, and Plumbline knows", |seen, ready| {
            (seen.endpoints, ready) == (0, 0)
        })
        .await?;
        let (waited, status) = self.wake(screen).await?;
        screen.print(&screen.heading("\nTimeline"))?;
        screen.print(&format!(
            "  crossing the line → target published {:.0} ms → replica ready {:.1} s → saturation back {:.1} s",
            (published - crossed).as_secs_f64() * 1e3,
            (ready - crossed).as_secs_f64(),
            (back - crossed).as_secs_f64(),
        ))?;
        screen.print(&format!(
            "  at zero: a request was held {:.1} s (a server loads for {:.0} s) and answered {status}",
            waited.as_secs_f64(),
            LOADING.as_secs_f64(),
        ))?;
        let answered = status == 200 && served.1 == 0 && served.0 > 0;
        let verdict = match (answered, rested_at_one) {
            (false, _) => "FAILED: an answer was not 200",
            (true, false) => "FAILED: it never came to rest at one server",
            (true, true) => "passed",
        };
        screen.print(&format!("  {verdict}"))?;
        Ok(answered && rested_at_one)
    }

    /// Follows everything until `reached`; when that was.
    async fn wait(
        &mut self,
        screen: &mut Screen,
        what: &str,
        reached: impl Fn(Seen, usize) -> bool,
    ) -> Result<Duration> {
        let deadline = Instant::now() + LIMIT;
        loop {
            self.step(screen).await?;
            if reached(self.last, self.replicas.ready()) {
                self.say(screen, what)?;
                return Ok(self.start.elapsed());
            }
            if Instant::now() > deadline {
                let plan = self.page("/debug/plan").await.unwrap_or_default();
                bail!("not within {LIMIT:?}: {what}; the newest plan is\n{plan:#}");
            }
        }
    }

    /// One look, and a poll of KEDA's when it is time.
    async fn step(&mut self, screen: &mut Screen) -> Result<()> {
        let began = Instant::now();
        if let Some(status) = self.envoy.process.try_wait()? {
            bail!("Envoy ended by itself ({status})");
        }
        if self.replicas.tend()? {
            self.say(screen, &format!("{} servers serve", self.replicas.ready()))?;
        }
        let pool = self.page("/debug/pool").await.unwrap_or_default();
        let plan = self.page("/debug/plan").await.unwrap_or_default();
        let variant = &plan["models"][0]["variants"][0];
        let number = |key: &str| variant[key].as_u64().unwrap_or(0);
        self.last = Seen {
            // An empty pool counts as full, and is none that serves at the line.
            saturation: if self.replicas.ready() == 0 {
                0.0
            } else {
                pool["saturation"].as_f64().unwrap_or(0.0)
            },
            endpoints: pool["endpoints"].as_array().map_or(0, Vec::len),
            target: number("target"),
            pending: number("pending"),
        };
        let now = self.start.elapsed();
        if began >= self.next_poll {
            self.next_poll = began + POLL;
            let answer = self.scaler.poll().await?;
            let wanted = self.actuator.decide(answer, self.replicas.count(), now);
            self.act(screen, wanted)?;
        }
        sleep_until(began + LOOK).await;
        Ok(())
    }

    fn act(&mut self, screen: &mut Screen, wanted: u32) -> Result<()> {
        let before = self.replicas.count();
        if wanted != before {
            self.say(screen, &format!("KEDA: {before} → {wanted} replicas"))?;
            self.replicas.scale(wanted)?;
        }
        Ok(())
    }

    /// A request meets an empty pool: its wait and its status.
    async fn wake(&mut self, screen: &mut Screen) -> Result<(Duration, u16)> {
        let mut pushes = self.scaler.pushes().await?;
        let opening = pushes.message().await?.context("the stream ended")?;
        if opening.result {
            bail!("the variant is active with nothing to do");
        }
        self.say(screen, "a request arrives, and nobody is there")?;
        let sent = Instant::now();
        let (client, gateway) = (self.client.clone(), self.gateway);
        let mut answer = tokio::spawn(async move { client.ask(gateway, REQUEST.into()).await });
        loop {
            tokio::select! {
                pushed = pushes.message() => {
                    if pushed?.context("the stream ended")?.result {
                        let held = sent.elapsed().as_secs_f64() * 1e3;
                        self.say(screen, &format!("KEDA is told by push, {held:.0} ms after the request"))?;
                        let count = self.replicas.count();
                        self.act(screen, count.max(1))?;
                    }
                }
                status = &mut answer => {
                    let (status, waited) = (status?, sent.elapsed());
                    self.say(screen, &format!("the request is answered {status}"))?;
                    return Ok((waited, status));
                }
                () = sleep(LOOK) => {
                    if self.replicas.tend()? {
                        self.say(screen, "a server serves")?;
                    }
                }
            }
        }
    }

    fn say(&self, screen: &mut Screen, what: &str) -> Result<()> {
        screen.print(&format!("{:>6.1} s  {what}", self.start.elapsed().as_secs_f64()))?;
        Ok(())
    }

    async fn page(&self, path: &str) -> Option<Value> {
        let page = self.client.page(self.plumbline.admin, path).await?;
        serde_json::from_slice(&page).ok()
    }

    async fn end(mut self) {
        // Whichever is gone already is as it should be.
        let _ = self.envoy.process.kill().await;
        self.plumbline.end().await;
        self.replicas.end().await;
        drop(self.folder);
    }
}

/// Clients at work.
struct Load {
    clients: JoinSet<(usize, usize)>,
    stop: tokio::sync::watch::Sender<bool>,
}

impl Load {
    fn start(client: &Client, gateway: SocketAddr) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let (client, stopped) = (client.clone(), stopped.clone());
            clients.spawn(async move {
                let mut counts = (0, 0);
                while !*stopped.borrow() {
                    match client.ask(gateway, Bytes::from_static(REQUEST.as_bytes())).await {
                        200 => counts.0 += 1,
                        _ => counts.1 += 1,
                    }
                }
                counts
            });
        }
        Self { clients, stop }
    }

    /// Lets every client finish; answers of 200, and others.
    async fn end(self) -> (usize, usize) {
        self.stop.send_replace(true);
        let counts = self.clients.join_all().await;
        counts.into_iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}
