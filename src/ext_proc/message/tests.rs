//! Our field numbers against code generated from Envoy's own files, in both directions.

use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3 as theirs;
use envoy_types::pb::google::protobuf::{self, value};

use super::*;

fn read(message: &theirs::ProcessingRequest) -> ProcessingRequest {
    ProcessingRequest::decode(&message.encode_to_vec()[..]).unwrap()
}

fn headers() -> theirs::HttpHeaders {
    let header = core::HeaderValue {
        key: "content-type".to_owned(),
        value: "text/plain".to_owned(),
        raw_value: b"\xff\x00".to_vec(),
    };
    theirs::HttpHeaders {
        headers: Some(core::HeaderMap { headers: vec![header.clone(), header] }),
        attributes: [("a".to_owned(), protobuf::Struct::default())].into(),
        end_of_stream: true,
    }
}

/// Mutants: any tag of a request changed; `key` and `value` swapped.
#[test]
fn requests_are_read_as_generated_code_writes_them() {
    use theirs::processing_request::Request as In;
    let ours = HttpHeaders {
        headers: Some(HeaderMap {
            headers: vec![
                HeaderValue {
                    key: "content-type".into(),
                    value: "text/plain".into(),
                    raw_value: Bytes::from_static(b"\xff\x00"),
                };
                2
            ],
        }),
        end_of_stream: true,
    };
    let body = theirs::HttpBody {
        body: b"{}".to_vec(),
        end_of_stream: true,
        end_of_stream_without_message: true,
        grpc_message_compressed: true,
        drain_complete: true,
    };
    let our_body = HttpBody { body: b"{}".to_vec(), end_of_stream: true };
    let trailers = theirs::HttpTrailers { trailers: headers().headers };
    for (given, expected) in [
        (In::RequestHeaders(headers()), Incoming::RequestHeaders(ours.clone())),
        (In::ResponseHeaders(headers()), Incoming::ResponseHeaders(ours)),
        (In::RequestBody(body.clone()), Incoming::RequestBody(our_body.clone())),
        (In::ResponseBody(body), Incoming::ResponseBody(our_body)),
        (In::RequestTrailers(trailers.clone()), Incoming::RequestTrailers(HttpTrailers {})),
        (In::ResponseTrailers(trailers), Incoming::ResponseTrailers(HttpTrailers {})),
    ] {
        let config = theirs::ProtocolConfiguration {
            request_body_mode: BodySendMode::Buffered.into(),
            response_body_mode: BodySendMode::FullDuplexStreamed.into(),
            ..Default::default()
        };
        let metadata = core::Metadata {
            filter_metadata: [("envoy.lb".to_owned(), protobuf::Struct::default())].into(),
            ..Default::default()
        };
        let message = theirs::ProcessingRequest {
            request: Some(given),
            metadata_context: Some(metadata.clone()),
            attributes: [("x".to_owned(), protobuf::Struct::default())].into(),
            observability_mode: true,
            protocol_config: Some(config),
            ..Default::default()
        };
        let expected = ProcessingRequest {
            request: Some(expected),
            metadata_context: Some(metadata),
            observability_mode: true,
            protocol_config: Some(config),
        };
        assert_eq!(read(&message), expected);
    }
    assert_eq!(read(&theirs::ProcessingRequest::default()), ProcessingRequest::default());
}

fn value(kind: value::Kind) -> protobuf::Value {
    protobuf::Value { kind: Some(kind) }
}

