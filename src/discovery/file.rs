//! Endpoints from a file that is followed while it changes.
//!
//! Decides what a change does: a good file replaces the set, a bad or missing one leaves the old set
//! and is logged and counted. What the file may say is [`document`]'s.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::document::{self, DocumentError, Parsed};
use super::{Discovery, Drain, Members, Sink, drained};
use crate::causes::in_one_line;
use crate::watched_file::{WatchedFile, WatchedFileError};

/// A watched endpoint file.
#[derive(Debug)]
pub struct FileDiscovery {
    path: PathBuf,
    reloads: Arc<Reloads>,
}

/// Why a file gives no endpoints.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// No content.
    #[error("endpoint file {}", path.display())]
    Unreadable {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        cause: WatchedFileError,
    },
    /// Content that is refused whole.
    #[error("endpoint file {}", path.display())]
    Refused {
        /// As given.
        path: PathBuf,
        /// Why.
        #[source]
        cause: DocumentError,
    },
}

/// What became of the file so far. Counts since start.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReloadState {
    /// Versions of the file that were taken over, the one at start included.
    pub ok: u64,
    /// Versions that were refused or could not be read; each left the set as it was.
    pub failed: u64,
    /// Entries of the set now in use that were left out as bad.
    pub rejected: usize,
    /// What is wrong with the newest version: why it is refused, or which entries are left out.
    pub last_error: Option<String>,
}

/// The [`ReloadState`] of one file, shared with whoever shows it.
#[derive(Debug, Default)]
pub struct Reloads(watch::Sender<ReloadState>);

impl Reloads {
    /// The state now.
    pub fn now(&self) -> ReloadState {
        self.0.borrow().clone()
    }

    /// Follows the state.
    pub fn subscribe(&self) -> watch::Receiver<ReloadState> {
        self.0.subscribe()
    }

    fn took(&self, rejected: &[document::EntryError]) {
        let texts: Vec<_> = rejected.iter().map(ToString::to_string).collect();
        self.0.send_modify(|state| {
            state.ok += 1;
            state.rejected = rejected.len();
            state.last_error = (!texts.is_empty()).then(|| texts.join("; "));
        });
    }

    fn refused(&self, error: String) {
        self.0.send_modify(|state| {
            state.failed += 1;
            state.last_error = Some(error);
        });
    }
}

impl FileDiscovery {
    /// Follows the file at `path` and notes in `reloads` what becomes of it.
    pub fn new(path: impl Into<PathBuf>, reloads: Arc<Reloads>) -> Self {
        Self { path: path.into(), reloads }
    }

    async fn follow(&self, mut file: WatchedFile, sink: &Sink) -> Result<(), FileError> {
        let mut sent = None;
        loop {
            match self.load(&mut file).await {
                Ok(parsed) => {
                    self.log(&parsed);
                    let members = Members(parsed.endpoints);
                    if sent.as_ref() != Some(&members) {
                        if sink.send(members.clone()).await.is_err() {
                            // Nobody needs endpoints any more.
                            return Ok(());
                        }
                        sent = Some(members);
                    }
                    self.reloads.took(&parsed.rejected);
                }
                // Without a first set there is nothing to keep.
                Err(error) if sent.is_none() => {
                    self.reloads.refused(in_one_line(&error));
                    return Err(error);
                }
                Err(error) => {
                    let error = in_one_line(&error);
                    tracing::error!(%error, "endpoint file is not usable, the old endpoints stay");
                    self.reloads.refused(error);
                }
            }
        }
    }

    /// The next version of the file.
    async fn load(&self, file: &mut WatchedFile) -> Result<Parsed, FileError> {
        let path = || self.path.clone();
        let content =
            file.changed().await.map_err(|cause| FileError::Unreadable { path: path(), cause })?;
        document::parse(&content).map_err(|cause| FileError::Refused { path: path(), cause })
    }

    fn log(&self, parsed: &Parsed) {
        let path = self.path.display();
        for error in &parsed.rejected {
            tracing::error!(%path, %error, "endpoint left out");
        }
        for warning in &parsed.warnings {
            tracing::warn!(%path, %warning, "endpoint file is doubtful");
        }
        tracing::info!(%path, endpoints = parsed.endpoints.len(), "endpoint file read");
    }
}

impl Discovery for FileDiscovery {
    type Error = FileError;

    async fn run(self, sink: Sink, mut drain: Drain) -> Result<(), FileError> {
        let file = WatchedFile::new(&self.path);
        tokio::select! {
            end = self.follow(file, &sink) => end,
            () = drained(&mut drain) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
