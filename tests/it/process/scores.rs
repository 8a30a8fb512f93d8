//! `--emit-endpoint-scores` and the limits of messages, as a gateway sees them.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::config::core::v3::{HeaderMap, HeaderValue};
use envoy_types::pb::envoy::service::ext_proc::v3::external_processor_client::ExternalProcessorClient;
use envoy_types::pb::envoy::service::ext_proc::v3::{
    HttpHeaders, ProcessingRequest, ProcessingResponse, processing_request::Request,
};
use envoy_types::pb::google::protobuf::value::Kind;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Channel;

use crate::harness::picker::Picker;
use crate::harness::script::{Heard, Script, connect};
use crate::harness::soon;

const ENDPOINTS: [&str; 2] = ["127.0.0.1:1", "127.0.0.1:2"];

/// Destination and scores in the answer to a GET, and what keeps its stream open.
async fn ask(channel: &Channel) -> (String, Option<BTreeMap<String, f64>>, impl Sized + use<>) {
    let (to, messages) = mpsc::unbounded_channel();
    let header = |key: &str, value: &str| HeaderValue {
        key: key.to_owned(),
        raw_value: value.as_bytes().to_vec(),
        ..Default::default()
    };
    let headers = vec![header(":method", "GET"), header(":path", "/v1/models")];
    let headers = HttpHeaders {
        headers: Some(HeaderMap { headers }),
        end_of_stream: true,
        ..Default::default()
    };
    to.send(ProcessingRequest {
        request: Some(Request::RequestHeaders(headers)),
        ..Default::default()
    })
    .unwrap();
    let mut client = ExternalProcessorClient::new(channel.clone());
    let opened = client.process(UnboundedReceiverStream::new(messages));
    let mut from: Streaming<ProcessingResponse> =
        soon("a stream", opened).await.unwrap().into_inner();
    let answer = soon("an answer", from.message()).await.unwrap().unwrap();
    let mut metadata = answer.dynamic_metadata.unwrap();
    let Some(Kind::StructValue(mut lb)) = metadata.fields.remove("envoy.lb").unwrap().kind else {
        panic!("envoy.lb is a struct")
    };
    let mut field = |name| lb.fields.remove(name).and_then(|value| value.kind);
    let Some(Kind::StringValue(destination)) = field("x-gateway-destination-endpoint") else {
        panic!("no destination")
    };
    let scores = field("x-gateway-destination-endpoint-scores").map(|kind| match kind {
        Kind::StructValue(scores) => scores
            .fields
            .into_iter()
            .map(|(endpoint, value)| match value.kind {
                Some(Kind::NumberValue(total)) => (endpoint, total),
                other => panic!("{other:?}"),
            })
            .collect(),
        other => panic!("{other:?}"),
    });
    (destination, scores, (to, from))
}

fn flags(more: &[&str]) -> Vec<String> {
    let endpoints = format!("--endpoints={}", ENDPOINTS.join(","));
    let base = [&endpoints, "--secure-serving=false", "--cores=1"];
    base.iter().chain(more).map(|flag| (*flag).to_owned()).collect()
}

/// All candidates with their totals, the picked one among them: two unread endpoints are ranked by the
/// ledger alone, in seconds of waiting; see `prefill-load-scorer`. Mutants: the picked one alone; scores of the
/// decision before; a rank instead of a total.
#[tokio::test]
async fn every_candidate_has_a_score() {
    let folder = tempfile::tempdir().unwrap();
    let picker = Picker::process(flags(&["--emit-endpoint-scores"]), folder.path()).await;
    picker.ready().await;
    let channel = connect(picker.grpc).await;
    let (first, scores, _open) = ask(&channel).await;
    // The shortest prompt counts 16 tokens, the request's own four times, at 10,000 a second.
    let score = |queued: f64, batch: f64| 1.0 / (1.0 + (queued + 4.0 * 16.0) / 10_000.0 + batch);
    let idle = ENDPOINTS.map(|endpoint| (endpoint.to_owned(), score(0.0, 0.0)));
    assert_eq!(scores, Some(idle.into()));
    let (second, scores, _open) = ask(&channel).await;
    assert_ne!(first, second);
    assert_eq!(scores, Some([(first, score(16.0, 0.5 / 1.5)), (second, score(0.0, 0.0))].into()));
}

/// Mutant: scores without the flag.
#[tokio::test]
async fn scores_are_told_only_when_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let picker = Picker::process(flags(&[]), folder.path()).await;
    picker.ready().await;
    let (_, scores, _open) = ask(&connect(picker.grpc).await).await;
    assert_eq!(scores, None);
}

/// The body of a request is told in one message, which is over the explicit limit and under the limit
/// of bodies. Mutants: a limit that is not handed on; the default of 4 MiB, which ends the second case.
#[tokio::test]
async fn the_limit_of_messages_is_what_was_asked_for() {
    for (flag, refused) in [("--grpc-max-recv-msg-size=1Mi", true), ("--max-body-bytes=8Mi", false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let picker = Picker::process(flags(&[flag]), folder.path()).await;
        picker.ready().await;
        let mut script = Script::open(&connect(picker.grpc).await).await;
        script.request_headers(&[(":method", "POST"), (":path", "/bytes")], false);
        let body = vec![b'x'; 5 << 20];
        script.request_body(&body, true);
        match script.answer().await {
            Heard::Immediate { status, .. } => {
                assert!(refused && status == 413, "{flag}: {status}")
            }
            heard => assert!(!refused && !heard.destination().is_empty(), "{flag}: {heard:?}"),
        }
    }
}
