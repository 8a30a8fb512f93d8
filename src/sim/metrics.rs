//! The metrics page in vLLM's dialect: what is counted and how it reads.
//!
//! Decides names, labels, types and the number format; the values come from the engine's events and
//! its published load, or from pins. Times are seconds, lengths tokens, KV use a fraction of 1.

use std::fmt::Write as _;

use super::admin::Pins;
use super::engine::{EngineSettings, Event, FinishReason, Load};

const TOKENS: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5];
const FIRST_TOKEN_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const TOKEN_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn observe(&mut self, value: f64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket] += 1;
        self.sum += value;
    }
}

/// Everything counted since the start.
#[derive(Debug)]
pub(super) struct Totals {
    prompt_tokens: u64,
    generation_tokens: u64,
    preemptions: u64,
    prefix_queries: u64,
    prefix_hits: u64,
    finished: [u64; FinishReason::ALL.len()],
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    time_to_first_token: Histogram,
    time_per_output_token: Histogram,
}

impl Totals {
    pub(super) fn new() -> Self {
        Self {
            prompt_tokens: 0,
            generation_tokens: 0,
            preemptions: 0,
            prefix_queries: 0,
            prefix_hits: 0,
            finished: [0; FinishReason::ALL.len()],
            request_prompt_tokens: Histogram::new(TOKENS),
            request_generation_tokens: Histogram::new(TOKENS),
            time_to_first_token: Histogram::new(FIRST_TOKEN_SECONDS),
            time_per_output_token: Histogram::new(TOKEN_SECONDS),
        }
    }

    /// Counts one event.
    pub(super) fn record(&mut self, event: &Event) {
        match *event {
            Event::Admitted { queried, hit, .. } => {
                self.prefix_queries += queried;
                self.prefix_hits += hit;
            }
            Event::Preempted { .. } => self.preemptions += 1,
            Event::FirstToken { prompt_tokens, after, .. } => {
                self.prompt_tokens += prompt_tokens;
                self.generation_tokens += 1;
                self.time_to_first_token.observe(after.as_secs_f64());
            }
            Event::Token { after, .. } => {
                self.generation_tokens += 1;
                self.time_per_output_token.observe(after.as_secs_f64());
            }
            Event::Finished { prompt_tokens, output_tokens, reason, .. } => {
                self.finished[reason as usize] += 1;
                self.request_prompt_tokens.observe(prompt_tokens as f64);
                self.request_generation_tokens.observe(output_tokens as f64);
            }
        }
    }

    /// Requests that ended for `reason`.
    pub(super) fn finished(&self, reason: FinishReason) -> u64 {
        self.finished[reason as usize]
    }
}

/// What one page shows.
#[derive(Debug)]
pub(super) struct Page<'a> {
    /// Value of `model_name`.
    pub(super) model: &'a str,
    /// Size of the cache.
    pub(super) engine: &'a EngineSettings,
    /// As of the last step's end.
    pub(super) load: &'a Load,
    /// Values that stand in for the load's.
    pub(super) pins: Pins,
    /// Counters and histograms.
    pub(super) totals: &'a Totals,
    /// Most adapters in one batch; `None` without LoRA.
    pub(super) max_loras: Option<usize>,
    /// Unix time of the start, seconds.
    pub(super) started: f64,
    /// Unix time of the page, seconds.
    pub(super) now: f64,
}

