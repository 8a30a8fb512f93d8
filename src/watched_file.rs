//! One file, or the documents of one folder, watched so that no way of changing them is missed.
//!
//! Decides when content counts as changed: it differs from what was yielded last and was read twice,
//! 50 ms apart, with the same result. Events only say when to look; what counts is what a
//! look finds, and a look comes after a second in any case, for network file systems and spent
//! inotify limits. Knows nothing of what the file says: an empty file is yielded as such.
//! Sizes are bytes.

mod listing;
mod trail;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::trail::{Stop, Trail};

pub use self::listing::{Listing, MAX_FILES};

/// The longest file that is read, in bytes.
pub const MAX_BYTES: u64 = 1 << 20;

/// Why there is no content.
#[derive(Debug, thiserror::Error)]
pub enum WatchedFileError {
    /// Missing, forbidden, or a broken link.
    #[error("the file cannot be read")]
    Unreadable(#[source] io::Error),
    /// A directory, a pipe or a device.
    #[error("not a regular file")]
    NotAFile,
    /// Longer than [`MAX_BYTES`].
    #[error("the file has {0} bytes or more, the limit is {MAX_BYTES}")]
    TooLarge(u64),
    /// More documents in a folder than [`MAX_FILES`].
    #[error("the folder has {0} documents, the limit is {MAX_FILES}")]
    TooMany(usize),
}

/// What one look finds.
type Found<C> = Result<C, WatchedFileError>;

/// What is watched: how to read it, and the directories in which it changes.
#[derive(Debug)]
struct Subject<C> {
    read: fn(&Path) -> Found<C>,
    stops: fn(&Path) -> BTreeSet<Stop>,
}

/// How often to look.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Between the two looks that must agree, and the least time between any two.
    settle: Duration,
    /// The longest time between two looks.
    poll: Duration,
}

impl Pace {
    const USUAL: Self = Self { settle: Duration::from_millis(50), poll: Duration::from_secs(1) };
}

/// One watched file.
pub type WatchedFile = Watched<Bytes>;

/// One watched file, or the documents of a watched folder, whichever the path is at the moment.
pub type WatchedFiles = Watched<Listing>;

/// A path and what was last seen there.
#[derive(Debug)]
pub struct Watched<C> {
    path: PathBuf,
    subject: Subject<C>,
    pace: Pace,
    trail: Arc<Mutex<Trail>>,
    /// Holds a permit when something moved on the trail.
    moved: Arc<Notify>,
    /// That permit, taken, until the next look begins.
    stirred: bool,
    /// The look under way; kept here so that a cancelled `changed` goes on where it was.
    looking: Option<JoinHandle<Found<C>>>,
    looked: Instant,
    due: Instant,
    yielded: Option<Result<C, String>>,
    candidate: Option<Result<C, String>>,
}

impl WatchedFile {
    /// Watches `path`, which need not exist yet. The first [`changed`](Self::changed) yields what is
    /// there now. Must be called within a tokio runtime.
    ///
    /// Where the system has no watch to give, the file is polled every second, with a warning.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::paced(path.into(), Pace::USUAL, true)
    }

    /// Reads the file at `path` once; blocks.
    ///
    /// # Errors
    /// [`WatchedFileError`] where there is no content.
    pub fn read_now(path: &Path) -> Result<Bytes, WatchedFileError> {
        read(path)
    }

    /// Without the poll that would make up for a missed event, and faster.
    #[cfg(test)]
    pub(crate) fn on_events_alone(path: &Path, settle: Duration) -> Self {
        let poll = Duration::from_secs(3600);
        Self::paced(path.to_owned(), Pace { settle, poll }, true)
    }

    fn paced(path: PathBuf, pace: Pace, events: bool) -> Self {
        Self::start(path, Subject { read, stops: trail::stops }, pace, events)
    }
}

