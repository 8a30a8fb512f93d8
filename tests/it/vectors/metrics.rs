//! The recorded answers of the Go endpoint picker to metrics pages and metric specs, as tests.
//!
//! Every line of `metrics.jsonl` and `metric-spec.jsonl` is answered by `read_page` under the engine
//! that the line's labels and `engineConfigs` choose. The recorded answer holds the values of before
//! where nothing was read; it is translated into what was read. A case that answers differently must
//! stand in [`DIFFERENCES`], with what we answer instead.

use std::collections::BTreeMap;

use plumbline::endpoint::Signal;
use plumbline::poller::access::Access;
use plumbline::poller::engines::{EngineConfig, Engines};
use plumbline::poller::reading::{Fault, Reading, read_page};
use serde_json::Value;

use crate::scrape::Watch;
use crate::scrape::server::{Reply, Server};

const METRICS: &str = include_str!("../../data/epp-vectors/metrics.jsonl");
const SPECS: &str = include_str!("../../data/epp-vectors/metric-spec.jsonl");

const LINE: &str = "one malformed line, or one it cannot name, costs upstream the whole page";
const RANKS: &str =
    "the series of several ranks are summed; upstream reads the newest or first one";
const TYPE: &str =
    "a value counts whatever its declared type, and a family without a value is not 0";
const UNKNOWN: &str = "what is no reading is unknown; upstream stores it, as the emptiest queue";

