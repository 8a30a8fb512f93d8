//! A scripted gateway: an ext_proc client that says exactly what a test says.
//!
//! Decides nothing about what is right, but checks every answer for what must hold of all of them:
//! values in `raw_value` only, an explicit overwrite, one destination in header and metadata.

use std::net::SocketAddr;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue, HeaderValueOption};
use envoy_types::pb::envoy::extensions::filters::http::ext_proc::v3::processing_mode::BodySendMode;
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_request::Request;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    CommonResponse, HttpBody, HttpHeaders, HttpTrailers, ImmediateResponse, ProcessingRequest,
    ProcessingResponse, ProtocolConfiguration, body_mutation,
};
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::google::protobuf::{ListValue, Struct, Value};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

/// The destination, in headers and metadata.
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Namespace and key of a subset hint.
pub const SUBSET: [&str; 2] = ["envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset"];
/// Namespace and key of the endpoint that served.
pub const SERVED: [&str; 2] = ["envoy.lb", "x-gateway-destination-endpoint-served"];

/// A list of strings as metadata.
pub fn list(items: &[&str]) -> Kind {
    list_of(items.iter().map(|item| text(item)).collect())
}

/// A list of any kinds as metadata.
pub fn list_of(items: Vec<Kind>) -> Kind {
    let values = items.into_iter().map(|kind| Value { kind: Some(kind) });
    Kind::ListValue(ListValue { values: values.collect() })
}

/// A string as metadata.
pub fn text(text: &str) -> Kind {
    Kind::StringValue(text.to_owned())
}

