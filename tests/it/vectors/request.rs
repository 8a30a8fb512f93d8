//! Reading of request bodies: accepted or refused, with which words, and how long a prompt is.
//!
//! A case is compared as far as the reader decides it. A refusal must have the recorded status and
//! body. Anything else that upstream routed must be accepted, and its bytes, after the model was
//! rewritten to the name it has, must be the forwarded ones. Destination, headers and messages belong
//! to later stages, and so do cases without a body: those are only counted here.

use plumbline::request::{Api, BodyError, BodyReader, Facts, Parsers, Paths, rewrite_model};
use serde_json::{Value, json};

use super::{Difference, replay};

const BORDERS: &str = "a path is claimed on segment borders, with or without a trailing slash";

const REQUEST: &[Difference] = &[
    Difference {
        case: "request/trailers-end-the-body",
        ours: r#"{"forwarded":"{\"model\":\"m\",\"prompt\":\"hi\"}"}"#,
        why: "trailers end a body; upstream never answers",
    },
    Difference {
        case: "request/prompt-token-arrays",
        ours: r#"{"forwarded":"{\"model\":\"m\",\"prompt\":[[1,2],[3]]}"}"#,
        why: "legal for OpenAI and vLLM",
    },
    Difference {
        case: "request/suffix-without-boundary-bad",
        ours: r#"{"forwarded":"{\"anything\":1}"}"#,
        why: BORDERS,
    },
    Difference {
        case: "request/messages-trailing-slash",
        ours: r#"{"forwarded":"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}"}"#,
        why: BORDERS,
    },
    Difference {
        case: "request/gzip-body",
        ours: r#"{"status":400,"body":"inference error: BadRequest - error decoding request body: incomplete deflate stream"}"#,
        why: "compressed bodies are read; this one is cut and no gzip",
    },
];

const MEDIA: &str = "media count as nothing: their cost is the model's secret";
const PLAIN_TEXT: &str = "the text is counted, not the JSON that upstream makes of it";

const TOKENS: &[Difference] = &[
    Difference {
        case: "token-estimate/completion-strings",
        ours: "2",
        why: "the sum is rounded, not each string",
    },
    Difference { case: "token-estimate/chat-image-url", ours: "1", why: MEDIA },
    Difference { case: "token-estimate/chat-audio-url", ours: "1", why: MEDIA },
    Difference { case: "token-estimate/responses", ours: "2", why: PLAIN_TEXT },
    Difference { case: "token-estimate/embeddings", ours: "2", why: PLAIN_TEXT },
    Difference {
        case: "token-estimate/images",
        ours: "2",
        why: "an estimate costs nothing, and 0 would be a lie",
    },
];

/// The body as it was sent: the record cannot hold bytes that are no UTF-8 and shows U+FFFD instead.
fn body(input: &Value) -> Option<Vec<u8>> {
    if let Some(length) = input["body_bytes"].as_u64() {
        let frame = (&br#"{"model":"m","prompt":""#[..], &br#""}"#[..]);
        let text = vec![b'x'; usize::try_from(length).unwrap() - frame.0.len() - frame.1.len()];
        return Some([frame.0, &text, frame.1].concat());
    }
    let text = input["body"].as_str()?;
    let mut lost = if text.starts_with('\x1f') { vec![0x8b] } else { vec![0xfe, 0xff] };
    let mut room = [0; 4];
    let bytes = text.chars().flat_map(|c| match c {
        '\u{fffd}' => vec![lost.pop().unwrap()],
        c => c.encode_utf8(&mut room).as_bytes().to_vec(),
    });
    Some(bytes.collect())
}

fn read(input: &Value, chunks: &[Vec<u8>]) -> Result<Facts, BodyError> {
    let header = |name: &str| input["headers"][name].as_str();
    let paths = Paths {
        path: input["path"].as_str(),
        original: header("x-original-path"),
        forwarded: header("x-forwarded-path"),
    };
    let (kind, coding) = (header("content-type"), header("content-encoding"));
    let api = Api::of(paths, Parsers::default());
    let mut reader =
        BodyReader::new(api, kind.unwrap_or_default(), coding.unwrap_or_default(), 64 << 20);
    for chunk in chunks {
        reader.feed(chunk);
    }
    reader.finish()
}

fn answer(input: &Value) -> Value {
    let input = if input["request"].is_object() { &input["request"] } else { input };
    let Some(body) = body(input) else { return json!("no body") };
    let pieces = usize::try_from(input["chunks"].as_u64().unwrap_or(1)).unwrap();
    let size = body.len().div_ceil(pieces).max(1);
    let mut chunks: Vec<Vec<u8>> = body.chunks(size).map(<[u8]>::to_vec).collect();
    let read = read(input, &chunks);
    let outcome = read.as_ref().map_err(Clone::clone).and_then(Facts::required_model);
    match outcome {
        Err(error) => {
            let text = format!("inference error: BadRequest - {error}");
            json!({"status": error.status(), "body": text})
        }
        Ok(model) => {
            if let Some(model) = model {
                assert!(rewrite_model(&mut chunks, model, &model.name));
            }
            let bytes = chunks.concat();
            match String::from_utf8(bytes) {
                Ok(text) => json!({"forwarded": text}),
                Err(error) => {
                    let hex = error.as_bytes().iter().map(|byte| format!("{byte:02x}"));
                    json!({"forwarded": hex.collect::<String>()})
                }
            }
        }
    }
}

/// Mutants: `case_insensitive` model keys, a BOM skipped, an empty prompt taken for one.
#[test]
fn bodies_are_read_as_recorded() {
    replay("request", REQUEST, answer, |ours, recorded| {
        if recorded["status"] == 400 {
            return ours["status"] == 400 && ours["body"] == recorded["body"];
        }
        if ours == "no body" {
            // Nothing to read: upstream must not have refused what it did not read either.
            return recorded["innocent_first"].is_object()
                || recorded["status"] == "forwarded"
                || !recorded["dynamic_metadata"].is_null();
        }
        let forwarded = ["forwarded_body", "forwarded_body_hex"].map(|key| &recorded[key]);
        if let Some(bytes) = forwarded.into_iter().find(|value| !value.is_null()) {
            return ours["forwarded"] == *bytes;
        }
        if let Some(chunks) = recorded["forwarded_chunks"].as_array() {
            let length: u64 = chunks.iter().filter_map(Value::as_u64).sum();
            return ours["forwarded"].as_str().is_some_and(|text| text.len() as u64 == length);
        }
        // Routed, with its bytes not recorded.
        !recorded["dynamic_metadata"].is_null() && !ours["forwarded"].is_null()
    });
}

/// Compared is `tokens`; how many prompts and media there are, the reader does not tell. Mutants:
/// roles not counted, characters for bytes, tokens rounded down.
#[test]
fn prompts_are_as_long_as_recorded() {
    let answer = |input: &Value| {
        let chunks = [body(input).unwrap()];
        json!(read(input, &chunks).unwrap().prompt_tokens())
    };
    replay("token-estimate", TOKENS, answer, |ours, recorded| *ours == recorded["tokens"]);
}
