//! The demo's side of KEDA's contract: asks what KEDA asks, in its order.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use super::actuator::Answer;
use crate::keda::contract::external_scaler_client::ExternalScalerClient;
use crate::keda::contract::{GetMetricsRequest, IsActiveResponse, ScaledObjectRef};

/// A connection to the scaler, for one variant.
#[derive(Clone)]
pub(super) struct Scaler {
    client: ExternalScalerClient<Channel>,
    object: ScaledObjectRef,
}

impl Scaler {
    /// Connects when first asked.
    pub(super) fn new(at: SocketAddr, variant: &str) -> Result<Self> {
        let channel = Endpoint::from_shared(format!("http://{at}"))?.connect_lazy();
        let metadata = [("variantName".to_owned(), variant.to_owned())];
        let object = ScaledObjectRef {
            name: variant.to_owned(),
            namespace: "default".to_owned(),
            scaler_metadata: metadata.into(),
        };
        Ok(Self { client: ExternalScalerClient::new(channel), object })
    }

    /// One poll: is it active, which metric, which value.
    pub(super) async fn poll(&mut self) -> Result<Answer> {
        let active = self.client.is_active(self.object.clone()).await?.into_inner().result;
        let specs = self.client.get_metric_spec(self.object.clone()).await?.into_inner();
        let spec = specs.metric_specs.into_iter().next().context("no metric is specified")?;
        let question = GetMetricsRequest {
            scaled_object_ref: Some(self.object.clone()),
            metric_name: spec.metric_name,
        };
        let values = self.client.get_metrics(question).await?.into_inner();
        let value = values.metric_values.into_iter().next().context("no value is there")?;
        Ok(Answer { active, metric: value.metric_value_float, goal: spec.target_size_float })
    }

    /// Pushes of `IsActive`, as the trigger type `external-push` listens to.
    pub(super) async fn pushes(&mut self) -> Result<Streaming<IsActiveResponse>> {
        Ok(self.client.stream_is_active(self.object.clone()).await?.into_inner())
    }
}
