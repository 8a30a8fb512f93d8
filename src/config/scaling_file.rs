//! The file of `--scaling-config`: read once at start, then watched.
//!
//! Decides when there is a new version; what it says is `scaling`'s decision, what it does the policy
//! feed's. Counts are since start.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio::sync::{mpsc, watch};

use super::scaling::{self, Document};
use crate::watched_file::{WatchedFile, WatchedFileError};

/// One version of the file, or why it gives none.
pub type Version = Result<Document, String>;

/// The file, and what was read at start.
#[derive(Debug, Clone)]
pub struct ScalingFile {
    path: PathBuf,
    seen: Option<Bytes>,
}

impl ScalingFile {
    /// Reads the file at `path` once; blocks. One that is missing or bad is watched all the same.
    pub fn open(path: impl Into<PathBuf>) -> (Self, Version) {
        let path = path.into();
        let found = WatchedFile::read_now(&path);
        let (seen, version) = (found.as_ref().ok().cloned(), version(&path, found));
        (Self { path, seen }, version)
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Follows the file until nobody listens, and sends every version after the one at start.
    pub async fn follow(self, sink: mpsc::Sender<Version>) {
        let file = WatchedFile::new(&self.path);
        self.follow_by(file, sink).await;
    }

    pub(crate) async fn follow_by(mut self, mut file: WatchedFile, sink: mpsc::Sender<Version>) {
        // What was missing or bad at start was told then.
        let mut failed = self.seen.is_none();
        loop {
            let found = tokio::select! {
                found = file.changed() => found,
                () = sink.closed() => return,
            };
            let known = match &found {
                Ok(content) => self.seen.as_ref() == Some(content),
                Err(_) => std::mem::take(&mut failed),
            };
            if known {
                continue;
            }
            // Coming back as it was is a change again: it must be counted as good.
            self.seen = found.as_ref().ok().cloned();
            if sink.send(version(&self.path, found)).await.is_err() {
                return;
            }
        }
    }
}

fn version(path: &Path, found: Result<Bytes, WatchedFileError>) -> Version {
    let path = path.display();
    match found {
        Ok(content) => scaling::read(&content).map_err(|error| format!("{path}: {error}")),
        Err(WatchedFileError::Unreadable(io)) => Err(format!("{path}: cannot be read: {io}")),
        Err(other) => Err(format!("{path}: {other}")),
    }
}

/// What became of the file so far, and what its layers disagree about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScalingState {
    /// Versions without a fault, the one at start included.
    pub ok: u64,
    /// Versions that could not be read, or in which an entry or a merge was bad.
    pub failed: u64,
    /// Entries that are bad in the newest version that could be read, and layers it has cost.
    pub rejected: usize,
    /// What is wrong with the newest version.
    pub last_error: Option<String>,
    /// When the newest version was read, RFC 3339; `None` before the first.
    pub at: Option<String>,
    /// Params against the scaling configuration.
    pub conflicts: Vec<String>,
}

/// The [`ScalingState`], shared with whoever shows it.
#[derive(Debug, Default)]
pub struct ScalingLoads(watch::Sender<ScalingState>);

impl ScalingLoads {
    /// The state now.
    pub fn now(&self) -> ScalingState {
        self.0.borrow().clone()
    }

    /// Follows the state.
    pub fn subscribe(&self) -> watch::Receiver<ScalingState> {
        self.0.subscribe()
    }

    /// Counts a version: the faults of its entries and of the merge, or what made it unreadable.
    pub fn took(&self, faults: Result<&[String], &str>, at: String) {
        self.0.send_modify(|state| {
            let good = faults.is_ok_and(<[String]>::is_empty);
            *(if good { &mut state.ok } else { &mut state.failed }) += 1;
            if let Ok(faults) = faults {
                state.rejected = faults.len();
            }
            state.last_error = match faults {
                Ok([]) => None,
                Ok(faults) => Some(faults.join("; ")),
                Err(error) => Some(error.to_owned()),
            };
            state.at = Some(at);
        });
    }

    /// What disagrees now.
    pub fn disagree(&self, conflicts: Vec<String>) {
        self.0.send_if_modified(|state| {
            let changed = state.conflicts != conflicts;
            state.conflicts = conflicts;
            changed
        });
    }
}
