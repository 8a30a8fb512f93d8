//! The documents at a path: one file, or those of a folder.
//!
//! Decides which entries of a folder are documents and where they can change. A document that cannot
//! be read is listed with its error, so that it costs itself and not the folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::trail::{self, Stop};
use super::{Found, WatchedFileError};

/// The most documents of one folder that are read.
pub const MAX_FILES: usize = 1000;

/// What the names of documents end in.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Documents in the order of their paths, each with its content or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing(pub Vec<(PathBuf, Result<Bytes, String>)>);

impl Listing {
    /// Reads what is at `path` now. Blocks.
    ///
    /// # Errors
    /// [`WatchedFileError`] where `path` itself gives nothing.
    pub fn read(path: &Path) -> Result<Self, WatchedFileError> {
        read(path)
    }
}

pub(super) fn read(path: &Path) -> Found<Listing> {
    let metadata = fs::metadata(path).map_err(WatchedFileError::Unreadable)?;
    if !metadata.is_dir() {
        return Ok(Listing(vec![(path.to_owned(), Ok(super::read(path)?))]));
    }
    let paths = documents(path).map_err(WatchedFileError::Unreadable)?;
    if paths.len() > MAX_FILES {
        return Err(WatchedFileError::TooMany(paths.len()));
    }
    let read = |path: PathBuf| {
        let content = super::read(&path).map_err(|error| super::spelled(&error));
        (path, content)
    };
    Ok(Listing(paths.into_iter().map(read).collect()))
}

/// The folder itself, for what comes and goes, and wherever the links of its documents lead.
pub(super) fn stops(path: &Path) -> BTreeSet<Stop> {
    let mut stops = trail::stops(path);
    if let (Ok(paths), Ok(folder)) = (documents(path), fs::canonicalize(path)) {
        trail::note(&mut stops, &folder);
        stops.extend(paths.iter().take(MAX_FILES).flat_map(|path| trail::stops(path)));
    }
    stops
}

/// Names that begin with a dot are the kubelet's (`..data`), an editor's or hidden on purpose.
fn documents(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let ending = path.extension().and_then(|ending| ending.to_str());
        if !hidden && ending.is_some_and(|e| ENDINGS.contains(&e)) && !path.is_dir() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests;