/// Mutants: any tag of an answer changed; an entry's key and value swapped.
#[test]
fn answers_are_written_as_generated_code_reads_them() {
    use theirs::processing_response::Response as Out;
    let entry = |key: &'static str, kind| Entry {
        key: key.into(),
        value: Some(Value { kind: Some(kind) }),
    };
    let inner = Struct {
        fields: vec![entry("text", Kind::Text("t".into())), entry("number", Kind::Number(1.5))],
    };
    let metadata = Struct { fields: vec![entry("outer", Kind::Struct(inner))] };
    let set = HeaderValueOption {
        header: Some(HeaderValue { key: "k".into(), raw_value: "v".into(), ..Default::default() }),
        append_action: 2,
    };
    let mutation = HeaderMutation { set_headers: vec![set], remove_headers: vec!["gone".into()] };
    let their_set = core::HeaderValueOption {
        header: Some(core::HeaderValue {
            key: "k".to_owned(),
            raw_value: b"v".to_vec(),
            ..Default::default()
        }),
        append_action: 2,
        ..Default::default()
    };
    let their_mutation = theirs::HeaderMutation {
        set_headers: vec![their_set],
        remove_headers: vec!["gone".to_owned()],
    };
    let whole = CommonResponse {
        header_mutation: Some(mutation.clone()),
        body_mutation: Some(BodyMutation { mutation: Some(Mutation::Body(b"all".to_vec())) }),
        clear_route_cache: true,
    };
    let their_whole = theirs::CommonResponse {
        header_mutation: Some(their_mutation.clone()),
        body_mutation: Some(theirs::BodyMutation {
            mutation: Some(theirs::body_mutation::Mutation::Body(b"all".to_vec())),
        }),
        clear_route_cache: true,
        ..Default::default()
    };
    let streamed = HttpBody { body: b"piece".to_vec(), end_of_stream: true };
    let piece = CommonResponse {
        body_mutation: Some(BodyMutation { mutation: Some(Mutation::StreamedResponse(streamed)) }),
        ..Default::default()
    };
    let their_piece = theirs::CommonResponse {
        body_mutation: Some(theirs::BodyMutation {
            mutation: Some(theirs::body_mutation::Mutation::StreamedResponse(
                theirs::StreamedBodyResponse {
                    body: b"piece".to_vec(),
                    end_of_stream: true,
                    ..Default::default()
                },
            )),
        }),
        ..Default::default()
    };
    let phase = |response| PhaseResponse { response: Some(response) };
    let immediate = ImmediateResponse {
        status: Some(HttpStatus { code: 429 }),
        headers: Some(mutation),
        body: "why".to_owned(),
        details: "detail".to_owned(),
    };
    let their_immediate = theirs::ImmediateResponse {
        status: Some(envoy_types::pb::envoy::r#type::v3::HttpStatus { code: 429 }),
        headers: Some(their_mutation),
        body: b"why".to_vec(),
        grpc_status: None,
        details: "detail".to_owned(),
    };
    let their_headers = |response| theirs::HeadersResponse { response: Some(response) };
    let their_body = |response| theirs::BodyResponse { response: Some(response) };
    let no_trailers = theirs::TrailersResponse::default;
    let fields = [
        ("text".to_owned(), value(value::Kind::StringValue("t".to_owned()))),
        ("number".to_owned(), value(value::Kind::NumberValue(1.5))),
    ];
    let inner = value(value::Kind::StructValue(protobuf::Struct { fields: fields.into() }));
    let their_metadata = protobuf::Struct { fields: [("outer".to_owned(), inner)].into() };
    for (ours, expected) in [
        (
            Outgoing::RequestHeaders(phase(whole.clone())),
            Out::RequestHeaders(their_headers(their_whole.clone())),
        ),
        (
            Outgoing::ResponseHeaders(phase(whole.clone())),
            Out::ResponseHeaders(their_headers(their_whole.clone())),
        ),
        (
            Outgoing::RequestBody(phase(piece.clone())),
            Out::RequestBody(their_body(their_piece.clone())),
        ),
        (Outgoing::ResponseBody(phase(piece)), Out::ResponseBody(their_body(their_piece))),
        (Outgoing::RequestBody(phase(whole)), Out::RequestBody(their_body(their_whole))),
        (Outgoing::RequestTrailers(HttpTrailers {}), Out::RequestTrailers(no_trailers())),
        (Outgoing::ResponseTrailers(HttpTrailers {}), Out::ResponseTrailers(no_trailers())),
        (Outgoing::Immediate(immediate), Out::ImmediateResponse(their_immediate)),
    ] {
        let answer =
            ProcessingResponse { response: Some(ours), dynamic_metadata: Some(metadata.clone()) };
        let read = theirs::ProcessingResponse::decode(&answer.encode_to_vec()[..]).unwrap();
        assert_eq!(read.response, Some(expected));
        assert_eq!(read.dynamic_metadata.as_ref(), Some(&their_metadata));
    }
}