impl WatchedFiles {
    /// As [`WatchedFile::new`]. In a folder every `*.yaml`, `*.yml` and `*.json` counts, in the order
    /// of the names; names that begin with a dot and folders within do not.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::paced(path.into(), Pace::USUAL, true)
    }

    /// Without the poll that would make up for a missed event, and faster.
    #[cfg(test)]
    pub(crate) fn on_events_alone(path: &Path, settle: Duration) -> Self {
        let poll = Duration::from_secs(3600);
        Self::paced(path.to_owned(), Pace { settle, poll }, true)
    }

    fn paced(path: PathBuf, pace: Pace, events: bool) -> Self {
        Self::start(path, Subject { read: listing::read, stops: listing::stops }, pace, events)
    }
}

impl<C: Clone + PartialEq + Send + 'static> Watched<C> {
    fn start(path: PathBuf, subject: Subject<C>, pace: Pace, events: bool) -> Self {
        let moved = Arc::new(Notify::new());
        let trail = if events { Trail::new(Arc::clone(&moved)) } else { Trail::blind() };
        let now = Instant::now();
        Self {
            path,
            subject,
            pace,
            trail: Arc::new(Mutex::new(trail)),
            moved,
            stirred: true,
            looking: None,
            looked: now,
            due: now,
            yielded: None,
            candidate: None,
        }
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until the file differs from what was yielded last, and yields what it is now: content,
    /// or the error that replaced it. The same error is not yielded twice in a row; content that
    /// comes back after an error is yielded again. May be cancelled at any time without loss.
    ///
    /// # Errors
    /// [`WatchedFileError`] while there is no content; later calls go on watching.
    pub async fn changed(&mut self) -> Result<C, WatchedFileError> {
        loop {
            let found = self.look().await;
            self.looked = Instant::now();
            self.due = self.looked + self.pace.poll;

            let key = found.as_ref().map(C::clone).map_err(spelled);
            if self.yielded.as_ref() == Some(&key) {
                self.candidate = None;
            } else if self.candidate.as_ref() == Some(&key) {
                self.candidate = None;
                self.yielded = Some(key);
                return found;
            } else {
                self.candidate = Some(key);
                self.due = self.looked + self.pace.settle;
            }
        }
    }

    /// Returns when it is time to look.
    async fn turn(&mut self) {
        while Instant::now() < self.due {
            tokio::select! {
                () = tokio::time::sleep_until(self.due) => {}
                () = self.moved.notified(), if !self.stirred => {
                    self.stirred = true;
                    self.due = self.due.min(self.looked + self.pace.settle);
                }
            }
        }
    }

    /// Looks when it is time. A network file system may hang, so the look has its own thread.
    async fn look(&mut self) -> Found<C> {
        if self.looking.is_none() {
            self.turn().await;
        }
        let looking = self.looking.get_or_insert_with(|| {
            let (trail, path) = (Arc::clone(&self.trail), self.path.clone());
            let stirred = std::mem::take(&mut self.stirred);
            let (read, stops) = (self.subject.read, self.subject.stops);
            tokio::task::spawn_blocking(move || {
                let mut trail = trail.lock().unwrap_or_else(PoisonError::into_inner);
                trail.follow(|| stops(&path), stirred);
                read(&path)
            })
        });
        let found = looking.await;
        self.looking = None;
        found.unwrap_or_else(|e| Err(WatchedFileError::Unreadable(io::Error::other(e))))
    }
}

fn read(path: &Path) -> Found<Bytes> {
    let metadata = fs::metadata(path).map_err(WatchedFileError::Unreadable)?;
    // Opening a pipe would wait for a writer.
    if !metadata.is_file() {
        return Err(WatchedFileError::NotAFile);
    }
    if metadata.len() > MAX_BYTES {
        return Err(WatchedFileError::TooLarge(metadata.len()));
    }
    let mut content = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut content))
        .map_err(WatchedFileError::Unreadable)?;
    match content.len() as u64 {
        // It grew in the meantime.
        length if length > MAX_BYTES => Err(WatchedFileError::TooLarge(length)),
        _ => Ok(content.into()),
    }
}

/// What tells one error from another.
fn spelled(error: &WatchedFileError) -> String {
    match error {
        WatchedFileError::Unreadable(cause) => cause.to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
