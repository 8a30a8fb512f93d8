//! Between proto messages and the session's words.
//!
//! Decides header names, metadata keys and mutation details; keeps proto types out of everything else.
//! Every value goes out in `raw_value` only, every set names its overwrite action: gateways disagree on
//! the defaults.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::ProtocolConfiguration;
use envoy_types::pb::google::protobuf::{Value, value};

use super::head::{self, Forged, RequestHead, ResponseFacts};
use super::message::{
    self, BodyMutation, CommonResponse, Entry, HeaderMutation, HeaderValue, HeaderValueOption,
    HttpBody, HttpStatus, HttpTrailers, ImmediateResponse, Kind, Mutation, PhaseResponse,
    ProcessingRequest, ProcessingResponse, Struct,
};
use super::rejection::Rejection;
use super::session::{BodyMode, BodyReply, Chunk, Edit, Event, Head, Modes, Reply};
use crate::routing::subset::{Hint, HintItem};

/// Carries the destination, as a header and in the metadata namespace [`METADATA_NAMESPACE`].
pub(super) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Dynamic metadata namespace of the endpoint-picker protocol.
pub(super) const METADATA_NAMESPACE: &str = "envoy.lb";
/// Says why a request was dropped.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// Metadata namespace and key with which a gateway restricts the candidates.
const SUBSET: (&str, &str) = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset");
/// Key in [`METADATA_NAMESPACE`] that names the endpoint which served.
const SERVED: &str = "x-gateway-destination-endpoint-served";

/// Key in [`METADATA_NAMESPACE`] with the total score of every candidate, by destination.
const SCORES: &str = "x-gateway-destination-endpoint-scores";

/// What one message of the gateway says.
pub(super) struct Decoded {
    /// The event, or `None` for a message without content, which is ignored.
    pub(super) event: Option<Event>,
    /// Body modes, from the message that carries a `protocol_config`.
    pub(super) declared: Option<Modes>,
    /// The gateway does not want answers.
    pub(super) silent: bool,
    /// What the request headers say.
    pub(super) head: Option<RequestHead>,
    /// What the response headers say.
    pub(super) response: Option<ResponseFacts>,
    /// The subset hint; absent where this message carries none.
    pub(super) hint: Hint,
    /// The endpoint that served, where this message names it.
    pub(super) served: Option<String>,
}

/// A headers message without a header map: nothing can be made of it.
pub(super) struct NoHeaderMap;

/// Reads one message.
pub(super) fn decode(message: ProcessingRequest) -> Result<Decoded, NoHeaderMap> {
    use message::Incoming;
    let (mut head, mut response) = (None, None);
    let event = match message.request {
        None => None,
        Some(Incoming::RequestHeaders(headers)) => {
            let end = headers.end_of_stream;
            let read = head::read(headers).ok_or(NoHeaderMap)?;
            let event = Event::RequestHeaders(Head { end, upgrade: read.upgrade });
            head = Some(read);
            Some(event)
        }
        Some(Incoming::RequestBody(body)) => {
            Some(Event::RequestBody(Chunk { bytes: body.body, end: body.end_of_stream }))
        }
        Some(Incoming::RequestTrailers(_)) => Some(Event::RequestTrailers),
        Some(Incoming::ResponseHeaders(headers)) => {
            let end = headers.end_of_stream;
            response = Some(head::read_response(headers));
            Some(Event::ResponseHeaders { end })
        }
        Some(Incoming::ResponseBody(body)) => {
            Some(Event::ResponseBody(Chunk { bytes: body.body, end: body.end_of_stream }))
        }
        Some(Incoming::ResponseTrailers(_)) => Some(Event::ResponseTrailers),
    };
    let mut metadata = message.metadata_context.map(|m| m.filter_metadata).unwrap_or_default();
    let hint = metadata.get_mut(SUBSET.0).and_then(|inner| inner.fields.remove(SUBSET.1));
    let served = metadata.get_mut(METADATA_NAMESPACE).and_then(|lb| lb.fields.remove(SERVED));
    Ok(Decoded {
        event,
        declared: message.protocol_config.as_ref().map(modes),
        silent: message.observability_mode,
        head,
        response,
        hint: hint.map_or(Hint::Absent, read_hint),
        served: served.and_then(|value| match value.kind {
            Some(value::Kind::StringValue(text)) => Some(text),
            _ => None,
        }),
    })
}

