//! The policy: everything that can change while requests run, swapped as one value.
//!
//! Decides that a reader sees one generation or the next, never a mix, and that an unchanged result
//! raises nothing. One [`PolicyWriter`] exists; reading takes no lock.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;

use crate::routing::{Objectives, Profile, Rewrites};
use crate::scaling_entry::ScalingTable;
use crate::thresholds::{NAMES, Thresholds};
use crate::units::GoDuration;

/// Which layer a threshold came from, least specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The seed's default.
    BuiltIn,
    /// The entry of the scaling configuration that holds for every model.
    ScalingDefault,
    /// The JSON params of this instance (`--params`, `PLUMBLINE_PARAMS`).
    Params,
    /// The entry of the scaling configuration for this model and namespace.
    ScalingModel,
}

impl Source {
    /// Its name in debug pages, `check` and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::ScalingDefault => "scaling-default",
            Self::Params => "params",
            Self::ScalingModel => "scaling-model",
        }
    }
}

/// The sources of the eight thresholds, in the order of [`crate::thresholds::NAMES`].
pub type Sources = [Source; 8];

/// Everything that a decision is made by.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Rises by one with every change that is one.
    pub generation: u64,
    /// Sixteen hex digits over the content, equal between replicas that decide alike.
    pub digest: String,
    /// The line.
    pub thresholds: Thresholds,
    /// Where each number of the line came from.
    pub sources: Sources,
    /// What scaling is told about every model; the line of this process's model is `thresholds`.
    pub scaling: Arc<ScalingTable>,
    /// How an endpoint is picked.
    pub profile: Profile,
    /// Which model a request is sent on as.
    pub rewrites: Arc<Rewrites>,
    /// How important a request is.
    pub objectives: Arc<Objectives>,
}

impl Policy {
    /// A policy of generation 1, without scaling entries, rewrites and objectives.
    pub fn new(thresholds: Thresholds, sources: Sources, profile: Profile) -> Self {
        let policy = Self {
            generation: 1,
            digest: String::new(),
            thresholds,
            sources,
            scaling: Arc::default(),
            profile,
            rewrites: Arc::default(),
            objectives: Arc::default(),
        };
        Self { digest: digest(&policy), ..policy }
    }

    /// The same policy with this line, for routing and scaling at once.
    pub fn with_line(
        self,
        thresholds: Thresholds,
        sources: Sources,
        scaling: Arc<ScalingTable>,
    ) -> Self {
        let policy = Self { thresholds, sources, scaling, ..self };
        Self { digest: digest(&policy), ..policy }
    }

    /// The same policy with these rewrites and objectives.
    pub fn with_documents(self, rewrites: Arc<Rewrites>, objectives: Arc<Objectives>) -> Self {
        let policy = Self { rewrites, objectives, ..self };
        Self { digest: digest(&policy), ..policy }
    }
}

/// One number of the line as people read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    /// Requests, fractions and ratios.
    Plain(f64),
    /// A length of time.
    Duration(Duration),
}

impl fmt::Display for Number {
    /// The shortest text that reads back equal; durations as Go prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(number) => write!(f, "{number}"),
            Self::Duration(duration) => write!(f, "{}", GoDuration::from(*duration)),
        }
    }
}

impl Policy {
    /// The line as a table of name, number and source, in the order of [`NAMES`].
    pub fn table(&self) -> [(&'static str, Number, Source); 8] {
        let d = self.thresholds.numbers();
        let numbers = [
            Number::Plain(d.queue_depth),
            Number::Plain(d.kv_cache_util),
            Number::Duration(d.staleness),
            Number::Plain(d.headroom),
            Number::Plain(d.kv_spare_trigger),
            Number::Plain(d.queue_spare_trigger),
            Number::Plain(d.scale_up_threshold),
            Number::Plain(d.scale_down_boundary),
        ];
        std::array::from_fn(|i| (NAMES[i], numbers[i], self.sources[i]))
    }
}

/// Hash of what decides; sources, generation and the names of documents do not.
fn digest(policy: &Policy) -> String {
    let Policy { thresholds, scaling, profile, rewrites, objectives, .. } = policy;
    let rules: Vec<_> = rewrites.rules().map(|(model, rule)| (model, &rule.targets)).collect();
    // The debug form spells every number in full (shortest text that reads back equal).
    let content =
        format!("{:?} {scaling:?} {profile:?} {rules:?} {objectives:?}", thresholds.numbers());
    let hash = Sha256::digest(content.as_bytes());
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reading side; cheap to clone.
#[derive(Clone)]
pub struct PolicyReader {
    current: Arc<ArcSwap<Policy>>,
    generation: Arc<watch::Sender<u64>>,
}

impl PolicyReader {
    /// The policy in force. Hold it for one decision.
    pub fn load(&self) -> arc_swap::Guard<Arc<Policy>> {
        self.current.load()
    }

    /// Follows the generation: whoever plans in cycles wakes by it.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.generation.subscribe()
    }
}

/// The one writer.
pub struct PolicyWriter {
    current: Arc<ArcSwap<Policy>>,
    generation: Arc<watch::Sender<u64>>,
}

impl PolicyWriter {
    /// Puts `first` in force and hands out the two sides.
    pub fn new(first: Policy) -> (Self, PolicyReader) {
        let generation = Arc::new(watch::Sender::new(first.generation));
        let current = Arc::new(ArcSwap::from_pointee(first));
        let reader =
            PolicyReader { current: Arc::clone(&current), generation: Arc::clone(&generation) };
        (Self { current, generation }, reader)
    }

