//! How the document reads, what it refuses, and which readings count.

use super::*;

const DOCUMENT: &str = r#"{
  "models": [{
    "modelID": "m", "namespace": "ns",
    "replicas": [{"pod": "p1", "variant": "v1", "kv": 0.65, "queue": 0, "ageSeconds": 0,
      "numGpuBlocks": 1000, "blockSize": 16, "avgInputTokens": 100, "avgOutputTokens": 50,
      "prefixHitRate": 0.0, "tokensInUse": 5000}],
    "variants": [{"name": "v1", "cost": 5.0, "accelerator": "L4", "gpusPerReplica": 1,
      "role": "both", "current": 2, "desired": 0, "pending": 0, "minReplicas": 0, "maxReplicas": 0,
      "engineArgs": ["--max-num-seqs=256"]}],
    "schedulerQueue": {"size": 0, "bytes": 0},
    "requestCount": 12
  }],
  "gpus": {"H100": 8}
}"#;

/// Mutants: a field renamed; a default that is not the documented one.
#[test]
fn the_documented_form_reads_and_writes() {
    let input: Input = serde_json::from_str(DOCUMENT).unwrap();
    assert_eq!(input.problems(), [""; 0]);
    assert_eq!(input.freshness_seconds, 30.0);
    assert_eq!(input.models[0].replicas[0].kv_tokens(), Some(16_000.0));
    assert_eq!(input.models[0].variants[0].ready(), 2);
    let text = serde_json::to_string(&input).unwrap();
    assert_eq!(serde_json::from_str::<Input>(&text).unwrap(), input);
    let bare = r#"{"models": [{"modelID": "m", "namespace": "", "variants": [{"name": "v"}]}]}"#;
    let bare: Input = serde_json::from_str(bare).unwrap();
    let v = &bare.models[0].variants[0];
    assert_eq!((v.cost, v.gpus_per_replica, v.role), (10.0, 1, Role::Both));
    assert_eq!((v.engine_args.as_ref(), bare.models[0].request_count), (None, None));
    assert_eq!(serde_json::from_str::<Role>("\"\"").unwrap(), Role::Both);
}

/// Mutant: `deny_unknown_fields` taken from any of the four.
#[test]
fn an_unknown_key_is_named() {
    let places = [
        ("\"gpus\"", "\"gpu\""),
        ("\"requestCount\"", "\"requestcount\""),
        ("\"numGpuBlocks\"", "\"num_gpu_blocks\""),
        ("\"maxReplicas\"", "\"max\""),
        ("\"bytes\"", "\"byte\""),
    ];
    for (right, wrong) in places {
        let error = serde_json::from_str::<Input>(&DOCUMENT.replace(right, wrong)).unwrap_err();
        assert!(error.to_string().contains(wrong.trim_matches('"')), "{error}");
    }
    let role = DOCUMENT.replace("\"both\"", "\"encode\"");
    assert!(serde_json::from_str::<Input>(&role).unwrap_err().to_string().contains("encode"));
}

/// Mutant: any of the rules left out.
#[test]
fn every_broken_rule_is_reported_with_its_place() {
    let mut input: Input = serde_json::from_str(DOCUMENT).unwrap();
    input.freshness_seconds = f64::NAN;
    let mut model = input.models[0].clone();
    let twice = model.variants[0].clone();
    model.variants.push(Variant {
        cost: -1.0,
        gpus_per_replica: 0,
        min_replicas: 3,
        max_replicas: 2,
        ..twice
    });
    model.variants.push(Variant::default());
    model.replicas.push(Replica { variant: "x".to_owned(), ..model.replicas[0].clone() });
    input.models.push(model);
    input.models.push(ModelInput::default());
    let expected = [
        "freshnessSeconds must be > 0, got NaN",
        "models[1]: \"ns/m\" stands twice",
        "models[1].variants[1].name: \"v1\" stands twice",
        "models[1].variants[1].cost must be > 0, got -1",
        "models[1].variants[1].gpusPerReplica must be >= 1, got 0",
        "models[1].variants[1].minReplicas must be <= maxReplicas (2), got 3",
        "models[1].variants[2].name must not be empty",
        "models[1].replicas[1].variant: no variant is named \"x\"",
        "models[1].replicas[1].pod: \"p1\" stands twice",
        "models[2].modelID must not be empty",
    ];
    assert_eq!(input.problems(), expected);
}

/// Mutants: `<` for `<=` at the limit; one age for both signals; an unmapped signal unknown.
#[test]
fn a_reading_is_fresh_by_its_own_age() {
    let replica = Replica {
        kv: Some(0.5),
        queue: Some(2.0),
        running: Some(1.0),
        age_seconds: 30.0,
        queue_age_seconds: Some(30.5),
        ..Replica::default()
    };
    assert_eq!(replica.kv_reading(30.0), Reading::Fresh(0.5));
    assert_eq!(replica.queue_reading(30.0), Reading::Unknown);
    assert_eq!(replica.running_reading(30.0), Some(1.0));
    let unmapped = Replica { kv: None, kv_unmapped: true, ..replica.clone() };
    assert_eq!(unmapped.kv_reading(30.0), Reading::Unmapped);
    for no_number in [f64::NAN, f64::INFINITY, -0.1] {
        let broken = Replica { kv: Some(no_number), ..replica.clone() };
        assert_eq!(broken.kv_reading(30.0), Reading::Unknown);
    }
}

/// Mutant: any list left as it came.
#[test]
fn an_input_has_one_order() {
    let mut input: Input = serde_json::from_str(DOCUMENT).unwrap();
    let model = &mut input.models[0];
    model.variants.push(Variant { name: "a".to_owned(), ..Variant::default() });
    let first = model.replicas[0].clone();
    model.replicas.push(Replica { pod: "p0".to_owned(), ..first.clone() });
    model.replicas.push(Replica { kv: Some(0.1), ..first });
    input.models.push(ModelInput { namespace: "a".to_owned(), ..ModelInput::default() });
    let mut turned = input.clone();
    turned.models.reverse();
    for model in &mut turned.models {
        model.variants.reverse();
        model.replicas.reverse();
    }
    let ordered = input.in_order();
    assert_eq!(ordered, turned.in_order());
    let pods: Vec<_> = ordered.models[1].replicas.iter().map(|r| (r.pod.as_str(), r.kv)).collect();
    assert_eq!(pods, [("p0", Some(0.65)), ("p1", Some(0.1)), ("p1", Some(0.65))]);
}
