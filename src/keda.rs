//! KEDA's external scaler: desired replicas, answered from memory and pushed when they change.
//!
//! Decides how a plan is said in KEDA's words: active means that a variant's target is above zero, and
//! the one metric is the target itself with a goal of 1 a replica, so that an autoscaler arrives at
//! exactly that number. Plans nothing and waits for nothing. Counts are replicas.

use std::pin::Pin;

use futures_util::Stream;
use tokio::sync::watch;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::autoscaler::published::{NoAnswer, Published, Wanted};
use crate::scaling::plan::VariantPlan;

/// What `proto/externalscaler.proto` defines.
#[allow(missing_docs, unreachable_pub, clippy::all)]
pub mod contract {
    tonic::include_proto!("externalscaler");
}

use contract::external_scaler_server::{ExternalScaler, ExternalScalerServer};
use contract::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
};

/// Name of the one metric.
pub const METRIC: &str = "plumbline_desired_replicas";

/// The scaler; cheap to clone.
#[derive(Clone)]
pub struct Scaler {
    published: watch::Receiver<Published>,
    stop: watch::Receiver<bool>,
}

impl Scaler {
    /// Answers from the newest value of `published`; open streams end when `stop` turns true.
    pub fn new(published: watch::Receiver<Published>, stop: watch::Receiver<bool>) -> Self {
        Self { published, stop }
    }

    /// The gRPC service.
    pub fn into_service(self) -> ExternalScalerServer<Self> {
        ExternalScalerServer::new(self)
    }

    fn ask<T>(
        &self,
        object: &ScaledObjectRef,
        answer: impl FnOnce(&VariantPlan) -> T,
    ) -> Result<T, Status> {
        let wanted = wanted(object)?;
        let published = self.published.borrow();
        published.variant(wanted).map(answer).map_err(status)
    }

    /// Ends `stream` with the process.
    fn until_stop<T: Send + 'static>(
        &self,
        stream: impl Stream<Item = Result<T, Status>> + Send + 'static,
    ) -> Answers<T> {
        let mut stop = self.stop.clone();
        let stopped = async move {
            // A sender that is gone is a process on its way out.
            let _ = stop.wait_for(|stop| *stop).await;
        };
        Box::pin(futures_util::StreamExt::take_until(stream, stopped))
    }
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ExternalScaler for Scaler {
    type StreamIsActiveStream = Answers<IsActiveResponse>;
    type StreamMetricSpecStream = Answers<GetMetricSpecResponse>;

    async fn is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<IsActiveResponse>, Status> {
        let result = self.ask(request.get_ref(), is_active)?;
        Ok(Response::new(IsActiveResponse { result }))
    }

    async fn stream_is_active(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamIsActiveStream>, Status> {
        let object = request.into_inner();
        // What is wrong with the question is said at once.
        wanted(&object)?;
        let scaler = self.clone();
        let mut last = None;
        let changes = WatchStream::new(self.published.clone()).filter_map(move |_| {
            match scaler.ask(&object, is_active) {
                Ok(active) if last == Some(active) => None,
                Ok(active) => {
                    last = Some(active);
                    Some(Ok(IsActiveResponse { result: active }))
                }
                // KEDA connects anew, which is how it finds whoever can answer.
                Err(status) => Some(Err(status)),
            }
        });
        Ok(Response::new(self.until_stop(to_first_error(changes))))
    }

    async fn get_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<GetMetricSpecResponse>, Status> {
        wanted(request.get_ref())?;
        Ok(Response::new(spec()))
    }

    async fn get_metrics(
        &self,
        request: Request<GetMetricsRequest>,
    ) -> Result<Response<GetMetricsResponse>, Status> {
        let GetMetricsRequest { scaled_object_ref, metric_name } = request.into_inner();
        let object = scaled_object_ref
            .ok_or_else(|| Status::invalid_argument("scaledObjectRef is missing"))?;
        if metric_name != METRIC {
            return Err(Status::not_found(format!(
                "no metric {metric_name:?}; the only one is {METRIC:?}"
            )));
        }
        let target = self.ask(&object, |variant| variant.target)?;
        let value = MetricValue {
            metric_name,
            metric_value: i64::from(target),
            metric_value_float: f64::from(target),
        };
        Ok(Response::new(GetMetricsResponse { metric_values: vec![value] }))
    }

    async fn stream_metric_spec(
        &self,
        request: Request<ScaledObjectRef>,
    ) -> Result<Response<Self::StreamMetricSpecStream>, Status> {
        wanted(request.get_ref())?;
        // It never changes: once, and then silence for as long as KEDA listens.
        let once = tokio_stream::once(Ok(spec()));
        let open = once.chain(futures_util::stream::pending());
        Ok(Response::new(self.until_stop(open)))
    }
}

/// Passes everything up to and including the first error.
fn to_first_error<T>(
    stream: impl Stream<Item = Result<T, Status>>,
) -> impl Stream<Item = Result<T, Status>> {
    let mut failed = false;
    stream.take_while(move |item| {
        let go_on = !failed;
        failed = item.is_err();
        go_on
    })
}

fn is_active(variant: &VariantPlan) -> bool {
    variant.target > 0
}

fn spec() -> GetMetricSpecResponse {
    let spec =
        MetricSpec { metric_name: METRIC.to_owned(), target_size: 1, target_size_float: 1.0 };
    GetMetricSpecResponse { metric_specs: vec![spec] }
}

/// What a ScaledObject asks for: `variantName`, and `modelID` and `namespace` where that is not enough.
fn wanted(object: &ScaledObjectRef) -> Result<Wanted<'_>, Status> {
    let given = |key: &str| {
        let value = object.scaler_metadata.get(key).map(String::as_str);
        value.filter(|value| !value.is_empty())
    };
    let variant = given("variantName").ok_or_else(|| {
        Status::invalid_argument("scalerMetadata: variantName is missing or empty")
    })?;
    Ok(Wanted { variant, model: given("modelID"), namespace: given("namespace") })
}

fn status(no: NoAnswer) -> Status {
    let text = no.to_string();
    match no {
        NoAnswer::NotActing(_) => Status::unavailable(text),
        NoAnswer::Unknown { .. } => Status::not_found(text),
        NoAnswer::Ambiguous { .. } => Status::invalid_argument(text),
    }
}
