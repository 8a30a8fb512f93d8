//! An answer as JSON, in the form in which dialogs are recorded.
//!
//! Decides only how an answer is told, not whether it is right. Bodies over 600 bytes are told by
//! length and the first 16 hex digits of their SHA-256.

use std::fmt::Write as _;

use envoy_types::pb::envoy::config::core::v3::HeaderValueOption;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::common_response::ResponseStatus;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    CommonResponse, HeaderMutation, ImmediateResponse, ProcessingResponse,
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use tonic::Code;

use super::play::{Answer, Said};
use super::proto_json::from_struct;

/// Longest body that is told in full.
const IN_FULL: usize = 600;

/// The recorded form of an answer.
pub fn describe(answer: &Answer) -> Value {
    let mut told = Map::new();
    told.insert("after".to_owned(), answer.after.into());
    match &answer.said {
        Said::End { code, message } => {
            told.insert("end".to_owned(), json!({ "code": code_name(*code), "message": message }));
        }
        Said::Message(message) => tell(message, &mut told),
    }
    Value::Object(told)
}

fn tell(message: &ProcessingResponse, told: &mut Map<String, Value>) {
    let (kind, value) = match &message.response {
        None => ("empty", Value::Bool(true)),
        Some(Response::RequestHeaders(r)) => ("request_headers", headers(r.response.as_ref())),
        Some(Response::ResponseHeaders(r)) => ("response_headers", headers(r.response.as_ref())),
        Some(Response::RequestBody(r)) => ("request_body", body(r.response.as_ref())),
        Some(Response::ResponseBody(r)) => ("response_body", body(r.response.as_ref())),
        Some(Response::RequestTrailers(r)) => {
            ("request_trailers", mutation(r.header_mutation.as_ref()).into())
        }
        Some(Response::ResponseTrailers(r)) => {
            ("response_trailers", mutation(r.header_mutation.as_ref()).into())
        }
        Some(Response::ImmediateResponse(r)) => ("immediate_response", immediate(r)),
        Some(other) => ("unknown", format!("{other:?}").into()),
    };
    told.insert(kind.to_owned(), value);
    if let Some(metadata) = &message.dynamic_metadata {
        told.insert("dynamic_metadata".to_owned(), from_struct(metadata));
    }
    if let Some(mode) = &message.mode_override {
        told.insert("mode_override".to_owned(), format!("{mode:?}").into());
    }
}

fn headers(common: Option<&CommonResponse>) -> Value {
    let mut told = Map::new();
    let mutated = common.and_then(|common| common.header_mutation.as_ref());
    told.extend(mutation(mutated));
    told.entry("set").or_insert_with(|| json!([]));
    let default = CommonResponse::default();
    let common = common.unwrap_or(&default);
    told.insert("clear_route_cache".to_owned(), common.clear_route_cache.into());
    told.insert("status".to_owned(), status_name(common).into());
    if let Some(replaced) = common.body_mutation.as_ref().and_then(|m| m.mutation.as_ref()) {
        told.insert("body_mutation".to_owned(), format!("{replaced:?}").into());
    }
    Value::Object(told)
}

fn status_name(common: &CommonResponse) -> &'static str {
    match common.status() {
        ResponseStatus::Continue => "CONTINUE",
        ResponseStatus::ContinueAndReplace => "CONTINUE_AND_REPLACE",
    }
}

/// `set` and `remove`, where there are any.
fn mutation(mutation: Option<&HeaderMutation>) -> Map<String, Value> {
    let mut told = Map::new();
    let Some(mutation) = mutation else { return told };
    if !mutation.set_headers.is_empty() {
        let set: Vec<_> = mutation.set_headers.iter().map(set_header).collect();
        told.insert("set".to_owned(), set.into());
    }
    if !mutation.remove_headers.is_empty() {
        told.insert("remove".to_owned(), mutation.remove_headers.clone().into());
    }
    told
}

/// `[key, value]`; a third element names whatever is not the plain `raw_value`.
fn set_header(option: &HeaderValueOption) -> Value {
    let header = option.header.clone().unwrap_or_default();
    let mut extra = Map::new();
    let value = if header.raw_value.is_empty() && !header.value.is_empty() {
        extra.insert("field".to_owned(), "value".into());
        Value::String(header.value)
    } else {
        text_or(&header.raw_value, "raw_hex")
    };
    let action = option.append_action();
    if action != HeaderAppendAction::AppendIfExistsOrAdd {
        extra.insert("append_action".to_owned(), action.as_str_name().into());
    }
    #[allow(deprecated)] // Envoy obeys this field alone.
    if let Some(append) = &option.append {
        extra.insert("append".to_owned(), append.value.into());
    }
    let mut told = vec![Value::String(header.key), value];
    if !extra.is_empty() {
        told.push(Value::Object(extra));
    }
    Value::Array(told)
}

/// Text, or under `name` the hex digits of what is none.
fn text_or(bytes: &[u8], name: &str) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::String(text.to_owned()),
        Err(_) => json!({ name: hex(bytes) }),
    }
}

fn body(common: Option<&CommonResponse>) -> Value {
    let Some(common) = common else { return json!({}) };
    let mut told = mutation(common.header_mutation.as_ref());
    match common.body_mutation.as_ref().and_then(|mutation| mutation.mutation.as_ref()) {
        None => {}
        Some(Mutation::StreamedResponse(piece)) => {
            told.insert("streamed".to_owned(), bytes(&piece.body));
            told.insert("end_of_stream".to_owned(), piece.end_of_stream.into());
        }
        Some(Mutation::Body(whole)) => {
            told.insert("replaced".to_owned(), bytes(whole));
        }
        Some(Mutation::ClearBody(clear)) => {
            told.insert("cleared".to_owned(), (*clear).into());
        }
    }
    if common.clear_route_cache {
        told.insert("clear_route_cache".to_owned(), true.into());
    }
    Value::Object(told)
}

fn immediate(response: &ImmediateResponse) -> Value {
    let set = mutation(response.headers.as_ref()).remove("set").unwrap_or_else(|| json!([]));
    let mut told = json!({
        "status": response.status.as_ref().map_or(0, |status| status.code),
        "body": text_or(&response.body, "hex"),
        "headers": set,
        "details": response.details,
    });
    if let Some(status) = &response.grpc_status {
        told["grpc_status"] = status.status.into();
    }
    told
}

/// A body in the recorded form.
pub fn bytes(body: &[u8]) -> Value {
    if body.len() > IN_FULL {
        return json!({ "len": body.len(), "sha256": digest(body) });
    }
    match std::str::from_utf8(body) {
        Ok(text) => json!({ "text": text }),
        Err(_) => json!({ "hex": hex(body) }),
    }
}

/// The first 16 hex digits of the SHA-256.
pub fn digest(body: &[u8]) -> String {
    hex(&Sha256::digest(body)[..8])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The name of a gRPC status code as the specification spells it.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
