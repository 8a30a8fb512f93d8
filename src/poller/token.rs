//! The bearer token of the scrapes, out of a file that may change.
//!
//! Decides what a token may hold and that a bad or missing version leaves the old one in force. A
//! token is never printed.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::causes;
use crate::watched_file::WatchedFile;

/// Longest token in bytes.
const MAX_TOKEN: usize = 64 << 10;

/// A token file and what it said last; clones share it.
#[derive(Clone)]
pub struct Token {
    path: PathBuf,
    now: Arc<ArcSwap<String>>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("reading {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: std::io::Error,
    },
    /// The file holds no token.
    #[error("{path} must hold one token: visible ASCII without blanks, at most {MAX_TOKEN} bytes")]
    Malformed {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Token {
    /// Reads the token at `path`.
    ///
    /// # Errors
    /// [`TokenError`] for a file that cannot be read or holds no token.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        let path = path.to_owned();
        let content = std::fs::read(&path);
        let content = content.map_err(|source| TokenError::Read { path: path.clone(), source })?;
        let token = parse(&content).ok_or_else(|| TokenError::Malformed { path: path.clone() })?;
        Ok(Self { path, now: Arc::new(ArcSwap::from_pointee(token)) })
    }

    /// Takes over what the file says whenever it changes, for ever.
    pub async fn follow(self) {
        self.take_over(WatchedFile::new(&self.path)).await;
    }

    async fn take_over(&self, mut file: WatchedFile) {
        loop {
            let path = self.path.display();
            match file.changed().await {
                Ok(content) => match parse(&content) {
                    Some(token) if token == **self.now.load() => {}
                    Some(token) => {
                        self.now.store(Arc::new(token));
                        tracing::info!(%path, "a new scrape token is in force");
                    }
                    None => tracing::error!(%path, "no token in the file, the old one stays"),
                },
                Err(error) => {
                    let error = causes::in_one_line(&error);
                    tracing::error!(%path, %error, "no token, the old one stays");
                }
            }
        }
    }

    /// The token in force.
    pub(super) fn now(&self) -> arc_swap::Guard<Arc<String>> {
        self.now.load()
    }
}

/// The one word in `content`, blanks around it aside.
fn parse(content: &[u8]) -> Option<String> {
    let token = content.trim_ascii();
    let good =
        !token.is_empty() && token.len() <= MAX_TOKEN && token.iter().all(u8::is_ascii_graphic);
    good.then(|| String::from_utf8_lossy(token).into_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Mutants: a line break let into the header; an empty file taken as an empty token.
    #[test]
    fn a_token_is_one_word() {
        assert_eq!(parse(b" abc.DEF-1\r\n").as_deref(), Some("abc.DEF-1"));
        for bad in [&b""[..], b" \n", b"a b", b"a\nb", b"\xff", &[b'x'; MAX_TOKEN + 1]] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    /// Mutants: reading the file once; an empty file in force; the token in a debug text.
    #[tokio::test]
    async fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        assert!(Token::open(&path).unwrap_err().to_string().starts_with("reading /"));
        std::fs::write(&path, "\n").unwrap();
        assert!(Token::open(&path).unwrap_err().to_string().contains("one token"));
        std::fs::write(&path, "first\n").unwrap();
        let token = Token::open(&path).unwrap();
        assert!(!format!("{token:?}").contains("first"));
        let followed = token.clone();
        let file = WatchedFile::on_events_alone(&path, Duration::from_millis(1));
        let task = tokio::spawn(async move { followed.take_over(file).await });
        for text in ["second", "", "third"] {
            std::fs::write(&path, text).unwrap();
            if text.is_empty() {
                continue;
            }
            let reached = async {
                while **token.now() != text {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    assert!(!token.now().is_empty());
                }
            };
            tokio::time::timeout(Duration::from_secs(20), reached).await.unwrap();
        }
        task.abort();
    }
}
