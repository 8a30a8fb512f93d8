//! What a change does to the policy in force, and what it leaves alone.

use super::*;
use crate::config::scaling::{self, ScalingError};
use crate::config::{LineSource, Params};
use crate::policy::{PolicyReader, Source};
use crate::routing::{Objectives, Profile};

struct World {
    feed: Feed,
    reader: PolicyReader,
    loads: Arc<ScalingLoads>,
}

fn world(params: &str, model: Option<&str>) -> World {
    let model = Model { id: model.map(str::to_owned), namespace: "ns".to_owned() };
    let line = LineSource::open(Params::parse(params).unwrap(), model, None);
    let policy = line.policy(Profile::default()).0;
    let (writer, reader) = PolicyWriter::new(policy.clone());
    let loads = Arc::new(ScalingLoads::default());
    let LineSource { layers, model, .. } = line;
    let feed = Feed { writer, policy, layers, model, loads: Arc::clone(&loads) };
    World { feed, reader, loads }
}

impl World {
    /// Puts a version in force; the KV line, its source and the generation afterwards.
    fn reload(&mut self, content: &str) -> (f64, Source, u64) {
        self.feed.scaling(scaling::read(content.as_bytes()).map_err(|e| e.to_string()));
        let policy = self.reader.load();
        (policy.thresholds.kv_cache_util(), policy.sources[1], policy.generation)
    }
}

/// Mutants: a generation for an unchanged version; an older part of the policy put back.
#[tokio::test]
async fn a_change_is_one_generation_and_no_change_is_none() {
    let World { feed, reader, .. } = world("{}", None);
    let policy = feed.policy.clone();
    let (documents_sink, documents) = mpsc::channel(8);
    let (scaling_sink, scaling) = mpsc::channel(8);
    for priority in [1, 1, 2, 2] {
        let objectives = Objectives::new([("o".to_owned(), Some(priority))]);
        let content = Content { objectives: Arc::new(objectives), ..Content::default() };
        documents_sink.send(content).await.unwrap();
    }
    drop(documents_sink);
    let running = tokio::spawn(feed.run(Changes { documents, scaling }));
    let mut generation = reader.subscribe();
    generation.wait_for(|generation| *generation == 3).await.unwrap();
    assert_eq!(reader.load().objectives.priority(Some("o")), 2);
    assert_eq!(reader.load().thresholds, policy.thresholds);
    assert_ne!(reader.load().digest, policy.digest);

    let version = scaling::read(b"kvCacheThreshold: 0.6").unwrap();
    scaling_sink.send(Ok(version)).await.unwrap();
    drop(scaling_sink);
    running.await.unwrap();
    let now = reader.load();
    assert_eq!((now.generation, now.thresholds.kv_cache_util()), (4, 0.6));
    assert_eq!(now.objectives.priority(Some("o")), 2);
}

/// Mutants: an invalid entry that loses its last value, or costs its neighbours; a bad file that
/// resets; a version that is counted with the wrong result.
#[test]
fn a_bad_version_keeps_what_was_valid() {
    let mut world = world("{}", Some("m"));
    let good = "default: |\n  kvCacheThreshold: 0.7\nm#ns: |\n  kvCacheThreshold: 0.6\n";
    assert_eq!(world.reload(good), (0.6, Source::ScalingModel, 2));
    assert_eq!(world.reload(good).2, 2, "an unchanged result raises nothing");

    // The model's entry is bad, the other is taken.
    let bad = "default: |\n  kvCacheThreshold: 0.9\nm#ns: |\n  kvCacheThreshold: 6\n";
    assert_eq!(world.reload(bad), (0.6, Source::ScalingModel, 3));
    assert_eq!(world.reader.load().scaling.entry("x", "ns").thresholds.kv_cache_util(), 0.9);
    let state = world.loads.now();
    assert_eq!((state.ok, state.failed, state.rejected), (2, 1, 1));
    let error = state.last_error.unwrap();
    assert!(error.contains("kvCacheThreshold must be between 0 and 1, got 6.00"), "{error}");
    assert!(state.at.unwrap().ends_with('Z'));

    for broken in
        ["", "# nothing\n", "{", "default: |\n  kvCacheThreshold: 0.5\n]", "[1]", "kind: Pod"]
    {
        assert_eq!(world.reload(broken), (0.6, Source::ScalingModel, 3), "{broken:?}");
    }
    let empty = "kind: ConfigMap\nmetadata: {name: wva-saturation-scaling-config}\ndata: {}\n";
    assert_eq!(world.reload(empty), (0.6, Source::ScalingModel, 3));
    assert_eq!(world.loads.now().failed, 8);
    // The entry goes with the next good version.
    assert_eq!(
        world.reload("default: |\n  kvCacheThreshold: 0.9\n"),
        (0.9, Source::ScalingDefault, 4)
    );
    assert_eq!(world.loads.now().last_error, None);
}

/// Mutants: the less specific layer dropped; a drop that is not told; a drop that costs more than the
/// layer at fault.
#[test]
fn a_merge_that_breaks_a_rule_costs_the_most_specific_layer_of_it() {
    let mut world = world("{}", Some("m"));
    let content = "default: |\n  kvCacheThreshold: 0.8\n  kvSpareTrigger: 0.5\n\
                   m#ns: |\n  kvCacheThreshold: 0.4\n  queueLengthThreshold: 9\n";
    assert_eq!(world.reload(content).0, 0.8);
    assert_eq!(world.reader.load().thresholds.queue_depth(), 5.0, "the whole layer is gone");
    let error = world.loads.now().last_error.unwrap();
    let rule = "kvCacheThreshold (0.40) should be >= kvSpareTrigger (0.50)";
    assert_eq!(error, format!("layer \"m#ns\" is left out: {rule}"));
}

/// Mutants: params that win over the model's entry, or lose to `default`; a conflict for the model's
/// entry; a conflict that stays when it is over.
#[test]
fn params_against_default_is_a_conflict_and_against_the_model_is_none() {
    let mut world = world(r#"{"kvCacheUtilThreshold":0.7}"#, Some("m"));
    assert_eq!(world.reload("default: |\n  kvCacheThreshold: 0.9\n"), (0.7, Source::Params, 2));
    let conflicts = world.loads.now().conflicts;
    assert_eq!(
        conflicts,
        ["params set kvCacheUtilThreshold to 0.7, the scaling entry `default` sets \
          kvCacheThreshold to 0.9; params win over it"]
    );
    let own = "default: |\n  kvCacheThreshold: 0.7\nm#ns: |\n  kvCacheThreshold: 0.6\n";
    assert_eq!(world.reload(own), (0.6, Source::ScalingModel, 3));
    assert_eq!(world.loads.now().conflicts, [""; 0]);
}

/// Mutant: counting an unreadable version as one without faults.
#[test]
fn what_cannot_be_read_is_counted_and_changes_nothing() {
    let mut world = world("{}", None);
    world.feed.scaling(Err("/gone: cannot be read".to_owned()));
    assert_eq!(world.reader.load().generation, 1);
    let state = world.loads.now();
    assert_eq!((state.ok, state.failed), (0, 1));
    assert_eq!(state.last_error.as_deref(), Some("/gone: cannot be read"));
    assert_eq!(ScalingError::Empty.to_string(), "the file is empty");
}
