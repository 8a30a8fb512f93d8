//! An endpoint: one model-server address that can be picked, and what is known of its load.
//!
//! Decides identity and text forms; knows neither where endpoints come from nor how load is read.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// The stable name of an endpoint, `namespace/name` (and `-rank-N` where one server has several
/// ports). Load and in-flight counts follow the id, not the address.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    /// The id of `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The text form, `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One pickable model-server address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Stable name.
    pub id: EndpointId,
    /// Where requests go. Printed as `ip:port`, IPv6 in brackets, in the destination header.
    pub address: SocketAddr,
    /// Labels of the pod or file entry; ordered, so that text forms are stable.
    pub labels: BTreeMap<String, String>,
}

impl Endpoint {
    /// An endpoint without labels.
    pub fn new(namespace: &str, name: &str, address: SocketAddr) -> Self {
        Self { id: EndpointId::new(namespace, name), address, labels: BTreeMap::new() }
    }

    /// The endpoint's IP, the part that a subset hint without a port matches.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }
}

/// One scraped signal of an endpoint, as a decision sees it.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Signal {
    /// The engine has no such metric: the signal takes no part in a decision.
    Unmapped,
    /// Mapped, but not read yet.
    #[default]
    Never,
    /// The newest good reading.
    Read {
        /// In the signal's own unit: requests for queues, a fraction for KV-cache use.
        value: f64,
        /// Time since the scrape that brought it ended.
        age: Duration,
    },
}

impl Signal {
    /// The value if it is at most `limit` old. The limit itself is fresh, as upstream compares.
    pub fn fresh(self, limit: Duration) -> Option<f64> {
        match self {
            Self::Read { value, age } if age <= limit => Some(value),
            _ => None,
        }
    }

    /// The newest value, of any age.
    pub fn value(self) -> Option<f64> {
        match self {
            Self::Read { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The age of the newest value.
    pub fn age(self) -> Option<Duration> {
        match self {
            Self::Read { age, .. } => Some(age),
            _ => None,
        }
    }

    /// The same reading with another value.
    #[must_use]
    pub fn map(self, value: impl FnOnce(f64) -> f64) -> Self {
        match self {
            Self::Read { value: old, age } => Self::Read { value: value(old), age },
            other => other,
        }
    }

    /// Whether the endpoint's engine exports this signal at all.
    pub fn is_mapped(self) -> bool {
        self != Self::Unmapped
    }
}

/// Requests of ours that the newest scrape cannot show: what happened since it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Since {
    /// Own requests assigned since, and without a first chunk of their response.
    pub unanswered: u32,
    /// Prompt tokens of own requests assigned since, less those of requests finished since.
    pub tokens: i64,
}

/// What the present is expected to add to the newest scrape; see `reckoning`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Ahead {
    /// Requests in the queue.
    pub waiting: f64,
    /// KV-cache use, a fraction; negative where requests finished.
    pub kv: f64,
}

/// Whether an endpoint still works, as far as its readings tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Suspicion {
    /// It does.
    #[default]
    None,
    /// Its readings stand still while it claims to work on requests that are not ours.
    Suspect,
    /// The same, and it is time to send it a request to see.
    ProbeDue,
}

/// What was learned of an endpoint's speed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Prompt tokens that it reads in a second of work; >= 50.
    pub prefill: f64,
    /// Time that it takes for a token of the answer, as a multiple of the pool's; in `[1/4, 4]`.
    pub pace: f64,
}

impl Default for Speed {
    /// Before anything was learned.
    fn default() -> Self {
        Self { prefill: 10_000.0, pace: 1.0 }
    }
}

/// Everything that decisions read about one endpoint's load, frozen at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Load {
    /// Requests that the server has queued.
    pub waiting: Signal,
    /// Requests that the server is running.
    pub running: Signal,
    /// KV-cache use, a fraction in `[0, 1]`.
    pub kv: Signal,
    /// Requests that this picker sent there and that have not ended.
    pub in_flight: u32,
    /// Prompt tokens of those of them that have no first chunk of their response yet.
    pub in_flight_tokens: u64,
    /// Data-parallel ranks behind the address, whose queues are summed in `waiting` and `running`.
    /// Zero before the first reading, and then counts as one.
    pub ranks: u32,
    /// Ours since the newest scrape began.
    pub since: Since,
    /// What that adds to the scrape; zero unless `reckoning` filled it in.
    pub ahead: Ahead,
    /// Requests that others keep there, smoothed over seconds; >= 0.
    pub others: f64,
    /// Prompt tokens of those of them that wait, estimated; >= 0.
    pub others_tokens: f64,
    /// Tokens that its KV cache holds; 0 where unknown.
    pub capacity: f64,
    /// How fast it is.
    pub speed: Speed,
    /// Whether it works at all.
    pub suspicion: Suspicion,
}

impl Load {
    /// `waiting` of one rank, as expected now: what the queue threshold of a single scheduler is
    /// compared with.
    pub fn waiting_per_rank(&self) -> Signal {
        let ranks = f64::from(self.ranks.max(1));
        self.waiting.map(|value| (value + self.ahead.waiting) / ranks)
    }

    /// KV-cache use as expected now; exactly the reading where nothing of ours happened since.
    pub fn kv_now(&self) -> Signal {
        if self.ahead.kv == 0.0 {
            return self.kv;
        }
        self.kv.map(|value| (value + self.ahead.kv).clamp(0.0, 1.0))
    }
}
