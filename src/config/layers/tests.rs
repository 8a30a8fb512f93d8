//! The merge, the presence rules and the conflicts, as tables.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::config::scaling::read;

fn layers(params: &str, scaling: &str) -> Layers {
    let document = read(scaling.as_bytes()).unwrap();
    assert_eq!(document.rejected, [], "{scaling}");
    let scaling = Held::default().next(&document).0;
    Layers { params: Params::parse(params).unwrap(), scaling }
}

fn number(line: &Line, name: &str) -> (f64, Source) {
    let index = crate::thresholds::NAMES.iter().position(|known| *known == name).unwrap();
    let d = line.entry.thresholds.numbers();
    let numbers = [
        d.queue_depth,
        d.kv_cache_util,
        d.staleness.as_secs_f64(),
        d.headroom,
        d.kv_spare_trigger,
        d.queue_spare_trigger,
        d.scale_up_threshold,
        d.scale_down_boundary,
    ];
    (numbers[index], line.sources[index])
}

/// One line a rule: params, `default`, the model's entry; then name, number and source.
/// Mutants: two layers swapped in the order; a zero that counts; a `null` that counts.
#[test]
fn the_most_specific_layer_that_sets_a_field_wins() {
    use Source::{BuiltIn, Params as P, ScalingDefault as D, ScalingModel as M};
    let table = [
        ("{}", "", "", "kvCacheUtilThreshold", 0.8, BuiltIn),
        ("{}", "kvCacheThreshold: 0.7", "", "kvCacheUtilThreshold", 0.7, D),
        (
            r#"{"kvCacheUtilThreshold":0.6}"#,
            "kvCacheThreshold: 0.7",
            "",
            "kvCacheUtilThreshold",
            0.6,
            P,
        ),
        (
            r#"{"kvCacheUtilThreshold":0.6}"#,
            "kvCacheThreshold: 0.7",
            "kvCacheThreshold: 0.5",
            "kvCacheUtilThreshold",
            0.5,
            M,
        ),
        (
            r#"{"kvCacheUtilThreshold":0.6}"#,
            "",
            "queueLengthThreshold: 9",
            "kvCacheUtilThreshold",
            0.6,
            P,
        ),
        (
            r#"{"queueDepthThreshold":7}"#,
            "",
            "queueLengthThreshold: 2.5",
            "queueDepthThreshold",
            2.5,
            M,
        ),
        // Presence counts in JSON, `null` is absent; in an entry zero is absent.
        (
            r#"{"kvCacheUtilThreshold":0.8}"#,
            "kvCacheThreshold: 0.7",
            "",
            "kvCacheUtilThreshold",
            0.8,
            P,
        ),
        (
            r#"{"kvCacheUtilThreshold":null}"#,
            "kvCacheThreshold: 0.7",
            "",
            "kvCacheUtilThreshold",
            0.7,
            D,
        ),
        (r#"{"headroom":0}"#, "", "", "headroom", 0.0, P),
        ("{}", "kvCacheThreshold: 0.7", "kvCacheThreshold: 0", "kvCacheUtilThreshold", 0.7, D),
        ("{}", "kvSpareTrigger: 0.2", "kvSpareTrigger: 0.0", "kvSpareTrigger", 0.2, D),
        ("{}", "queueSpareTrigger: 4", "queueSpareTrigger: ~", "queueSpareTrigger", 4.0, D),
        ("{}", "scaleUpThreshold: 0.95", "scaleDownBoundary: 0.6", "scaleUpThreshold", 0.95, D),
        ("{}", "scaleUpThreshold: 0.95", "scaleDownBoundary: 0.6", "scaleDownBoundary", 0.6, M),
        (r#"{"metricsStalenessThreshold":"2s"}"#, "", "", "metricsStalenessThreshold", 2.0, P),
        // The built-in trigger gives way to a lower line.
        ("{}", "", "kvCacheThreshold: 0.05", "kvSpareTrigger", 0.05, BuiltIn),
    ];
    for (params, default, model, name, expected, source) in table {
        let scaling = format!("default: {{{default}}}\nm#ns: {{{model}}}\n");
        let line = layers(params, &scaling).line(Some("m"), "ns");
        assert_eq!(number(&line, name), (expected, source), "{params} {scaling} {name}");
        assert_eq!(line.dropped, []);
    }
}

/// Mutants: `false` or an empty list that resets; a list that is merged item by item; a priority from
/// the wrong layer.
#[test]
fn what_is_no_threshold_inherits_alike() {
    let scaling = "\
default:
  priority: 3
  enableLimiter: true
  analyzerName: saturation
  analyzers: [{name: saturation, score: 2}, {name: x, enabled: false}]
a#ns: {priority: 0, enableLimiter: false, analyzers: [], analyzerName: ''}
b#ns: {priority: 2, analyzers: [{name: y, scaleUpThreshold: 0.9}]}
";
    let layers = layers("{}", scaling);
    let (a, b) = (layers.line(Some("a"), "ns"), layers.line(Some("b"), "ns"));
    assert_eq!((a.entry.priority, a.entry.enable_limiter), (3.0, true));
    assert_eq!(a.others.analyzers, Source::ScalingDefault);
    assert_eq!(a.entry.analyzers.len(), 2);
    assert_eq!((a.entry.analyzers[0].score, a.entry.analyzers[1].enabled), (2.0, false));
    assert_eq!((b.entry.priority, b.others.priority), (2.0, Source::ScalingModel));
    let names: Vec<_> = b.entry.analyzers.iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names.as_slice(), b.entry.bounds("y")), (&["y"][..], (0.9, 0.7)));
}