fn read_hint(value: Value) -> Hint {
    use value::Kind;
    match value.kind {
        None | Some(Kind::NullValue(_)) => Hint::Absent,
        Some(Kind::StringValue(text)) => Hint::Text(text),
        Some(Kind::ListValue(list)) => {
            let items = list.values.into_iter().map(|item| match item.kind {
                Some(Kind::StringValue(text)) => HintItem::Text(text),
                _ => HintItem::Other,
            });
            Hint::List(items.collect())
        }
        Some(_) => Hint::Other,
    }
}

fn modes(config: &ProtocolConfiguration) -> Modes {
    Modes {
        request: body_mode(config.request_body_mode()),
        response: body_mode(config.response_body_mode()),
    }
}

fn body_mode(mode: BodySendMode) -> BodyMode {
    match mode {
        BodySendMode::None => BodyMode::None,
        BodySendMode::Streamed => BodyMode::Streamed,
        BodySendMode::Buffered => BodyMode::Buffered,
        BodySendMode::BufferedPartial => BodyMode::BufferedPartial,
        BodySendMode::FullDuplexStreamed => BodyMode::FullDuplex,
        BodySendMode::Grpc => BodyMode::Grpc,
    }
}

/// What the answer to the request headers changes beside the destination.
#[derive(Debug, Default)]
pub(super) struct Mutations {
    /// Control headers that the client sent.
    pub(super) forged: Forged,
    /// Made here because the request came without one.
    pub(super) request_id: Option<String>,
    /// Destination and total score of every candidate, where they are to be told.
    pub(super) scores: Vec<(Arc<str>, f64)>,
}

/// Writes one answer; the first answer to request headers takes the mutations.
pub(super) fn encode(reply: Reply, mutations: &mut Mutations) -> ProcessingResponse {
    use message::Outgoing;
    match reply {
        Reply::RequestHeaders(destination) => {
            let destination = destination.as_deref().map(owned);
            let dynamic_metadata = steering(destination.as_ref(), mutations);
            let response = common(destination, std::mem::take(mutations));
            let headers = PhaseResponse { response: Some(response) };
            answer(Outgoing::RequestHeaders(headers), dynamic_metadata)
        }
        Reply::RequestBody(BodyReply { destination, body }) => {
            let destination = destination.as_deref().map(owned);
            let dynamic_metadata = steering(destination.as_ref(), mutations);
            let plain = destination.is_none() && body.is_none();
            let response =
                (!plain).then(|| whole_body(common(destination, Mutations::default()), body));
            answer(Outgoing::RequestBody(PhaseResponse { response }), dynamic_metadata)
        }
        Reply::RequestPiece(chunk) => answer(Outgoing::RequestBody(piece(chunk)), None),
        Reply::RequestTrailers => answer(Outgoing::RequestTrailers(HttpTrailers {}), None),
        Reply::ResponseHeaders => answer(Outgoing::ResponseHeaders(PhaseResponse::default()), None),
        Reply::ResponsePiece(chunk) => answer(Outgoing::ResponseBody(piece(chunk)), None),
        Reply::ResponseBody(edit) => {
            let response = match edit {
                Edit::Keep => None,
                // The headers are out, without a length where the gateway streams.
                Edit::Part(body) => Some(replaced(CommonResponse::default(), body)),
                Edit::Whole(body) => Some(whole_body(CommonResponse::default(), Some(body))),
            };
            answer(Outgoing::ResponseBody(PhaseResponse { response }), None)
        }
        Reply::ResponseTrailers => answer(Outgoing::ResponseTrailers(HttpTrailers {}), None),
        Reply::Immediate(rejection) => answer(Outgoing::Immediate(immediate(rejection)), None),
    }
}

