//! Every metric family in one place: name, help, labels.
//!
//! Decides what is exposed. Counters are moved where things happen; gauges that mirror other state
//! (loads, policy) are set when somebody scrapes. Units are in the names, as Prometheus asks.

use std::time::Duration;

use prometheus::{
    Encoder as _, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder,
};

use super::scaling::ScalingMetrics;
use crate::endpoint::{Load, Suspicion};
use crate::policy::{Number, Policy};
use crate::pool::PoolView;
use crate::response::ResponseReader;
use crate::saturation;
use crate::store::Residual;

/// Buckets of the decision time in seconds: a decision takes microseconds.
const DECISION_BUCKETS: [f64; 12] =
    [1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2, 1e-1];

/// Buckets of the time of a scrape in seconds, up to its limit.
const SCRAPE_BUCKETS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0];

/// Gauges of one endpoint, in the order in which [`Metrics::page`] sets them. A value that was never
/// read has no series.
const ENDPOINT_GAUGES: [(&str, &str); 7] = [
    ("plumbline_endpoint_waiting_requests", "Requests queued at the endpoint, as last scraped."),
    ("plumbline_endpoint_running_requests", "Requests running at the endpoint, as last scraped."),
    ("plumbline_endpoint_kv_cache_utilization", "KV-cache use as a fraction, as last scraped."),
    ("plumbline_endpoint_score", "Detector score; 1 is the line, stale or unknown is 1."),
    ("plumbline_endpoint_age_seconds", "Age of the older of the detector's two signals."),
    ("plumbline_endpoint_in_flight_requests", "Requests of this picker that have not ended."),
    ("plumbline_endpoint_suspect", "1 while readings stand still with work that is not ours."),
];

/// Expected less read, at each scrape.
#[derive(Clone)]
pub struct Residuals {
    waiting: Histogram,
    kv: Histogram,
}

/// Buckets of a residual in requests, and in hundredths of the KV cache.
const RESIDUAL_BUCKETS: [f64; 11] =
    [-50.0, -20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 50.0];

impl Residuals {
    fn new() -> Result<Self, prometheus::Error> {
        let waiting = HistogramOpts::new(
            "plumbline_residual_waiting_requests",
            "Queue expected of an endpoint less the queue that the next scrape read.",
        );
        let kv = HistogramOpts::new(
            "plumbline_residual_kv_cache_utilization",
            "KV-cache use expected of an endpoint less what the next scrape read, a fraction.",
        );
        let hundredths = RESIDUAL_BUCKETS.map(|bound| bound / 100.0);
        Ok(Self {
            waiting: Histogram::with_opts(waiting.buckets(RESIDUAL_BUCKETS.to_vec()))?,
            kv: Histogram::with_opts(kv.buckets(hundredths.to_vec()))?,
        })
    }

    /// Counts one scrape.
    pub fn observe(&self, residual: &Residual) {
        for (histogram, value) in [(&self.waiting, residual.waiting), (&self.kv, residual.kv)] {
            if let Some(value) = value {
                histogram.observe(value);
            }
        }
    }
}

/// All families, and handles for the hot ones.
pub struct Metrics {
    registry: Registry,
    /// Requests that got an endpoint.
    pub picked: IntCounter,
    requests: IntCounterVec,
    /// Time of one decision, without waiting for the body.
    pub decision_seconds: Histogram,
    /// Choices that stood although another request was faster at the same endpoint.
    pub pick_races: IntCounter,
    /// Requests that rewrites could not see.
    rewrites_skipped: IntCounter,
    /// How far expectations were from the scrapes that then came.
    pub residuals: Residuals,
    /// ext_proc streams that are open.
    pub streams: IntGauge,
    /// Request bodies that are held, in bytes.
    held_bytes: IntGauge,
    /// Requests that wait for an endpoint.
    waiting: IntGauge,
    /// Their bodies, in bytes.
    waiting_bytes: IntGauge,
    /// Age of the oldest in seconds.
    waiting_oldest: Gauge,
    /// Streams that a fault of ours has ended.
    pub panics: IntCounter,
    responses: [IntCounter; 2],
    tokens: [IntCounter; 3],
    /// Scrapes by result.
    pub scrapes: IntCounterVec,
    /// Time of one scrape, failed ones included.
    pub scrape_seconds: Histogram,
    /// New certificates of the ext_proc port, by result.
    pub certificates: IntCounterVec,
    reloads: IntCounterVec,
    manifest_loads: IntCounterVec,
    manifests_rejected: IntGauge,
    scaling_loads: IntCounterVec,
    scaling_rejected: IntGauge,
    conflicts: IntGauge,
    saturation: Gauge,
    endpoints: IntGauge,
    /// One family per entry of [`ENDPOINT_GAUGES`].
    endpoint: Vec<GaugeVec>,
    threshold: GaugeVec,
    generation: IntGauge,
    policy_info: IntGaugeVec,
    /// The scaling loop's.
    pub scaling: ScalingMetrics,
}