/// Where we answer otherwise on purpose: the case, why, and our answer.
const DIFFERENCES: &[(&str, &str, &str)] = &[
    ("metric-spec/plain", RANKS, "waiting=6 renewed"),
    ("metric-spec/label-subset", RANKS, "waiting=5 renewed"),
    ("metric-spec/empty-braces", RANKS, "waiting=6 renewed"),
    ("metrics/untyped", TYPE, "waiting=12 kv=0.9 renewed !num_requests_running !cache_config_info"),
    (
        "metrics/two-series-first-wins",
        RANKS,
        "waiting=14 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/two-series-timestamps",
        RANKS,
        "waiting=14 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/two-series-timestamps-reversed",
        RANKS,
        "waiting=11 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/two-series-one-timestamp",
        RANKS,
        "waiting=11 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/negative-timestamp",
        "a timestamp only orders samples of one series; an odd clock loses no reading",
        "waiting=5 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/histogram-reads-zero",
        TYPE,
        "!num_requests_waiting !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/nan-values",
        UNKNOWN,
        "!num_requests_waiting= !num_requests_running= !kv_cache_usage_perc= !cache_config_info",
    ),
    (
        "metrics/inf-values",
        UNKNOWN,
        "!num_requests_waiting= !num_requests_running !kv_cache_usage_perc= !cache_config_info",
    ),
    (
        "metrics/negative-values",
        UNKNOWN,
        "!num_requests_waiting= !num_requests_running !kv_cache_usage_perc= !cache_config_info",
    ),
    (
        "metrics/kv-over-one",
        "a fraction over 1 counts as full: still over every limit, and no mean is bent by it",
        "kv=1 renewed !num_requests_waiting !num_requests_running !cache_config_info",
    ),
    (
        "metrics/old-vllm-names",
        "servers before the rename are read under the older name",
        "waiting=1 kv=0.9 renewed !num_requests_running !cache_config_info",
    ),
    (
        "metrics/cache-info-none",
        "a block size that the server does not tell is unknown, not 0",
        "blocks=100 renewed !num_requests_waiting !num_requests_running !kv_cache_usage_perc !\"None\"",
    ),
    (
        "metrics/no-final-newline",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/bad-type",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/duplicate-type",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/bad-line-elsewhere",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/bad-value",
        LINE,
        "!num_requests_waiting= !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/dotted-name",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
    (
        "metrics/crlf",
        LINE,
        "waiting=7 renewed !num_requests_running !kv_cache_usage_perc !cache_config_info",
    ),
];

/// Pages that are never read, there and here, because the answer's status is not 200. They are played
/// through the whole loop.
const NOT_A_PAGE: &[&str] = &["metrics/http-503", "metrics/http-204"];

#[derive(Default)]
struct Count {
    agreed: usize,
    differing: Vec<String>,
}

/// Mutant: reading the first series only, keeping NaN, or dropping the old KV name turns it red; so
/// does reading a page whatever its status.
#[tokio::test]
async fn metrics_pages_read_as_recorded() {
    let mut count = Count::default();
    let mut elsewhere = Vec::new();
    for case in cases(METRICS) {
        if case["input"]["status"].is_i64() {
            assert_eq!(case["output"]["update_time_renewed"], false);
            assert!(case["output"]["poll_error"].is_string());
            unread(&case).await;
            elsewhere.push(case["case"].as_str().unwrap().to_owned());
            count.agreed += 1;
        } else {
            let (reading, keys) = answer(&case).unwrap();
            compare(&case, &reading, &keys, &mut count);
        }
    }
    assert_eq!(elsewhere, NOT_A_PAGE);
    assert_eq!(count.agreed + count.differing.len(), 46);
    finish("metrics/", count);
}

/// A page that comes with another status than 200 changes nothing and is an error.
async fn unread(case: &Value) {
    let (name, input) = (case["case"].as_str().unwrap(), &case["input"]);
    let status = input["status"].as_i64().unwrap();
    let body = input["body"].as_str().unwrap().to_owned();
    let reply = Reply::with(&format!("{status} Said"), "", body.as_bytes());
    let server = Server::start(move |_| reply.clone()).await;
    let watch = Watch::start(server.address, Access::default());
    watch.until("a scrape", |w| w.count("failed") > 0).await;
    assert_eq!(watch.load().waiting, Signal::Never, "{name}");
    assert!(watch.error().contains(&status.to_string()), "{name}: {}", watch.error());
}

/// Mutant: accepting any one bad spec, or matching an absent label as empty, turns it red.
#[test]
fn metric_specs_read_as_recorded() {
    let mut count = Count::default();
    for case in cases(SPECS) {
        let name = case["case"].as_str().unwrap();
        let answered = answer(&case);
        match (&case["output"]["startup_error"], answered) {
            (Value::Null, Ok((reading, keys))) => compare(&case, &reading, &keys, &mut count),
            (Value::String(_), Err(_)) => count.agreed += 1,
            (recorded, Ok(_)) => panic!("{name}: accepted, recorded {recorded}"),
            (_, Err(error)) => panic!("{name}: refused: {error}"),
        }
    }
    finish("metric-spec/", count);
}

/// Notes whether our answer is the recorded one; a differing one must be the one in the table.
fn compare(case: &Value, reading: &Reading, keys: &[String], count: &mut Count) {
    let name = case["case"].as_str().unwrap();
    let (ours, recorded) = (ours(reading, keys), recorded(case));
    let listed = DIFFERENCES.iter().find(|(case, ..)| *case == name);
    match listed {
        None => {
            assert_eq!(ours, recorded, "{name}: differs from the recorded answer, unexplained");
            count.agreed += 1;
        }
        Some((_, reason, expected)) => {
            assert_ne!(ours, recorded, "{name}: agrees, yet listed as differing: {reason}");
            assert_eq!(ours, *expected, "{name}: {reason}");
            count.differing.push(name.to_owned());
        }
    }
}

/// Every row of the table must have met its case.
fn finish(part: &str, count: Count) {
    let listed: Vec<&str> =
        DIFFERENCES.iter().map(|row| row.0).filter(|c| c.starts_with(part)).collect();
    let mut unmet = listed.clone();
    unmet.retain(|case| !count.differing.iter().any(|met| met == case));
    assert!(unmet.is_empty(), "no such case: {unmet:?}");
    assert_eq!(listed.len(), count.differing.len(), "a case is listed twice");
    assert!(DIFFERENCES.iter().all(|row| row.0.starts_with("metric")));
    println!("{part} {} agreed, {} differing", count.agreed, count.differing.len());
}

fn cases(lines: &str) -> impl Iterator<Item = Value> {
    lines.lines().map(|line| serde_json::from_str(line).unwrap())
}

/// Our answer to a case: the reading under the engine it chooses, and the keys of custom metrics.
fn answer(case: &Value) -> Result<(Reading, Vec<String>), String> {
    let input = &case["input"];
    let params = &input["extractor_params"];
    let configs: Vec<EngineConfig> =
        params["engineConfigs"].as_array().into_iter().flatten().map(config).collect();
    let engines = Engines::try_new(
        &configs,
        params["defaultEngine"].as_str(),
        params["engineLabelKey"].as_str(),
    )
    .map_err(|error| error.to_string())?;
    let labels: BTreeMap<String, String> =
        serde_json::from_value(input["labels"].clone()).unwrap_or_default();
    let engine = engines.of(&labels);
    let reading = read_page(input["body"].as_str().unwrap().as_bytes(), engine);
    let keys = engine.mapping().custom.iter().map(|(key, _)| key.clone()).collect();
    Ok((reading, keys))
}

fn config(entry: &Value) -> EngineConfig {
    let known = ["name", "queuedRequestsSpec", "customMetrics"];
    assert!(entry.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{entry}");
    let text = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let custom = entry["customMetrics"].as_array().into_iter().flatten().map(|metric| {
        let text = |key: &str| metric[key].as_str().unwrap().to_owned();
        (text("attributeKey"), text("metricSpec"))
    });
    EngineConfig {
        name: text("name"),
        queued_requests: text("queuedRequestsSpec"),
        custom_metrics: custom.collect(),
        ..EngineConfig::default()
    }
}

/// A reading as text: what was read, then the families (or labels) that gave nothing.
fn ours(reading: &Reading, keys: &[String]) -> String {
    let mut parts = Vec::new();
    let mut put = |name: &str, value: Option<String>| {
        parts.extend(value.map(|value| format!("{name}={value}")));
    };
    put("waiting", reading.waiting.map(|v| v.to_string()));
    put("running", reading.running.map(|v| v.to_string()));
    put("kv", reading.kv.map(|v| v.to_string()));
    put("block", reading.block_size.map(|v| v.to_string()));
    put("blocks", reading.num_blocks.map(|v| v.to_string()));
    let list = |set: &std::collections::BTreeSet<String>| {
        set.iter().map(String::as_str).collect::<Vec<_>>().join(",")
    };
    put("active", reading.lora.as_ref().map(|lora| list(&lora.running)));
    put("queued", reading.lora.as_ref().map(|lora| list(&lora.waiting)));
    put("max", reading.lora.as_ref().and_then(|lora| lora.max).map(|v| v.to_string()));
    for (key, value) in keys.iter().zip(&reading.custom) {
        put(key, value.map(|v| v.to_string()));
    }
    if !parts.is_empty() {
        parts.push("renewed".to_owned());
    }
    parts.extend(reading.faults.iter().map(fault));
    parts.join(" ")
}

fn fault(fault: &Fault) -> String {
    match fault {
        Fault::NotFound(family) => format!("!{}", short(family)),
        Fault::NoSeries(spec) => format!("!{}{{}}", short(spec.family())),
        Fault::Unusable(family) => format!("!{}=", short(family)),
        Fault::Label { value, .. } => format!("!{value:?}"),
        Fault::Custom(key, of) => format!("{key}:{}", self::fault(of)),
    }
}

fn short(family: &str) -> &str {
    family.split_once(':').map_or(family, |(_, name)| name)
}

/// The recorded answer in the same text: a value equal to the one before was not read.
fn recorded(case: &Value) -> String {
    let (before, output) = (&case["input"]["previous"], &case["output"]);
    let mut parts = Vec::new();
    for (name, key) in [
        ("waiting", "waiting"),
        ("running", "running"),
        ("kv", "kv"),
        ("block", "block_size"),
        ("blocks", "num_blocks"),
        ("active", "active"),
        ("queued", "waiting_models"),
        ("max", "max_lora"),
    ] {
        if output[key] != before[key] {
            parts.push(format!("{name}={}", plain(&output[key])));
        }
    }
    for (key, value) in output["attributes"].as_object().into_iter().flatten() {
        parts.push(format!("{}={}", key.split('/').next().unwrap(), plain(value)));
    }
    if output["update_time_renewed"] == true {
        parts.push("renewed".to_owned());
    }
    if output["poll_error"].is_string() {
        parts.push("poll-error".to_owned());
    }
    parts.extend(output["extract_error"].as_str().into_iter().flat_map(str::lines).map(said));
    parts.join(" ")
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// One line of a recorded extract error in the words of [`fault`].
fn said(line: &str) -> String {
    let quoted = line.split('"').nth(1).unwrap();
    if let Some(rest) = line.strip_prefix("custom metric ") {
        format!("{quoted}:{}", said(rest.split_once(": ").unwrap().1))
    } else if line.starts_with("no matching metric found") {
        format!("!{}{{}}", short(quoted))
    } else if line.starts_with("strconv.Atoi") {
        format!("!{quoted:?}")
    } else {
        assert!(line.ends_with("not found"), "{line}");
        format!("!{}", short(quoted))
    }
}
