//! The verdict: what must not happen in a run, and what a break may cost.
//!
//! Decides from observed values alone. Without a break every request must be answered; with one, the
//! allowance of that break applies and nothing else. Times count from the start of the traffic.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use super::faults::{Break, TARGET};
use super::observed::{Answer, Observed, Outcome};

#[cfg(test)]
mod tests;

/// What a busy machine may add to any of the times below.
const MARGIN: Duration = Duration::from_millis(250);
/// A staleness limit above this is no excuse: a dead endpoint must be noticed by then.
const LATEST_NOTICE: Duration = Duration::from_secs(1);
/// How soon a server that is back must be picked again: the longest pause between two scrapes of a
/// server that cannot be reached is a second.
pub(super) const RETURN: Duration = Duration::from_secs(2);
/// How long after Plumbline is ready again Envoy may still refuse: one interval of its health check,
/// and half of one for the connection.
pub(super) const HEALTH_CHECK: Duration = Duration::from_millis(1500);
/// Requests an endpoint in the mean from which on one without any is no accident.
const ENOUGH: usize = 20;

/// A rule that the run broke.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Violation {
    /// The rule, in a few words that stay the same.
    pub(super) rule: &'static str,
    /// What was seen instead.
    pub(super) seen: String,
}

/// The rules.
pub(super) mod rule {
    pub(crate) const TRAFFIC: &str = "requests are sent";
    pub(crate) const ANSWERED: &str = "every request outside of the allowance is answered 2xx";
    pub(crate) const SPREAD: &str = "every endpoint serves";
    pub(crate) const AVOIDED: &str = "the broken endpoint is not picked";
    pub(crate) const NOTICED: &str = "Plumbline notices the broken endpoint";
    pub(crate) const RETURNED: &str = "the endpoint is picked again after its restart";
    pub(crate) const RECOVERED: &str = "requests are answered after Plumbline's restart";
    pub(crate) const OTHERS: &str = "the other endpoints serve";
    pub(crate) const FAIL_OPEN: &str = "requests are answered while every endpoint is at the line";
}

/// Every rule that the run broke; empty is a pass.
pub(super) fn verdict(observed: &Observed, broken: Option<Break>) -> Vec<Violation> {
    let mut rules = Rules { observed, violations: Vec::new() };
    if observed.outcomes.is_empty() {
        rules.broke(rule::TRAFFIC, "none was".to_owned());
        return rules.violations;
    }
    match broken {
        None => {
            rules.answered(|_| false);
            rules.spread();
        }
        Some(Break::KillEndpoint) => rules.kill_endpoint(),
        Some(Break::KillPlumbline) => rules.kill_plumbline(),
        Some(Break::Saturate) => rules.saturate(),
    }
    rules.violations
}

/// How long after a change at an endpoint Plumbline may still act on the old reading.
pub(super) fn notice(observed: &Observed) -> Duration {
    observed.staleness.min(LATEST_NOTICE) + MARGIN
}

struct Rules<'a> {
    observed: &'a Observed,
    violations: Vec<Violation>,
}