    /// How many follow the generation.
    pub fn listeners(&self) -> usize {
        self.generation.receiver_count()
    }

    /// Puts `next` in force; its generation becomes the old one plus one and is returned. `None`:
    /// equal content and equal sources leave the old policy untouched.
    pub fn publish(&self, mut next: Policy) -> Option<u64> {
        let old = self.current.load();
        next.generation = old.generation;
        if next == **old {
            return None;
        }
        next.generation += 1;
        let generation = next.generation;
        self.current.store(Arc::new(next));
        self.generation.send_replace(generation);
        Some(generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thresholds::Draft;

    fn policy(queue_depth: f64) -> Policy {
        let thresholds = Thresholds::try_new(Draft { queue_depth, ..Draft::default() }).unwrap();
        Policy::new(thresholds, [Source::BuiltIn; 8], Profile::default())
    }

    /// Mutant: raising the generation on every publication.
    #[test]
    fn an_unchanged_policy_raises_no_generation() {
        let (writer, reader) = PolicyWriter::new(policy(5.0));
        assert_eq!(writer.publish(policy(5.0)), None);
        assert_eq!(reader.load().generation, 1);
        assert_eq!(writer.publish(policy(6.0)), Some(2));
        assert_eq!(reader.load().generation, 2);
    }

    /// Mutant: a digest over the generation, or one that leaves a number out.
    #[test]
    fn the_digest_follows_the_content() {
        assert_eq!(policy(5.0).digest, policy(5.0).digest);
        assert_ne!(policy(5.0).digest, policy(5.000001).digest);
        assert_eq!(policy(5.0).digest.len(), 16);
    }

    /// Readers on other threads see thresholds, table, sources and generation of one version, whatever
    /// the writer does meanwhile. Mutants: parts behind two swaps; the table published a moment after
    /// the thresholds.
    #[test]
    fn a_reader_never_sees_a_mix() {
        use crate::scaling_entry::{ScalingEntry, ScalingScope};
        use std::sync::atomic::{AtomicBool, Ordering};

        let version = |number: u32| {
            let thresholds = policy(f64::from(number)).thresholds;
            let default = ScalingEntry { thresholds, ..ScalingEntry::default() };
            let global = ScalingScope { default, ..ScalingScope::default() };
            let table = ScalingTable { global, ..ScalingTable::default() };
            let source = [Source::BuiltIn, Source::Params][number as usize % 2];
            policy(1.0).with_line(thresholds, [source; 8], Arc::new(table))
        };
        let (writer, reader) = PolicyWriter::new(version(1));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !done.load(Ordering::Relaxed) {
                        let now = reader.load();
                        assert!(now.generation >= last, "an older version came back");
                        last = now.generation;
                        // The first version has number 1 and generation 1, each adds one to both.
                        let number = now.generation as f64;
                        assert_eq!(now.thresholds.queue_depth(), number);
                        let table = now.scaling.entry("m", "ns");
                        assert_eq!(table.thresholds, now.thresholds);
                        let odd = usize::try_from(now.generation).unwrap() % 2;
                        assert_eq!(now.sources[0], [Source::BuiltIn, Source::Params][odd]);
                    }
                });
            }
            for number in 2..2_000 {
                assert_eq!(writer.publish(version(number)), Some(u64::from(number)));
            }
            done.store(true, Ordering::Relaxed);
        });
    }

    /// Mutant: a table left out of the digest or of the equality.
    #[test]
    fn the_scaling_table_is_part_of_the_policy() {
        use crate::scaling_entry::Selection;
        let with = |selection| {
            let base = policy(5.0);
            let table = ScalingTable { selection, ..ScalingTable::default() };
            base.clone().with_line(base.thresholds, base.sources, Arc::new(table))
        };
        let (v1, v2) = (with(Selection::SpareCapacity), with(Selection::TokenCapacity));
        assert_ne!(v1.digest, v2.digest);
        let (writer, reader) = PolicyWriter::new(v1);
        let follower = reader.subscribe();
        assert_eq!((writer.publish(v2.clone()), writer.publish(v2)), (Some(2), None));
        assert_eq!((*follower.borrow(), writer.listeners()), (2, 1));
    }

    /// Mutants: rewrites or objectives left out of the digest or of the equality; the document's name
    /// in the digest.
    #[test]
    fn documents_are_part_of_the_policy() {
        use crate::routing::rewrite::{Matches, Rewrite, Rule, Target};
        let with = |document: &str, model: &str, priority| {
            let targets = vec![Target { model: model.to_owned(), weight: None }];
            let rules = vec![Rule { matches: Matches::Any, targets }];
            let rewrite = Rewrite { name: document.to_owned(), created: None, rules };
            let objectives = Objectives::new([("o".to_owned(), Some(priority))]);
            policy(5.0).with_documents(Rewrites::new([rewrite]).into(), objectives.into())
        };
        let base = with("r", "a", 1);
        assert_ne!(base.digest, policy(5.0).digest);
        assert_ne!(base.digest, with("r", "b", 1).digest);
        assert_ne!(base.digest, with("r", "a", 2).digest);
        assert_eq!(base.digest, with("q", "a", 1).digest);

        let (writer, reader) = PolicyWriter::new(base);
        assert_eq!(writer.publish(with("r", "a", 1)), None);
        assert_eq!(writer.publish(with("r", "b", 1)), Some(2));
        assert_eq!(writer.publish(with("r", "b", 2)), Some(3));
        assert_eq!(reader.load().objectives.priority(Some("o")), 2);
        assert_eq!(reader.load().generation, 3);
    }
}
