//! The one task that changes the policy while requests run.
//!
//! Decides that a change is put in force whole, and logged with the generation that it got; what is
//! valid was decided by whoever read it.

use tokio::sync::mpsc;

use crate::manifests::Content;
use crate::policy::{Policy, PolicyWriter};

/// The writer, and the policy as it was put in force last.
pub(super) struct Feed {
    pub(super) writer: PolicyWriter,
    pub(super) policy: Policy,
}

impl Feed {
    /// Puts every change in force until their source is gone.
    pub(super) async fn run(mut self, mut changes: mpsc::Receiver<Content>) {
        while let Some(Content { rewrites, objectives }) = changes.recv().await {
            self.policy = self.policy.with_documents(rewrites, objectives);
            let Some(generation) = self.writer.publish(self.policy.clone()) else { continue };
            tracing::info!(
                generation,
                digest = self.policy.digest,
                rewrites = self.policy.rewrites.rules().count(),
                objectives = self.policy.objectives.iter().len(),
                "policy changed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{self, Params};
    use crate::routing::{Objectives, Profile};

    /// Mutants: a generation for an unchanged version; an older part of the policy put back.
    #[tokio::test]
    async fn a_change_is_one_generation_and_no_change_is_none() {
        let policy = config::policy(&Params::default(), Profile::default()).unwrap();
        let (writer, reader) = PolicyWriter::new(policy.clone());
        let (sink, changes) = mpsc::channel(8);
        for priority in [1, 1, 2, 2] {
            let objectives = Objectives::new([("o".to_owned(), Some(priority))]);
            let content = Content { objectives: Arc::new(objectives), ..Content::default() };
            sink.send(content).await.unwrap();
        }
        drop(sink);
        Feed { writer, policy: policy.clone() }.run(changes).await;
        let now = reader.load();
        assert_eq!((now.generation, now.objectives.priority(Some("o"))), (3, 2));
        assert_eq!(now.thresholds, policy.thresholds);
        assert_ne!(now.digest, policy.digest);
    }
}
