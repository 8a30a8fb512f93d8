//! Bodies of the OpenAI API: what a request asks of the engine, and how an answer reads.
//!
//! Decides the prompt's length (bytes / 4, data URIs and other non-text parts left out), the answer's
//! words and the JSON around them; sends nothing. Lengths are tokens.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::engine::{FinishReason, Job};
use super::prefix::block_hashes;

/// Bytes that make one token.
const TOKEN_BYTES: usize = 4;
/// Output of a request that sets no limit.
const DEFAULT_OUTPUT: u64 = 16;
/// What the model says, over and over.
const WORDS: [&str; 12] = [
    "the", "line", "hangs", "straight", "while", "water", "finds", "its", "level", "and", "stone",
    "waits",
];

/// Which of the two APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Api {
    Completion,
    Chat,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    content: Content,
}

#[derive(Debug, Default, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
    #[default]
    None,
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    prompt: Option<Prompt>,
    messages: Option<Vec<Message>>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    n: Option<u64>,
}

/// A request as understood.
#[derive(Debug)]
pub(super) struct Ask {
    pub(super) model: Option<String>,
    pub(super) stream: bool,
    pub(super) include_usage: bool,
    prompt: Vec<u8>,
    prompt_tokens: u64,
    output_tokens: Option<u64>,
}

impl Ask {
    /// Reads a body. The error is a sentence for the client (status 400).
    pub(super) fn parse(api: Api, body: &[u8]) -> Result<Self, String> {
        let body: Body =
            serde_json::from_slice(body).map_err(|error| format!("bad request body: {error}"))?;
        let (prompt, prompt_tokens) = match api {
            Api::Completion => read_prompt(body.prompt)?,
            Api::Chat => {
                let messages = body.messages.ok_or("messages: missing")?;
                if messages.is_empty() {
                    return Err("messages: must hold at least one message".to_owned());
                }
                let text = read_messages(&messages);
                let tokens = tokens_of(text.len());
                (text, tokens)
            }
        };
        if body.n.unwrap_or(1) != 1 {
            return Err("n: only 1 choice is simulated".to_owned());
        }
        let output_tokens = match api {
            Api::Chat => body.max_completion_tokens.or(body.max_tokens),
            Api::Completion => body.max_tokens,
        };
        if output_tokens == Some(0) {
            return Err("max_tokens: must be at least 1".to_owned());
        }
        Ok(Self {
            model: body.model,
            stream: body.stream.unwrap_or(false),
            include_usage: body.stream_options.unwrap_or_default().include_usage,
            prompt,
            prompt_tokens,
            output_tokens,
        })
    }

    /// The work for the engine. An output that the client limits ends by `length`, any other by
    /// `stop`.
    pub(super) fn job(&self, block_size: u64, adapter: Option<&str>) -> Job {
        let block_bytes = usize::try_from(block_size).unwrap_or(usize::MAX);
        let block_bytes = block_bytes.saturating_mul(TOKEN_BYTES);
        Job {
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens.unwrap_or(DEFAULT_OUTPUT),
            prefix: block_hashes(&self.prompt, block_bytes, adapter.unwrap_or_default()),
            adapter: adapter.map(Into::into),
            end: self.output_tokens.map_or(FinishReason::Stop, |_| FinishReason::Length),
        }
    }
}

fn tokens_of(bytes: usize) -> u64 {
    (bytes.div_ceil(TOKEN_BYTES) as u64).max(1)
}

fn read_prompt(prompt: Option<Prompt>) -> Result<(Vec<u8>, u64), String> {
    let text = match prompt.ok_or("prompt: missing")? {
        Prompt::Text(text) => text,
        Prompt::Tokens(ids) => {
            // Four bytes each, so that a block of ids is as long as a block of text.
            let bytes = ids.iter().flat_map(|id| id.to_be_bytes()).collect();
            return Ok((bytes, (ids.len() as u64).max(1)));
        }
        Prompt::Texts(texts) => match <[String; 1]>::try_from(texts) {
            Ok([text]) => text,
            Err(_) => return Err("prompt: a batch of prompts is not simulated".to_owned()),
        },
    };
    let tokens = tokens_of(text.len());
    Ok((text.into_bytes(), tokens))
}

/// The texts of the conversation, one after the other: roles and other parts count nothing.
fn read_messages(messages: &[Message]) -> Vec<u8> {
    let mut text = Vec::new();
    for message in messages {
        match &message.content {
            Content::Text(content) => text.extend_from_slice(content.as_bytes()),
            Content::Parts(parts) => {
                parts.iter().for_each(|part| text.extend_from_slice(part.text.as_bytes()));
            }
            Content::None => {}
        }
    }
    text
}

/// Lengths that an answer reports.
#[derive(Debug, Clone, Copy)]
pub(super) struct Usage {
    pub(super) prompt_tokens: u64,
    pub(super) output_tokens: u64,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": self.prompt_tokens + self.output_tokens,
            "completion_tokens": self.output_tokens,
        })
    }
}

/// The answer to one request, and the JSON it is made of.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) api: Api,
    pub(super) id: String,
    pub(super) model: String,
    /// Unix seconds.
    pub(super) created: u64,
}

