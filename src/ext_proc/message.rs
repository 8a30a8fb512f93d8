//! The messages of `envoy.service.ext_proc.v3`, as far as the picker speaks them.
//!
//! Decides which fields are read and written, and that header names and values are slices of the
//! buffer that they came in, not copies of their own: a gateway sends dozens of headers of which three
//! are read. Field numbers are those of Envoy's `external_processor.proto`, `base.proto` and Google's
//! `struct.proto`; a test holds them against generated code. Unknown fields are skipped.

use bytes::Bytes;
use envoy_types::pb::envoy::config::core::v3::Metadata;
use envoy_types::pb::envoy::service::ext_proc::v3::ProtocolConfiguration;
use prost::{Message, Oneof};

/// One message of the gateway.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingRequest {
    #[prost(oneof = "Incoming", tags = "2, 3, 4, 5, 6, 7")]
    pub(super) request: Option<Incoming>,
    #[prost(message, optional, tag = "8")]
    pub(super) metadata_context: Option<Metadata>,
    #[prost(bool, tag = "10")]
    pub(super) observability_mode: bool,
    #[prost(message, optional, tag = "11")]
    pub(super) protocol_config: Option<ProtocolConfiguration>,
}

/// What a message of the gateway is about.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Incoming {
    #[prost(message, tag = "2")]
    RequestHeaders(HttpHeaders),
    #[prost(message, tag = "3")]
    ResponseHeaders(HttpHeaders),
    #[prost(message, tag = "4")]
    RequestBody(HttpBody),
    #[prost(message, tag = "5")]
    ResponseBody(HttpBody),
    #[prost(message, tag = "6")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    ResponseTrailers(HttpTrailers),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpHeaders {
    #[prost(message, optional, tag = "1")]
    pub(super) headers: Option<HeaderMap>,
    #[prost(bool, tag = "3")]
    pub(super) end_of_stream: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMap {
    #[prost(message, repeated, tag = "1")]
    pub(super) headers: Vec<HeaderValue>,
}

/// A header. Gateways fill either `value` or `raw_value`; we fill the second.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(string, tag = "2")]
    pub(super) value: String,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) raw_value: Bytes,
}

/// A piece of a body, of the gateway as of the answer to it.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpBody {
    #[prost(bytes = "vec", tag = "1")]
    pub(super) body: Vec<u8>,
    #[prost(bool, tag = "2")]
    pub(super) end_of_stream: bool,
}

/// Trailers pass unread.
#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpTrailers {}

/// One answer to the gateway.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessingResponse {
    #[prost(oneof = "Outgoing", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) response: Option<Outgoing>,
    #[prost(message, optional, tag = "8")]
    pub(super) dynamic_metadata: Option<Struct>,
}

/// What an answer is to.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Outgoing {
    #[prost(message, tag = "1")]
    RequestHeaders(PhaseResponse),
    #[prost(message, tag = "2")]
    ResponseHeaders(PhaseResponse),
    #[prost(message, tag = "3")]
    RequestBody(PhaseResponse),
    #[prost(message, tag = "4")]
    ResponseBody(PhaseResponse),
    #[prost(message, tag = "5")]
    RequestTrailers(HttpTrailers),
    #[prost(message, tag = "6")]
    ResponseTrailers(HttpTrailers),
    #[prost(message, tag = "7")]
    Immediate(ImmediateResponse),
}

/// `HeadersResponse` and `BodyResponse`, which are alike.
#[derive(Clone, PartialEq, Message)]
pub(super) struct PhaseResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) response: Option<CommonResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct CommonResponse {
    #[prost(message, optional, tag = "2")]
    pub(super) header_mutation: Option<HeaderMutation>,
    #[prost(message, optional, tag = "3")]
    pub(super) body_mutation: Option<BodyMutation>,
    #[prost(bool, tag = "5")]
    pub(super) clear_route_cache: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderMutation {
    #[prost(message, repeated, tag = "1")]
    pub(super) set_headers: Vec<HeaderValueOption>,
    #[prost(bytes = "bytes", repeated, tag = "2")]
    pub(super) remove_headers: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeaderValueOption {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<HeaderValue>,
    /// A `HeaderAppendAction`.
    #[prost(int32, tag = "3")]
    pub(super) append_action: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BodyMutation {
    #[prost(oneof = "Mutation", tags = "1, 3")]
    pub(super) mutation: Option<Mutation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Mutation {
    /// The whole body anew.
    #[prost(bytes = "vec", tag = "1")]
    Body(Vec<u8>),
    /// A piece of it, in full duplex.
    #[prost(message, tag = "3")]
    StreamedResponse(HttpBody),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ImmediateResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<HttpStatus>,
    #[prost(message, optional, tag = "2")]
    pub(super) headers: Option<HeaderMutation>,
    #[prost(string, tag = "3")]
    pub(super) body: String,
    #[prost(string, tag = "5")]
    pub(super) details: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HttpStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
}

/// A `google.protobuf.Struct`: a map travels as a list of its entries.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Struct {
    #[prost(message, repeated, tag = "1")]
    pub(super) fields: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(oneof = "Kind", tags = "2, 3, 5")]
    pub(super) kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Kind {
    #[prost(double, tag = "2")]
    Number(f64),
    #[prost(bytes = "bytes", tag = "3")]
    Text(Bytes),
    #[prost(message, tag = "5")]
    Struct(Struct),
}

#[cfg(test)]
mod tests;
