//! The directories in which something can happen to a path, and the watches on them.
//!
//! Decides where to listen, not what a change means. A watch on the file itself would die with the
//! file; so the watches lie on the directory of the file, of every symbolic link on the way to it,
//! and, while something is missing, on the nearest directory that exists.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

/// As many as Linux follows.
const MAX_LINKS: usize = 40;

/// A changing path is walked this often before the next look must do.
const MAX_WALKS: usize = 8;

/// A watched directory; device and inode, because another one may stand under the same path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stop {
    directory: PathBuf,
    device: u64,
    inode: u64,
}

/// The watches that follow one path.
#[derive(Debug)]
pub(super) struct Trail {
    /// `None`: the system gave none, or none is wanted.
    watcher: Option<RecommendedWatcher>,
    laid: BTreeSet<Stop>,
    /// The last complaint, to be made once.
    complaint: String,
}

impl Trail {
    /// A trail without watches yet that signals `moved` at every event.
    pub(super) fn new(moved: Arc<Notify>) -> Self {
        let mut trail = Self::blind();
        let signal = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| matters(&event.kind)) {
                moved.notify_one();
            }
        };
        match notify::recommended_watcher(signal) {
            Ok(watcher) => trail.watcher = Some(watcher),
            Err(error) => trail.complain(&error),
        }
        trail
    }

    /// A trail that never signals.
    pub(super) fn blind() -> Self {
        Self { watcher: None, laid: BTreeSet::new(), complaint: String::new() }
    }

    /// Lays the watches where `stops` leads now. What changes after this returns is signalled.
    ///
    /// `stirred`: something moved since the last call. Then all watches are laid afresh: one may have
    /// died with its directory although the new directory got the old inode number.
    pub(super) fn follow(&mut self, stops: impl Fn() -> BTreeSet<Stop>, stirred: bool) {
        if self.watcher.is_none() {
            return;
        }
        if stirred {
            self.lay(BTreeSet::new());
        }
        for _ in 0..MAX_WALKS {
            let stops = stops();
            // Nothing moved between the walk that led here and this one, so nothing can slip through.
            if stops == self.laid {
                return;
            }
            self.lay(stops);
        }
    }

    fn lay(&mut self, stops: BTreeSet<Stop>) {
        let Some(watcher) = &mut self.watcher else { return };
        for gone in self.laid.difference(&stops) {
            // Fails where the watch died with its directory.
            let _ = watcher.unwatch(&gone.directory);
        }
        let mut failed = None;
        for new in stops.difference(&self.laid) {
            if let Err(error) = watcher.watch(&new.directory, RecursiveMode::NonRecursive) {
                failed = Some(error);
            }
        }
        self.laid = stops;
        match failed {
            // A directory that vanished in between is no fault: the next walk sees it.
            Some(error) if !matches!(error.kind, notify::ErrorKind::PathNotFound) => {
                self.complain(&error);
            }
            _ => {}
        }
    }

    fn complain(&mut self, error: &notify::Error) {
        let text = error.to_string();
        if text != self.complaint {
            tracing::warn!(error = %text, "file watch is not to be had, the file is polled instead");
            self.complaint = text;
        }
    }
}

/// Reading is no change; without this, our own look would call for the next one.
fn matters(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(access) => matches!(access, AccessKind::Close(AccessMode::Write)),
        _ => true,
    }
}

/// Walks `path` as the kernel does and notes every directory whose entries decide where it leads.
pub(super) fn stops(path: &Path) -> BTreeSet<Stop> {
    let mut noted = BTreeSet::new();
    let mut at = PathBuf::from("/");
    let mut rest = Vec::new();
    push(&mut rest, &std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    let mut links = 0;
    while let Some(part) = rest.pop() {
        let next = at.join(&part);
        if part == ".." {
            at.pop();
            continue;
        }
        match fs::symlink_metadata(&next) {
            Err(_) => {
                note(&mut noted, &at);
                return noted;
            }
            Ok(metadata) if metadata.is_symlink() => {
                note(&mut noted, &at);
                links += 1;
                let Ok(target) = fs::read_link(&next) else { return noted };
                if links > MAX_LINKS {
                    return noted;
                }
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                push(&mut rest, &target);
            }
            Ok(_) => at = next,
        }
    }
    note(&mut noted, at.parent().unwrap_or(&at));
    noted
}

/// Puts the parts of `path` in front of those that are still to be walked.
fn push(rest: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().rev().filter_map(|part| match part {
        Component::Normal(_) | Component::ParentDir => Some(part.as_os_str().to_owned()),
        _ => None,
    });
    rest.extend(parts);
}

pub(super) fn note(noted: &mut BTreeSet<Stop>, directory: &Path) {
    if let Ok(metadata) = fs::metadata(directory) {
        let (device, inode) = (metadata.dev(), metadata.ino());
        noted.insert(Stop { directory: directory.to_owned(), device, inode });
    }
}
