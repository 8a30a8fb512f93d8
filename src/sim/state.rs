//! One server's state: the engine with the clock and the clients around it.
//!
//! Decides who hears of an engine's event and when the engine is woken; an empty engine sleeps until a
//! request comes. All of it stands behind one short lock that is never held across an await.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::Instant;

use super::Settings;
use super::admin::{Change, Pins};
use super::engine::{Engine, Event, FinishReason, Job, SequenceId, TooLong};
use super::faults::{Dice, Fault, FaultKind, MetricsMode};
use super::metrics::{Page, Totals};
use super::openai::Usage;

/// Requests that `/admin/received` remembers.
const RECEIVED: usize = 100;

/// What a request hears of its sequence.
#[derive(Debug)]
pub(super) enum Progress {
    /// One more token, not the last.
    Token,
    /// The last token, and so the end.
    Done(Usage, FinishReason),
}

/// Which connections must close.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Cut {
    /// Counts up with every cut.
    pub(super) times: u64,
    /// The one connection that the last cut spares: it carries the answer to the order.
    pub(super) except: Option<u64>,
}

/// One server, shared by its connections, its engine's clock and its handle.
#[derive(Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    pub(super) settings: Settings,
    inner: Mutex<Inner>,
    wake: Notify,
    cut: watch::Sender<Cut>,
    /// Unix time of `born`.
    unix_born: f64,
    born: Instant,
}

#[derive(Debug)]
struct Inner {
    engine: Engine,
    /// Counts restarts, so that a request of an earlier life cannot abort one of this.
    life: u64,
    listeners: HashMap<SequenceId, mpsc::UnboundedSender<Progress>>,
    totals: Totals,
    pins: Pins,
    frozen_page: Option<String>,
    metrics: MetricsMode,
    fault: Option<Fault>,
    dice: Dice,
    received: VecDeque<Value>,
    requests: u64,
    /// Unix time, seconds.
    started: f64,
}

