//! What the file may say, and what each mistake costs.

use super::*;

fn one(entry: &str) -> Result<Layer, String> {
    let indented: String = entry.lines().map(|line| format!("  {line}\n")).collect();
    let document = read(format!("default: |\n{indented}").as_bytes()).unwrap();
    match document.rejected.as_slice() {
        [] => Ok(document.global.unwrap().entries[DEFAULT].clone()),
        [rejected] => Err(rejected.error.clone()),
        more => panic!("{more:?}"),
    }
}

/// Every rule in upstream's words. Mutants: any text; any comparison turned round; the border of a
/// range; a rule that stops at the first field.
#[test]
fn every_rule_has_its_text() {
    let table = [
        ("kvCacheThreshold: 1.5", "kvCacheThreshold must be between 0 and 1, got 1.50"),
        ("kvCacheThreshold: -0.1", "kvCacheThreshold must be between 0 and 1, got -0.10"),
        ("queueLengthThreshold: -1", "queueLengthThreshold must be >= 0, got -1.0"),
        ("kvSpareTrigger: 2", "kvSpareTrigger must be between 0 and 1, got 2.00"),
        ("queueSpareTrigger: -0.5", "queueSpareTrigger must be >= 0, got -0.5"),
        ("priority: -1", "priority must be >= 0, got -1.00"),
        (
            "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.6",
            "kvCacheThreshold (0.50) should be >= kvSpareTrigger (0.60)",
        ),
        ("scaleUpThreshold: 1.01", "scaleUpThreshold must be in (0, 1], got 1.01"),
        ("scaleDownBoundary: -1", "scaleDownBoundary must be in (0, 1], got -1.00"),
        (
            "scaleUpThreshold: 0.7\nscaleDownBoundary: 0.85",
            "scaleUpThreshold (0.70) must be > scaleDownBoundary (0.85)",
        ),
        (
            "analyzers: [{name: a, scaleUpThreshold: 2}]",
            "analyzer \"a\": scaleUpThreshold must be in (0, 1], got 2.00",
        ),
        (
            "analyzers: [{name: a, scaleDownBoundary: -1}]",
            "analyzer \"a\": scaleDownBoundary must be in (0, 1], got -1.00",
        ),
        (
            "scaleDownBoundary: 0.7\nanalyzers: [{name: a, scaleUpThreshold: 0.5}]",
            "analyzer \"a\": scaleUpThreshold (0.50) must be > scaleDownBoundary (0.70)",
        ),
        ("kvCacheThreshold: \"0.8\"", "kvCacheThreshold must be a number, got text \"0.8\""),
        ("enableLimiter: 1", "enableLimiter must be true or false, got a number"),
        ("analyzers: saturation", "analyzers must be a list, got text \"saturation\""),
        ("analyzers: [saturation]", "analyzers[0] must be a mapping, got text \"saturation\""),
        ("analyzers: [{score: 1}]", "analyzers[0]: name is required"),
        ("[1]", "must be a mapping, it is a list"),
        (
            "kvCacheThreshold: 7\nqueueLengthThreshold: -1",
            "kvCacheThreshold must be between 0 and 1, got 7.00; queueLengthThreshold must be >= 0, \
             got -1.0",
        ),
    ];
    for (entry, expected) in table {
        assert_eq!(one(entry), Err(expected.to_owned()), "{entry}");
    }
    for border in [
        "kvCacheThreshold: 1",
        "kvCacheThreshold: 0.5\nkvSpareTrigger: 0.5",
        "scaleUpThreshold: 1",
        "scaleUpThreshold: 0.71\nscaleDownBoundary: 0.7",
        "queueLengthThreshold: 0.001",
    ] {
        assert!(one(border).is_ok(), "{border}");
    }
    for bad in ["kvCacheThreshold: .nan", "queueLengthThreshold: .inf", "a: [", "a: 1\na: 2"] {
        assert!(one(bad).unwrap_err().contains("cannot be parsed as YAML"), "{bad}");
    }
}

/// Mutants: the place of the entry instead of the key's; columns without the indentation; a later key
/// told as unknown; an unknown key that costs its entry.
#[test]
fn an_unknown_key_is_named_with_its_place() {
    let text = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: wva-saturation-scaling-config
data:
  default: |
    # the line
    kvCacheTreshold: 0.5
    queueLengthThreshold: 7
    enableRescale: true
    limiters: []
    analyzers:
      - name: saturation
        type: saturation
        parameters: {}
        weight: 2
  \"m#ns\": \"kvCacheThreshold: 0.7\\nKvCacheThreshold: 0.5\"
  inline#ns:
    priority: 2
    urgency: 3
";
    let document = read(text.as_bytes()).unwrap();
    let places = [
        "line 8, column 5: key \"kvCacheTreshold\" is unknown, did you mean \"kvCacheThreshold\"?",
        "line 16, column 9: key \"weight\" is unknown",
        "line 17, within the text line 2, column 1: key \"KvCacheThreshold\" is unknown",
        "line 18: entry \"inline#ns\" is a mapping",
        "line 20, column 5: key \"urgency\" is unknown",
    ];
    let mut told = document.warnings.clone();
    told.sort_by_key(|text| places.iter().position(|place| text.starts_with(place)));
    assert_eq!(told.len(), places.len(), "{told:#?}");
    for (text, place) in told.iter().zip(places) {
        assert!(text.starts_with(place), "{text} instead of {place}");
    }
    let unused: Vec<_> = document.unused.iter().map(String::as_str).collect();
    assert_eq!(unused, ["analyzers[].parameters", "analyzers[].type", "enableRescale", "limiters"]);
    assert_eq!(document.global.unwrap().entries[DEFAULT].queue_length_threshold, Some(7.0));
}

