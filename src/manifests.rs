//! Kubernetes documents from a file or a folder, without a cluster (`--manifests`).
//!
//! Decides what a change does: good documents replace what they said before, a bad one keeps its last
//! valid version, one that is gone is gone. What a document may say is `document`'s decision, when
//! the path counts as changed `watched_file`'s.

mod document;
mod fields;
mod held;
mod timestamp;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use self::held::Held;
use crate::routing::{Objectives, Rewrites};
use crate::watched_file::{Listing, WatchedFileError, WatchedFiles};

pub use self::held::Findings;

/// What the documents say to routing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Content {
    /// All `InferenceModelRewrite` documents.
    pub rewrites: Arc<Rewrites>,
    /// All `InferenceObjective` documents.
    pub objectives: Arc<Objectives>,
}

/// Why a path gives no documents.
#[derive(Debug, thiserror::Error)]
#[error("manifests {}", path.display())]
pub struct ManifestsError {
    /// As given.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub cause: WatchedFileError,
}

/// The documents at one path, as far as they were read.
#[derive(Debug, Clone)]
pub struct Manifests {
    path: PathBuf,
    pool: Option<String>,
    held: Held,
    seen: Listing,
    /// What was wrong with that listing.
    errors: Vec<String>,
}

impl Manifests {
    /// Reads the file or folder at `path` once; blocks. With `pool`, only documents whose poolRef
    /// names it count.
    ///
    /// # Errors
    /// [`ManifestsError`] where the path itself gives nothing. A bad document is no error here but
    /// stands in the findings.
    pub fn open(
        path: impl Into<PathBuf>,
        pool: Option<String>,
    ) -> Result<(Self, Findings), ManifestsError> {
        let path = path.into();
        match Listing::read(&path) {
            Err(cause) => Err(ManifestsError { path, cause }),
            Ok(seen) => {
                let (held, findings) = Held::default().next(&seen, pool.as_deref());
                let errors = findings.errors.clone();
                Ok((Self { path, pool, held, seen, errors }, findings))
            }
        }
    }

    /// What the documents say now.
    pub fn content(&self) -> Content {
        self.held.content(self.pool.as_deref())
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Follows the path until nobody listens: sends what the documents say after every change, and
    /// notes in `loads` what became of it.
    pub async fn follow(self, sink: mpsc::Sender<Content>, loads: Arc<Loads>) {
        let files = WatchedFiles::new(&self.path);
        self.follow_by(files, sink, loads).await;
    }

    async fn follow_by(
        mut self,
        mut files: WatchedFiles,
        sink: mpsc::Sender<Content>,
        loads: Arc<Loads>,
    ) {
        loads.took(&self.errors);
        loop {
            let changed = tokio::select! {
                changed = files.changed() => changed,
                () = sink.closed() => return,
            };
            match changed {
                // What was read at start, told and counted already.
                Ok(listing) if listing == self.seen => {}
                Ok(listing) => {
                    let (held, findings) = self.held.next(&listing, self.pool.as_deref());
                    (self.held, self.seen) = (held, listing);
                    self.log(&findings);
                    if sink.send(self.content()).await.is_err() {
                        return;
                    }
                    loads.took(&findings.errors);
                }
                Err(cause) => {
                    let path = self.path.display();
                    let error = match &cause {
                        WatchedFileError::Unreadable(io) => format!("{path}: {cause}: {io}"),
                        other => format!("{path}: {other}"),
                    };
                    tracing::error!(%error, "manifests are not usable, the old documents stay");
                    // Coming back as it was is a change again: it must be counted as good.
                    self.seen = Listing::default();
                    loads.failed(error);
                }
            }
        }
    }

    fn log(&self, findings: &Findings) {
        for error in &findings.errors {
            tracing::error!(%error, "manifest left out");
        }
        for warning in &findings.warnings {
            tracing::warn!(%warning, "manifest is doubtful");
        }
        let (path, documents) = (self.path.display(), findings.taken);
        tracing::info!(%path, documents, ignored = ?findings.ignored, "manifests read");
    }
}

/// What became of the path so far. Counts since start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LoadState {
    /// Versions in which every document was good, the one at start included.
    pub ok: u64,
    /// Versions that could not be read, or in which a document was bad.
    pub failed: u64,
    /// Documents that are bad in the newest version that could be read.
    pub rejected: usize,
    /// What is wrong with the newest version.
    pub last_error: Option<String>,
}

/// The [`LoadState`] of one path, shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Loads(watch::Sender<LoadState>);

impl Loads {
    /// The state now.
    pub fn now(&self) -> LoadState {
        self.0.borrow().clone()
    }

    /// Follows the state.
    pub fn subscribe(&self) -> watch::Receiver<LoadState> {
        self.0.subscribe()
    }

    fn took(&self, errors: &[String]) {
        self.0.send_modify(|state| {
            if errors.is_empty() {
                state.ok += 1;
            } else {
                state.failed += 1;
            }
            state.rejected = errors.len();
            state.last_error = (!errors.is_empty()).then(|| errors.join("; "));
        });
    }

    fn failed(&self, error: String) {
        self.0.send_modify(|state| {
            state.failed += 1;
            state.last_error = Some(error);
        });
    }
}

#[cfg(test)]
mod tests;
