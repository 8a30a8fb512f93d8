//! `plumbline demo`: real traffic through a real Envoy to simulated model servers, watched and judged.
//!
//! Decides the course of a run: start, traffic, breaking, summary, end. What stands is `stage`'s, what
//! is asked `traffic`'s, what may go wrong `verdict`'s. Times count from the start of the traffic.

mod access_log;
mod client;
mod faults;
mod guide;
mod observed;
mod pages;
pub mod scale;
mod screen;
mod stage;
mod summary;
mod table;
mod traffic;
mod verdict;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};

use client::Client;
pub use faults::Break;
use faults::{PINNED_WAITING, Step, TARGET};
use observed::{Observed, Outcome, Sample};
use screen::Screen;
use stage::Stage;
use table::View;
use traffic::{Plan, Planned};

/// Time between two looks at the pool.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for Envoy's last lines; it writes them every 100 ms.
const LOG_LIMIT: Duration = Duration::from_secs(2);

/// What a run is like.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Length of the traffic; see [`Settings::shortest`].
    pub duration: Duration,
    /// Requests per second; above 0.
    pub rate: f64,
    /// Decides every request of the run.
    pub seed: u64,
    /// What to break.
    pub broken: Option<Break>,
    /// JSON params of the utilization detector, as Plumbline takes them; validated by the caller.
    pub params: Option<String>,
    /// Whether everything stays up afterwards until `stop` resolves.
    pub keep: bool,
}

impl Settings {
    /// Shortest duration in which everything that the break promises can be seen.
    pub fn shortest(broken: Option<Break>) -> Duration {
        faults::shortest(broken)
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing failed that must not fail.
    Passed,
    /// Something did.
    Failed,
    /// `stop` resolved before the verdict.
    Stopped,
}

/// Runs the demo to its end and prints to standard output as it goes. Everything it started has ended
/// when this returns, or when the future is dropped.
///
/// # Errors
/// Envoy is missing, something did not start, or ended by itself.
pub async fn run(settings: Settings, stop: impl Future<Output = ()>) -> Result<End> {
    tokio::pin!(stop);
    let mut screen = Screen::new();
    let client = Client::new();
    screen.print(&screen.heading("Plumbline demo"))?;
    let mut stage = tokio::select! {
        stage = Stage::start(&client, settings.params.as_deref()) => stage?,
        () = &mut stop => return Ok(End::Stopped),
    };
    screen.print(&guide::standing(&stage, &settings))?;
    let course = async {
        let mut run = Run::new(&mut stage, &mut screen, client.clone(), &settings)?;
        run.traffic().await?;
        run.conclude().await
    };
    let passed = tokio::select! {
        passed = course => Some(passed?),
        () = &mut stop => None,
    };
    screen.clear()?;
    let end = match passed {
        Some(true) => End::Passed,
        Some(false) => End::Failed,
        None => End::Stopped,
    };
    if settings.keep && end != End::Stopped {
        if settings.broken == Some(Break::Saturate) {
            (0..stage.models().len()).for_each(|model| stage.pin(model, None));
        }
        screen.print(&guide::by_hand(&stage))?;
        stop.await;
    } else if end != End::Stopped {
        screen.print(&screen.heading("Try it by hand"))?;
        screen.print(
            "  plumbline demo --keep    leaves all of it running and prints the curl lines",
        )?;
    }
    stage.end().await;
    Ok(end)
}

/// One run over a stage.
struct Run<'a> {
    stage: &'a mut Stage,
    screen: &'a mut Screen,
    client: Client,
    settings: &'a Settings,
    start: Instant,
    observed: Observed,
    thresholds: Vec<pages::Threshold>,
    sent: usize,
    ended: BTreeMap<String, usize>,
    picks: BTreeMap<SocketAddr, usize>,
    looks: mpsc::UnboundedReceiver<Look>,
    looking: AbortHandle,
    /// What the last look brought; `None` while Plumbline is away.
    last: Option<Sample>,
    /// Plumbline was started again and has not been ready since.
    returning: bool,
}

/// What a look at Plumbline brought; `None` when it is not ready.
type Look = Option<Sample>;

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

