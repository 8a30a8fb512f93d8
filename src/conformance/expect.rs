//! What a case expects, and how far the answers so far meet it.
//!
//! Decides what every answer must hold whatever the case (one destination in header and metadata, no
//! hop-by-hop header, pieces of at most 64 KiB) and that nothing is said beyond what is expected. How a
//! body is cut into pieces is left to the picker. Steps count from 0.

use std::net::SocketAddr;

use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{BodyResponse, ProcessingResponse};
use envoy_types::pb::google::protobuf::value::Kind;
use serde_json::Value;
use tonic::Code;

use super::answer::{code_name, describe};
use super::dialog::body;
use super::play::{Answer, Said};

const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Envoy's codec buffers are cut here, and so is every known picker's piece.
const MAX_PIECE: usize = 64 << 10;
/// Headers of one connection, which nobody may copy to another.
const HOP_BY_HOP: [&str; 7] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// One thing that must come.
#[derive(Debug, Clone, PartialEq)]
pub struct Expectation {
    /// Index of the step before whose successor it must have come.
    pub by: usize,
    what: What,
    /// As the case has it, for reports.
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
enum What {
    /// An answer without a body, by name.
    Plain(String),
    /// Request headers with a destination.
    Destination(Wanted),
    /// Response headers that set none of these.
    HeadersWithout(Vec<String>),
    /// A body, whole, in however many pieces.
    Body { name: String, bytes: Vec<u8>, end: bool },
    /// An immediate response of this status.
    Immediate(i32),
    /// The end of the stream: clean, or with any error.
    End { clean: bool },
    /// An immediate response of 4xx or 5xx, or an error.
    Refused,
}

#[derive(Debug, Clone, PartialEq)]
enum Wanted {
    Any,
    Is(String),
    Not(String),
}

/// How far the answers meet the expectations.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Progress {
    /// Expectations that are met.
    pub met: usize,
    /// What went wrong first.
    pub fault: Option<Fault>,
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What the protocol asks for.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl Expectation {
    /// Reads one entry of an `expect` list.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn read(entry: &Value) -> Result<Self, String> {
        let object = entry.as_object().ok_or("an expectation must be an object")?;
        let by = object.get("by").and_then(Value::as_u64).ok_or("by must name a step")?;
        let by = usize::try_from(by).map_err(|error| error.to_string())?;
        let end = object.get("end_of_stream").and_then(Value::as_bool).unwrap_or_default();
        let (name, value) = object
            .iter()
            .find(|(key, _)| !matches!(key.as_str(), "by" | "end_of_stream"))
            .ok_or("expects nothing")?;
        let what = match name.as_str() {
            "request_headers" => {
                What::Destination(match (value.get("destination"), value.get("not")) {
                    (Some(Value::String(address)), _) => Wanted::Is(address.clone()),
                    (_, Some(Value::String(address))) => Wanted::Not(address.clone()),
                    _ => Wanted::Any,
                })
            }
            "response_headers" => {
                let names = value.get("sets_none_of").and_then(Value::as_array);
                let names = names.into_iter().flatten().filter_map(Value::as_str);
                What::HeadersWithout(names.map(str::to_owned).collect())
            }
            "request_body" | "response_body" => {
                What::Body { name: name.clone(), bytes: body(value)?, end }
            }
            "request_trailers" | "response_trailers" => What::Plain(name.clone()),
            "immediate_response" => {
                let status = value.get("status").and_then(Value::as_i64).ok_or("needs a status")?;
                What::Immediate(i32::try_from(status).map_err(|error| error.to_string())?)
            }
            "end" => What::End { clean: value == "OK" },
            "refused" => What::Refused,
            other => return Err(format!("{other:?} is no expectation")),
        };
        Ok(Self { by, what, text: short(&entry.to_string()) })
    }
}

