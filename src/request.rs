//! A request's body, read once as it arrives: model, streaming, how long the prompt is.
//!
//! Decides what a body says and whether it has what its API requires, or how the refusal reads; never
//! changes a byte of it but those of a model's name, on demand. Knows no endpoint and no stream. Sizes
//! are bytes, prompt lengths tokens.

mod api;
mod coding;
mod extract;
mod fields;
mod json;
mod reader;
mod rewrite;
mod text;
mod wording;
mod zstd;

#[cfg(test)]
mod tests;

use std::ops::Range;

use thiserror::Error;

pub use api::{Api, Parsers, Paths};
use coding::{Stage, codings};
use reader::JsonReader;
pub use rewrite::{insert_model, rewrite_model};
pub use wording::{Place, Syntax};

/// Bytes that stand for one token where no tokenizer is at hand.
const BYTES_PER_TOKEN: u64 = 4;

/// The model that a body names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    /// Its name, decoded; not empty.
    pub name: String,
    /// Where the JSON string stands in the body, quotes included, in bytes; `None` in a compressed body.
    pub span: Option<Range<u64>>,
}

/// What routing wants to know of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// How the body was read; [`Api::Opaque`] also when its type or coding kept us from it.
    pub api: Api,
    /// The model, if one is named.
    pub model: Option<Model>,
    /// The client asked for a stream.
    pub stream: bool,
    /// The client asked for usage at the end of the stream.
    pub include_usage: bool,
    /// Text of the prompt, bytes: messages with their roles, system text, documents, tools as JSON.
    /// Media are left out.
    pub prompt_bytes: u64,
    /// Token ids of the prompt, where it came in those.
    pub token_ids: u64,
    /// The limit on output tokens, if the client set one.
    pub max_output_tokens: Option<u64>,
}

impl Facts {
    /// What is known of a body that is not read: nothing.
    fn unread(api: Api) -> Self {
        Self {
            api,
            model: None,
            stream: false,
            include_usage: false,
            prompt_bytes: 0,
            token_ids: 0,
            max_output_tokens: None,
        }
    }

    /// The prompt's length in tokens, estimated: a quarter of its bytes, rounded up, and every id.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_bytes.div_ceil(BYTES_PER_TOKEN).saturating_add(self.token_ids)
    }

    /// The model, where the API needs one; `None` where it may lack.
    ///
    /// # Errors
    /// [`BodyError::NoModel`].
    pub fn required_model(&self) -> Result<Option<&Model>, BodyError> {
        match &self.model {
            None if self.api.needs_model() => Err(BodyError::NoModel),
            model => Ok(model.as_ref()),
        }
    }
}

/// Why a body is refused. [`BodyError::status`] is the HTTP status, the text what upstream writes after
/// `inference error: BadRequest - `.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BodyError {
    /// It is no JSON.
    #[error("{}{syntax}", prefix(*api))]
    Syntax {
        /// What the body was read as.
        api: Api,
        /// What is wrong.
        syntax: Syntax,
    },
    /// It is JSON, but no object.
    #[error("{}json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}", prefix(*api))]
    NoObject {
        /// What the body was read as.
        api: Api,
        /// What it is.
        kind: &'static str,
    },
    /// It lacks what its API requires, or has something else in that place.
    #[error("{0}")]
    Invalid(String),
    /// It names no model. Of the director, not of the reader: a rewrite may still give it one.
    #[error("model not found in request body")]
    NoModel,
    /// Its content coding cannot be undone.
    #[error("error decoding request body: {0}")]
    Coding(String),
    /// It is, or inflates to, more than the limit.
    #[error("request body exceeds the limit")]
    TooLarge,
}

impl BodyError {
    /// The HTTP status: 400, or 413 for a body over the limit.
    pub fn status(&self) -> u16 {
        match self {
            Self::TooLarge => 413,
            _ => 400,
        }
    }
}

/// What upstream writes before the words of its JSON library.
fn prefix(api: Api) -> &'static str {
    match api {
        Api::Generate | Api::SglangGenerate => "",
        _ => "error unmarshaling request bodyMap: ",
    }
}

/// Reads one body, chunk by chunk.
pub struct BodyReader {
    api: Api,
    /// `None` when the body is not read.
    stage: Option<Stage>,
    plain: bool,
    refused: Option<BodyError>,
}

impl BodyReader {
    /// A reader for a request of `api`. Multipart and gRPC bodies and those in a coding that we do not
    /// know are not read. `limit` bounds what is read, in bytes after decompression.
    pub fn new(api: Api, content_type: &str, content_encoding: &str, limit: u64) -> Self {
        let unread = |api| Self { api, stage: None, plain: false, refused: None };
        if !api.is_read() {
            return unread(api);
        }
        let Some(codings) = codings(content_encoding) else { return unread(Api::Opaque) };
        if api::is_foreign(content_type) {
            return unread(Api::Opaque);
        }
        let json = Stage::Json(Box::new(JsonReader::new(api, limit)));
        let plain = codings.is_empty();
        // What was applied last is undone first.
        let stage = codings.into_iter().fold(json, Stage::behind);
        Self { api, stage: Some(stage), plain, refused: None }
    }

    /// Reads the next chunk. Once the body is refused, further ones cost nothing.
    pub fn feed(&mut self, chunk: &[u8]) {
        if let (Some(stage), None) = (&mut self.stage, &self.refused) {
            self.refused = stage.feed(chunk).err();
        }
    }

    /// Why the body will be refused, as soon as that is certain.
    pub fn refused(&self) -> Option<&BodyError> {
        self.refused.as_ref()
    }

    /// The body is over.
    ///
    /// # Errors
    /// [`BodyError`]: the first fault that was found (in a compressed body with several, which of them
    /// comes first may depend on the chunks). A missing model is none yet.
    pub fn finish(self) -> Result<Facts, BodyError> {
        if let Some(refused) = self.refused {
            return Err(refused);
        }
        let Some(stage) = self.stage else { return Ok(Facts::unread(self.api)) };
        let mut facts = stage.finish()?.finish()?;
        if let (false, Some(model)) = (self.plain, &mut facts.model) {
            model.span = None;
        }
        Ok(facts)
    }
}