impl<'a> Run<'a> {
    fn new(
        stage: &'a mut Stage,
        screen: &'a mut Screen,
        client: Client,
        settings: &'a Settings,
    ) -> Result<Self> {
        let start = Instant::now();
        let (sender, looks) = mpsc::unbounded_channel();
        let looking = tokio::spawn(look(client.clone(), stage.admin(), start, sender));
        let observed = Observed {
            endpoints: stage.models().map(|(_, address)| address).collect(),
            ..Observed::default()
        };
        Ok(Self {
            stage,
            screen,
            client,
            settings,
            start,
            observed,
            thresholds: Vec::new(),
            sent: 0,
            ended: BTreeMap::new(),
            picks: BTreeMap::new(),
            looks,
            looking: looking.abort_handle(),
            last: None,
            returning: false,
        })
    }

    /// Sends the plan, breaks what is to be broken, and returns when every request has ended.
    async fn traffic(&mut self) -> Result<()> {
        self.read_policy().await?;
        let duration = self.settings.duration;
        let mut plan = Plan::new(self.settings.seed, self.settings.rate)
            .take_while(|planned| planned.at < duration)
            .peekable();
        let mut steps = faults::timeline(self.settings.broken, duration).into_iter().peekable();
        let mut requests = JoinSet::new();
        let mut draw = interval(self.screen.interval());
        draw.set_missed_tick_behavior(MissedTickBehavior::Delay);
        draw.tick().await;
        while plan.peek().is_some() || steps.peek().is_some() || !requests.is_empty() {
            let next = plan.peek().map(|planned| self.start + planned.at);
            let step = steps.peek().map(|(at, _)| self.start + *at);
            tokio::select! {
                () = at(next) => {
                    if let Some(planned) = plan.next() {
                        self.send(planned, &mut requests);
                    }
                }
                () = at(step) => {
                    if let Some((_, step)) = steps.next() {
                        self.carry_out(step).await?;
                    }
                }
                Some(outcome) = requests.join_next() => self.record(outcome?),
                Some(look) = self.looks.recv() => self.looked(look)?,
                _ = draw.tick() => {
                    self.stage.check()?;
                    self.screen.show(&self.view())?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, planned: Planned, requests: &mut JoinSet<Outcome>) {
        self.sent += 1;
        self.observed.ended = self.start.elapsed();
        requests.spawn(self.client.clone().send(self.stage.gateway, planned, self.start));
    }

    fn record(&mut self, outcome: Outcome) {
        *self.ended.entry(outcome.label()).or_default() += 1;
        if let Some(address) = outcome.served_by {
            *self.picks.entry(address).or_default() += 1;
        }
        self.observed.outcomes.push(outcome);
    }

    fn looked(&mut self, look: Look) -> Result<()> {
        self.last.clone_from(&look);
        let Some(sample) = look else { return Ok(()) };
        if std::mem::take(&mut self.returning) {
            self.observed.mended = Some(sample.at);
            self.tell(sample.at, "Plumbline is ready again")?;
        }
        self.observed.samples.push(sample);
        Ok(())
    }

    async fn carry_out(&mut self, step: Step) -> Result<()> {
        // A break counts from when it begins: what it fails may end before its process is gone.
        let begun = self.start.elapsed();
        let what = match step {
            Step::KillEndpoint => {
                self.stage.kill_model(TARGET).await;
                format!("killed sim-{TARGET}")
            }
            Step::RestartEndpoint => {
                self.stage.restart_model(TARGET)?;
                format!("started sim-{TARGET} again")
            }
            Step::KillPlumbline => {
                self.stage.kill_plumbline().await?;
                "killed Plumbline".to_owned()
            }
            Step::RestartPlumbline => {
                self.stage.restart_plumbline()?;
                self.returning = true;
                "started Plumbline again".to_owned()
            }
            Step::PinOne => {
                self.stage.pin(TARGET, Some(PINNED_WAITING));
                format!("pinned sim-{TARGET} at {PINNED_WAITING} waiting requests")
            }
            Step::PinAll => {
                let models = 0..self.stage.models().len();
                models.for_each(|model| self.stage.pin(model, Some(PINNED_WAITING)));
                format!("pinned all model servers at {PINNED_WAITING} waiting requests")
            }
        };
        let now = self.start.elapsed();
        match step {
            Step::KillEndpoint | Step::KillPlumbline | Step::PinOne => {
                self.observed.broken = Some(begun);
            }
            Step::RestartEndpoint | Step::PinAll => self.observed.mended = Some(now),
            // Counts from when it is ready.
            Step::RestartPlumbline => {}
        }
        self.tell(now, &what)
    }

    fn tell(&mut self, at: Duration, what: &str) -> Result<()> {
        self.screen.print(&format!("{:>5.1} s  {what}", at.as_secs_f64()))?;
        Ok(())
    }

    fn view(&self) -> View {
        let picks = |address| self.picks.get(&address).copied().unwrap_or_default();
        View {
            at: self.start.elapsed().min(self.settings.duration),
            duration: self.settings.duration,
            rows: View::rows(self.stage.models(), self.last.as_ref(), picks),
            sent: self.sent,
            ended: self.ended.clone(),
            saturation: self.last.as_ref().map(|sample| sample.saturation),
        }
    }

    async fn read_policy(&mut self) -> Result<()> {
        let page = self.client.page(self.stage.admin(), "/debug/policy").await;
        let page = page.context("Plumbline's /debug/policy does not answer")?;
        self.thresholds = pages::thresholds(&page).unwrap_or_default();
        self.observed.staleness =
            pages::staleness(&self.thresholds).context("no staleness limit in /debug/policy")?;
        Ok(())
    }

    /// Joins what the gateway logged, prints the summary and says whether the run passed.
    async fn conclude(&mut self) -> Result<bool> {
        let lines = self.gateway_lines().await?;
        for outcome in &mut self.observed.outcomes {
            outcome.gateway = lines.get(&outcome.number).cloned();
        }
        let metrics = self.client.page(self.stage.admin(), "/metrics").await.unwrap_or_default();
        let context = summary::Context {
            broken: self.settings.broken,
            thresholds: &self.thresholds,
            decisions: pages::decisions(&String::from_utf8_lossy(&metrics)),
        };
        let violations = verdict::verdict(&self.observed, self.settings.broken);
        self.screen.clear()?;
        self.screen.print("")?;
        let verdict = summary::verdict(&self.observed, &violations);
        for section in summary::sections(&self.observed, &context).into_iter().chain([verdict]) {
            self.screen.print(&self.screen.heading(&section.title))?;
            for line in section.lines {
                self.screen.print(&format!("  {line}"))?;
            }
            self.screen.print("")?;
        }
        Ok(violations.is_empty())
    }

    /// The access log once it holds a line for every request that reached the gateway.
    async fn gateway_lines(&self) -> Result<std::collections::HashMap<u64, access_log::Line>> {
        let wanted = self.observed.outcomes.len();
        let mut lines = access_log::read("");
        let complete = async {
            while lines.len() < wanted {
                sleep(Duration::from_millis(20)).await;
                lines = access_log::read(&tokio::fs::read_to_string(&self.stage.access_log).await?);
            }
            anyhow::Ok(())
        };
        match timeout(LOG_LIMIT, complete).await {
            Ok(read) => read.context("reading Envoy's access log")?,
            Err(_) if lines.is_empty() => bail!("Envoy wrote no access log"),
            // A request that never reached Envoy has no line.
            Err(_) => {}
        }
        Ok(lines)
    }
}

/// Resolves at `time`; never for `None`.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Looks at Plumbline until the run is over.
async fn look(
    client: Client,
    admin: SocketAddr,
    start: Instant,
    looks: mpsc::UnboundedSender<Look>,
) {
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let ready = client.page(admin, "/readyz").await.is_some();
        let page = if ready { client.page(admin, "/debug/pool").await } else { None };
        let sample = page.and_then(|page| pages::pool(&page, start.elapsed()));
        if looks.send(sample).is_err() {
            return;
        }
    }
}
