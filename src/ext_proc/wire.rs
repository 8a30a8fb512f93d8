//! Between proto messages and the session's words.
//!
//! Decides header names, metadata keys and mutation details; keeps proto types out of everything else.
//! Every value goes out in `raw_value` only, every set names its overwrite action: gateways disagree on
//! the defaults.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpHeaders,
    ImmediateResponse, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
    StreamedBodyResponse, TrailersResponse, body_mutation, processing_request, processing_response,
};
use envoy_types::pb::envoy::r#type::v3::HttpStatus;
use envoy_types::pb::google::protobuf::{Struct, Value, value};

use super::session::{BodyMode, Chunk, Event, Head, Modes, Rejection, Reply};

/// Carries the destination, as a header and in the metadata namespace [`METADATA_NAMESPACE`].
pub(super) const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Dynamic metadata namespace of the endpoint-picker protocol.
pub(super) const METADATA_NAMESPACE: &str = "envoy.lb";
/// Says why a request was dropped.
const DROPPED_REASON: &str = "x-llm-d-request-dropped-reason";

/// Headers that steer a gateway or a model server and that only a picker may set; a client's are
/// removed. [`DESTINATION`] is not among them because it is always overwritten.
const NOT_FROM_CLIENTS: [&str; 7] = [
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-gateway-destination-endpoint-scores",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
];

/// Control headers that the client sent, as indices into [`NOT_FROM_CLIENTS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Forged(u8);

/// What one message of the gateway says.
pub(super) struct Decoded {
    /// The event, or `None` for a message without content, which is ignored.
    pub(super) event: Option<Event>,
    /// Body modes, from the message that carries a `protocol_config`.
    pub(super) declared: Option<Modes>,
    /// The gateway does not want answers.
    pub(super) silent: bool,
    /// Control headers to remove, from the request headers.
    pub(super) forged: Forged,
}

/// Reads one message.
pub(super) fn decode(message: ProcessingRequest) -> Decoded {
    use processing_request::Request;
    let mut forged = Forged::default();
    let event = message.request.map(|request| match request {
        Request::RequestHeaders(headers) => {
            let (head, control) = read_head(&headers);
            forged = control;
            Event::RequestHeaders(head)
        }
        Request::RequestBody(body) => {
            Event::RequestBody(Chunk { bytes: body.body, end: body.end_of_stream })
        }
        Request::RequestTrailers(_) => Event::RequestTrailers,
        Request::ResponseHeaders(headers) => Event::ResponseHeaders { end: headers.end_of_stream },
        Request::ResponseBody(body) => {
            Event::ResponseBody(Chunk { bytes: body.body, end: body.end_of_stream })
        }
        Request::ResponseTrailers(_) => Event::ResponseTrailers,
    });
    Decoded {
        event,
        declared: message.protocol_config.as_ref().map(modes),
        silent: message.observability_mode,
        forged,
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

fn read_head(headers: &HttpHeaders) -> (Head, Forged) {
    let mut head = Head { end: headers.end_of_stream, upgrade: false };
    let mut forged = Forged::default();
    for header in headers.headers.iter().flat_map(|map: &HeaderMap| &map.headers) {
        let key = header.key.as_str();
        if key.eq_ignore_ascii_case("upgrade") {
            head.upgrade = true;
        } else if key == ":method" {
            head.upgrade |= value_of(header) == b"CONNECT";
        } else if key.len() > 2 && key.as_bytes()[..2].eq_ignore_ascii_case(b"x-") {
            let known = NOT_FROM_CLIENTS.iter().position(|name| name.eq_ignore_ascii_case(key));
            forged.0 |= known.map_or(0, |index| 1 << index);
        }
    }
    (head, forged)
}

/// `raw_value`, else `value`: gateways fill either.
fn value_of(header: &HeaderValue) -> &[u8] {
    if header.raw_value.is_empty() { header.value.as_bytes() } else { &header.raw_value }
}

/// Writes one answer. `forged` is what the request headers brought.
pub(super) fn encode(reply: Reply, forged: Forged) -> ProcessingResponse {
    use processing_response::Response;
    match reply {
        Reply::RequestHeaders(destination) => {
            let dynamic_metadata = destination.as_deref().map(destination_metadata);
            let headers = HeadersResponse { response: Some(common(destination, forged)) };
            answer(Response::RequestHeaders(headers), dynamic_metadata)
        }
        Reply::RequestBody(destination) => {
            let dynamic_metadata = destination.as_deref().map(destination_metadata);
            let response =
                destination.map(|destination| common(Some(destination), Forged::default()));
            answer(Response::RequestBody(BodyResponse { response }), dynamic_metadata)
        }
        Reply::RequestPiece(chunk) => answer(Response::RequestBody(piece(chunk)), None),
        Reply::RequestTrailers => {
            answer(Response::RequestTrailers(TrailersResponse::default()), None)
        }
        Reply::ResponseHeaders => {
            answer(Response::ResponseHeaders(HeadersResponse::default()), None)
        }
        Reply::ResponsePiece(chunk) => answer(Response::ResponseBody(piece(chunk)), None),
        Reply::ResponseBody => answer(Response::ResponseBody(BodyResponse::default()), None),
        Reply::ResponseTrailers => {
            answer(Response::ResponseTrailers(TrailersResponse::default()), None)
        }
        Reply::Immediate(rejection) => {
            answer(Response::ImmediateResponse(immediate(rejection)), None)
        }
    }
}

fn answer(
    response: processing_response::Response,
    dynamic_metadata: Option<Struct>,
) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), dynamic_metadata, ..Default::default() }
}

