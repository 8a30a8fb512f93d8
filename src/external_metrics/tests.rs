//! Documents and errors, held against the API's own shapes.

use http_body_util::BodyExt as _;

use super::*;
use crate::autoscaler::published::Standing;
use crate::scaling::plan::Plan;

fn published(standing: Standing) -> Published {
    let variant = |name: &str, target| VariantPlan {
        name: name.to_owned(),
        target,
        accelerator: "L4".to_owned(),
        ..VariantPlan::default()
    };
    let model = |namespace: &str, variants| ModelPlan {
        model_id: "org/m".to_owned(),
        namespace: namespace.to_owned(),
        variants,
        ..ModelPlan::default()
    };
    let models = vec![
        model("a", vec![variant("v1", 3), variant("v2", 0)]),
        model("b", vec![variant("v1", 9)]),
    ];
    Published { standing, plan: Plan { models, ..Plan::default() } }
}

async fn ask(published: &Published, path: &str) -> (u16, Value) {
    let request = Request::get(path).body(()).unwrap();
    let (head, body) = answer(&request, published).into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap())
}

const A: &str = "/apis/external.metrics.k8s.io/v1beta1/namespaces/a/plumbline_desired_replicas";

/// Mutants: another namespace's variants shown; the selector ignored; `current` for `target`.
#[tokio::test]
async fn a_namespace_shows_its_own_targets() {
    let holder = published(Standing::Holder);
    let (status, list) = ask(&holder, A).await;
    assert_eq!((status, &list["kind"]), (200, &json!("ExternalMetricValueList")));
    let values: Vec<_> = list["items"].as_array().unwrap().iter().map(|i| &i["value"]).collect();
    assert_eq!(values, ["3", "0"]);
    let (_, list) =
        ask(&holder, &format!("{A}?labelSelector=variant_name%3Dv1%2Crole+in+(both)")).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    let labels = &list["items"][0]["metricLabels"];
    assert_eq!((&labels["model"], &labels["exported_namespace"]), (&json!("org/m"), &json!("a")));
    let (_, none) = ask(&holder, &A.replace("/a/", "/c/")).await;
    assert_eq!(none["items"], json!([]));
}

/// Mutants: 200 with an empty list instead of a status; another code than the HTTP status.
#[tokio::test]
async fn errors_are_statuses() {
    let holder = published(Standing::Holder);
    for (path, code, reason) in [
        (A.replace("desired", "other"), 404, "NotFound"),
        (format!("{A}?labelSelector=a%20b"), 400, "BadRequest"),
        ("/apis/other".to_owned(), 404, "NotFound"),
    ] {
        let (status, answer) = ask(&holder, &path).await;
        assert_eq!(
            (status, &answer["kind"], &answer["code"], &answer["reason"]),
            (code, &json!("Status"), &json!(code), &json!(reason)),
            "{path}"
        );
    }
    let (status, answer) = ask(&published(Standing::Advisory), A).await;
    assert_eq!((status, &answer["reason"]), (503, &json!("ServiceUnavailable")));
}

/// Mutant: a metric left out of the list of resources.
#[tokio::test]
async fn discovery_names_every_metric() {
    let holder = published(Standing::Holder);
    let (_, groups) = ask(&holder, "/apis").await;
    assert_eq!(groups["groups"][0]["preferredVersion"]["groupVersion"], VERSION);
    assert_eq!(ask(&holder, "/apis/external.metrics.k8s.io").await.1, groups["groups"][0]);
    let (_, list) = ask(&holder, "/apis/external.metrics.k8s.io/v1beta1").await;
    let names: Vec<_> = list["resources"].as_array().unwrap().iter().map(|r| &r["name"]).collect();
    assert_eq!(names, METRICS);
}