impl Expectation {
    /// As the case has it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// Long texts are cut in reports: a body of a megabyte explains nothing.
fn short(text: &str) -> String {
    const LIMIT: usize = 240;
    match text.char_indices().nth(LIMIT) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Compares the answers so far with all that is expected.
pub fn compare(expected: &[Expectation], answers: &[Answer]) -> Progress {
    let mut progress = Progress::default();
    let mut piece = Vec::new();
    for answer in answers {
        let next = expected.get(progress.met);
        match judge(next, answer, &mut piece) {
            Ok(true) => {
                progress.met += 1;
                piece.clear();
            }
            Ok(false) => {}
            Err(rule) => {
                progress.fault = Some(Fault { expected: rule, got: told(answer) });
                return progress;
            }
        }
    }
    progress
}

/// An answer for a report.
pub fn told(answer: &Answer) -> String {
    short(&describe(answer).to_string())
}

/// Whether the answer meets the expectation (`false`: it is a part of it), or the rule that it breaks.
fn judge(
    next: Option<&Expectation>,
    answer: &Answer,
    so_far: &mut Vec<u8>,
) -> Result<bool, String> {
    let message = match &answer.said {
        Said::End { code, .. } => return judge_end(next, *code),
        Said::Message(message) => message,
    };
    always(message)?;
    let Some(next) = next else {
        return Err("no further answer".to_owned());
    };
    if answer.after > next.by {
        return Err(format!("after step {} at the latest: {}", next.by, next.text));
    }
    let response = message.response.as_ref().ok_or("an answer with a response")?;
    let meets = match (&next.what, response) {
        (What::Destination(wanted), Response::RequestHeaders(_)) => {
            let destination = destination(message).ok_or("a destination")?;
            match wanted {
                Wanted::Any => true,
                Wanted::Is(address) => *address == destination,
                Wanted::Not(address) => *address != destination,
            }
        }
        (What::HeadersWithout(names), Response::ResponseHeaders(_)) => {
            let set = set_names(message);
            !names.iter().any(|name| set.iter().any(|set| set.eq_ignore_ascii_case(name)))
        }
        (What::Body { name, bytes, end }, Response::RequestBody(part))
            if name == "request_body" =>
        {
            return judge_piece(part, bytes, *end, so_far).ok_or_else(|| next.text.clone());
        }
        (What::Body { name, bytes, end }, Response::ResponseBody(part))
            if name == "response_body" =>
        {
            return judge_piece(part, bytes, *end, so_far).ok_or_else(|| next.text.clone());
        }
        (What::Plain(name), Response::RequestTrailers(_)) => name == "request_trailers",
        (What::Plain(name), Response::ResponseTrailers(_)) => name == "response_trailers",
        (What::Immediate(status), Response::ImmediateResponse(response)) => {
            response.status.as_ref().is_some_and(|got| got.code == *status)
        }
        (What::Refused, Response::ImmediateResponse(_)) => true,
        _ => false,
    };
    if meets { Ok(true) } else { Err(next.text.clone()) }
}

fn judge_end(next: Option<&Expectation>, code: Code) -> Result<bool, String> {
    match next {
        // Once all is said, either side may end the stream, but not with an error.
        None if code == Code::Ok => Ok(false),
        None => Err("an end with OK".to_owned()),
        Some(next) => match next.what {
            What::End { clean } if clean == (code == Code::Ok) => Ok(true),
            What::Refused if code != Code::Ok => Ok(true),
            _ => Err(format!("{}, not an end with {}", next.text, code_name(code))),
        },
    }
}

/// `None` when the piece is none of this body. An end may stand on an empty piece of its own.
fn judge_piece(part: &BodyResponse, bytes: &[u8], end: bool, so_far: &mut Vec<u8>) -> Option<bool> {
    let mutation = part.response.as_ref()?.body_mutation.as_ref()?.mutation.as_ref()?;
    let Mutation::StreamedResponse(piece) = mutation else { return None };
    so_far.extend(&piece.body);
    let whole = so_far.len() == bytes.len();
    if !bytes.starts_with(so_far) || (piece.end_of_stream && !(end && whole)) {
        return None;
    }
    Some(whole && piece.end_of_stream == end)
}

/// What every answer must hold.
fn always(message: &ProcessingResponse) -> Result<(), String> {
    let header = header_value(message, DESTINATION)?;
    let metadata = metadata_destination(message);
    if header != metadata {
        return Err(format!(
            "the same destination in header ({header:?}) and envoy.lb metadata ({metadata:?})"
        ));
    }
    if let Some(list) = &header
        && list.split(',').any(|address| address.parse::<SocketAddr>().is_err())
    {
        return Err(format!("a destination of the form ip:port[,ip:port], not {list:?}"));
    }
    let set = set_names(message);
    if let Some(name) =
        set.iter().find(|name| HOP_BY_HOP.iter().any(|h| name.eq_ignore_ascii_case(h)))
    {
        return Err(format!("no hop-by-hop header set: {name}"));
    }
    let piece = match &message.response {
        Some(Response::RequestBody(part) | Response::ResponseBody(part)) => {
            part.response.as_ref().and_then(|common| common.body_mutation.as_ref())
        }
        _ => None,
    };
    match piece.and_then(|mutation| mutation.mutation.as_ref()) {
        Some(Mutation::StreamedResponse(piece)) if piece.body.len() > MAX_PIECE => {
            Err(format!("pieces of at most {MAX_PIECE} bytes, not {}", piece.body.len()))
        }
        _ => immediate_shape(message),
    }
}

fn immediate_shape(message: &ProcessingResponse) -> Result<(), String> {
    let Some(Response::ImmediateResponse(response)) = &message.response else { return Ok(()) };
    let code = response.status.as_ref().map_or(0, |status| status.code);
    if (400..600).contains(&code) {
        Ok(())
    } else {
        Err(format!("an immediate response with a status of 4xx or 5xx, not {code}"))
    }
}

/// The destination that an answer names.
pub fn destination(message: &ProcessingResponse) -> Option<String> {
    header_value(message, DESTINATION).ok().flatten()
}

fn set_headers(
    message: &ProcessingResponse,
) -> &[envoy_types::pb::envoy::config::core::v3::HeaderValueOption] {
    let common = match &message.response {
        Some(Response::RequestHeaders(r) | Response::ResponseHeaders(r)) => r.response.as_ref(),
        Some(Response::RequestBody(r) | Response::ResponseBody(r)) => r.response.as_ref(),
        _ => None,
    };
    common.and_then(|common| common.header_mutation.as_ref()).map_or(&[], |m| &m.set_headers)
}

fn set_names(message: &ProcessingResponse) -> Vec<&str> {
    let headers = set_headers(message).iter().filter_map(|option| option.header.as_ref());
    headers.map(|header| header.key.as_str()).collect()
}

fn header_value(message: &ProcessingResponse, name: &str) -> Result<Option<String>, String> {
    let headers = set_headers(message).iter().filter_map(|option| option.header.as_ref());
    let mut values = headers.filter(|header| header.key.eq_ignore_ascii_case(name)).map(|header| {
        if header.raw_value.is_empty() {
            header.value.clone()
        } else {
            String::from_utf8_lossy(&header.raw_value).into_owned()
        }
    });
    let value = values.next();
    if values.next().is_some() { Err(format!("{name} set once")) } else { Ok(value) }
}

fn metadata_destination(message: &ProcessingResponse) -> Option<String> {
    let namespace = message.dynamic_metadata.as_ref()?.fields.get("envoy.lb")?;
    let Some(Kind::StructValue(fields)) = &namespace.kind else { return None };
    match &fields.fields.get(DESTINATION)?.kind {
        Some(Kind::StringValue(text)) => Some(text.clone()),
        _ => None,
    }
}
