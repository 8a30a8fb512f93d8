//! What is let through and where it is told to go, told message by message.

use plumbline::routing::picker::{Choice, Picker as Rule};
use plumbline::routing::{Objectives, Profile};

use super::{GET, POOL, POST, at_rest, picker};
use crate::harness::script::{Refused, Script, connect};
use crate::harness::{Picker, Plan};

/// Nobody can be read, so every endpoint counts as full.
async fn unread(objectives: &[(&str, i32)], profile: Profile) -> Picker {
    let mut settings = Plan::default().settings(&POOL.join(","));
    settings.policy.profile = profile;
    let objectives = objectives.iter().map(|(name, p)| ((*name).to_owned(), Some(*p)));
    let rewrites = settings.policy.rewrites.clone();
    let objectives = Objectives::new(objectives).into();
    settings.policy = settings.policy.with_documents(rewrites, objectives);
    let picker = Picker::inside(settings).await;
    picker.ready().await;
    picker
}

/// U085, U086: without a single reading requests still go on, all of them. Mutants: a gate for
/// everybody; a filter that does not fail open.
#[tokio::test]
async fn a_pool_that_cannot_be_read_is_used() {
    let picker = picker(Plan::default()).await;
    let channel = connect(picker.grpc).await;
    for _ in 0..100 {
        let mut script = Script::open(&channel).await;
        script.request_headers(GET, true);
        script.answer().await.destination();
    }
    at_rest(&picker).await;
}

/// U100: at the line what is sheddable is refused at once, by its objective's name under either header,
/// body or not; the rest goes on. Mutants: shedding priority 0; waiting for the body's end and then not
/// asking; a refusal without `retry-after`.
#[tokio::test]
async fn the_sheddable_are_told_to_come_back() {
    let picker = unread(&[("batch", -1), ("chat", 0)], Profile::default()).await;
    let channel = connect(picker.grpc).await;
    let shed = Refused {
        reason: Some("rejected-saturated".to_owned()),
        retry_after: Some("1".to_owned()),
        ..Refused::plain(
            429,
            "inference error: ResourceExhausted - system saturated, sheddable request dropped",
            "rejected-saturated",
        )
    };
    for name in ["x-llm-d-inference-objective", "x-gateway-inference-objective"] {
        for headers in [GET, POST] {
            for (objective, passes) in [("batch", false), ("chat", true), ("other", true)] {
                let mut script = Script::open(&channel).await;
                let body = headers == POST;
                script.request_headers(&[headers, &[(name, objective)]].concat(), !body);
                if body {
                    script.request_body(b"x", true);
                }
                match script.routed_or_refused().await {
                    Ok(heard) => assert!(passes, "{objective} {heard:?}"),
                    Err(refused) => {
                        assert!(!passes, "{objective}");
                        assert_eq!(refused, shed);
                    }
                }
            }
        }
    }
    let counted = r#"plumbline_requests_total{result="rejected-saturated"}"#;
    assert_eq!(picker.metric(counted).await, 4);
    at_rest(&picker).await;
}

/// `maxNumOfEndpoints`: the fallbacks follow the endpoint, commas between, and only the first is
/// counted. Mutants: a list without being asked; the count at the last; an endpoint twice.
#[tokio::test]
async fn fallbacks_are_named_where_they_are_asked_for() {
    let several = Rule { choice: Choice::MaxScore, max_endpoints: 9 };
    let picker = unread(&[], Profile { picker: several, ..Profile::default() }).await;
    let channel = connect(picker.grpc).await;
    let mut open = Vec::new();
    for _ in 0..6 {
        let mut script = Script::open(&channel).await;
        script.request_headers(GET, true);
        let answer = script.answer().await;
        let told: Vec<_> = answer.destination().split(',').collect();
        assert!(told == POOL || told == [POOL[1], POOL[0]], "{told:?}");
        open.push(script);
    }
    // The one with fewer requests comes first, so each is first three times.
    for endpoint in picker.pool().await {
        assert_eq!(endpoint["in_flight"], 3, "{endpoint}");
    }
    drop(open);
    at_rest(&picker).await;
}