/// Mutants: a file that is torn, empty or no configuration taken as one without entries; a bare
/// entry or a bare map refused.
#[test]
fn the_file_is_a_map_or_its_content() {
    let entries = |text: &str| {
        let document = read(text.as_bytes()).unwrap();
        document.global.unwrap().entries.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(entries("kvCacheThreshold: 0.7"), ["default"]);
    assert_eq!(
        entries("default: |\n  kvCacheThreshold: 0.7\nm#ns: {priority: 2}"),
        ["default", "m#ns"]
    );
    assert_eq!(
        entries("\u{feff}{\"kind\": \"ConfigMap\", \"data\": {\"a#b\": \"priority: 2\"}}"),
        ["a#b"]
    );
    let list = "kind: ConfigMapList\nitems:\n- kind: ConfigMap\n  data: {default: 'priority: 2'}\n";
    assert_eq!(entries(list), ["default"]);

    let refused = |text: &[u8]| read(text).unwrap_err();
    assert_eq!(refused(b""), ScalingError::Empty);
    assert_eq!(refused(b"# only a comment\n---\n"), ScalingError::Empty);
    assert_eq!(refused(b"\xff\xfe"), ScalingError::NotUtf8(0));
    assert_eq!(refused(b"kind: Pod"), ScalingError::NoEntries);
    assert_eq!(refused(b"kind: ConfigMap\ndata:\n"), ScalingError::NoEntries);
    assert!(matches!(refused(b"[1, 2]"), ScalingError::Shape { line: 1, .. }));
    assert!(matches!(refused(b"kind: ConfigMap\ndata: [1]"), ScalingError::Shape { line: 2, .. }));
    let torn = refused(b"default: |\n  priority: 2\n---\nkind: [ConfigMap\n");
    assert!(matches!(torn, ScalingError::Syntax { line: 4, .. }), "{torn:?}");
    // Nothing tells which of two maps would be the global one.
    let two = b"default: {}\n---\ndefault: {}\n";
    assert!(refused(two).to_string().contains("needs metadata.namespace"));
}

/// A document of 1 MB that would grow to many times that. Mutant: a reader without a budget.
#[test]
fn a_megabyte_of_aliases_is_refused() {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..8 {
        let of = format!("*a{}, ", level - 1).repeat(10);
        text += &format!("a{level}: &a{level} [{of}]\n");
    }
    while text.len() < 1 << 20 {
        text += "b: [*a7, *a7, *a7, *a7, *a7, *a7, *a7, *a7]\n";
    }
    text.truncate(1 << 20);
    assert!(matches!(read(text.as_bytes()), Err(ScalingError::Syntax { .. })));
    // The same within an entry costs that entry.
    let inner: String = text.lines().take(8).map(|line| format!("  {line}\n")).collect();
    let document = read(format!("m#ns: |\n{inner}default: 'priority: 2'\n").as_bytes()).unwrap();
    assert_eq!(document.rejected.len(), 1);
    assert!(document.rejected[0].error.contains("budget"), "{:?}", document.rejected);
    assert_eq!(document.global.unwrap().entries.len(), 1);
}

/// Mutants: any text; a model that two entries speak for taken twice; an entry without a model.
#[test]
fn the_zero_map_has_its_rules() {
    let zero = |entries: &str| {
        let text = format!(
            "kind: ConfigMap\nmetadata: {{name: wva-model-scale-to-zero-config}}\ndata:\n{entries}"
        );
        read(text.as_bytes()).unwrap()
    };
    for (retention, error) in [
        ("''", "retention period cannot be empty"),
        ("0s", "retention period must be positive, got 0s"),
        ("-5m", "retention period must be positive, got -5m0s"),
    ] {
        let entry = format!("  a: |\n    model_id: m\n    retention_period: {retention}\n");
        let document = zero(&entry);
        assert_eq!(document.rejected[0].error, error);
        let layer = &document.zero.unwrap().entries["a"];
        assert_eq!((layer.model.as_deref(), layer.retention), (Some("m"), None));
    }
    let soon = zero("  a: |\n    model_id: m\n    retention_period: 10 minutes\n");
    assert!(soon.rejected[0].error.starts_with("invalid duration format: "), "{soon:?}");
    let anonymous = zero("  a: |\n    enable_scale_to_zero: true\n");
    assert_eq!(anonymous.rejected[0].error, "model_id is missing");
    let long = zero("  default: |\n    retention_period: 25h\n");
    assert_eq!((long.rejected.len(), long.warnings.len()), (0, 1));
    let twice = zero(
        "  b: 'model_id: m'\n  a: 'model_id: m'\n  c: |\n    model_id: m\n    namespace: ns\n",
    );
    let kept: Vec<_> = twice.zero.unwrap().entries.into_keys().collect();
    assert_eq!((kept.join(","), twice.warnings.len()), ("a,c".to_owned(), 1));
}

/// Mutants: a bad retention that resets a good one; a map that is gone taken away.
#[test]
fn what_was_valid_stays() {
    let version = |saturation: bool, retention: &str| {
        let saturation = if saturation { "default: 'priority: 2'\n---\n" } else { "" };
        let text = format!(
            "{saturation}kind: ConfigMap\nmetadata: {{name: {ZERO_MAP}}}\n\
             data: {{default: 'retention_period: {retention}'}}\n"
        );
        read(text.as_bytes()).unwrap()
    };
    let (held, gone) = Held::default().next(&version(true, "5m"));
    assert_eq!(gone, [""; 0]);
    let (held, gone) = held.next(&version(false, "soon"));
    assert_eq!(gone, [SATURATION_MAP]);
    assert!(held.has_default());
    let minutes = std::time::Duration::from_secs(300);
    assert_eq!(held.zero[DEFAULT].retention, Some(minutes));
}