/// One connection to the ext_proc port.
pub async fn connect(at: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{at}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

/// One connection with the windows of our Envoy bootstrap: a stream's is a small part of the whole.
pub async fn connect_like_envoy(at: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{at}")).expect("an address");
    let endpoint = endpoint.initial_stream_window_size(64 << 10);
    let endpoint = endpoint.initial_connection_window_size(1 << 20);
    endpoint.connect().await.expect("a connection")
}

/// One HTTP request as the gateway tells it. Dropping it resets the stream.
pub struct Script {
    to: Option<mpsc::UnboundedSender<ProcessingRequest>>,
    from: Streaming<ProcessingResponse>,
    /// Sent with the next message.
    first: ProcessingRequest,
    /// The request id that an answer has set.
    pub made_id: Option<String>,
}

impl Script {
    pub async fn open(channel: &Channel) -> Self {
        let (to, messages) = mpsc::unbounded_channel();
        let mut client = ExternalProcessorClient::new(channel.clone());
        let opened = client.process(UnboundedReceiverStream::new(messages));
        let from = super::soon("opening a stream", opened).await.expect("a stream").into_inner();
        Self { to: Some(to), from, first: ProcessingRequest::default(), made_id: None }
    }

    /// Declares body modes with the first message.
    pub fn declare(mut self, request: BodySendMode, response: BodySendMode) -> Self {
        self.first.protocol_config = Some(ProtocolConfiguration {
            request_body_mode: request.into(),
            response_body_mode: response.into(),
            ..Default::default()
        });
        self
    }

    /// Marks the first message as one that wants no answer.
    pub fn watching(mut self) -> Self {
        self.first.observability_mode = true;
        self
    }

    /// Puts metadata on the next message.
    pub fn metadata(&mut self, [namespace, key]: [&str; 2], kind: Kind) {
        let fields = [(key.to_owned(), Value { kind: Some(kind) })].into();
        let context = self.first.metadata_context.get_or_insert_default();
        context.filter_metadata.insert(namespace.to_owned(), Struct { fields });
    }

    /// A headers message without a header map, which no gateway should send.
    pub fn headers_without_a_map(&mut self) {
        self.say(Request::RequestHeaders(HttpHeaders::default()));
    }

    /// The same of a response.
    pub fn response_headers_without_a_map(&mut self) {
        self.say(Request::ResponseHeaders(HttpHeaders::default()));
    }

    /// A message that says nothing.
    pub fn nothing(&mut self) {
        self.send(None);
    }

    fn say(&mut self, request: Request) {
        self.send(Some(request));
    }

    fn send(&mut self, request: Option<Request>) {
        let message = ProcessingRequest { request, ..std::mem::take(&mut self.first) };
        // A stream that has ended takes no more; what it said last is what counts.
        let _ = self.to.as_ref().expect("an open half").send(message);
    }

    pub fn request_headers(&mut self, headers: &[(&str, &str)], end: bool) {
        self.say(Request::RequestHeaders(head(headers, end)));
    }

    pub fn request_body(&mut self, body: &[u8], end: bool) {
        self.say(Request::RequestBody(piece(body, end)));
    }

    pub fn request_trailers(&mut self) {
        self.say(Request::RequestTrailers(HttpTrailers::default()));
    }

    pub fn response_headers(&mut self, headers: &[(&str, &str)], end: bool) {
        self.say(Request::ResponseHeaders(head(headers, end)));
    }

    pub fn response_body(&mut self, body: &[u8], end: bool) {
        self.say(Request::ResponseBody(piece(body, end)));
    }

    pub fn response_trailers(&mut self) {
        self.say(Request::ResponseTrailers(HttpTrailers::default()));
    }

    /// Says nothing more, in HTTP/2 terms: half-closes.
    pub fn half_close(&mut self) {
        self.to = None;
    }

    /// The next answer, checked; `None` at the end of the stream.
    pub async fn hear(&mut self) -> Option<Result<Heard, Status>> {
        match super::soon("an answer", self.from.message()).await {
            Ok(None) => None,
            Ok(Some(answer)) => {
                self.made_id = made_id(&answer).or(self.made_id.take());
                Some(Ok(Heard::checked(answer)))
            }
            Err(status) => Some(Err(status)),
        }
    }

    /// The next answer, which must be a refusal that ends the stream.
    pub async fn refused(&mut self) -> Refused {
        let message = super::soon("a refusal", self.from.message()).await.expect("no error");
        let response = message.expect("an answer").response.expect("a response");
        let Response::ImmediateResponse(response) = response else { panic!("{response:?}") };
        self.end().await;
        Refused::of(response)
    }

    /// The first answer: the request goes on, or is refused.
    pub async fn routed_or_refused(&mut self) -> Result<Heard, Refused> {
        let message = super::soon("an answer", self.from.message()).await.expect("no error");
        let message = message.expect("an answer, not the end");
        match message.response {
            Some(Response::ImmediateResponse(response)) => Err(Refused::of(response)),
            _ => Ok(Heard::checked(message)),
        }
    }

    /// Hears the destination and then the pieces of a full-duplex request body to its end.
    pub async fn sent_on(&mut self) -> (String, Vec<u8>) {
        let destination = self.answer().await.destination().to_owned();
        let mut body = Vec::new();
        loop {
            let heard = self.answer().await;
            let Heard::RequestPiece(bytes, end) = heard else { panic!("{heard:?}") };
            body.extend(bytes);
            if end {
                return (destination, body);
            }
        }
    }

    /// The next answer, which must be one.
    pub async fn answer(&mut self) -> Heard {
        self.hear().await.expect("an answer, not the end").expect("an answer, not an error")
    }

    /// The end of the stream, which must be clean.
    pub async fn end(&mut self) {
        assert!(self.hear().await.is_none(), "an answer after the last one");
    }
}

fn head(headers: &[(&str, &str)], end: bool) -> HttpHeaders {
    let headers = headers.iter().map(|(key, value)| HeaderValue {
        key: (*key).to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    });
    HttpHeaders {
        headers: Some(HeaderMap { headers: headers.collect() }),
        end_of_stream: end,
        ..Default::default()
    }
}

fn piece(body: &[u8], end: bool) -> HttpBody {
    HttpBody { body: body.to_vec(), end_of_stream: end, ..Default::default() }
}

/// An answer in the words of the tests.
#[derive(Debug, Clone, PartialEq)]
pub enum Heard {
    RequestHeaders {
        destination: Option<String>,
        removed: Vec<String>,
    },
    /// A full-duplex piece.
    RequestPiece(Vec<u8>, bool),
    /// An answer to a body that stays as it is.
    RequestBody {
        destination: Option<String>,
    },
    /// An answer to a body that is replaced, and the `content-length` it sets.
    NewRequestBody {
        destination: Option<String>,
        body: String,
        length: Option<usize>,
    },
    RequestTrailers,
    ResponseHeaders,
    ResponsePiece(Vec<u8>, bool),
    ResponseBody,
    /// As [`Heard::NewRequestBody`].
    NewResponseBody {
        body: String,
        length: Option<usize>,
    },
    ResponseTrailers,
    Immediate {
        status: i32,
        details: String,
        reason: Option<String>,
    },
}

impl Heard {
    fn checked(answer: ProcessingResponse) -> Self {
        let steered = metadata(&answer);
        let heard = match answer.response.expect("a response in the message") {
            Response::RequestHeaders(headers) => {
                let (common, removed) = mutation(headers.response);
                Self::RequestHeaders { destination: common, removed }
            }
            Response::RequestBody(body) => match streamed(&body.response) {
                Some((bytes, end)) => Self::RequestPiece(bytes, end),
                None => match replaced(&body.response) {
                    Some((body, length, destination)) => {
                        Self::NewRequestBody { destination, body, length }
                    }
                    None => Self::RequestBody { destination: mutation(body.response).0 },
                },
            },
            Response::RequestTrailers(_) => Self::RequestTrailers,
            Response::ResponseHeaders(headers) => {
                // U004: nothing of the response is mirrored.
                assert_eq!(mutation(headers.response), (None, Vec::new()));
                Self::ResponseHeaders
            }
            Response::ResponseBody(body) => match streamed(&body.response) {
                Some((bytes, end)) => Self::ResponsePiece(bytes, end),
                None => match replaced(&body.response) {
                    Some((body, length, None)) => Self::NewResponseBody { body, length },
                    Some(steered) => panic!("a response is not steered: {steered:?}"),
                    None => Self::ResponseBody,
                },
            },
            Response::ResponseTrailers(_) => Self::ResponseTrailers,
            Response::ImmediateResponse(response) => immediate(response),
            other => panic!("an answer that nobody asked for: {other:?}"),
        };
        let named = match &heard {
            Self::RequestHeaders { destination, .. }
            | Self::RequestBody { destination }
            | Self::NewRequestBody { destination, .. } => destination.clone(),
            _ => None,
        };
        assert_eq!(named, steered, "header and metadata name the same destination");
        heard
    }

    /// The destination of an answer that must carry one.
    pub fn destination(&self) -> &str {
        match self {
            Self::RequestHeaders { destination: Some(to), .. }
            | Self::RequestBody { destination: Some(to) }
            | Self::NewRequestBody { destination: Some(to), .. } => to,
            other => panic!("no destination in {other:?}"),
        }
    }
}

fn immediate(response: ImmediateResponse) -> Heard {
    let set = response.headers.map(|mutation| mutation.set_headers).unwrap_or_default();
    let reason =
        set.iter().map(checked_header).find(|(k, _)| k == "x-llm-d-request-dropped-reason");
    Heard::Immediate {
        status: response.status.expect("a status").code,
        details: response.details,
        reason: reason.map(|(_, value)| value),
    }
}

/// U013, U014, U022: `raw_value` and not `value`, and an overwrite that is spelled out.
fn checked_header(option: &HeaderValueOption) -> (String, String) {
    use envoy_types::pb::envoy::config::core::v3::header_value_option::HeaderAppendAction;
    let header = option.header.as_ref().expect("a header");
    assert!(header.value.is_empty() && !header.raw_value.is_empty(), "{header:?}");
    assert_eq!(option.append_action(), HeaderAppendAction::OverwriteIfExistsOrAdd);
    #[allow(deprecated)]
    let append = option.append.is_some_and(|append| append.value);
    assert!(!append, "Envoy obeys append alone");
    (header.key.clone(), String::from_utf8(header.raw_value.clone()).expect("text"))
}

/// Destination and removed headers. Beside them only a request id is ever set, and only for a request
/// that came without one.
fn mutation(common: Option<CommonResponse>) -> (Option<String>, Vec<String>) {
    let Some(mutation) = common.and_then(|common| common.header_mutation) else {
        return (None, Vec::new());
    };
    let (ids, set): (Vec<_>, Vec<_>) =
        mutation.set_headers.iter().map(checked_header).partition(|(key, _)| key == "x-request-id");
    assert!(ids.len() <= 1 && ids.iter().all(|(_, id)| id.len() == 36), "{ids:?}");
    assert!(set.len() <= 1 && set.iter().all(|(key, _)| key == DESTINATION), "{set:?}");
    (set.into_iter().next().map(|(_, value)| value), mutation.remove_headers)
}

fn streamed(common: &Option<CommonResponse>) -> Option<(Vec<u8>, bool)> {
    match common.as_ref()?.body_mutation.as_ref()?.mutation.as_ref()? {
        body_mutation::Mutation::StreamedResponse(piece) => {
            Some((piece.body.clone(), piece.end_of_stream))
        }
        body_mutation::Mutation::Body(_) => None,
        other => panic!("a body mutation that nobody asked for: {other:?}"),
    }
}

/// A replaced body, the length it states, and a destination.
fn replaced(common: &Option<CommonResponse>) -> Option<(String, Option<usize>, Option<String>)> {
    let common = common.as_ref()?;
    let Some(body_mutation::Mutation::Body(body)) = &common.body_mutation.as_ref()?.mutation else {
        return None;
    };
    let set = common.header_mutation.iter().flat_map(|m| &m.set_headers).map(checked_header);
    let set: Vec<_> = set.collect();
    let value = |name| set.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let (length, destination) = (value("content-length"), value(DESTINATION));
    let known = [&length, &destination].into_iter().flatten().count();
    assert_eq!(set.len(), known, "headers that nobody asked for: {set:?}");
    let body = String::from_utf8(body.clone()).expect("text");
    Some((body, length.map(|length| length.parse().expect("a number")), destination))
}

/// The request id that an answer to request headers sets.
fn made_id(answer: &ProcessingResponse) -> Option<String> {
    let Some(Response::RequestHeaders(headers)) = &answer.response else { return None };
    let set = &headers.response.as_ref()?.header_mutation.as_ref()?.set_headers;
    let id = set.iter().map(checked_header).find(|(key, _)| key == "x-request-id");
    id.map(|(_, id)| id)
}

/// All of a refusal.
#[derive(Debug, PartialEq)]
pub struct Refused {
    pub status: i32,
    pub body: String,
    pub details: String,
    /// `x-llm-d-request-dropped-reason`.
    pub reason: Option<String>,
    pub retry_after: Option<String>,
}

impl Refused {
    fn of(response: ImmediateResponse) -> Self {
        let set = response.headers.map(|mutation| mutation.set_headers).unwrap_or_default();
        let set: Vec<_> = set.iter().map(checked_header).collect();
        let value = |name| set.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        Self {
            status: response.status.expect("a status").code,
            body: String::from_utf8(response.body).expect("text"),
            details: response.details,
            reason: value("x-llm-d-request-dropped-reason"),
            retry_after: value("retry-after"),
        }
    }

    /// A refusal of nothing but these.
    pub fn plain(status: i32, body: &str, details: &str) -> Self {
        let (body, details) = (body.to_owned(), details.to_owned());
        Self { status, body, details, reason: None, retry_after: None }
    }
}

fn metadata(answer: &ProcessingResponse) -> Option<String> {
    let namespace = answer.dynamic_metadata.as_ref()?.fields.get("envoy.lb")?;
    let Some(Kind::StructValue(fields)) = &namespace.kind else { panic!("{namespace:?}") };
    match &fields.fields.get(DESTINATION)?.kind {
        Some(Kind::StringValue(to)) => Some(to.clone()),
        other => panic!("{other:?}"),
    }
}
