//! An endpoints file whose content a test changes while a picker watches it.

use std::path::{Path, PathBuf};

use plumbline::app::{Settings, Source};

use super::{Picker, wait_for};

/// The file, in a folder of its own.
pub struct PoolFile {
    pub path: PathBuf,
    _folder: tempfile::TempDir,
}

impl PoolFile {
    /// With no endpoint.
    pub fn empty() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("endpoints.yaml");
        std::fs::write(&path, document(&[])).expect("a file");
        Self { path, _folder: folder }
    }

    /// The same settings, with endpoints from this file.
    pub fn source(&self, settings: Settings) -> Settings {
        Settings { source: Source::File(self.path.clone()), ..settings }
    }

    /// The pool is these from now on; returns once the picker knows.
    pub async fn set(&self, picker: &Picker, endpoints: &[&str]) {
        self.write(endpoints);
        wait_for("the new pool", async || {
            let seen = picker.pool().await.len();
            if seen == endpoints.len() { Ok(()) } else { Err(format!("{seen} endpoints")) }
        })
        .await;
    }

    /// The pool is these from now on, whether a picker runs or not.
    pub fn write(&self, endpoints: &[&str]) {
        replace(&self.path, &document(endpoints));
    }
}

/// Puts a new version of a watched file in place of the old one.
pub fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    std::fs::write(&next, text).expect("a file");
    std::fs::rename(next, path).expect("a new file in place of the old");
}

fn document(endpoints: &[&str]) -> String {
    let entries = endpoints.iter().map(|endpoint| {
        let (address, port) = endpoint.split_once(':').expect("address:port");
        format!("{{name: e-{address}-{port}, address: {address}, port: \"{port}\"}}")
    });
    format!("endpoints: [{}]\n", entries.collect::<Vec<_>>().join(", "))
}
