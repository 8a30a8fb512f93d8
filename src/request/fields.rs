//! The fields that each API has: which keys matter, what may stand there, and how a refusal reads.
//!
//! Decides from names and kinds alone; knows no bytes. Keys that upstream looks up in a map count in
//! their own case, those of its typed structures in any (ASCII) case.

use super::api::Api;
use super::json::Kind;

/// What a member of the root object is to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    Other,
    Model,
    Stream,
    /// Holds `include_usage`.
    StreamOptions,
    /// A limit of output tokens; the lower rank counts first.
    Limit(usize),
    /// Holds the limit of output tokens under this key.
    Sampling(&'static [u8]),
    /// What must be there.
    Prompt,
    /// Further text of the prompt.
    System,
    Documents,
    /// Counted as the JSON that chat templates render.
    Tools,
    Embeds,
    /// Optional, with a kind of its own.
    Bool(u8),
    Object(u8),
    Text(u8),
}

/// What the required field may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string, strings, token ids, or lists of token ids; none empty.
    Prompts,
    /// A list of messages, not empty.
    Turns,
    /// A list of anything, not empty.
    Items,
    /// A string, not empty.
    Text,
    /// Anything but null.
    Any,
    /// Token ids, not empty.
    Ids,
}

impl Field {
    /// Whether a value of this kind may stand here; null is always the same as absent.
    pub(super) fn allows(self, kind: Kind) -> bool {
        match (self, kind) {
            (_, Kind::Null) => true,
            (Self::System, kind) => matches!(kind, Kind::String | Kind::Array),
            (Self::Documents | Self::Tools, kind) => kind == Kind::Array,
            (Self::Bool(_) | Self::Stream, kind) => matches!(kind, Kind::Bool(_)),
            (Self::Object(_), kind) => kind == Kind::Object,
            (Self::Text(_), kind) => kind == Kind::String,
            _ => true,
        }
    }

    /// Its bit in the set of fields that hold something else than they may.
    pub(super) fn bit(self) -> u16 {
        match self {
            Self::Stream => 1,
            Self::System => 1 << 12,
            Self::Documents => 1 << 13,
            Self::Tools => 1 << 14,
            Self::Bool(bit) | Self::Object(bit) | Self::Text(bit) => 1 << bit,
            _ => 0,
        }
    }
}

/// The bit of SGLang's `extra_key`.
const EXTRA_KEY: u8 = 3;

/// The field that a key of the root object names.
pub(super) fn field(api: Api, key: &[u8]) -> Field {
    match (key, api) {
        (b"model", _) => return Field::Model,
        (b"stream", _) => return Field::Stream,
        (b"stream_options", _) => return Field::StreamOptions,
        (b"max_completion_tokens", Api::Chat) => return Field::Limit(0),
        (b"max_tokens", Api::Chat) => return Field::Limit(1),
        (b"max_tokens", Api::Completions | Api::Messages) => return Field::Limit(0),
        (b"max_output_tokens", Api::Responses) => return Field::Limit(0),
        _ => {}
    }
    let mut folded = [0; super::text::MAX_KEY];
    let Some(room) = folded.get_mut(..key.len()) else { return Field::Other };
    room.copy_from_slice(key);
    room.make_ascii_lowercase();
    match (&*room, api) {
        (b"prompt", Api::Completions | Api::Images)
        | (b"messages", Api::Chat | Api::Messages)
        | (b"input", Api::Embeddings | Api::Responses)
        | (b"items", Api::Conversations)
        | (b"token_ids", Api::Generate)
        | (b"input_ids", Api::SglangGenerate) => Field::Prompt,
        (b"prompt_embeds", Api::Completions) => Field::Embeds,
        (b"system", Api::Messages) | (b"instructions", Api::Responses) => Field::System,
        (b"tools", Api::Chat | Api::Messages | Api::Responses) => Field::Tools,
        (b"documents", Api::Chat) => Field::Documents,
        (b"sampling_params", Api::Generate) => Field::Sampling(b"max_tokens"),
        (b"sampling_params", Api::SglangGenerate) => Field::Sampling(b"max_new_tokens"),
        (b"chat_template", Api::Chat) => Field::Text(1),
        (b"cache_salt", Api::Chat) => Field::Text(2),
        (b"extra_key", Api::SglangGenerate) => Field::Text(EXTRA_KEY),
        (b"return_assistant_tokens_mask", Api::Chat) => Field::Bool(4),
        (b"continue_final_message", Api::Chat) => Field::Bool(5),
        (b"add_generation_prompt", Api::Chat) => Field::Bool(6),
        (b"chat_template_kwargs", Api::Chat) => Field::Object(7),
        _ => Field::Other,
    }
}

