//! A dialog as JSON steps, turned into the bytes that a gateway would send.
//!
//! Decides what each step means; a step that says nothing known is refused by name, so that a misspelt
//! one is not silently left out. Times are milliseconds.

use std::time::Duration;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, Metadata};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HttpBody, HttpHeaders, HttpTrailers, ProcessingRequest, ProtocolConfiguration,
};
use prost::Message as _;
use serde_json::{Map, Value};

use super::proto_json::to_struct;

/// One thing that the gateway's side does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Sends a message.
    Say {
        /// The message as bytes, which need not be valid protobuf.
        message: Bytes,
        /// How often.
        times: usize,
    },
    /// Ends its side of the stream.
    HalfClose,
    /// Resets the stream.
    Cancel,
    /// Listens for so long, whatever comes.
    Wait(Duration),
    /// The deadline of the whole call, counted from its start; must be the first step.
    Deadline(Duration),
    /// Something outside the stream, which the caller does before it plays this step.
    Event(String),
}

/// Why a step cannot be played.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("step {step}: {rule}")]
pub struct Unplayable {
    /// Index of the step.
    pub step: usize,
    /// What is wrong with it.
    pub rule: String,
}

/// Reads the steps of a `request` list.
///
/// # Errors
/// The first step that cannot be played.
pub fn parse(steps: &[Value]) -> Result<Vec<Step>, Unplayable> {
    let named = |(step, value)| read(value).map_err(|rule| Unplayable { step, rule });
    steps.iter().enumerate().map(named).collect()
}

fn read(step: &Value) -> Result<Step, String> {
    let step = step.as_object().ok_or("must be an object")?;
    let millis = |value: &Value| {
        value.as_u64().map(Duration::from_millis).ok_or("must be a number of milliseconds")
    };
    let Some(verb) = step.keys().find(|key| !ATTRIBUTES.contains(&key.as_str())) else {
        return Err("says nothing".to_owned());
    };
    let said = &step[verb.as_str()];
    Ok(match verb.as_str() {
        "half_close" => Step::HalfClose,
        "cancel" => Step::Cancel,
        "wait_ms" => Step::Wait(millis(said)?),
        "deadline_ms" => Step::Deadline(millis(said)?),
        "event" => Step::Event(said.as_str().ok_or("event must be a string")?.to_owned()),
        "raw_message_hex" => {
            let text = said.as_str().ok_or("raw_message_hex must be a string")?;
            Step::Say { message: hex(text)?.into(), times: times(step)? }
        }
        verb => {
            let message = message(verb, said, step)?.encode_to_vec().into();
            Step::Say { message, times: times(step)? }
        }
    })
}

/// What goes with a message, whatever it says.
const ATTRIBUTES: [&str; 6] =
    ["end_of_stream", "protocol_config", "metadata", "attributes", "observability_mode", "times"];

fn times(step: &Map<String, Value>) -> Result<usize, String> {
    match step.get("times") {
        None => Ok(1),
        Some(times) => times
            .as_u64()
            .and_then(|times| usize::try_from(times).ok())
            .ok_or_else(|| "times must be a count".to_owned()),
    }
}

fn message(
    verb: &str,
    said: &Value,
    step: &Map<String, Value>,
) -> Result<ProcessingRequest, String> {
    let end_of_stream = step.get("end_of_stream").and_then(Value::as_bool).unwrap_or_default();
    let head = || {
        let headers = header_map(said)?;
        Ok::<_, String>(HttpHeaders { headers, end_of_stream, ..Default::default() })
    };
    let piece =
        || Ok::<_, String>(HttpBody { body: body(said)?, end_of_stream, ..Default::default() });
    let trailers = || Ok::<_, String>(HttpTrailers { trailers: header_map(said)? });
    let request = match verb {
        "request_headers" => Some(Request::RequestHeaders(head()?)),
        "request_body" => Some(Request::RequestBody(piece()?)),
        "request_trailers" => Some(Request::RequestTrailers(trailers()?)),
        "response_headers" => Some(Request::ResponseHeaders(head()?)),
        "response_body" => Some(Request::ResponseBody(piece()?)),
        "response_trailers" => Some(Request::ResponseTrailers(trailers()?)),
        "empty" => None,
        other => return Err(format!("{other:?} is no step that can be played")),
    };
    let namespaces = |name: &str| match step.get(name) {
        None => Ok(None),
        Some(Value::Object(namespaces)) => namespaces
            .iter()
            .map(|(key, value)| {
                let fields =
                    value.as_object().ok_or_else(|| format!("{name}.{key} must be an object"))?;
                Ok((key.clone(), to_struct(fields)))
            })
            .collect::<Result<_, String>>()
            .map(Some),
        Some(_) => Err(format!("{name} must be an object")),
    };
    Ok(ProcessingRequest {
        request,
        observability_mode: step.get("observability_mode") == Some(&Value::Bool(true)),
        protocol_config: step.get("protocol_config").map(protocol_config).transpose()?,
        metadata_context: namespaces("metadata")?
            .map(|filter_metadata| Metadata { filter_metadata, ..Default::default() }),
        attributes: namespaces("attributes")?.unwrap_or_default(),
        ..Default::default()
    })
}

