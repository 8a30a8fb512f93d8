//! The file of the variants: read once at start, then watched.
//!
//! Decides that a bad version changes nothing and is told of; what a version says is `variants`'
//! decision. Counts are since start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::variants::{self, Variants};
use crate::watched_file::WatchedFile;

/// What holds, and what became of the newest version.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct VariantsState {
    /// The last good version.
    pub variants: Arc<Variants>,
    /// Good versions, the one at start included.
    pub ok: u64,
    /// Versions that were left out.
    pub failed: u64,
    /// What is wrong with the newest version.
    pub last_error: Option<String>,
}

/// The watched file; at most one.
#[derive(Debug, Clone)]
pub struct VariantsFile {
    path: PathBuf,
    /// Whether a file that says nothing of variants is right.
    optional: bool,
}

impl VariantsFile {
    /// Reads the file at `path` once; blocks. `optional`: it is the scaling configuration, which need
    /// not name variants; then `None` is one that does not, now.
    ///
    /// # Errors
    /// What is wrong with it, `path` named.
    pub fn open(path: &Path, optional: bool) -> Result<(Self, Option<Variants>), String> {
        let file = Self { path: path.to_owned(), optional };
        let bytes = match WatchedFile::read_now(path) {
            Ok(bytes) => bytes,
            // Whether the scaling configuration can be read is told by its own reader.
            Err(_) if optional => return Ok((file, None)),
            Err(error) => return Err(file.say(&crate::causes::in_one_line(&error))),
        };
        let found = file.read(&bytes)?;
        Ok((file, found))
    }

    fn say(&self, rule: &str) -> String {
        format!("{}: {rule}", self.path.display())
    }

    fn read(&self, bytes: &[u8]) -> Result<Option<Variants>, String> {
        let found = variants::read(bytes).map_err(|errors| self.say(&errors.join("; ")))?;
        if found.is_none() && !self.optional {
            return Err(self.say("there is no list `variants`"));
        }
        Ok(found)
    }

    /// Follows the file until nobody listens.
    pub async fn follow(self, state: watch::Sender<VariantsState>) {
        let mut file = WatchedFile::new(&self.path);
        loop {
            let found = tokio::select! {
                found = file.changed() => found,
                () = state.closed() => return,
            };
            let version = match found {
                Ok(bytes) => self.read(&bytes),
                Err(_) if self.optional => continue,
                Err(error) => Err(self.say(&crate::causes::in_one_line(&error))),
            };
            state.send_if_modified(|state| state.take(version));
        }
    }
}

impl VariantsState {
    /// Takes a version over; false where nothing is new.
    fn take(&mut self, version: Result<Option<Variants>, String>) -> bool {
        match version {
            Ok(Some(next)) if *self.variants == next && self.last_error.is_none() => return false,
            Ok(Some(next)) => {
                let variants = next.list.len();
                tracing::info!(variants, "variants loaded");
                *self = Self {
                    variants: Arc::new(next),
                    ok: self.ok + 1,
                    last_error: None,
                    ..self.clone()
                };
            }
            // Variants that are gone from a scaling configuration stay, as its maps do.
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(%error, "variants are not usable, the old ones stay");
                self.failed += 1;
                self.last_error = Some(error);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a bad version in force; an error that stays after a good version; equal content as news.
    #[test]
    fn a_bad_version_changes_nothing_but_the_error() {
        let mut state = VariantsState::default();
        let one = Variants::one("a");
        assert!(state.take(Ok(Some(one.clone()))));
        assert!(!state.take(Ok(Some(one.clone()))) && !state.take(Ok(None)));
        assert!(state.take(Err("f: bad".to_owned())));
        assert_eq!((&*state.variants, state.ok, state.failed), (&one, 1, 1));
        assert_eq!(state.last_error.as_deref(), Some("f: bad"));
        assert!(state.take(Ok(Some(one))));
        assert_eq!((state.ok, state.last_error), (2, None));
    }
}