fn common(destination: Option<Arc<str>>, forged: Forged) -> CommonResponse {
    let remove_headers = NOT_FROM_CLIENTS
        .iter()
        .enumerate()
        .filter(|(index, _)| forged.0 & (1 << index) != 0)
        .map(|(_, name)| (*name).to_owned())
        .collect();
    let clear_route_cache = destination.is_some();
    let set_headers = destination.iter().map(|value| set(DESTINATION, value.as_bytes())).collect();
    CommonResponse {
        header_mutation: Some(HeaderMutation { set_headers, remove_headers }),
        // The route may depend on the destination header, as with ORIGINAL_DST clusters.
        clear_route_cache,
        ..Default::default()
    }
}

fn set(key: &str, value: &[u8]) -> HeaderValueOption {
    HeaderValueOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            raw_value: value.to_vec(),
            ..Default::default()
        }),
        append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into(),
        ..Default::default()
    }
}

fn destination_metadata(destination: &str) -> Struct {
    let entry = |key: &str, kind| (key.to_owned(), Value { kind: Some(kind) });
    let inner = Struct {
        fields: [entry(DESTINATION, value::Kind::StringValue(destination.to_owned()))].into(),
    };
    Struct { fields: [entry(METADATA_NAMESPACE, value::Kind::StructValue(inner))].into() }
}

fn piece(chunk: Chunk) -> BodyResponse {
    let streamed =
        StreamedBodyResponse { body: chunk.bytes, end_of_stream: chunk.end, ..Default::default() };
    BodyResponse {
        response: Some(CommonResponse {
            body_mutation: Some(BodyMutation {
                mutation: Some(body_mutation::Mutation::StreamedResponse(streamed)),
            }),
            ..Default::default()
        }),
    }
}

fn immediate(rejection: Rejection) -> ImmediateResponse {
    let headers = rejection.reason.map(|reason| HeaderMutation {
        set_headers: vec![set(DROPPED_REASON, reason.as_bytes())],
        remove_headers: Vec::new(),
    });
    ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(rejection.status) }),
        headers,
        body: rejection.body.into_bytes(),
        grpc_status: None,
        details: rejection.details.to_owned(),
    }
}