impl State {
    /// `unix_now` is the wall-clock time, seconds.
    pub(super) fn new(
        name: String,
        address: SocketAddr,
        settings: Settings,
        unix_now: f64,
    ) -> Self {
        let inner = Inner {
            engine: Engine::new(settings.engine.clone()),
            life: 0,
            listeners: HashMap::new(),
            totals: Totals::new(),
            pins: Pins::default(),
            frozen_page: None,
            metrics: MetricsMode::Ok,
            fault: None,
            dice: Dice::new(settings.seed),
            received: VecDeque::new(),
            requests: 0,
            started: unix_now,
        };
        Self {
            name,
            address,
            settings,
            inner: Mutex::new(inner),
            wake: Notify::new(),
            cut: watch::Sender::new(Cut::default()),
            unix_born: unix_now,
            born: Instant::now(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic leaves plain values behind; a simulator may go on with them.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unix time, seconds.
    pub(super) fn unix_now(&self) -> f64 {
        self.unix_born + self.born.elapsed().as_secs_f64()
    }

    /// A receiver of the orders to close connections.
    pub(super) fn cuts(&self) -> watch::Receiver<Cut> {
        self.cut.subscribe()
    }

    /// Moves the engine whenever a step ends, for ever.
    pub(super) async fn drive(&self) {
        loop {
            let next = self.lock().engine.next_step();
            match next {
                None => self.wake.notified().await,
                Some(end) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(Instant::from_std(end)) => {}
                        () = self.wake.notified() => {}
                    }
                }
            }
            self.lock().advance();
        }
    }

    /// Hands a job to the engine.
    pub(super) fn submit(self: &Arc<Self>, job: Job) -> Result<InFlight, TooLong> {
        let (sender, progress) = mpsc::unbounded_channel();
        let mut inner = self.lock();
        inner.advance();
        let id = inner.engine.submit(Instant::now().into_std(), job)?;
        inner.listeners.insert(id, sender);
        let life = inner.life;
        drop(inner);
        self.wake.notify_one();
        Ok(InFlight { state: Arc::clone(self), life, id, progress })
    }

    /// Remembers a request's head.
    pub(super) fn receive(&self, request: Value) {
        let mut inner = self.lock();
        inner.received.push_back(request);
        if inner.received.len() > RECEIVED {
            inner.received.pop_front();
        }
    }

    /// The last requests, oldest first.
    pub(super) fn received(&self) -> Value {
        self.lock().received.iter().cloned().collect()
    }

    /// A number no other request of this server has.
    pub(super) fn next_request(&self) -> u64 {
        let mut inner = self.lock();
        inner.requests += 1;
        inner.requests
    }

    /// What the next request suffers.
    pub(super) fn strike(&self) -> Option<FaultKind> {
        let mut inner = self.lock();
        let fault = inner.fault;
        inner.dice.strike(fault)
    }

    /// How `/metrics` answers.
    pub(super) fn metrics_mode(&self) -> MetricsMode {
        self.lock().metrics
    }

    /// The metrics page, or the one it was frozen at.
    pub(super) fn page(&self) -> String {
        let mut inner = self.lock();
        inner.advance();
        inner.frozen_page.clone().unwrap_or_else(|| self.render(&inner))
    }

    fn render(&self, inner: &Inner) -> String {
        Page {
            model: &self.settings.model,
            engine: inner.engine.settings(),
            load: inner.engine.published(),
            pins: inner.pins,
            totals: &inner.totals,
            max_loras: (!self.settings.loras.is_empty()).then_some(self.settings.max_loras),
            started: inner.started,
            now: self.unix_now(),
        }
        .text()
    }

    /// Carries out a change. A page is frozen with the pins of the same change.
    pub(super) fn set(&self, change: &Change) {
        let mut inner = self.lock();
        inner.advance();
        let pins = &mut inner.pins;
        pins.waiting = change.waiting.unwrap_or(pins.waiting);
        pins.running = change.running.unwrap_or(pins.running);
        pins.kv = change.kv.unwrap_or(pins.kv);
        inner.metrics = change.metrics.unwrap_or(inner.metrics);
        inner.fault = change.fault.unwrap_or(inner.fault);
        match change.freeze_metrics {
            Some(true) => inner.frozen_page = Some(self.render(&inner)),
            Some(false) => inner.frozen_page = None,
            None => {}
        }
    }

    /// Begins a new life: engine, counters and start time anew, all connections closed but `except`.
    /// Pins, faults and the memory of requests stay. A frozen page stays too: it says what a scraper
    /// is to see, whatever happens behind it.
    pub(super) fn restart(&self, except: Option<u64>) {
        let mut inner = self.lock();
        inner.engine = Engine::new(self.settings.engine.clone());
        inner.life += 1;
        inner.listeners.clear();
        inner.totals = Totals::new();
        inner.dice = Dice::new(self.settings.seed);
        // Two lives within one tick of the clock must still differ.
        inner.started = self.unix_now().max(inner.started + 0.01);
        drop(inner);
        self.wake.notify_one();
        self.cut.send_modify(|cut| *cut = Cut { times: cut.times + 1, except });
    }

    /// The state as JSON, true values beside the pins.
    pub(super) fn json(&self) -> Value {
        let mut inner = self.lock();
        inner.advance();
        let (live, engine) = (inner.engine.live(), inner.engine.settings());
        let finished: serde_json::Map<_, _> = FinishReason::ALL
            .iter()
            .map(|reason| (reason.as_str().to_owned(), inner.totals.finished(*reason).into()))
            .collect();
        json!({
            "name": self.name,
            "address": self.address.to_string(),
            "model": self.settings.model,
            "started": inner.started,
            "restarts": inner.life,
            "waiting": live.waiting,
            "running": live.running,
            "used_blocks": live.used_blocks,
            "num_gpu_blocks": engine.num_gpu_blocks,
            "block_size": engine.block_size,
            "max_num_seqs": engine.max_num_seqs,
            "finished": finished,
            "set": {
                "waiting": inner.pins.waiting,
                "running": inner.pins.running,
                "kv": inner.pins.kv,
                "freeze_metrics": inner.frozen_page.is_some(),
                "metrics": inner.metrics.name(),
                "fault": inner.fault.map(Fault::json),
            },
        })
    }
}

impl Inner {
    /// Brings the engine to the present and tells everyone concerned.
    fn advance(&mut self) {
        for event in self.engine.advance(Instant::now().into_std()) {
            self.totals.record(&event);
            self.tell(&event);
        }
    }

    fn tell(&mut self, event: &Event) {
        match *event {
            Event::FirstToken { id, last, .. } | Event::Token { id, last, .. } if !last => {
                if let Some(listener) = self.listeners.get(&id) {
                    // A client that is just leaving aborts by itself.
                    let _ = listener.send(Progress::Token);
                }
            }
            Event::Finished { id, prompt_tokens, output_tokens, reason } => {
                if let Some(listener) = self.listeners.remove(&id) {
                    let usage = Usage { prompt_tokens, output_tokens };
                    let _ = listener.send(Progress::Done(usage, reason));
                }
            }
            _ => {}
        }
    }
}

/// A request in the engine. Dropping it aborts what is left of it.
#[derive(Debug)]
pub(super) struct InFlight {
    state: Arc<State>,
    life: u64,
    id: SequenceId,
    progress: mpsc::UnboundedReceiver<Progress>,
}

impl InFlight {
    /// The next event; `None` when the server restarted underneath.
    pub(super) async fn next(&mut self) -> Option<Progress> {
        self.progress.recv().await
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut inner = self.state.lock();
        if inner.life != self.life {
            return;
        }
        inner.advance();
        inner.listeners.remove(&self.id);
        if let Some(event) = inner.engine.abort(self.id) {
            inner.totals.record(&event);
        }
    }
}
