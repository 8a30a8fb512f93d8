//! `external.metrics.k8s.io/v1beta1`: desired replicas for an HPA, without KEDA and without Prometheus.
//!
//! Decides paths, documents and errors of that API; the numbers are the plan's. A namespace shows its
//! own variants only. Values are replicas, as Quantity strings.

pub mod selector;

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use crate::autoscaler::published::Published;
use crate::http_port;
use crate::scaling::plan::{ModelPlan, VariantPlan};
use selector::Selector;

const GROUP: &str = "external.metrics.k8s.io";
const VERSION: &str = "external.metrics.k8s.io/v1beta1";

/// Both name the target of a variant: our own, and the one that autoscalers for WVA ask for.
pub const METRICS: [&str; 2] = ["plumbline_desired_replicas", "wva_desired_replicas"];

/// Serves until `stop` turns true; accept errors are logged. The API server speaks TLS only.
pub async fn serve(
    listener: TcpListener,
    tls: TlsAcceptor,
    published: watch::Receiver<Published>,
    stop: watch::Receiver<bool>,
) {
    let answer = move |request: &Request<_>, _| answer(request, &published.borrow());
    http_port::serve(listener, Some(tls), "an external-metrics", answer, stop).await;
}

type Page = Response<Full<Bytes>>;

/// The answer to one request, from the newest plan.
fn answer<B>(request: &Request<B>, published: &Published) -> Page {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "only get is served");
    }
    let path = request.uri().path().trim_end_matches('/');
    let parts: Vec<_> = path.split('/').skip(1).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz"] => page(StatusCode::OK, "text/plain", "ok"),
        ["apis"] => document(&json!({
            "kind": "APIGroupList", "apiVersion": "v1", "groups": [group()],
        })),
        ["apis", GROUP] => document(&group()),
        ["apis", GROUP, "v1beta1"] => document(&resources()),
        ["apis", GROUP, "v1beta1", "namespaces", namespace, metric] => {
            values(namespace, metric, request.uri().query().unwrap_or_default(), published)
        }
        _ => failure(StatusCode::NOT_FOUND, "NotFound", &format!("no resource at {path:?}")),
    }
}

fn group() -> Value {
    let version = json!({"groupVersion": VERSION, "version": "v1beta1"});
    json!({
        "kind": "APIGroup", "apiVersion": "v1", "name": GROUP,
        "versions": [version.clone()], "preferredVersion": version,
    })
}

fn resources() -> Value {
    let resources = METRICS.map(|name| {
        json!({
            "name": name, "singularName": "", "namespaced": true,
            "kind": "ExternalMetricValueList", "verbs": ["get"],
        })
    });
    json!({
        "kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": VERSION, "resources": resources,
    })
}

fn values(namespace: &str, metric: &str, query: &str, published: &Published) -> Page {
    if !METRICS.contains(&metric) {
        let known = METRICS.join(", ");
        let text = format!("no metric {metric:?}; known are {known}");
        return failure(StatusCode::NOT_FOUND, "NotFound", &text);
    }
    let text = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "labelSelector");
    let selector = match Selector::parse(text.as_ref().map_or("", |(_, value)| value)) {
        Ok(selector) => selector,
        Err(bad) => return failure(StatusCode::BAD_REQUEST, "BadRequest", &bad.to_string()),
    };
    if let Err(no) = published.acting() {
        return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", &no.to_string());
    }
    let now = jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default();
    let items: Vec<_> = published
        .all()
        .filter(|(model, _)| model.namespace == namespace)
        .filter(|(model, variant)| {
            let labels = labels(model, variant);
            selector.matches(|key| labels.iter().find(|(name, _)| *name == key).map(|(_, v)| *v))
        })
        .map(|(model, variant)| {
            json!({
                "metricName": metric,
                "metricLabels": BTreeMap::from(labels(model, variant)),
                "timestamp": now.to_string(),
                "value": variant.target.to_string(),
            })
        })
        .collect();
    document(&json!({
        "kind": "ExternalMetricValueList", "apiVersion": VERSION, "metadata": {}, "items": items,
    }))
}

/// What a selector can ask for. The namespace has two names, because Prometheus renames the label of a
/// scraped series and selectors for WVA say so.
fn labels<'a>(model: &'a ModelPlan, variant: &'a VariantPlan) -> [(&'static str, &'a str); 6] {
    [
        ("variant_name", &variant.name),
        ("model", &model.model_id),
        ("namespace", &model.namespace),
        ("exported_namespace", &model.namespace),
        ("accelerator_type", &variant.accelerator),
        ("role", variant.role.as_str()),
    ]
}

fn document(value: &Value) -> Page {
    page(StatusCode::OK, "application/json", value.to_string())
}

/// An error in the words of Kubernetes.
fn failure(status: StatusCode, reason: &str, message: &str) -> Page {
    let value = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": status.as_u16(),
    });
    page(status, "application/json", value.to_string())
}

fn page(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Page {
    let mut page = Response::new(Full::new(body.into()));
    *page.status_mut() = status;
    page.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    page
}

#[cfg(test)]
mod tests;
