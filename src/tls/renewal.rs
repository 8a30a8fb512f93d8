//! New certificates while we serve.
//!
//! Decides when a pair is taken over: 250 ms after one of its files changed, if both can be read and
//! belong together. Anything else leaves the old pair in force and is logged and counted. Connections
//! that are open stay as they are.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::{CRT, Current, Files, KEY};
use crate::causes;
use crate::telemetry::metrics::Metrics;
use crate::watched_file::{WatchedFile, WatchedFileError};

/// How long the second file may lag behind the first, as upstream.
const SETTLE: Duration = Duration::from_millis(250);

/// Follows the two files of a pair.
#[derive(Debug)]
pub struct Renewal {
    folder: PathBuf,
    current: Arc<Current>,
    /// What is in force.
    files: Files,
}

/// One of the two files and what it says now.
struct Followed {
    file: WatchedFile,
    content: Result<Bytes, WatchedFileError>,
}

impl Followed {
    async fn changed(&mut self) {
        self.content = self.file.changed().await;
    }
}

impl Renewal {
    pub(super) fn new(folder: PathBuf, current: Arc<Current>, files: Files) -> Self {
        Self { folder, current, files }
    }

    /// Takes over new pairs until `stop` turns true.
    pub async fn run(self, metrics: Arc<Metrics>, mut stop: watch::Receiver<bool>) {
        tokio::select! {
            () = self.follow(&metrics) => {}
            // A dropped sender is a process on its way out.
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn follow(mut self, metrics: &Metrics) {
        let follow = |name, content: &Bytes| Followed {
            file: WatchedFile::new(self.folder.join(name)),
            content: Ok(content.clone()),
        };
        let mut crt = follow(CRT, &self.files.crt);
        let mut key = follow(KEY, &self.files.key);
        loop {
            tokio::select! { () = crt.changed() => {} () = key.changed() => {} }
            let settled = Instant::now() + SETTLE;
            loop {
                tokio::select! {
                    () = crt.changed() => {}
                    () = key.changed() => {}
                    () = sleep_until(settled) => break,
                }
            }
            self.take_over(&crt, &key, metrics);
        }
    }

    fn take_over(&mut self, crt: &Followed, key: &Followed, metrics: &Metrics) {
        let folder = self.folder.display();
        let files = match (&crt.content, &key.content) {
            (Ok(crt), Ok(key)) => Ok(Files { crt: crt.clone(), key: key.clone() }),
            (Err(error), _) => Err(format!("{CRT}: {error}")),
            (_, Err(error)) => Err(format!("{KEY}: {error}")),
        };
        if files.as_ref() == Ok(&self.files) {
            return;
        }
        let pair = files.and_then(|files| match files.pair(&self.folder) {
            Ok(pair) => Ok((files, pair)),
            Err(error) => Err(causes::in_one_line(&error)),
        });
        let result = match pair {
            Ok((files, pair)) => {
                self.current.0.store(Arc::new(pair));
                tracing::info!(%folder, "a new certificate is in force");
                self.files = files;
                "ok"
            }
            Err(error) => {
                tracing::error!(%folder, %error, "no usable certificate, the old one stays");
                "failed"
            }
        };
        metrics.certificates.with_label_values(&[result]).inc();
    }
}