fn protocol_config(modes: &Value) -> Result<ProtocolConfiguration, String> {
    let mode = |index: usize| {
        let name = modes.get(index).and_then(Value::as_str).unwrap_or_default();
        BodySendMode::from_str_name(name)
            .map(i32::from)
            .ok_or_else(|| format!("protocol_config names no body mode: {name:?}"))
    };
    Ok(ProtocolConfiguration {
        request_body_mode: mode(0)?,
        response_body_mode: mode(1)?,
        ..Default::default()
    })
}

/// A list of pairs; null is a message without a header map.
fn header_map(list: &Value) -> Result<Option<HeaderMap>, String> {
    let Value::Array(pairs) = list else {
        return if list.is_null() { Ok(None) } else { Err("headers must be a list".to_owned()) };
    };
    let headers = pairs.iter().map(header).collect::<Result<_, _>>()?;
    Ok(Some(HeaderMap { headers }))
}

fn header(pair: &Value) -> Result<HeaderValue, String> {
    let key = pair.get(0).and_then(Value::as_str).ok_or("a header must be [name, value]")?;
    let mut header = HeaderValue { key: key.to_owned(), ..Default::default() };
    match pair.get(1) {
        Some(Value::String(value)) => header.raw_value = value.clone().into_bytes(),
        Some(Value::Object(fields)) => {
            for (field, value) in fields {
                let value = value.as_str().ok_or_else(|| format!("{key}: must be a string"))?;
                match field.as_str() {
                    "value" => value.clone_into(&mut header.value),
                    "raw" => header.raw_value = value.as_bytes().to_vec(),
                    "raw_hex" => header.raw_value = hex(value)?,
                    other => return Err(format!("{key}: {other:?} is no field of a header")),
                }
            }
        }
        _ => return Err(format!("{key}: the value must be a string or an object")),
    }
    Ok(header)
}

/// The bytes of a body in any of its written forms.
///
/// # Errors
/// What is wrong with the form.
pub fn body(form: &Value) -> Result<Vec<u8>, String> {
    let Value::Object(form) = form else {
        let text = form.as_str().ok_or("a body must be a string or an object")?;
        return Ok(text.as_bytes().to_vec());
    };
    let Some((kind, value)) = form.iter().next() else { return Ok(Vec::new()) };
    match (kind.as_str(), value) {
        ("text", Value::String(text)) => Ok(text.as_bytes().to_vec()),
        ("hex", Value::String(text)) => hex(text),
        ("repeat", Value::Array(pair)) => {
            let text = pair.first().and_then(Value::as_str).ok_or("repeat must be [text, n]")?;
            let count = pair.get(1).and_then(Value::as_u64).ok_or("repeat must be [text, n]")?;
            Ok(text.repeat(usize::try_from(count).map_err(|e| e.to_string())?).into_bytes())
        }
        ("concat", Value::Array(parts)) => {
            let parts: Vec<_> = parts.iter().map(body).collect::<Result<_, _>>()?;
            Ok(parts.concat())
        }
        _ => Err(format!("{kind:?} is no form of a body")),
    }
}

fn hex(text: &str) -> Result<Vec<u8>, String> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0);
    let digits = digits.ok_or_else(|| format!("{text:?} is no hex"))?;
    Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn said(step: Value) -> ProcessingRequest {
        match parse(&[step]).unwrap().remove(0) {
            Step::Say { message, .. } => ProcessingRequest::decode(message).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    /// Mutants: a string in `value`; the end lost; a namespace lost.
    #[test]
    fn a_message_carries_what_its_step_says() {
        let message = said(json!({
            "request_headers": [["a", "1"], ["b", { "value": "2", "raw": "3" }]],
            "end_of_stream": true, "protocol_config": ["BUFFERED", "NONE"],
            "metadata": { "n": { "list": ["x", 1] } }, "observability_mode": true,
        }));
        let config = message.protocol_config.unwrap();
        assert_eq!(config.request_body_mode(), BodySendMode::Buffered);
        assert!(message.observability_mode);
        assert!(message.metadata_context.unwrap().filter_metadata["n"].fields.contains_key("list"));
        let Some(Request::RequestHeaders(head)) = message.request else { panic!() };
        assert!(head.end_of_stream);
        let headers = head.headers.unwrap().headers;
        assert_eq!((headers[0].value.as_str(), &headers[0].raw_value[..]), ("", &b"1"[..]));
        assert_eq!((headers[1].value.as_str(), &headers[1].raw_value[..]), ("2", &b"3"[..]));
    }

    /// Mutants: a form read as another; an unknown step skipped.
    #[test]
    fn forms_of_bodies_and_of_errors() {
        let form =
            json!({ "concat": [{ "text": "a" }, { "repeat": ["xy", 2] }, { "hex": "00fF" }] });
        assert_eq!(body(&form).unwrap(), b"axyxy\x00\xff");
        assert_eq!(said(json!({ "empty": true })).request, None);
        let Some(Request::RequestHeaders(head)) = said(json!({ "request_headers": null })).request
        else {
            panic!()
        };
        assert_eq!(head.headers, None);
        for (step, rule) in [
            (json!({ "reqest_body": "" }), "\"reqest_body\" is no step that can be played"),
            (json!({ "request_body": { "hex": "0" } }), "\"0\" is no hex"),
            (json!({ "end_of_stream": true }), "says nothing"),
            (
                json!({ "request_body": "", "protocol_config": ["X", "NONE"] }),
                "protocol_config names no body mode: \"X\"",
            ),
        ] {
            let refused = parse(&[json!({ "half_close": true }), step]).unwrap_err();
            assert_eq!(refused, Unplayable { step: 1, rule: rule.to_owned() });
        }
    }
}
