//! Plain JSON in, facts out: the scanner, what it tells, and the limit on what is read.
//!
//! Decides nothing itself. Lengths are bytes.

use super::api::Api;
use super::extract::Extract;
use super::json::Scanner;
use super::{BodyError, Facts};

/// The last stage of every body that is read.
#[derive(Debug)]
pub(super) struct JsonReader {
    api: Api,
    scanner: Scanner,
    found: Extract,
    /// Bytes that may still come.
    left: u64,
}

impl JsonReader {
    pub(super) fn new(api: Api, limit: u64) -> Self {
        Self { api, scanner: Scanner::new(), found: Extract::new(api), left: limit }
    }

    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        self.left = self.left.checked_sub(piece.len() as u64).ok_or(BodyError::TooLarge)?;
        self.scanner
            .feed(piece, &mut self.found)
            .map_err(|syntax| BodyError::Syntax { api: self.api, syntax })
    }

    pub(super) fn finish(mut self) -> Result<Facts, BodyError> {
        self.scanner
            .finish(&mut self.found)
            .map_err(|syntax| BodyError::Syntax { api: self.api, syntax })?;
        self.found.facts()
    }
}