impl Answer {
    /// The whole answer.
    pub(super) fn whole(&self, usage: Usage, reason: FinishReason) -> Bytes {
        let text: String = (0..usage.output_tokens).map(word).collect();
        let (object, choice) = match self.api {
            Api::Completion => ("text_completion", json!({"index": 0, "text": text})),
            Api::Chat => (
                "chat.completion",
                json!({"index": 0, "message": {"role": "assistant", "content": text}}),
            ),
        };
        let mut body = self.frame(object, choice, Some(reason));
        body["usage"] = usage.json();
        body.to_string().into()
    }

    /// The event of the token at `index`; the last carries the reason.
    pub(super) fn token(&self, index: u64, reason: Option<FinishReason>) -> Bytes {
        let text = word(index);
        event(&match self.api {
            Api::Completion => {
                self.frame("text_completion", json!({"index": 0, "text": text}), reason)
            }
            Api::Chat => {
                let mut delta = json!({"content": text});
                if index == 0 {
                    delta["role"] = "assistant".into();
                }
                let choice = json!({"index": 0, "delta": delta});
                self.frame("chat.completion.chunk", choice, reason)
            }
        })
    }

    /// The last events: usage where asked for, then the end mark.
    pub(super) fn end(&self, usage: Option<Usage>) -> Bytes {
        let mut events = Vec::new();
        if let Some(usage) = usage {
            let object = match self.api {
                Api::Completion => "text_completion",
                Api::Chat => "chat.completion.chunk",
            };
            let mut body = self.frame(object, Value::Null, None);
            body["choices"] = json!([]);
            body["usage"] = usage.json();
            events.extend_from_slice(&event(&body));
        }
        events.extend_from_slice(b"data: [DONE]\n\n");
        events.into()
    }

    fn frame(&self, object: &str, mut choice: Value, reason: Option<FinishReason>) -> Value {
        if let Some(choice) = choice.as_object_mut() {
            choice.insert("logprobs".to_owned(), Value::Null);
            choice.insert("finish_reason".to_owned(), reason.map(FinishReason::as_str).into());
        }
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": [choice],
        })
    }
}

fn event(body: &Value) -> Bytes {
    format!("data: {body}\n\n").into()
}

fn word(index: u64) -> String {
    let at = usize::try_from(index % WORDS.len() as u64).unwrap_or_default();
    format!("{}{}", if index == 0 { "" } else { " " }, WORDS[at])
}

/// An error as vLLM words it.
pub(super) fn error_body(code: u16, message: &str) -> Bytes {
    let kind = match code {
        400 => "BadRequestError",
        404 => "NotFoundError",
        500.. => "InternalServerError",
        _ => "APIError",
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
        .to_string()
        .into()
}

/// The answer of `GET /v1/models`: the model, then its adapters.
pub(super) fn models_body(model: &str, loras: &[String], context: u64, created: u64) -> Bytes {
    let base = json!({
        "id": model, "object": "model", "created": created, "owned_by": "plumbline-sim",
        "root": model, "parent": null, "max_model_len": context,
    });
    let adapters = loras.iter().map(|name| {
        json!({
            "id": name, "object": "model", "created": created, "owned_by": "plumbline-sim",
            "root": name, "parent": model, "max_model_len": null,
        })
    });
    let data: Vec<Value> = std::iter::once(base).chain(adapters).collect();
    json!({"object": "list", "data": data}).to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(api: Api, body: &str) -> Job {
        Ask::parse(api, body.as_bytes()).unwrap().job(16, None)
    }

    /// Mutants: rounding down, counting an image's data URI, or taking `stop` for a limited output.
    #[test]
    fn the_work_is_read_from_either_api() {
        let got = job(Api::Completion, r#"{"prompt":"123456789"}"#);
        assert_eq!((got.prompt_tokens, got.output_tokens, got.end), (3, 16, FinishReason::Stop));
        let got = job(Api::Completion, r#"{"prompt":[1,2,3],"max_tokens":5}"#);
        assert_eq!((got.prompt_tokens, got.output_tokens, got.end), (3, 5, FinishReason::Length));
        let got = job(Api::Completion, &format!(r#"{{"prompt":["{}"]}}"#, "x".repeat(200)));
        assert_eq!((got.prompt_tokens, got.prefix.len()), (50, 3));
        let chat = r#"{"max_tokens":9,"max_completion_tokens":7,"messages":[
            {"role":"system","content":"12345678"},
            {"role":"user","content":[{"type":"text","text":"1234"},
                {"type":"image_url","image_url":{"url":"data:image/png;base64,AAAAAAAAAAAAAAAA"}}]},
            {"role":"assistant","content":null}]}"#;
        let got = job(Api::Chat, chat);
        assert_eq!((got.prompt_tokens, got.output_tokens), (3, 7));
    }

    #[test]
    fn a_bad_request_names_the_field() {
        for (api, body, part) in [
            (Api::Completion, "{", "bad request body"),
            (Api::Completion, "{}", "prompt: missing"),
            (Api::Chat, r#"{"prompt":"x"}"#, "messages: missing"),
            (Api::Chat, r#"{"messages":[]}"#, "messages: must hold"),
            (Api::Completion, r#"{"prompt":"x","max_tokens":0}"#, "max_tokens: must be"),
            (Api::Completion, r#"{"prompt":"x","n":2}"#, "n: only 1"),
            (Api::Completion, r#"{"prompt":["x","y"]}"#, "prompt: a batch"),
        ] {
            let error = Ask::parse(api, body.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{body}: {error}");
        }
    }
}
