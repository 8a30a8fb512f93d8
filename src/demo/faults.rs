//! What `--break` does, and when.
//!
//! Decides the order and the times of the steps; carrying them out is the stage's business, judging
//! what followed is the verdict's. Times count from the start of the traffic.

use std::time::Duration;

/// What to break at one third of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Break {
    /// Kill one model server; start it again at two thirds.
    KillEndpoint,
    /// SIGKILL Plumbline; start it again two seconds later.
    KillPlumbline,
    /// Pin one model server over the line; at two thirds pin all of them.
    Saturate,
}

/// One thing that is done to the running demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    KillEndpoint,
    RestartEndpoint,
    KillPlumbline,
    RestartPlumbline,
    PinOne,
    PinAll,
}

/// The model server that is broken.
pub(super) const TARGET: usize = 2;
/// How long Plumbline is away.
pub(super) const AWAY: Duration = Duration::from_secs(2);
/// Waiting requests that a pinned server reports: ten times the default line.
pub(super) const PINNED_WAITING: u64 = 50;

/// The steps in order.
pub(super) fn timeline(broken: Option<Break>, duration: Duration) -> Vec<(Duration, Step)> {
    let (first, second) = (duration / 3, duration * 2 / 3);
    match broken {
        None => vec![],
        Some(Break::KillEndpoint) => {
            vec![(first, Step::KillEndpoint), (second, Step::RestartEndpoint)]
        }
        Some(Break::KillPlumbline) => {
            vec![(first, Step::KillPlumbline), (first + AWAY, Step::RestartPlumbline)]
        }
        Some(Break::Saturate) => vec![(first, Step::PinOne), (second, Step::PinAll)],
    }
}

/// Shortest run in which everything that `broken` promises can be seen.
pub(super) fn shortest(broken: Option<Break>) -> Duration {
    match broken {
        None => Duration::from_secs(1),
        Some(Break::KillEndpoint | Break::Saturate) => Duration::from_secs(6),
        Some(Break::KillPlumbline) => Duration::from_secs(9),
    }
}
