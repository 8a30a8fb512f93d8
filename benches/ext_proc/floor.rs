//! The floor: a server that answers the same messages and decides nothing.

use std::net::SocketAddr;

use envoy_types::pb::envoy::service::ext_proc::v3 as pb;
use pb::external_processor_server::{ExternalProcessor, ExternalProcessorServer};
use tokio_stream::StreamExt as _;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// The same two answers, made from constants.
struct Floor;

#[tonic::async_trait]
impl ExternalProcessor for Floor {
    type ProcessStream = std::pin::Pin<
        Box<dyn tokio_stream::Stream<Item = Result<pb::ProcessingResponse, Status>> + Send>,
    >;

    async fn process(
        &self,
        request: Request<Streaming<pb::ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        use pb::processing_request::Request as In;
        let answers = request.into_inner().map(|message| {
            Ok(match message?.request {
                Some(In::RequestBody(body)) => floor_body(body),
                _ => floor_headers(),
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

fn floor_headers() -> pb::ProcessingResponse {
    use envoy_types::pb::envoy::config::core::v3::{HeaderValue, HeaderValueOption};
    let destination = HeaderValueOption {
        header: Some(HeaderValue {
            key: "x-gateway-destination-endpoint".into(),
            raw_value: b"127.0.0.1:8000".to_vec(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let response = pb::CommonResponse {
        header_mutation: Some(pb::HeaderMutation {
            set_headers: vec![destination],
            ..Default::default()
        }),
        ..Default::default()
    };
    pb::ProcessingResponse {
        response: Some(pb::processing_response::Response::RequestHeaders(pb::HeadersResponse {
            response: Some(response),
        })),
        ..Default::default()
    }
}

fn floor_body(body: pb::HttpBody) -> pb::ProcessingResponse {
    let mutation = pb::body_mutation::Mutation::StreamedResponse(pb::StreamedBodyResponse {
        body: body.body,
        end_of_stream: body.end_of_stream,
        ..Default::default()
    });
    let response = pb::CommonResponse {
        body_mutation: Some(pb::BodyMutation { mutation: Some(mutation) }),
        ..Default::default()
    };
    pb::ProcessingResponse {
        response: Some(pb::processing_response::Response::RequestBody(pb::BodyResponse {
            response: Some(response),
        })),
        ..Default::default()
    }
}

pub(crate) async fn serve(address: SocketAddr) {
    Server::builder()
        .http2_max_pending_accept_reset_streams(Some(100_000))
        .add_service(ExternalProcessorServer::new(Floor))
        .serve(address)
        .await
        .unwrap();
}
