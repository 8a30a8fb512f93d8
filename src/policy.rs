//! The policy: everything that can change while requests run, swapped as one value.
//!
//! Decides that a reader sees one generation or the next, never a mix, and that an unchanged result
//! raises nothing. One [`PolicyWriter`] exists; reading takes no lock.

use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use sha2::{Digest as _, Sha256};

use crate::routing::Profile;
use crate::thresholds::{NAMES, Thresholds};
use crate::units::GoDuration;

/// Which layer a threshold came from, least specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The seed's default.
    BuiltIn,
    /// The JSON params of this instance (`--params`, `PLUMBLINE_PARAMS`).
    Params,
}

impl Source {
    /// Its name in debug pages, `check` and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Params => "params",
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
    /// How an endpoint is picked.
    pub profile: Profile,
}

impl Policy {
    /// A policy of generation 1.
    pub fn new(thresholds: Thresholds, sources: Sources, profile: Profile) -> Self {
        let digest = digest(&thresholds, &profile);
        Self { generation: 1, digest, thresholds, sources, profile }
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

/// Hash of what decides; sources and generation do not.
fn digest(thresholds: &Thresholds, profile: &Profile) -> String {
    // The debug form spells every number in full (shortest text that reads back equal).
    let content = format!("{:?} {profile:?}", thresholds.numbers());
    let hash = Sha256::digest(content.as_bytes());
    hash.iter().take(8).fold(String::new(), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reading side; cheap to clone.
#[derive(Clone)]
pub struct PolicyReader(Arc<ArcSwap<Policy>>);

impl PolicyReader {
    /// The policy in force. Hold it for one decision.
    pub fn load(&self) -> arc_swap::Guard<Arc<Policy>> {
        self.0.load()
    }
}

/// The one writer.
pub struct PolicyWriter(Arc<ArcSwap<Policy>>);

impl PolicyWriter {
    /// Puts `first` in force and hands out the two sides.
    pub fn new(first: Policy) -> (Self, PolicyReader) {
        let shared = Arc::new(ArcSwap::from_pointee(first));
        (Self(Arc::clone(&shared)), PolicyReader(shared))
    }

    /// Puts `next` in force; its generation becomes the old one plus one. Returns whether anything
    /// changed: equal content and equal sources leave the old policy untouched.
    pub fn publish(&self, mut next: Policy) -> bool {
        let old = self.0.load();
        next.generation = old.generation;
        if next == **old {
            return false;
        }
        next.generation += 1;
        self.0.store(Arc::new(next));
        true
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
        assert!(!writer.publish(policy(5.0)));
        assert_eq!(reader.load().generation, 1);
        assert!(writer.publish(policy(6.0)));
        assert_eq!(reader.load().generation, 2);
    }

    /// Mutant: a digest over the generation, or one that leaves a number out.
    #[test]
    fn the_digest_follows_the_content() {
        assert_eq!(policy(5.0).digest, policy(5.0).digest);
        assert_ne!(policy(5.0).digest, policy(5.000001).digest);
        assert_eq!(policy(5.0).digest.len(), 16);
    }
}