impl Metrics {
    /// Registers every family.
    ///
    /// # Errors
    /// A name used twice, which is a fault of this file.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let decision = HistogramOpts::new(
            "plumbline_decision_duration_seconds",
            "Time to choose an endpoint, from the end of the request body to the choice.",
        );
        let scrape = HistogramOpts::new(
            "plumbline_scrape_duration_seconds",
            "Time to scrape one model server, connecting included; 1 is the limit.",
        );
        let requests = IntCounterVec::new(
            Opts::new("plumbline_requests_total", "Requests decided, by result."),
            &["result"],
        )?;
        let responses = IntCounterVec::new(
            Opts::new("plumbline_responses_total", "Responses of endpoints seen to their end."),
            &["result"],
        )?;
        let tokens = IntCounterVec::new(
            Opts::new("plumbline_response_tokens_total", "Tokens that responses report."),
            &["kind"],
        )?;
        let metrics = Self {
            responses: ["ok", "error"].map(|result| responses.with_label_values(&[result])),
            tokens: ["prompt", "completion", "cached"]
                .map(|kind| tokens.with_label_values(&[kind])),
            picked: requests.with_label_values(&["picked"]),
            requests: requests.clone(),
            decision_seconds: Histogram::with_opts(decision.buckets(DECISION_BUCKETS.to_vec()))?,
            pick_races: IntCounter::new(
                "plumbline_pick_races_total",
                "Choices that stood although other requests were faster at the same endpoint.",
            )?,
            rewrites_skipped: IntCounter::new(
                "plumbline_rewrites_skipped_total",
                "Requests that rewrites could not see, because the gateway sends the body after the pick.",
            )?,
            residuals: Residuals::new()?,
            streams: IntGauge::new(
                "plumbline_ext_proc_streams",
                "Open ext_proc streams, one per request of the gateway.",
            )?,
            held_bytes: IntGauge::new(
                "plumbline_held_bytes",
                "Bytes of request bodies held until they are complete; --max-held-bytes is the limit.",
            )?,
            waiting: IntGauge::new(
                "plumbline_waiting_requests",
                "Requests that wait for an endpoint while the pool is empty.",
            )?,
            waiting_bytes: IntGauge::new(
                "plumbline_waiting_bytes",
                "Bytes of the bodies of requests that wait for an endpoint.",
            )?,
            waiting_oldest: Gauge::new(
                "plumbline_waiting_oldest_seconds",
                "How long the oldest of the waiting requests has waited; 0 without any.",
            )?,
            panics: IntCounter::new(
                "plumbline_panics_total",
                "Streams ended by a fault of the picker; each is a bug to report.",
            )?,
            scrapes: IntCounterVec::new(
                Opts::new("plumbline_scrapes_total", "Scrapes of model servers, by result."),
                &["result"],
            )?,
            scrape_seconds: Histogram::with_opts(scrape.buckets(SCRAPE_BUCKETS.to_vec()))?,
            certificates: IntCounterVec::new(
                Opts::new(
                    "plumbline_certificate_reloads_total",
                    "New pairs of certificate and key of the ext_proc port, by result.",
                ),
                &["result"],
            )?,
            reloads: IntCounterVec::new(
                Opts::new(
                    "plumbline_discovery_loads_total",
                    "Versions of the endpoints file, by result.",
                ),
                &["result"],
            )?,
            manifest_loads: IntCounterVec::new(
                Opts::new(
                    "plumbline_manifest_loads_total",
                    "Versions of the manifests, by result; one bad document makes a version failed.",
                ),
                &["result"],
            )?,
            manifests_rejected: IntGauge::new(
                "plumbline_manifests_rejected",
                "Bad documents in the newest version of the manifests.",
            )?,
            scaling_loads: IntCounterVec::new(
                Opts::new(
                    "plumbline_scaling_config_loads_total",
                    "Versions of the scaling configuration, by result; one bad entry makes a \
                     version failed.",
                ),
                &["result"],
            )?,
            scaling_rejected: IntGauge::new(
                "plumbline_scaling_config_rejected",
                "Entries of the newest scaling configuration that are left out.",
            )?,
            conflicts: IntGauge::new(
                "plumbline_threshold_conflicts",
                "Thresholds for which two sources name different numbers.",
            )?,
            saturation: Gauge::new(
                "plumbline_pool_saturation",
                "Mean endpoint score of the utilization detector; 1 is the line, an empty pool is 1.",
            )?,
            endpoints: IntGauge::new("plumbline_endpoints", "Endpoints in the pool.")?,
            endpoint: ENDPOINT_GAUGES
                .iter()
                .map(|(name, help)| GaugeVec::new(Opts::new(*name, *help), &["endpoint"]))
                .collect::<Result<_, _>>()?,
            threshold: GaugeVec::new(
                Opts::new(
                    "plumbline_threshold",
                    "Thresholds in force, with the layer they came from.",
                ),
                &["name", "source"],
            )?,
            generation: IntGauge::new(
                "plumbline_policy_generation",
                "Generation of the policy in force; rises with every change.",
            )?,
            policy_info: IntGaugeVec::new(
                Opts::new(
                    "plumbline_policy_info",
                    "1 for the digest of the policy in force; equal between pickers that decide alike.",
                ),
                &["digest"],
            )?,
            scaling: ScalingMetrics::new(&registry)?,
            registry,
        };
        // Known from the start, so that a rate has a zero to begin at.
        for result in ["rejected-no-endpoints", "rejected-saturated"] {
            requests.with_label_values(&[result]);
        }
        for family in [requests, responses, tokens] {
            metrics.registry.register(Box::new(family))?;
        }
        metrics.register()?;
        Ok(metrics)
    }

    fn register(&self) -> Result<(), prometheus::Error> {
        let register = |collector| self.registry.register(collector);
        register(Box::new(self.decision_seconds.clone()))?;
        register(Box::new(self.pick_races.clone()))?;
        register(Box::new(self.rewrites_skipped.clone()))?;
        register(Box::new(self.residuals.waiting.clone()))?;
        register(Box::new(self.residuals.kv.clone()))?;
        register(Box::new(self.streams.clone()))?;
        register(Box::new(self.held_bytes.clone()))?;
        register(Box::new(self.waiting.clone()))?;
        register(Box::new(self.waiting_bytes.clone()))?;
        register(Box::new(self.waiting_oldest.clone()))?;
        register(Box::new(self.panics.clone()))?;
        for result in ["ok", "failed"] {
            self.scrapes.with_label_values(&[result]);
            self.certificates.with_label_values(&[result]);
            self.reloads.with_label_values(&[result]);
            self.manifest_loads.with_label_values(&[result]);
            self.scaling_loads.with_label_values(&[result]);
        }
        register(Box::new(self.scrapes.clone()))?;
        register(Box::new(self.scrape_seconds.clone()))?;
        register(Box::new(self.certificates.clone()))?;
        register(Box::new(self.reloads.clone()))?;
        register(Box::new(self.manifest_loads.clone()))?;
        register(Box::new(self.manifests_rejected.clone()))?;
        register(Box::new(self.scaling_loads.clone()))?;
        register(Box::new(self.scaling_rejected.clone()))?;
        register(Box::new(self.conflicts.clone()))?;
        register(Box::new(self.saturation.clone()))?;
        register(Box::new(self.endpoints.clone()))?;
        for family in &self.endpoint {
            register(Box::new(family.clone()))?;
        }
        register(Box::new(self.threshold.clone()))?;
        register(Box::new(self.generation.clone()))?;
        register(Box::new(self.policy_info.clone()))?;
        register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
    }

    /// Counts a request that got an answer of ours; `details` is of a closed set.
    pub fn refused(&self, details: &'static str) {
        self.requests.with_label_values(&[details]).inc();
    }

    /// Adds up a response that was seen to its end.
    pub fn response(&self, response: &ResponseReader) {
        self.responses[usize::from(response.is_error())].inc();
        if let Some(usage) = response.usage() {
            let kinds = [usage.prompt, usage.completion, usage.cached.unwrap_or(0)];
            for (counter, tokens) in self.tokens.iter().zip(kinds) {
                counter.inc_by(tokens);
            }
        }
    }

    /// The exposition page, with the mirrored gauges as of this view and policy.
    ///
    /// # Errors
    /// An encoding fault of the library.
    pub fn page(&self, view: &PoolView<'_>, policy: &Policy) -> Result<String, prometheus::Error> {
        self.mirror_pool(view, policy);
        self.threshold.reset();
        for (name, number, source) in policy.table() {
            let value = match number {
                Number::Plain(value) => value,
                Number::Duration(duration) => duration.as_secs_f64(),
            };
            self.threshold.with_label_values(&[name, source.name()]).set(value);
        }
        self.generation.set(i64::try_from(policy.generation).unwrap_or(i64::MAX));
        self.policy_info.reset();
        self.policy_info.with_label_values(&[policy.digest.as_str()]).set(1);
        let mut page = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut page)?;
        String::from_utf8(page).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }

    /// Brings the counters of the endpoints file up to these totals.
    pub fn mirror_discovery(&self, ok: u64, failed: u64) {
        raise(&self.reloads, ok, failed);
    }

    /// Counts a request that went on with its own model although there are rewrites; the first is logged.
    pub fn rewrite_skipped(&self) {
        if self.rewrites_skipped.get() == 0 {
            tracing::warn!(
                "a model is to be rewritten, but this gateway's request_body_mode (STREAMED, NONE or a cut \
                 BUFFERED_PARTIAL) shows the body after the pick: it is sent on with its own model; use \
                 FULL_DUPLEX_STREAMED or BUFFERED"
            );
        }
        self.rewrites_skipped.inc();
    }

    /// Brings the counters of the manifests up to these totals, and the gauge to this number.
    pub fn mirror_manifests(&self, ok: u64, failed: u64, rejected: usize) {
        raise(&self.manifest_loads, ok, failed);
        self.manifests_rejected.set(i64::try_from(rejected).unwrap_or(i64::MAX));
    }

    /// Brings the counters of the scaling configuration up to these totals, and the gauge to this
    /// number.
    pub fn mirror_scaling(&self, ok: u64, failed: u64, rejected: usize) {
        raise(&self.scaling_loads, ok, failed);
        self.scaling_rejected.set(i64::try_from(rejected).unwrap_or(i64::MAX));
    }

    /// Sets the gauge of thresholds with two sources.
    pub fn mirror_conflicts(&self, conflicts: usize) {
        self.conflicts.set(i64::try_from(conflicts).unwrap_or(i64::MAX));
    }

    /// Sets the gauge of held request bodies to this sum of bytes.
    pub fn mirror_held(&self, bytes: usize) {
        self.held_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the gauges of waiting requests: how many, their bytes, the age of the oldest.
    pub fn mirror_waiting(&self, requests: usize, bytes: u64, oldest: Option<Duration>) {
        self.waiting.set(i64::try_from(requests).unwrap_or(i64::MAX));
        self.waiting_bytes.set(i64::try_from(bytes).unwrap_or(i64::MAX));
        self.waiting_oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }

    /// Series of endpoints that left vanish with the reset.
    fn mirror_pool(&self, view: &PoolView<'_>, policy: &Policy) {
        self.endpoint.iter().for_each(GaugeVec::reset);
        for (member, load) in view.members.iter().zip(view.loads) {
            let values = [
                load.waiting.value(),
                load.running.value(),
                load.kv.value(),
                Some(saturation::endpoint_score(load, &policy.thresholds)),
                oldest_age_seconds(load),
                Some(f64::from(load.in_flight)),
                Some(f64::from(u8::from(load.suspicion != Suspicion::None))),
            ];
            for (family, value) in self.endpoint.iter().zip(values) {
                if let Some(value) = value {
                    family.with_label_values(&[member.endpoint.id.as_str()]).set(value);
                }
            }
        }
        self.endpoints.set(i64::try_from(view.members.len()).unwrap_or(i64::MAX));
        self.saturation.set(saturation::pool_saturation(view.loads, &policy.thresholds));
    }
}

/// Raises the counters of both results to totals that are counted elsewhere.
fn raise(counters: &IntCounterVec, ok: u64, failed: u64) {
    for (result, total) in [("ok", ok), ("failed", failed)] {
        let counter = counters.with_label_values(&[result]);
        counter.inc_by(total.saturating_sub(counter.get()));
    }
}

/// The older of the two ages that the detector looks at, in seconds.
fn oldest_age_seconds(load: &Load) -> Option<f64> {
    load.waiting.age().max(load.kv.age()).map(|age| age.as_secs_f64())
}
