//! What a run brought, as plain values: the input of the verdict and of the summary.
//!
//! Decides what counts as a good answer and which endpoint a request went to. Times count from the
//! start of the traffic.

use std::net::SocketAddr;
use std::time::Duration;

use super::access_log::Line;
use super::traffic::Kind;

/// How a request ended for its client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// A whole answer with this status.
    Whole(u16),
    /// An answer that began with this status and broke off.
    Cut(u16),
    /// No answer, and why.
    Nothing(String),
}

/// One request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) sent: Duration,
    pub(super) ended: Duration,
    /// Of a stream: from sending until the first bytes of the answer's body.
    pub(super) first: Option<Duration>,
    pub(super) answer: Answer,
    /// The endpoint that signed the answer.
    pub(super) served_by: Option<SocketAddr>,
    /// The gateway's line about it.
    pub(super) gateway: Option<Line>,
}

impl Outcome {
    pub(super) fn is_good(&self) -> bool {
        matches!(self.answer, Answer::Whole(200..=299))
    }

    /// Where the request went, if it went anywhere.
    pub(super) fn endpoint(&self) -> Option<SocketAddr> {
        self.served_by.or_else(|| self.gateway.as_ref()?.upstream)
    }

    /// What the gateway says about the end; empty when it said nothing.
    pub(super) fn details(&self) -> &str {
        self.gateway.as_ref().map_or("", |line| &line.details)
    }

    /// The status as people read it: `503`, `200 cut off`, `no answer`.
    pub(super) fn label(&self) -> String {
        match &self.answer {
            Answer::Whole(status) => status.to_string(),
            Answer::Cut(status) => format!("{status} cut off"),
            Answer::Nothing(_) => "no answer".to_owned(),
        }
    }
}

/// One endpoint in `/debug/pool`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Reading {
    pub(super) address: SocketAddr,
    pub(super) waiting: Option<f64>,
    pub(super) running: Option<f64>,
    /// Fraction.
    pub(super) kv: Option<f64>,
    /// 1 is the line.
    pub(super) score: f64,
    pub(super) in_flight: u64,
    pub(super) stale: bool,
}

/// The pool as Plumbline saw it at one time.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) at: Duration,
    /// Mean score; 1 is the line.
    pub(super) saturation: f64,
    pub(super) readings: Vec<Reading>,
}

impl Sample {
    pub(super) fn of(&self, address: SocketAddr) -> Option<&Reading> {
        self.readings.iter().find(|reading| reading.address == address)
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Observed {
    /// The model servers, in the order of their names.
    pub(super) endpoints: Vec<SocketAddr>,
    pub(super) outcomes: Vec<Outcome>,
    /// In the order of their times; none while Plumbline is not ready.
    pub(super) samples: Vec<Sample>,
    /// When the first step of the break was done.
    pub(super) broken: Option<Duration>,
    /// When the second step was done.
    pub(super) mended: Option<Duration>,
    /// Age above which a reading is stale, as Plumbline has it in force.
    pub(super) staleness: Duration,
    /// When the last request was sent.
    pub(super) ended: Duration,
}