/// Mutants: V1 by an absent file or entry; a selection by an override or a local map.
#[test]
fn the_global_default_entry_alone_selects() {
    let selected = |scaling: &str| layers("{}", scaling).selection();
    assert_eq!(Layers::default().selection(), Selection::TokenCapacity);
    assert_eq!(Layers::default().line(None, "").entry, ScalingEntry::default());
    assert_eq!(selected("m#ns: {kvCacheThreshold: 0.7}"), Selection::TokenCapacity);
    assert_eq!(selected("default: {}"), Selection::SpareCapacity);
    assert_eq!(selected("default: {analyzerName: other}"), Selection::SpareCapacity);
    assert_eq!(selected("default: {analyzerName: saturation}"), Selection::TokenCapacity);
    assert_eq!(selected("default: {analyzers: [{name: throughput}]}"), Selection::TokenCapacity);
    let two = "default: {}\nm#ns: {analyzerName: saturation}\n---\nkind: ConfigMap\n\
               metadata: {name: wva-saturation-scaling-config, namespace: ns}\n\
               data: {default: 'analyzerName: saturation'}\n";
    assert_eq!(selected(two), Selection::SpareCapacity);
}

/// Mutants: a local map that is merged with the global one; params left out of a local map.
#[test]
fn a_local_map_replaces_the_global_one_whole() {
    let scaling = "\
default: {kvCacheThreshold: 0.7, queueLengthThreshold: 9}
m#ns: {kvCacheThreshold: 0.5}
---
kind: ConfigMap
metadata: {name: wva-saturation-scaling-config, namespace: ns}
data:
  default: 'kvCacheThreshold: 0.6'
";
    let layers = layers(r#"{"headroom":0.1}"#, scaling);
    let here = layers.line(Some("m"), "ns");
    assert_eq!(number(&here, "kvCacheUtilThreshold"), (0.6, Source::ScalingDefault));
    assert_eq!(number(&here, "queueDepthThreshold"), (5.0, Source::BuiltIn));
    assert_eq!(number(&here, "headroom"), (0.1, Source::Params));
    let there = layers.line(Some("m"), "other");
    assert_eq!(number(&there, "kvCacheUtilThreshold"), (0.7, Source::ScalingDefault));
    let (table, dropped) = layers.table();
    assert_eq!((table.entry("m", "ns"), dropped), (here.entry, vec![]));
    assert_eq!(table.entry("m", "other"), there.entry);
}

/// Mutants: the most specific layer without a part in the rule dropped; an endless loop; a rule that
/// the built-in layer breaks for the one above.
#[test]
fn a_broken_rule_costs_the_most_specific_layer_with_a_part_in_it() {
    let dropped = |params: &str, scaling: &str| {
        let line = layers(params, scaling).line(Some("m"), "ns");
        let names: Vec<_> = line.dropped.iter().map(|d| d.layer.clone()).collect();
        (names, line)
    };
    // The model's entry has no part in it and stays.
    let (names, line) = dropped(
        r#"{"kvCacheUtilThreshold":0.3}"#,
        "default: {kvSpareTrigger: 0.4}\nm#ns: {queueLengthThreshold: 9}",
    );
    assert_eq!(names, ["params"]);
    assert_eq!(number(&line, "queueDepthThreshold"), (9.0, Source::ScalingModel));
    assert_eq!(number(&line, "kvCacheUtilThreshold"), (0.8, Source::BuiltIn));

    let (names, line) = dropped("{}", "default: {scaleUpThreshold: 0.6}\nm#ns: {priority: 2}");
    assert_eq!(names, ["default"]);
    assert_eq!(line.dropped[0].rule, "scaleUpThreshold (0.60) must be > scaleDownBoundary (0.70)");
    assert_eq!(line.entry.priority, 2.0);

    let (names, _) = dropped(
        "{}",
        "default: {kvSpareTrigger: 0.9}\nm#ns: {kvCacheThreshold: 0.5, scaleUpThreshold: 0.5}",
    );
    assert_eq!(names, ["m#ns", "default"], "each rule in turn");
}

/// Mutants: a zero entry of another namespace; the general entry before the special one; a bad
/// retention that is kept, or that costs `enabled`.
#[test]
fn scale_to_zero_is_per_model_and_namespace() {
    let scaling = "\
default: {}
---
kind: ConfigMap
metadata: {name: wva-model-scale-to-zero-config}
data:
  default: 'retention_period: 5m'
  a: |
    model_id: m
    enable_scale_to_zero: true
  b: |
    model_id: m
    namespace: ns
    enable_scale_to_zero: false
    retention_period: 1h
";
    let layers = layers("{}", scaling);
    let (table, _) = layers.table();
    let zero = |enabled, minutes: u64| ScaleToZero {
        enabled,
        retention: Duration::from_secs(minutes * 60),
    };
    for (model, namespace, expected) in
        [("m", "ns", zero(false, 60)), ("m", "x", zero(true, 5)), ("n", "ns", zero(false, 5))]
    {
        assert_eq!(layers.line(Some(model), namespace).entry.scale_to_zero, expected);
        assert_eq!(table.entry(model, namespace).scale_to_zero, expected);
    }
    assert_eq!(layers.line(Some("m"), "ns").others.retention, Source::ScalingModel);
}

/// A layer of few values, so that conflicts and broken rules are common.
fn entry() -> impl Strategy<Value = Layer> {
    let fraction = || prop::option::of(prop::sample::select(vec![0.05, 0.3, 0.6, 0.7, 0.9, 1.0]));
    (fraction(), fraction(), fraction(), fraction(), prop::option::of(1.0..9.0_f64)).prop_map(
        |(kv, spare, up, down, queue)| Layer {
            kv_cache_threshold: kv,
            kv_spare_trigger: spare,
            scale_up_threshold: up,
            scale_down_boundary: down,
            queue_length_threshold: queue,
            ..Layer::default()
        },
    )
}

/// One arrival of a layer.
#[derive(Debug, Clone)]
enum Arrival {
    Params(Option<f64>),
    Global(scaling::Entries),
    Local(scaling::Entries),
    Zero(u64),
}

impl Arrival {
    fn at(&self, layers: &mut Layers) {
        match self {
            Self::Params(kv) => layers.params.kv_cache_util_threshold = *kv,
            Self::Global(entries) => layers.scaling.global = Some(entries.clone()),
            Self::Local(entries) => {
                layers.scaling.local.insert("ns".to_owned(), entries.clone());
            }
            Self::Zero(seconds) => {
                let retention = Some(Duration::from_secs(*seconds));
                let layer = ZeroLayer { retention, ..ZeroLayer::default() };
                layers.scaling.zero.insert(DEFAULT.to_owned(), layer);
            }
        }
    }
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let entries = || {
        let key = prop::sample::select(vec!["default", "m#ns", "m#other"]);
        prop::collection::btree_map(key.prop_map(str::to_owned), entry(), 0..3)
    };
    let kv = prop::option::of(prop::sample::select(vec![0.05, 0.3, 0.9]));
    (kv, entries(), entries(), 1..99_u64).prop_map(|(kv, global, local, seconds)| {
        vec![
            Arrival::Params(kv),
            Arrival::Global(global),
            Arrival::Local(local),
            Arrival::Zero(seconds),
        ]
    })
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// The same layers give the same line, in whatever order they arrived and after whatever was there
    /// before. Mutant: params that fill only what is still built-in when they arrive.
    #[test]
    fn the_result_is_independent_of_arrival(
        (given, shuffled) in arrivals().prop_flat_map(|a| (Just(a.clone()), Just(a).prop_shuffle())),
        earlier in arrivals(),
    ) {
        let arrive = |order: &[&Arrival]| {
            let mut layers = Layers::default();
            for arrival in order {
                arrival.at(&mut layers);
                // What is asked for in between must not count.
                drop((layers.table(), layers.line(Some("m"), "ns")));
            }
            layers
        };
        let one = arrive(&given.iter().collect::<Vec<_>>());
        let other = arrive(&earlier.iter().chain(&shuffled).collect::<Vec<_>>());
        prop_assert_eq!(one.table(), other.table());
        for namespace in ["ns", "other"] {
            prop_assert_eq!(one.line(Some("m"), namespace), other.line(Some("m"), namespace));
            prop_assert_eq!(one.conflicts(namespace), other.conflicts(namespace));
        }
    }

    /// Routing and scaling read one line: the table has for a model what its line is. Mutant: params
    /// left out of the table.
    #[test]
    fn the_table_and_the_line_agree(given in arrivals()) {
        let mut layers = Layers::default();
        given.iter().for_each(|arrival| arrival.at(&mut layers));
        let (table, _) = layers.table();
        for (model, namespace) in [("m", "ns"), ("m", "other"), ("n", "ns")] {
            let line = layers.line(Some(model), namespace);
            prop_assert_eq!(table.entry(model, namespace), line.entry);
        }
    }
}