/// What the required field of an API may be.
pub(super) fn shape(api: Api) -> Shape {
    match api {
        Api::Completions | Api::Embeddings => Shape::Prompts,
        Api::Chat | Api::Messages => Shape::Turns,
        Api::Conversations => Shape::Items,
        Api::Images => Shape::Text,
        Api::Generate | Api::SglangGenerate => Shape::Ids,
        Api::Responses | Api::CountTokens | Api::Opaque => Shape::Any,
    }
}

/// What stands in the required field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing, or null.
    Absent,
    /// Nothing yet, in the right brackets.
    Empty,
    Good,
    /// Something of another kind.
    Wrong,
    /// No token id at this index.
    BadId(u64),
}

/// How the refusal of a request without its required field reads.
pub(super) fn refusal(api: Api, verdict: Verdict) -> String {
    let fixed = match (api, verdict) {
        (Api::Generate, Verdict::BadId(index)) => {
            return format!("invalid generate request: token_ids[{index}]: invalid value");
        }
        (Api::Completions, _) => "invalid completions request: must have prompt field",
        (Api::Chat, _) => "invalid chat completions request: must have valid messages field",
        (Api::Embeddings, _) => "invalid embeddings request: must have input field",
        (Api::Responses, _) => "invalid responses request: must have input field",
        (Api::Conversations, _) => "invalid conversations request: must have items field",
        (Api::Images, _) => "invalid images generations request: must have prompt field",
        (Api::Messages, _) => "invalid messages request: must have at least one message",
        (Api::Generate, _) => "invalid generate request: must have non-empty token_ids field",
        (Api::SglangGenerate, Verdict::Absent) => {
            "invalid generate request: input_ids must be provided"
        }
        (Api::SglangGenerate, Verdict::Empty) => {
            "invalid generate request: input_ids cannot be empty"
        }
        (Api::SglangGenerate, _) => {
            "invalid generate request: input_ids must be an array of uint32 integers"
        }
        (Api::CountTokens | Api::Opaque, _) => "invalid request",
    };
    fixed.to_owned()
}

/// The optional fields whose kind is checked: those that upstream decodes into a structure.
pub(super) fn checked(api: Api) -> u16 {
    match api {
        Api::Chat => !1,
        Api::Messages => Field::System.bit() | Field::Tools.bit(),
        Api::SglangGenerate => Field::Stream.bit() | Field::Text(EXTRA_KEY).bit(),
        _ => 0,
    }
}

/// How the refusal of an optional field of the wrong kind reads. The chat text is upstream's, which
/// blames the messages whatever the field is; the others name the field.
pub(super) fn refusal_of_kind(api: Api, wrong: u16) -> String {
    let named = match api {
        Api::Messages if wrong & Field::System.bit() != 0 => {
            "invalid messages request: system must be a string or an array"
        }
        Api::Messages => "invalid messages request: tools must be an array",
        Api::SglangGenerate if wrong & Field::Stream.bit() != 0 => {
            "invalid generate request: stream must be a boolean"
        }
        Api::SglangGenerate => "invalid generate request: extra_key must be a string",
        _ => return refusal(api, Verdict::Wrong),
    };
    named.to_owned()
}

/// Whether the member with this key is text of the prompt. Media, their kinds and the ids of calls
/// are not; a tool's or a part's own words are.
pub(super) fn is_text(key: &[u8]) -> bool {
    !matches!(
        key,
        b"type"
            | b"url"
            | b"image_url"
            | b"audio_url"
            | b"video_url"
            | b"file_url"
            | b"file_data"
            | b"file_id"
            | b"data"
            | b"id"
            | b"call_id"
            | b"tool_use_id"
            | b"tool_call_id"
            | b"media_type"
            | b"format"
            | b"detail"
            | b"signature"
            | b"encrypted_content"
    )
}
