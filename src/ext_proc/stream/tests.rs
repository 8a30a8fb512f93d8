//! A fault of ours in one stream, through the served picker: what its client gets, and what others see.

use std::sync::Arc;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::service::ext_proc::v3 as pb;
use pb::external_processor_client::ExternalProcessorClient;
use pb::processing_request::Request as Asked;
use pb::processing_response::Response as Answered;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::service::Routes;
use tonic::transport::Channel;

use crate::ext_proc::decision::tests::{FAULT, picking};
use crate::ext_proc::server::{Threads, serve};
use crate::policy::{Policy, PolicyWriter, Source};
use crate::routing::{Objectives, Profile};
use crate::thresholds::Thresholds;

/// One stream of a gateway.
struct Gateway {
    out: mpsc::UnboundedSender<pb::ProcessingRequest>,
    answers: Streaming<pb::ProcessingResponse>,
}

impl Gateway {
    async fn open(channel: &Channel) -> Self {
        let (out, requests) = mpsc::unbounded_channel();
        let mut client = ExternalProcessorClient::new(channel.clone());
        let answers = client.process(UnboundedReceiverStream::new(requests)).await.unwrap();
        Self { out, answers: answers.into_inner() }
    }

    fn headers(&self, objective: &str) {
        let header = |key: &str, value: &str| HeaderValue {
            key: key.to_owned(),
            raw_value: value.as_bytes().to_vec(),
            ..HeaderValue::default()
        };
        let headers = vec![
            header(":method", "POST"),
            header(":path", "/v1/completions"),
            header("x-llm-d-inference-objective", objective),
        ];
        let headers = Some(HeaderMap { headers });
        self.send(Asked::RequestHeaders(pb::HttpHeaders { headers, ..Default::default() }));
    }

    fn body(&self) {
        let body = br#"{"model":"m","prompt":"hi"}"#.to_vec();
        self.send(Asked::RequestBody(pb::HttpBody {
            body,
            end_of_stream: true,
            ..Default::default()
        }));
    }

    fn send(&self, request: Asked) {
        let request = pb::ProcessingRequest { request: Some(request), ..Default::default() };
        self.out.send(request).unwrap();
    }

    async fn answer(&mut self) -> Option<Answered> {
        self.answers.message().await.unwrap().and_then(|message| message.response)
    }
}

/// Mutants: a panic that is not caught; one that ends the stream without an answer; a count that stays.
#[tokio::test]
async fn a_fault_is_a_500_in_its_stream_and_nothing_elsewhere() {
    let mut picking = picking(Profile::default());
    let policy = Policy::new(Thresholds::default(), [Source::BuiltIn; 8], Profile::default());
    let objectives = Objectives::new([("boom".to_owned(), Some(FAULT))]);
    picking.policy =
        PolicyWriter::new(policy.with_documents(Arc::default(), Arc::new(objectives))).1;
    let (metrics, store) = (Arc::clone(&picking.metrics), picking.store.clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (_stop, stopped) = watch::channel(false);
    let service = picking.into_service(Routes::default());
    tokio::spawn(serve(listener, None, service, Threads::Here, stopped));
    let channel = Channel::from_shared(format!("http://{at}")).unwrap().connect().await.unwrap();

    let (mut healthy, mut broken) = (Gateway::open(&channel).await, Gateway::open(&channel).await);
    healthy.headers("none");
    broken.headers("boom");
    broken.body();
    let Some(Answered::ImmediateResponse(answer)) = broken.answer().await else {
        panic!("no immediate response");
    };
    assert_eq!(answer.status.unwrap().code, 500);
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.starts_with("inference error: Internal - "), "{text}");
    assert!(!answer.details.is_empty());
    assert!(broken.answer().await.is_none(), "one answer, then the end");
    assert_eq!((metrics.panics.get(), store.in_flight()), (1, 0));

    healthy.body();
    let first = healthy.answer().await;
    assert!(matches!(first, Some(Answered::RequestHeaders(_))), "{first:?}");
    let second = healthy.answer().await;
    assert!(matches!(second, Some(Answered::RequestBody(_))), "{second:?}");
    assert_eq!(store.in_flight(), 1);
}