impl Page<'_> {
    /// The page's text.
    pub(super) fn text(&self) -> String {
        let mut out = Text { page: String::with_capacity(8192), labels: self.labels() };
        self.gauges(&mut out);
        self.counters(&mut out);
        self.histograms(&mut out);
        out.head("process_start_time_seconds", "gauge", "Start of the process, Unix seconds.");
        let _ = writeln!(out.page, "process_start_time_seconds {:.6}", self.started);
        out.page
    }

    fn labels(&self) -> String {
        format!("engine=\"0\",model_name=\"{}\"", escaped(self.model))
    }

    fn gauges(&self, out: &mut Text) {
        let (load, pins) = (self.load, self.pins);
        let waiting = pins.waiting.unwrap_or(load.waiting as u64);
        let running = pins.running.unwrap_or(load.running as u64);
        let used = load.used_blocks as f64 / self.engine.num_gpu_blocks as f64;
        let kv = pins.kv.unwrap_or(used);
        for (name, help, value) in [
            ("vllm:num_requests_running", "Requests in the running batch.", running as f64),
            ("vllm:num_requests_waiting", "Requests in the waiting queue.", waiting as f64),
            ("vllm:kv_cache_usage_perc", "Share of KV blocks in use; 1 is all.", kv),
        ] {
            out.head(name, "gauge", help);
            out.sample(name, "", value);
        }
        let name = "vllm:cache_config_info";
        out.head(name, "gauge", "Settings of the KV cache, in the labels.");
        let sizes = format!(
            "block_size=\"{}\",num_gpu_blocks=\"{}\"",
            self.engine.block_size, self.engine.num_gpu_blocks
        );
        out.sample(name, &sizes, 1.0);
        if let Some(max_loras) = self.max_loras {
            let name = "vllm:lora_requests_info";
            out.head(name, "gauge", "Adapters in use, in the labels; the value is the time.");
            let _ = writeln!(
                out.page,
                "{name}{{max_lora=\"{max_loras}\",running_lora_adapters=\"{}\",waiting_lora_adapters=\"{}\"}} {:.6}",
                escaped(&load.running_adapters.join(",")),
                escaped(&load.waiting_adapters.join(",")),
                self.now
            );
        }
    }

    fn counters(&self, out: &mut Text) {
        let totals = self.totals;
        for (name, help, value) in [
            ("vllm:num_preemptions_total", "Preemptions.", totals.preemptions),
            ("vllm:prompt_tokens_total", "Prompt tokens processed.", totals.prompt_tokens),
            ("vllm:generation_tokens_total", "Tokens generated.", totals.generation_tokens),
            (
                "vllm:prefix_cache_queries_total",
                "Tokens looked up in the prefix cache.",
                totals.prefix_queries,
            ),
            (
                "vllm:prefix_cache_hits_total",
                "Tokens found in the prefix cache.",
                totals.prefix_hits,
            ),
        ] {
            out.head(name, "counter", help);
            out.sample(name, "", value as f64);
        }
        let name = "vllm:request_success_total";
        out.head(name, "counter", "Requests that ended, by reason.");
        for reason in FinishReason::ALL {
            let label = format!("finished_reason=\"{}\"", reason.as_str());
            out.sample(name, &label, totals.finished(reason) as f64);
        }
    }

    fn histograms(&self, out: &mut Text) {
        let totals = self.totals;
        for (name, help, histogram) in [
            (
                "vllm:request_prompt_tokens",
                "Prompt tokens of a request.",
                &totals.request_prompt_tokens,
            ),
            (
                "vllm:request_generation_tokens",
                "Generated tokens of a request.",
                &totals.request_generation_tokens,
            ),
            (
                "vllm:time_to_first_token_seconds",
                "Time from arrival to the first token.",
                &totals.time_to_first_token,
            ),
            (
                "vllm:time_per_output_token_seconds",
                "Time between two tokens of a request.",
                &totals.time_per_output_token,
            ),
        ] {
            out.histogram(name, help, histogram);
        }
    }
}

struct Text {
    page: String,
    /// The two labels that every vLLM series carries.
    labels: String,
}