fn owned(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn answer(response: message::Outgoing, dynamic_metadata: Option<Struct>) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), dynamic_metadata }
}

fn common(destination: Option<Bytes>, mutations: Mutations) -> CommonResponse {
    // Until the destination is known a client's own must not be: a request with trailers and no body
    // is not shown again by a gateway that buffers.
    let removed =
        mutations.forged.names().filter(|name| destination.is_none() || *name != DESTINATION);
    let remove_headers = removed.map(|name| Bytes::from_static(name.as_bytes())).collect();
    let clear_route_cache = destination.is_some();
    let destination = destination.map(|value| set(DESTINATION, value));
    let request_id = mutations.request_id.map(|id| set("x-request-id", id.into()));
    let set_headers = destination.into_iter().chain(request_id).collect();
    CommonResponse {
        header_mutation: Some(HeaderMutation { set_headers, remove_headers }),
        // The route may depend on the destination header, as with ORIGINAL_DST clusters.
        clear_route_cache,
        ..Default::default()
    }
}

fn set(key: &'static str, raw_value: Bytes) -> HeaderValueOption {
    let key = Bytes::from_static(key.as_bytes());
    HeaderValueOption {
        header: Some(HeaderValue { key, raw_value, ..Default::default() }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
    }
}

/// The metadata that goes with a destination.
fn steering(destination: Option<&Bytes>, mutations: &mut Mutations) -> Option<Struct> {
    let key = |name: &'static str| Bytes::from_static(name.as_bytes());
    let mut fields = vec![entry(key(DESTINATION), Kind::Text(destination?.clone()))];
    let scores = std::mem::take(&mut mutations.scores);
    if !scores.is_empty() {
        let scores = scores
            .into_iter()
            .map(|(endpoint, total)| entry(owned(&endpoint), Kind::Number(total)))
            .collect();
        fields.push(entry(key(SCORES), Kind::Struct(Struct { fields: scores })));
    }
    let inner = Kind::Struct(Struct { fields });
    Some(Struct { fields: vec![entry(key(METADATA_NAMESPACE), inner)] })
}

fn entry(key: Bytes, kind: Kind) -> Entry {
    Entry { key, value: Some(message::Value { kind: Some(kind) }) }
}

/// Replaces a body that is not full duplex. Its length is stated in the same answer: Envoy answers 500
/// for a BUFFERED body whose length and `content-length` disagree.
fn whole_body(mut response: CommonResponse, body: Option<Vec<u8>>) -> CommonResponse {
    if let Some(body) = body {
        let length = set("content-length", body.len().to_string().into());
        response.header_mutation.get_or_insert_default().set_headers.push(length);
        response = replaced(response, body);
    }
    response
}

fn replaced(mut response: CommonResponse, body: Vec<u8>) -> CommonResponse {
    response.body_mutation = Some(BodyMutation { mutation: Some(Mutation::Body(body)) });
    response
}

fn piece(chunk: Chunk) -> PhaseResponse {
    let streamed = HttpBody { body: chunk.bytes, end_of_stream: chunk.end };
    let body_mutation = Some(BodyMutation { mutation: Some(Mutation::StreamedResponse(streamed)) });
    PhaseResponse { response: Some(CommonResponse { body_mutation, ..Default::default() }) }
}

fn immediate(rejection: Rejection) -> ImmediateResponse {
    let reason = rejection.reason.map(|reason| set(DROPPED_REASON, reason.into()));
    // A client that backs off by this header comes back when a scrape or two have passed.
    let retry = (rejection.status == 429).then(|| set("retry-after", "1".into()));
    let set_headers: Vec<_> = reason.into_iter().chain(retry).collect();
    let headers = (!set_headers.is_empty())
        .then(|| HeaderMutation { set_headers, remove_headers: Vec::new() });
    ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(rejection.status) }),
        headers,
        body: rejection.body,
        details: rejection.details.to_owned(),
    }
}
