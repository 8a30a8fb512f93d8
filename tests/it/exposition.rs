//! Metrics pages as servers and accidents write them: any bytes cost at most their own line.
//!
//! The pages under `tests/data/corpus/exposition/` are replayed as they are; the tests named after a report
//! (`u0xx`) hold the page that the report shows.

use std::collections::{BTreeMap, BTreeSet};

use plumbline::poller::engines::{ENGINE_LABEL, EngineConfig, Engines};
use plumbline::poller::exposition::{Wanted, lines};
use plumbline::poller::reading::{Reading, read_page};
use plumbline::store::Vital;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Reads a page as a vLLM server's.
fn vllm(page: &[u8]) -> Reading {
    read_page(page, Engines::default().of(&BTreeMap::new()))
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A runner whose cases are the same in every run.
fn runner() -> TestRunner {
    let seed = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let config = Config { cases: 64, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, seed)
}

/// The numbers that a page gives, without what went wrong beside them.
fn signals(reading: &Reading) -> impl PartialEq + std::fmt::Debug + use<> {
    (
        (reading.waiting, reading.running, reading.kv, reading.ranks),
        (reading.block_size, reading.num_blocks, reading.lora.clone()),
        reading.vitals,
    )
}

const GOOD: [&str; 8] = [
    "vllm:num_requests_waiting{engine=\"0\"} 4",
    "vllm:num_requests_waiting{engine=\"1\"} 5",
    "vllm:num_requests_running{engine=\"0\"} 3",
    "vllm:kv_cache_usage_perc{engine=\"0\"} 0.5",
    "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"512\"} 1",
    "vllm:lora_requests_info{running_lora_adapters=\"a\",max_lora=\"2\"} 1700000000",
    "vllm:prompt_tokens_total{engine=\"0\"} 1700",
    "process_start_time_seconds 1.7e9",
];

/// Bytes that mean something to the format, so that random lines come near to being good.
fn near_line() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::sample::select(vec![
            "vllm:num_requests_waiting",
            "vllm:kv_cache_usage_perc",
            "vllm:lora_requests_info",
            "vllm:cache_config_info",
            "vllm:prompt_tokens_total",
            "vllm:request_success_total",
            "running_lora_adapters=",
            "block_size=\"",
            "engine=\"0\"",
            "{",
            "}",
            "\"",
            "\\",
            ",",
            "=",
            "#",
            " ",
            "\t",
            "\r",
            "7",
            "-1",
            "NaN",
            "1e400",
            "0.5",
            "# TYPE x gauge",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        prop::collection::vec(any::<u8>(), 0..6),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

/// Mutant: indexing past the end anywhere in the pass panics here; a KV value let through unchecked
/// leaves `[0, 1]`.
#[test]
fn any_bytes_are_a_page() {
    let pages = prop::collection::vec(near_line(), 0..20).prop_map(|lines| lines.join(&b'\n'));
    runner()
        .run(&pages, |page| {
            let reading = vllm(&page);
            let counts = [reading.waiting, reading.running];
            prop_assert!(counts.iter().flatten().all(|v| v.is_finite() && *v >= 0.0));
            prop_assert!(reading.kv.iter().all(|v| (0.0..=1.0).contains(v)));
            prop_assert!(reading.vitals.iter().flatten().all(|v| v.is_finite() && *v >= 0.0));
            let (used, whole) = (reading.vital(Vital::KvUsed), reading.vital(Vital::KvCapacity));
            prop_assert!(used.is_none_or(|used| whole.is_some_and(|whole| used <= whole + 1e-6)));
            prop_assert_ne!(reading.block_size, Some(0));
            Ok(())
        })
        .unwrap();
}

/// Mutant: leaving the pass at a malformed line, or reading on past a line's end for a closing quote,
/// loses the good lines behind it.
#[test]
fn a_bad_line_costs_no_other_family() {
    let junk = near_line().prop_filter("a line of another family", |line| {
        let wanted = Wanted::new(GOOD.map(|good| good.split(['{', ' ']).next().unwrap()));
        !line.contains(&b'\n') && lines(line, &wanted).next().is_none()
    });
    let pages = prop::collection::vec((junk, 0..=GOOD.len()), 0..12);
    let alone = signals(&vllm(GOOD.join("\n").as_bytes()));
    runner()
        .run(&pages, |junk| {
            let mut page = Vec::new();
            for at in 0..=GOOD.len() {
                for (line, _) in junk.iter().filter(|(_, place)| *place == at) {
                    page.extend_from_slice(line);
                    page.push(b'\n');
                }
                page.extend_from_slice(GOOD.get(at).copied().unwrap_or_default().as_bytes());
                page.push(b'\n');
            }
            prop_assert!(signals(&vllm(&page)) == alone);
            Ok(())
        })
        .unwrap();
}

/// Mutant: as above; here the bad line is one of a wanted family, and only that family may suffer.
#[test]
fn a_bad_line_of_a_wanted_family_costs_that_line() {
    let alone = signals(&vllm(GOOD.join("\n").as_bytes()));
    for bad in [
        "vllm:num_requests_waiting{engine=\"0\" 9",
        "vllm:num_requests_waiting{engine=\"0\"} nine",
        "vllm:kv_cache_usage_perc",
        "vllm:kv_cache_usage_perc{a=\"unclosed} 0.9",
        "vllm:lora_requests_info{running_lora_adapters=} 1800000000",
        "vllm:num_requests_running 1 2 3",
    ] {
        for at in 0..=GOOD.len() {
            let mut page = GOOD.to_vec();
            page.insert(at, bad);
            let reading = vllm(page.join("\n").as_bytes());
            assert!(signals(&reading) == alone, "{bad} at {at}: {reading:?}");
            assert_eq!((reading.bad_lines, reading.faults.len()), (1, 0), "{bad}");
        }
    }
}

/// Whole pages, with what each says: waiting, running, KV, ranks, bad lines, bad values.
/// Mutant: keeping the carriage return, ending a value at an escaped quote, or reading NaN.
#[test]
fn recorded_pages_replay() {
    let page = |name: &str| {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/corpus/exposition/");
        std::fs::read(format!("{root}{name}")).unwrap()
    };
    let expected = [
        ("classic.txt", Some(3.0), Some(12.0), Some(0.25), 1, 0, 0),
        ("openmetrics.txt", Some(4.0), Some(2.0), Some(0.5), 1, 0, 0),
        ("ranks-crlf.txt", Some(14.0), Some(7.0), Some(0.75), 2, 0, 0),
        ("broken.txt", Some(6.0), None, None, 1, 3, 1),
        ("utf8-names.txt", Some(1.0), Some(2.0), Some(0.125), 1, 0, 0),
        ("binary.bin", None, None, None, 0, 1, 0),
        ("vitals.txt", None, None, Some(0.5), 1, 1, 2),
    ];
    for (name, waiting, running, kv, ranks, bad_lines, bad_values) in expected {
        let reading = vllm(&page(name));
        let read = (reading.waiting, reading.running, reading.kv, reading.ranks);
        assert_eq!(read, (waiting, running, kv, ranks), "{name}: {reading:?}");
        assert_eq!((reading.bad_lines, reading.bad_values), (bad_lines, bad_values), "{name}");
    }
    let files =
        std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/corpus/exposition"));
    assert_eq!(files.unwrap().count(), expected.len(), "a page is not replayed");
}

/// Mutant: taking the first rank's KV, or a sum of it; counting a repeated series twice; one rank's
/// capacity for the other's.
#[test]
fn ranks_on_one_port_add_up() {
    let page = "vllm:num_requests_waiting{engine=\"1\"} 5 2000\n\
        vllm:num_requests_waiting{engine=\"0\"} 4\n\
        vllm:num_requests_waiting{engine=\"1\"} 9 1000\n\
        vllm:num_requests_running{engine=\"0\"} 3.9\n\
        vllm:num_requests_running{engine=\"1\"} NaN\n\
        vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n\
        vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1\n\
        vllm:cache_config_info{block_size=\"16\",engine=\"1\",num_gpu_blocks=\"120\"} 1\n";
    let reading = vllm(page.as_bytes());
    assert_eq!((reading.waiting, reading.running), (Some(9.0), None), "one rank is unknown");
    assert_eq!((reading.kv, reading.ranks), (Some(0.75), 2));
    assert_eq!((reading.block_size, reading.num_blocks), (Some(16), Some(220)));
    assert_eq!(reading.vital(Vital::KvCapacity), Some(16.0 * 220.0));
    assert_eq!(reading.vital(Vital::KvUsed), Some(16.0 * (0.25 * 100.0 + 0.75 * 120.0)));
    let said: Vec<String> = reading.faults.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["metric family \"vllm:num_requests_running\" has no usable value"]);
    assert_eq!(vllm(b"vllm:num_requests_waiting 3.9").waiting, Some(3.0), "whole, as upstream");
}

/// What scaling reads, under today's names, under older ones, and summed over ranks and reasons.
/// Mutants: the first series only; two families exchanged; a histogram's buckets read as its sum.
#[test]
fn vitals_are_read_and_summed() {
    let page = "vllm:request_prompt_tokens_bucket{engine=\"0\",le=\"1.0\"} 1\n\
        vllm:request_prompt_tokens_sum{engine=\"0\"} 1000\n\
        vllm:request_prompt_tokens_sum{engine=\"1\"} 500\n\
        vllm:request_prompt_tokens_count{engine=\"0\"} 4\n\
        vllm:request_generation_tokens_sum 800\nvllm:request_generation_tokens_count 5\n\
        vllm:prompt_tokens_total 1700\nvllm:generation_tokens_total 900\n\
        vllm:gpu_prefix_cache_queries_total 300\nvllm:prefix_cache_hits 120\n\
        vllm:gpu_prefix_cache_hits 7\n\
        vllm:request_success_total{finished_reason=\"stop\"} 3\n\
        vllm:request_success_total{finished_reason=\"length\"} 2\n\
        process_start_time_seconds 1.7e9\n";
    let reading = vllm(page.as_bytes());
    for (vital, value) in [
        (Vital::RequestPromptTokensSum, 1500.0),
        (Vital::RequestPromptTokensCount, 4.0),
        (Vital::RequestGenerationTokensSum, 800.0),
        (Vital::RequestGenerationTokensCount, 5.0),
        (Vital::PromptTokens, 1700.0),
        (Vital::GenerationTokens, 900.0),
        (Vital::PrefixQueries, 300.0),
        (Vital::PrefixHits, 120.0),
        (Vital::Succeeded, 5.0),
        (Vital::ProcessStart, 1.7e9),
    ] {
        assert_eq!(reading.vital(vital), Some(value), "{vital:?}");
    }
    assert_eq!(reading.vital(Vital::KvCapacity), None);
    let huge = "vllm:prompt_tokens_total{engine=\"0\"} 1e308\nvllm:prompt_tokens_total 1e308\n";
    assert_eq!(vllm(huge.as_bytes()).vital(Vital::PromptTokens), None, "no number any more");
    let bare = vllm(b"vllm:num_requests_waiting 1\n");
    assert!(bare.vitals.iter().all(Option::is_none));
    assert!(!bare.faults.iter().any(|fault| fault.to_string().contains("prefix")));
}

/// The KV capacity of each engine, by the way in which it tells of it. Mutants: block size for
/// blocks; a bare capacity believed before blocks; an unlabelled cache counted once for two ranks.
#[test]
fn capacity_is_reckoned_for_every_engine() {
    let engines = Engines::default();
    for (name, page, capacity, used) in [
        ("sglang", "sglang:max_total_num_tokens 5000\nsglang:token_usage 0.5\n", 5000.0, 2500.0),
        (
            "sglang",
            "sglang:max_total_num_tokens 1\nsglang:token_usage 0.5\n\
             sglang:cache_config_info{page_size=\"64\",num_pages=\"10\"} 1\n",
            640.0,
            320.0,
        ),
        (
            "trtllm-serve",
            "trtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 10\n\
             trtllm_kv_cache_utilization 0.25\n",
            320.0,
            80.0,
        ),
        (
            "triton-tensorrt-llm",
            "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\"} 6239\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\"} 64\n\
             nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\"} 0.5\n",
            399_296.0,
            199_648.0,
        ),
        (
            "vllm",
            "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"10\"} 1\n\
             vllm:kv_cache_usage_perc{engine=\"0\"} 0.5\nvllm:kv_cache_usage_perc{engine=\"1\"} 1\n",
            320.0,
            240.0,
        ),
    ] {
        let engine = engines.named(name).unwrap();
        let reading = read_page(page.as_bytes(), engine);
        let read = (reading.vital(Vital::KvCapacity), reading.vital(Vital::KvUsed));
        assert_eq!(read, (Some(capacity), Some(used)), "{name}: {reading:?}");
        let mapped = engine.vitals();
        assert!(mapped[Vital::KvCapacity as usize] && mapped[Vital::KvUsed as usize], "{name}");
    }
    let triton = engines.named("triton").unwrap().vitals();
    assert!(!triton[Vital::KvCapacity as usize] && triton[Vital::ProcessStart as usize]);
}

/// Mutant: reporting the older name, or a fault for LoRA, changes the texts.
#[test]
fn faults_name_the_family() {
    let said = |page: &str| -> Vec<String> {
        vllm(page.as_bytes()).faults.iter().map(ToString::to_string).collect()
    };
    let all: Vec<String> = [
        "num_requests_waiting",
        "num_requests_running",
        "kv_cache_usage_perc",
        "cache_config_info",
    ]
    .iter()
    .map(|family| format!("metric family \"vllm:{family}\" not found"))
    .collect();
    assert_eq!(said(""), all);
    assert!(vllm(b"").is_blank());
    let label = "vllm:cache_config_info{block_size=\"None\",num_gpu_blocks=\"0\"} 1\n";
    let family = "\"vllm:cache_config_info\"";
    assert_eq!(
        said(label)[3],
        format!("label \"block_size\" of metric family {family}: \"None\" is no count")
    );
    assert_eq!(vllm(label.as_bytes()).num_blocks, None, "no cache has 0 blocks");
}

/// Mutant: `>=` for `>` in `newest` takes the last of equally new series; adding up gives 121.
#[test]
fn a_custom_metric_is_its_newest_series() {
    let config = EngineConfig {
        name: "vllm".to_owned(),
        custom_metrics: vec![("temp".to_owned(), "t{}".to_owned())],
        ..EngineConfig::default()
    };
    let engines = Engines::try_new(&[config], None, None).unwrap();
    let read = |page: &[u8]| read_page(page, engines.of(&BTreeMap::new())).custom;
    assert_eq!(read(b"t{gpu=\"1\"} 50\nt{gpu=\"0\"} 71\n"), [Some(50.0)]);
    assert_eq!(read(b"t{gpu=\"1\"} 50 10\nt{gpu=\"0\"} 71 20\n"), [Some(71.0)]);
    assert_eq!(read(b""), [None]);
}

/// A family that vLLM renamed is read under either name, and the new one counts where both are.
/// Mutant: an empty `RENAMED`, or taking the hits of every name.
#[test]
fn u035_renamed_kv_family() {
    let old = "vllm:gpu_cache_usage_perc{model_name=\"m\"} ";
    let new = "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} ";
    for page in [
        format!("{old}0.7\n"),
        format!("{new}0.7\n"),
        format!("{old}0.1\n{new}0.7\n"),
        format!("{new}0.7\n{old}0.9\n"),
    ] {
        let reading = vllm(page.as_bytes());
        assert_eq!((reading.kv, reading.ranks), (Some(0.7), 1), "{page}");
    }
}

/// OpenMetrics: the type line holds the base name, a counter's samples the suffix.
/// Mutant: dropping `_total` from `spellings`, or the exemplar arm of `sample`.
#[test]
fn u038_openmetrics_page() {
    let page = "# TYPE vllm:prompt_tokens counter\n\
        vllm:prompt_tokens_total{engine=\"0\"} 34567503 1700000000.5 # {trace_id=\"t\"} 1 1.5\n\
        vllm:prompt_tokens_created{engine=\"0\"} 1.7e9\n\
        # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\"} 4\n# EOF\n";
    for family in ["vllm:prompt_tokens", "vllm:prompt_tokens_total"] {
        let config = EngineConfig {
            name: "vllm".to_owned(),
            queued_requests: "vllm:num_requests_waiting".to_owned(),
            custom_metrics: vec![("prompt".to_owned(), family.to_owned())],
            ..EngineConfig::default()
        };
        let engines = Engines::try_new(&[config], None, None).unwrap();
        let reading = read_page(page.as_bytes(), engines.of(&BTreeMap::new()));
        assert_eq!(reading.waiting, Some(4.0), "{family}");
        assert_eq!(reading.custom, [Some(34_567_503.0)], "{family}");
        assert!(reading.faults.is_empty(), "{family}: {:?}", reading.faults);
    }
}

/// Old LoRA lines stay on the page; the one with the largest value is the newest.
/// Mutant: dropping `dedup_by` in `per_rank`, or turning its order round.
#[test]
fn u040_newest_lora_line() {
    let line = |running: &str, waiting: &str, at: &str| {
        let labels = format!("max_lora=\"1\",running_lora_adapters=\"{running}\"");
        format!("vllm:lora_requests_info{{{labels},waiting_lora_adapters=\"{waiting}\"}} {at}\n")
    };
    let page = line("", "", "1.7395575657589855e+09")
        + &line("test-lora", "", "1.7395575723949368e+09")
        + &line("test-lora", "test-lora", "1.7395575717647147e+09");
    let lora = vllm(page.as_bytes()).lora.unwrap();
    assert_eq!((lora.running, lora.waiting, lora.max), (set(&["test-lora"]), set(&[]), Some(1)));
}

/// A fleet in the middle of an upgrade: either name is read, and no name at all is said.
/// Mutant: an empty `RENAMED`, or `absent` that says nothing.
#[test]
fn u043_mixed_fleet() {
    let page =
        |kv: &str| format!("vllm:num_requests_waiting 1\nvllm:num_requests_running 2\n{kv}\n");
    assert_eq!(vllm(page("vllm:gpu_cache_usage_perc 0.3").as_bytes()).kv, Some(0.3));
    assert_eq!(vllm(page("vllm:kv_cache_usage_perc 0.4").as_bytes()).kv, Some(0.4));
    let none = vllm(page("").as_bytes());
    assert_eq!((none.waiting, none.running, none.kv), (Some(1.0), Some(2.0), None));
    assert_eq!(none.faults[0].to_string(), "metric family \"vllm:kv_cache_usage_perc\" not found");
}

/// A server without LoRA has no LoRA family, and that is no fault.
/// Mutant: `absent` without its exception for LoRA.
#[test]
fn u044_no_lora_is_no_fault() {
    let reading = vllm(
        b"vllm:num_requests_waiting 1\nvllm:num_requests_running 2\nvllm:kv_cache_usage_perc 0.1\n",
    );
    assert_eq!((reading.waiting, reading.running, reading.kv), (Some(1.0), Some(2.0), Some(0.1)));
    assert_eq!(reading.lora, None);
    assert!(reading.faults.iter().all(|fault| !fault.to_string().contains("lora")));
}

/// Triton serves other things than language models: it has a queue and no KV cache.
/// Mutant: taking only the first series, or a KV family in Triton's mapping.
#[test]
fn u049_queue_only_engine() {
    let labels = BTreeMap::from([(ENGINE_LABEL.to_owned(), "triton".to_owned())]);
    let page = b"nv_inference_pending_request_count{model=\"a\"} 3\n\
        nv_inference_pending_request_count{model=\"b\"} 4\nnv_inference_exec_count{model=\"a\"} 9\n";
    let engines = Engines::default();
    let reading = read_page(page, engines.of(&labels));
    assert_eq!((reading.waiting, reading.kv), (Some(7.0), None));
    assert!(reading.faults.is_empty() && engines.of(&labels).mapping().kv.is_none());
}