impl Text {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.page, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One line; `more` are labels, sorted before or after by the caller's choice of names.
    fn sample(&mut self, name: &str, more: &str, value: f64) {
        let comma = if more.is_empty() { "" } else { "," };
        // Debug prints what Python's client prints: `3.0`, `0.25`, `1e16`.
        let _ = writeln!(self.page, "{name}{{{}{comma}{more}}} {value:?}", self.labels);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let mut below = 0;
        let bounds = histogram.bounds.iter().map(|bound| format!("{bound:?}"));
        let bucket = format!("{name}_bucket");
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            below += count;
            self.sample(&bucket, &format!("le=\"{bound}\""), below as f64);
        }
        self.sample(&format!("{name}_count"), "", below as f64);
        self.sample(&format!("{name}_sum"), "", histogram.sum);
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn page(pins: Pins, max_loras: Option<usize>) -> String {
        let mut totals = Totals::new();
        for event in [
            Event::Admitted { id: 1, queried: 100, hit: 32 },
            Event::FirstToken {
                id: 1,
                prompt_tokens: 100,
                after: Duration::from_millis(300),
                last: false,
            },
            Event::Token { id: 1, after: Duration::from_millis(25), last: true },
            Event::Finished {
                id: 1,
                prompt_tokens: 100,
                output_tokens: 2,
                reason: FinishReason::Length,
            },
        ] {
            totals.record(&event);
        }
        let load = Load {
            waiting: 3,
            running: 2,
            used_blocks: 2048,
            running_adapters: vec!["a".into(), "b".into()],
            ..Load::default()
        };
        Page {
            model: "m\"x",
            engine: &EngineSettings::default(),
            load: &load,
            pins,
            totals: &totals,
            max_loras,
            started: 1.5,
            now: 2.5,
        }
        .text()
    }

    /// Mutants: a swapped name, a bucket that is not cumulative, `<=` for `<` at a bound (0.025 belongs
    /// below le 0.025), an unescaped label.
    #[test]
    fn the_page_reads_as_vllms_does() {
        let page = page(Pins::default(), None);
        let labels = r#"engine="0",model_name="m\"x""#;
        for line in [
            "# TYPE vllm:num_requests_waiting gauge".to_owned(),
            format!("vllm:num_requests_waiting{{{labels}}} 3.0"),
            format!("vllm:num_requests_running{{{labels}}} 2.0"),
            format!("vllm:kv_cache_usage_perc{{{labels}}} 0.25"),
            format!(
                "vllm:cache_config_info{{{labels},block_size=\"16\",num_gpu_blocks=\"8192\"}} 1.0"
            ),
            "# TYPE vllm:prompt_tokens_total counter".to_owned(),
            format!("vllm:prompt_tokens_total{{{labels}}} 100.0"),
            format!("vllm:generation_tokens_total{{{labels}}} 2.0"),
            format!("vllm:prefix_cache_queries_total{{{labels}}} 100.0"),
            format!("vllm:prefix_cache_hits_total{{{labels}}} 32.0"),
            format!("vllm:request_success_total{{{labels},finished_reason=\"length\"}} 1.0"),
            format!("vllm:request_success_total{{{labels},finished_reason=\"stop\"}} 0.0"),
            "# TYPE vllm:time_to_first_token_seconds histogram".to_owned(),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.25\"}} 0.0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"0.5\"}} 1.0"),
            format!("vllm:time_to_first_token_seconds_bucket{{{labels},le=\"+Inf\"}} 1.0"),
            format!("vllm:time_to_first_token_seconds_sum{{{labels}}} 0.3"),
            format!("vllm:time_per_output_token_seconds_bucket{{{labels},le=\"0.025\"}} 1.0"),
            format!("vllm:request_prompt_tokens_bucket{{{labels},le=\"100.0\"}} 1.0"),
            format!("vllm:request_generation_tokens_count{{{labels}}} 1.0"),
            "process_start_time_seconds 1.500000".to_owned(),
        ] {
            assert!(page.lines().any(|have| have == line), "{line}\nnot in\n{page}");
        }
        assert!(!page.contains("lora"), "no LoRA line without adapters");
    }

    /// Mutant: a pin that is ignored, or that hides another gauge.
    #[test]
    fn a_pin_stands_in_for_its_gauge_alone() {
        let page = page(Pins { waiting: Some(9), kv: Some(0.5), running: None }, Some(4));
        for end in [
            "waiting{engine=\"0\",model_name=\"m\\\"x\"} 9.0",
            "running{engine=\"0\",model_name=\"m\\\"x\"} 2.0",
        ] {
            assert!(page.contains(end), "{end}\n{page}");
        }
        assert!(page.contains("vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\\\"x\"} 0.5"));
        let lora = "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a,b\",waiting_lora_adapters=\"\"} 2.500000";
        assert!(page.lines().any(|line| line == lora), "{page}");
    }
}
