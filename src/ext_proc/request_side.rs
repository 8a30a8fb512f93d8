//! The request on its way in: headers understood, body read chunk by chunk, model decided.
//!
//! Decides which bodies are read and what a rewrite changes; how a body is read is `request`'s, which
//! model is `routing::rewrite`'s. Without a body, in STREAMED and NONE, nothing is known of it.

use rand::Rng;

use super::head::RequestHead;
use super::rejection::{self, Rejection};
use super::session::Session;
use crate::request::{BodyError, BodyReader, Facts, insert_model, rewrite_model};
use crate::response::Restore;
use crate::routing::rewrite::Rewrites;

/// One request as far as it has come.
#[derive(Default)]
pub(super) struct RequestSide {
    head: RequestHead,
    reader: Option<BodyReader>,
}

impl RequestSide {
    /// Takes the headers. `limit` bounds the body, inflated or not, in bytes.
    pub(super) fn new(head: RequestHead, limit: usize) -> Self {
        let content_type = head.content_type.as_deref().unwrap_or_default();
        let content_encoding = head.content_encoding.as_deref().unwrap_or_default();
        let reader = BodyReader::new(head.api(), content_type, content_encoding, limit as u64);
        Self { head, reader: Some(reader) }
    }

    /// Whether the client would rather be refused than have a prefix computed anew.
    pub(super) fn if_available(&self) -> bool {
        self.head.if_available
    }

    /// Reads a chunk of the body. An error is certain enough to refuse the request before its end.
    pub(super) fn feed(&mut self, chunk: &[u8]) -> Result<(), BodyError> {
        let Some(reader) = &mut self.reader else { return Ok(()) };
        reader.feed(chunk);
        match reader.refused() {
            // Only what would cost memory or time to go on with; a bad word is told at the end.
            Some(BodyError::TooLarge) => Err(BodyError::TooLarge),
            _ => Ok(()),
        }
    }

    /// The body is complete: reads its facts and puts the model in that the rewrites ask for. Answers
    /// what a response must say instead of the model that served.
    pub(super) fn finish(
        &mut self,
        session: &mut Session,
        rewrites: &Rewrites,
        rng: &mut impl Rng,
        limit: usize,
    ) -> Result<Option<Restore>, Rejection> {
        let Some(reader) = self.reader.take().filter(|_| session.has_whole_body()) else {
            return Ok(None);
        };
        let facts = reader.finish().map_err(|error| rejection::body(&error, limit))?;
        if !facts.api.is_rewritten() {
            return Ok(None);
        }
        let incoming = facts.model.as_ref().map(|model| model.name.as_str());
        let resolved = rewrites.resolve(incoming, self.head.rewrite_to.as_deref(), rng);
        if resolved.target.is_empty() {
            return match facts.api.needs_model() {
                true => Err(rejection::body(&BodyError::NoModel, limit)),
                false => Ok(None),
            };
        }
        if !resolved.changed {
            return Ok(None);
        }
        edit(session, &facts, resolved.target)?;
        let incoming = incoming.unwrap_or_default().to_owned();
        let restore = Restore { target: resolved.target.to_owned(), incoming };
        Ok((!restore.incoming.is_empty()).then_some(restore))
    }
}

fn edit(session: &mut Session, facts: &Facts, target: &str) -> Result<(), Rejection> {
    let done = match &facts.model {
        Some(model) => rewrite_model(session.edit(), model, target),
        None => insert_model(session.edit(), target),
    };
    done.then_some(()).ok_or_else(rejection::compressed_rewrite)
}
