//! A client of KEDA's external scaler, written from the public contract alone: names, numbers and
//! types of fields, and the path of each call.

use std::collections::HashMap;
use std::net::SocketAddr;

use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, prost::Message)]
pub struct ScaledObjectRef {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(map = "string, string", tag = "3")]
    pub scaler_metadata: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct IsActive {
    #[prost(bool, tag = "1")]
    pub result: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricSpec {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub target: i64,
    #[prost(double, tag = "3")]
    pub target_float: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricSpecs {
    #[prost(message, repeated, tag = "1")]
    pub specs: Vec<MetricSpec>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct GetMetrics {
    #[prost(message, optional, tag = "1")]
    pub object: Option<ScaledObjectRef>,
    #[prost(string, tag = "2")]
    pub metric: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricValue {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(int64, tag = "2")]
    pub value: i64,
    #[prost(double, tag = "3")]
    pub value_float: f64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetricValues {
    #[prost(message, repeated, tag = "1")]
    pub values: Vec<MetricValue>,
}

/// One connection, as KEDA keeps one for each address.
#[derive(Clone)]
pub struct Keda(Channel);

/// A `ScaledObject` with this `scalerMetadata`.
pub fn object(metadata: &[(&str, &str)]) -> ScaledObjectRef {
    let metadata = metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ScaledObjectRef {
        name: "so".to_owned(),
        namespace: "keda".to_owned(),
        scaler_metadata: metadata.collect(),
    }
}

fn path(call: &str) -> PathAndQuery {
    format!("/externalscaler.ExternalScaler/{call}").parse().unwrap()
}

impl Keda {
    pub async fn connect(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self(endpoint.connect().await.unwrap())
    }

    async fn call<Q, A>(&self, call: &str, question: Q) -> Result<A, Status>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        Ok(grpc.unary(Request::new(question), path(call), codec).await?.into_inner())
    }

    async fn open<A>(&self, call: &str, of: ScaledObjectRef) -> Result<Streaming<A>, Status>
    where
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let mut grpc = Grpc::new(self.0.clone());
        grpc.ready().await.map_err(|error| Status::new(Code::Unavailable, error.to_string()))?;
        let codec: ProstCodec<ScaledObjectRef, A> = ProstCodec::default();
        Ok(grpc.server_streaming(Request::new(of), path(call), codec).await?.into_inner())
    }

    pub async fn is_active(&self, of: ScaledObjectRef) -> Result<bool, Status> {
        Ok(self.call::<_, IsActive>("IsActive", of).await?.result)
    }

    pub async fn stream_is_active(
        &self,
        of: ScaledObjectRef,
    ) -> Result<Streaming<IsActive>, Status> {
        self.open("StreamIsActive", of).await
    }

    pub async fn specs(&self, of: ScaledObjectRef) -> Result<Vec<MetricSpec>, Status> {
        Ok(self.call::<_, MetricSpecs>("GetMetricSpec", of).await?.specs)
    }

    pub async fn stream_specs(
        &self,
        of: ScaledObjectRef,
    ) -> Result<Streaming<MetricSpecs>, Status> {
        self.open("StreamMetricSpec", of).await
    }

    pub async fn metrics(
        &self,
        of: ScaledObjectRef,
        metric: &str,
    ) -> Result<Vec<MetricValue>, Status> {
        let question = GetMetrics { object: Some(of), metric: metric.to_owned() };
        Ok(self.call::<_, MetricValues>("GetMetrics", question).await?.values)
    }

    /// What KEDA would tell the autoscaler: the value of the first metric that is specified.
    pub async fn wanted(&self, of: ScaledObjectRef) -> Result<i64, Status> {
        let spec = self.specs(of.clone()).await?.remove(0);
        assert_eq!((spec.target, spec.target_float), (1, 1.0));
        let value = self.metrics(of, &spec.name).await?.remove(0);
        assert_eq!((value.name, value.value_float), (spec.name, value.value as f64));
        Ok(value.value)
    }
}