impl Rules<'_> {
    fn broke(&mut self, rule: &'static str, seen: String) {
        self.violations.push(Violation { rule, seen });
    }

    fn require(&mut self, holds: bool, rule: &'static str, seen: impl FnOnce() -> String) {
        if !holds {
            self.broke(rule, seen());
        }
    }

    fn answered(&mut self, allowed: impl Fn(&Outcome) -> bool) {
        for group in failures(self.observed, |outcome| !allowed(outcome)) {
            self.broke(rule::ANSWERED, group);
        }
    }

    fn spread(&mut self) {
        let observed = self.observed;
        if observed.outcomes.len() < ENOUGH * observed.endpoints.len() {
            return;
        }
        for (number, address) in observed.endpoints.iter().enumerate() {
            let served = observed.outcomes.iter().any(|o| o.endpoint() == Some(*address));
            self.require(served, rule::SPREAD, || format!("sim-{number} got no request"));
        }
    }

    fn kill_endpoint(&mut self) {
        let observed = self.observed;
        let (Some(killed), Some(target)) = (observed.broken, observed.endpoints.get(TARGET)) else {
            return self.broke(rule::NOTICED, "the run ended before the kill".to_owned());
        };
        let noticed = killed + notice(observed);
        self.answered(|outcome| {
            // Routed to it before anybody could know, and refused or cut by its death.
            let by_its_death = match outcome.answer {
                Answer::Whole(503) => outcome.details().starts_with("upstream_reset_before"),
                Answer::Cut(200) => true,
                _ => false,
            };
            by_its_death
                && outcome.endpoint() == Some(*target)
                && outcome.ended >= killed
                && outcome.sent <= noticed
        });
        let mended = observed.mended.unwrap_or(observed.ended);
        self.avoided(*target, noticed, mended);
        let seen_stale = self.readings(*target, noticed, mended).any(|stale| stale);
        let seen_fresh = self.readings(*target, noticed, mended).any(|stale| !stale);
        self.require(seen_stale && !seen_fresh, rule::NOTICED, || {
            format!("not stale {:?} after its death", notice(observed))
        });
        let back = mended + RETURN;
        let served = observed.outcomes.iter().any(|outcome| {
            outcome.is_good()
                && outcome.endpoint() == Some(*target)
                && (mended..=back).contains(&outcome.sent)
        });
        self.require(served, rule::RETURNED, || format!("no request within {RETURN:?}"));
    }

    fn kill_plumbline(&mut self) {
        let observed = self.observed;
        let Some(killed) = observed.broken else {
            return self.broke(rule::RECOVERED, "the run ended before the kill".to_owned());
        };
        let Some(ready) = observed.mended else {
            return self.broke(rule::RECOVERED, "it was not ready before the end".to_owned());
        };
        let recovered = ready + HEALTH_CHECK;
        self.answered(|outcome| {
            // Envoy refuses without a picker, and cuts the answers that were passing through one.
            let without_picker = matches!(outcome.answer, Answer::Whole(500 | 503 | 504));
            let in_passing = matches!(outcome.answer, Answer::Cut(_) | Answer::Nothing(_))
                && outcome.sent <= killed;
            (without_picker || in_passing)
                && outcome.ended >= killed
                && outcome.sent <= recovered
                && !outcome.details().starts_with("upstream")
        });
        let answered = observed.outcomes.iter().any(|o| o.is_good() && o.sent > recovered);
        self.require(answered, rule::RECOVERED, || {
            format!("none {HEALTH_CHECK:?} after it was ready; a longer --duration shows more")
        });
    }

    fn saturate(&mut self) {
        let observed = self.observed;
        let (Some(one), Some(all)) = (observed.broken, observed.mended) else {
            return self.broke(rule::NOTICED, "the run ended before the pins".to_owned());
        };
        let Some(target) = observed.endpoints.get(TARGET) else { return };
        self.answered(|_| false);
        let (noticed, noticed_all) = (one + notice(observed), all + notice(observed));
        self.avoided(*target, noticed, all);
        let over = |at: Duration| {
            let samples = observed.samples.iter().filter(move |sample| sample.at >= at);
            samples.filter_map(|sample| sample.of(*target)).map(|reading| reading.score)
        };
        let seen = over(noticed).all(|score| score >= 1.0) && over(noticed).next().is_some();
        self.require(seen, rule::NOTICED, || {
            format!("its score was below 1 {:?} after the pin", notice(observed))
        });
        for (number, address) in observed.endpoints.iter().enumerate() {
            let served = observed.outcomes.iter().any(|outcome| {
                outcome.endpoint() == Some(*address) && (noticed..all).contains(&outcome.sent)
            });
            self.require(served || address == target, rule::OTHERS, || {
                format!("sim-{number} got no request while sim-{TARGET} was pinned")
            });
        }
        let shut = observed.samples.iter().any(|s| s.at >= noticed_all && s.saturation >= 1.0);
        let answered = observed.outcomes.iter().any(|o| o.is_good() && o.sent >= noticed_all);
        self.require(shut && answered, rule::FAIL_OPEN, || {
            let what = if shut { "none was answered" } else { "the pool was never seen there" };
            format!("{what}; a longer --duration shows more")
        });
    }

    /// No request to `target` from `from` until the change at `until`. When every endpoint was at the
    /// line the picker fails open, and then any choice is right.
    fn avoided(&mut self, target: SocketAddr, from: Duration, until: Duration) {
        let observed = self.observed;
        let last = until.saturating_sub(MARGIN);
        let picked = observed.outcomes.iter().filter(|outcome| {
            outcome.endpoint() == Some(target)
                && outcome.sent > from
                && outcome.sent < last
                && !was_shut(observed, outcome.sent)
        });
        let (count, first) = (picked.clone().count(), picked.map(|outcome| outcome.sent).min());
        if let Some(first) = first {
            let seen = format!("picked {count} ×, first at {}", seconds(first));
            self.broke(rule::AVOIDED, seen);
        }
    }

    /// Whether `target` was stale, sample by sample.
    fn readings(
        &self,
        target: SocketAddr,
        from: Duration,
        until: Duration,
    ) -> impl Iterator<Item = bool> {
        let within = move |at: Duration| at > from && at < until;
        let samples = self.observed.samples.iter().filter(move |sample| within(sample.at));
        samples.filter_map(move |sample| sample.of(target)).map(|reading| reading.stale)
    }
}

/// Whether no endpoint was below the line in a sample near `at`.
fn was_shut(observed: &Observed, at: Duration) -> bool {
    observed
        .samples
        .iter()
        .filter(|sample| sample.at.abs_diff(at) <= MARGIN)
        .any(|sample| sample.readings.iter().all(|reading| reading.score >= 1.0))
}

/// The failures that `counts` chooses, grouped by what they look like, with the time of the first and
/// the last end.
pub(super) fn failures(observed: &Observed, counts: impl Fn(&Outcome) -> bool) -> Vec<String> {
    let mut groups: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    for outcome in observed.outcomes.iter().filter(|o| !o.is_good() && counts(o)) {
        groups.entry(describe(outcome)).or_default().push(outcome.ended);
    }
    let line = |(what, ends): (String, Vec<Duration>)| {
        let first = ends.iter().min().copied().map(seconds).unwrap_or_default();
        let last = ends.iter().max().copied().map(seconds).unwrap_or_default();
        let when = if first == last { format!("at {first}") } else { format!("{first} to {last}") };
        format!("{} × {what}, {when}", ends.len())
    };
    groups.into_iter().map(line).collect()
}

fn describe(outcome: &Outcome) -> String {
    let why = match (&outcome.answer, outcome.details()) {
        (Answer::Nothing(cause), "") => cause,
        (_, details) => details,
    };
    // What stands in braces says the same in other words; the gateway's log has it in full.
    let why = why.split('{').next().unwrap_or_default();
    let label = outcome.label();
    if why.is_empty() { label } else { format!("{label} ({why})") }
}

fn seconds(at: Duration) -> String {
    format!("{:.1} s", at.as_secs_f64())
}
