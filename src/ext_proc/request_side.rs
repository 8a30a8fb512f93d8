//! The request on its way in: headers understood, body read chunk by chunk, model decided.
//!
//! Decides which bodies are read and what a rewrite changes; how a body is read is `request`'s, which
//! model is `routing::rewrite`'s. Without a body, in STREAMED and NONE, nothing is known of it.

use std::sync::Arc;

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
    /// What the body says, from its end until a rewrite has been decided.
    facts: Option<Facts>,
    /// Estimated length of the prompt; 0 until the body is read, or where it is not.
    prompt_tokens: u64,
    streams: bool,
}

impl RequestSide {
    /// Takes the headers. `limit` bounds the body, inflated or not, in bytes.
    pub(super) fn new(head: RequestHead, limit: usize) -> Self {
        let content_type = head.content_type.as_deref().unwrap_or_default();
        let content_encoding = head.content_encoding.as_deref().unwrap_or_default();
        let reader = BodyReader::new(head.api(), content_type, content_encoding, limit as u64);
        Self { head, reader: Some(reader), facts: None, prompt_tokens: 0, streams: false }
    }

    /// Whether the client would rather be refused than have a prefix computed anew.
    pub(super) fn if_available(&self) -> bool {
        self.head.if_available
    }

    /// The name of its objective.
    pub(super) fn objective(&self) -> Option<&str> {
        self.head.objective.as_deref()
    }

    /// Whose traffic it is, as the client or its gateway says.
    pub(super) fn fairness(&self) -> Option<Arc<str>> {
        self.head.fairness.as_deref().map(Arc::from)
    }

    /// Estimated length of the prompt.
    pub(super) fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// Whether its answer is asked for token by token.
    pub(super) fn streams(&self) -> bool {
        self.streams
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

    /// Whether its model might have to be rewritten, and its body has not been read.
    pub(super) fn is_unread(&self, rewrites: &Rewrites) -> bool {
        self.reader.is_some() && (!rewrites.is_empty() || self.head.rewrite_to.is_some())
    }

    /// The body is complete: reads its facts, the first time that this is asked.
    pub(super) fn read(&mut self, session: &Session, limit: usize) -> Result<(), Rejection> {
        let Some(reader) = self.reader.take().filter(|_| session.has_whole_body()) else {
            return Ok(());
        };
        let facts = reader.finish().map_err(|error| rejection::body(&error, limit))?;
        self.prompt_tokens = facts.prompt_tokens();
        self.streams = facts.stream;
        self.facts = Some(facts);
        Ok(())
    }

    /// Puts the model in that the rewrites ask for, once. Answers what a response must say instead of the
    /// model that served. A request that is about to be `held` is only checked: which model it is sent on
    /// as is decided when it goes on.
    pub(super) fn rewrite(
        &mut self,
        session: &mut Session,
        rewrites: &Rewrites,
        rng: &mut impl Rng,
        limit: usize,
        held: bool,
    ) -> Result<Option<Restore>, Rejection> {
        let Some(facts) = self.facts.as_ref().filter(|facts| facts.api.is_rewritten()) else {
            return Ok(None);
        };
        let incoming = facts.model.as_ref().map(|model| model.name.as_str());
        let resolved = rewrites.resolve(incoming, self.head.rewrite_to.as_deref(), rng);
        if resolved.target.is_empty() {
            return match facts.api.needs_model() {
                true => Err(rejection::body(&BodyError::NoModel, limit)),
                false => Ok(None),
            };
        }
        if held || !resolved.changed {
            return Ok(None);
        }
        edit(session, facts, resolved.target)?;
        let incoming = incoming.unwrap_or_default().to_owned();
        let restore = Restore { target: resolved.target.to_owned(), incoming };
        // The body is not what was read any more.
        self.facts = None;
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
