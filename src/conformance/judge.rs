//! Plays the cases against a picker and says of each whether it holds.
//!
//! Decides the verdict: a case that cannot be tried says why, and is neither passed nor failed. A case
//! ends at its first fault.

use std::time::Duration;

use futures_util::future::join_all;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::cases::{Case, ENDPOINT, Kind, Pool, playable};
use super::dialog::{self, Step};
use super::expect::{Expectation, Fault, compare, destination, told};
use super::play::{Pace, Play, Said};

/// How to try.
#[derive(Debug, Clone)]
pub struct Trial {
    /// The ext_proc port.
    pub picker: Channel,
    /// The health port, if it is another one.
    pub health: Option<Channel>,
    /// The pool has no endpoint.
    pub empty: bool,
    /// Longest wait for an answer that is due.
    pub patience: Duration,
    /// How long to listen for an answer too many.
    pub quiet: Duration,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Pass,
    /// It does not.
    Fail(Fault),
    /// It was not tried, for this reason.
    Skipped(String),
}

impl Trial {
    /// A member of the pool as the picker names it, `None` when it names none.
    pub async fn learn_endpoint(&self) -> Option<String> {
        let get = serde_json::json!([{
            "request_headers": [[":method", "GET"], [":path", "/v1/models"], [":scheme", "http"],
                                [":authority", "conformance.test"]],
            "end_of_stream": true,
        }]);
        let steps = dialog::parse(get.as_array()?).ok()?;
        let mut play = Play::open(&self.picker, &steps);
        play.step(0, steps.first()?, &self.pace(), |answers| !answers.is_empty()).await;
        play.answers().iter().find_map(|answer| match &answer.said {
            Said::Message(message) => {
                let list = destination(message)?;
                Some(list.split(',').next()?.to_owned())
            }
            Said::End { .. } => None,
        })
    }

    fn pace(&self) -> Pace {
        Pace { patience: self.patience, quiet: self.quiet }
    }

    /// Tries one case; `endpoint` is what [`Trial::learn_endpoint`] found.
    pub async fn case(&self, case: &Case, endpoint: Option<&str>) -> Verdict {
        match (case.pool, self.empty) {
            (Pool::Empty, false) => {
                return Verdict::Skipped("needs a pool without endpoints (--expect-empty)".into());
            }
            (Pool::Filled, true) => {
                return Verdict::Skipped("needs a pool with endpoints".to_owned());
            }
            _ => {}
        }
        if case.names_an_endpoint() && endpoint.is_none() {
            return Verdict::Skipped(format!("{ENDPOINT}: the picker named no destination"));
        }
        if let Kind::Health(names) = &case.kind {
            return self.health(names).await;
        }
        let (steps, expect) = match playable(&case.kind, endpoint.unwrap_or_default()) {
            Ok(playable) => playable,
            Err(rule) => return Verdict::Skipped(rule),
        };
        let dialogs = (0..case.at_once).map(|_| self.dialog(&steps, &expect));
        match join_all(dialogs).await.into_iter().flatten().next() {
            None => Verdict::Pass,
            Some(fault) => Verdict::Fail(fault),
        }
    }

    async fn dialog(&self, steps: &[Step], expect: &[Expectation]) -> Option<Fault> {
        let mut play = Play::open(&self.picker, steps);
        for (index, step) in steps.iter().enumerate() {
            let due = expect.iter().filter(|entry| entry.by <= index).count();
            let done = |answers: &[_]| {
                let progress = compare(expect, answers);
                progress.met >= due || progress.fault.is_some()
            };
            play.step(index, step, &self.pace(), done).await;
            let progress = compare(expect, play.answers());
            if progress.fault.is_some() {
                return progress.fault;
            }
            if progress.met < due {
                let last = play.answers().last().map_or("nothing".to_owned(), told);
                let expected = expect.get(progress.met).map(Expectation::text).unwrap_or_default();
                let waited = self.patience;
                return Some(Fault {
                    expected: expected.to_owned(),
                    got: format!("silence for {waited:?} after step {index}; last came: {last}"),
                });
            }
        }
        None
    }

    async fn health(&self, names: &[String]) -> Verdict {
        let port = if self.health.is_some() { "the health port" } else { "the ext_proc port" };
        let channel = self.health.as_ref().unwrap_or(&self.picker);
        let mut client = HealthClient::new(channel.clone());
        for name in names {
            let check = client.check(HealthCheckRequest { service: name.clone() });
            let got = match tokio::time::timeout(self.patience, check).await {
                Err(_) => format!("silence for {:?}", self.patience),
                Ok(Ok(response)) if response.get_ref().status() == ServingStatus::Serving => {
                    continue;
                }
                Ok(Ok(response)) => response.get_ref().status().as_str_name().to_owned(),
                Ok(Err(status)) if status.code() == Code::Unimplemented => {
                    return Verdict::Skipped(format!("{port} has no health service (--health)"));
                }
                Ok(Err(status)) => status.to_string(),
            };
            let expected = format!("SERVING for {name:?} on {port}");
            return Verdict::Fail(Fault { expected, got });
        }
        Verdict::Pass
    }
}
