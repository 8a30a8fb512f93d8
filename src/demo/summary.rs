//! The closing summary: what the run was like, for a person.
//!
//! Decides what is told, rounding and alignment; whether the run passed is the verdict's business.
//! Lines fit 100 columns. Quantiles are nearest-rank, over answered requests only.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::access_log::Line;
use super::faults::{Break, TARGET};
use super::observed::{Observed, Outcome};
use super::pages::{Decisions, Threshold};
use super::table::{bar, share};
use super::traffic::Kind;
use super::verdict::{HEALTH_CHECK, RETURN, Violation, failures, notice};
use crate::config::params::FIELDS;

/// What the summary says beside the observations.
pub(super) struct Context<'a> {
    pub(super) broken: Option<Break>,
    pub(super) thresholds: &'a [Threshold],
    /// Since Plumbline's last start.
    pub(super) decisions: Option<Decisions>,
}

/// One titled block of lines.
pub(super) struct Section {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
}

/// All blocks, in order.
pub(super) fn sections(observed: &Observed, context: &Context<'_>) -> Vec<Section> {
    let mut sections = vec![requests(observed), endpoints(observed), picker(observed, context)];
    sections.push(thresholds(context.thresholds));
    sections.extend(context.broken.map(|broken| broke(observed, broken)));
    sections
}

/// The last block.
pub(super) fn verdict(observed: &Observed, violations: &[Violation]) -> Section {
    let failed = observed.outcomes.iter().filter(|outcome| !outcome.is_good()).count();
    let (title, lines) = if violations.is_empty() {
        let total = observed.outcomes.len();
        let line = if failed == 0 {
            format!("All {total} requests were answered.")
        } else {
            format!(
                "{} of {total} requests were answered, {failed} failed as allowed.",
                total - failed
            )
        };
        ("Passed", vec![line])
    } else {
        let mut lines = Vec::new();
        let mut last = "";
        for violation in violations {
            if violation.rule != last {
                lines.push(format!("not held: {}", violation.rule));
                last = violation.rule;
            }
            lines.push(format!("  {}", violation.seen));
        }
        ("Failed", lines)
    };
    Section { title: title.to_owned(), lines }
}

fn requests(observed: &Observed) -> Section {
    let title = "Requests                  sent     2xx   other        p50       p99   first event p50       p99";
    let mut lines: Vec<String> = Kind::ALL
        .into_iter()
        .filter_map(|kind| {
            let of = |outcome: &&Outcome| outcome.kind == kind;
            let all: Vec<_> = observed.outcomes.iter().filter(of).collect();
            (!all.is_empty()).then(|| kind_line(kind, &all))
        })
        .collect();
    let mut labels: BTreeMap<String, usize> = BTreeMap::new();
    for outcome in &observed.outcomes {
        *labels.entry(outcome.label()).or_default() += 1;
    }
    let statuses: Vec<_> =
        labels.iter().map(|(label, count)| format!("{count} × {label}")).collect();
    let (total, good) =
        (observed.outcomes.len(), observed.outcomes.iter().filter(|o| o.is_good()).count());
    lines.push(format!(
        "{:<20} {total:>7} {good:>7} {:>7}   {}",
        "all",
        total - good,
        statuses.join(" · ")
    ));
    Section { title: title.to_owned(), lines }
}

fn kind_line(kind: Kind, all: &[&Outcome]) -> String {
    let good = all.iter().filter(|outcome| outcome.is_good());
    let whole = sorted(good.clone().map(|outcome| outcome.ended.saturating_sub(outcome.sent)));
    let count = whole.len();
    let mut line = format!(
        "{:<20} {:>7} {count:>7} {:>7} {:>10} {:>9}",
        kind.name(),
        all.len(),
        all.len() - count,
        time(quantile(&whole, 0.5)),
        time(quantile(&whole, 0.99)),
    );
    if kind.streams() {
        let first = sorted(good.filter_map(|outcome| outcome.first));
        let (half, most) = (quantile(&first, 0.5), quantile(&first, 0.99));
        let _ = write!(line, " {:>17} {:>9}", time(half), time(most));
    }
    line
}

fn endpoints(observed: &Observed) -> Section {
    let picks = |address| {
        observed.outcomes.iter().filter(|outcome| outcome.endpoint() == Some(address)).count()
    };
    let counts: Vec<_> = observed.endpoints.iter().map(|address| picks(*address)).collect();
    let whole = counts.iter().sum();
    let lines = counts.iter().enumerate().map(|(number, count)| {
        let share = share(*count, whole);
        format!("sim-{number:<16} {count:>7}   {:>4.1} %  {}", share * 100.0, bar(share))
    });
    Section { title: "Endpoints             picked    share".to_owned(), lines: lines.collect() }
}

fn picker(observed: &Observed, context: &Context<'_>) -> Section {
    let waits = |of: fn(&Line) -> Option<Duration>| {
        let good = observed.outcomes.iter().filter(|outcome| outcome.is_good());
        let waits = sorted(good.filter_map(|outcome| of(outcome.gateway.as_ref()?)));
        let (half, most) = (time(quantile(&waits, 0.5)), time(quantile(&waits, 0.99)));
        format!("p50 {half:>9}   p99 {most:>9}")
    };
    let mut lines = vec![
        format!(
            "added to a request   {}   Envoy had all of it and waited for the pick",
            waits(|line| line.request_wait)
        ),
        format!(
            "added to a response  {}   Envoy had its headers, waited to pass them on",
            waits(|line| line.response_wait)
        ),
    ];
    if let Some(decisions) = context.decisions {
        let since = match context.broken {
            Some(Break::KillPlumbline) => " since the restart",
            _ => "",
        };
        lines.push(format!(
            "choosing alone       p50 {:>9}   p99 {:>9}   its histogram, {} picks{since}",
            format!("≤ {}", time(Some(decisions.p50))),
            format!("≤ {}", time(Some(decisions.p99))),
            decisions.count,
        ));
    }
    let saturation = || observed.samples.iter().map(|sample| sample.saturation);
    let mean = saturation().sum::<f64>() / observed.samples.len().max(1) as f64;
    let most = saturation().fold(0.0, f64::max);
    lines.push(format!(
        "pool saturation     mean {mean:>9.2}   max {most:>9.2}   the endpoints' mean score; 1 is the line"
    ));
    Section { title: "Plumbline".to_owned(), lines }
}

/// Those that picking reads.
fn thresholds(thresholds: &[Threshold]) -> Section {
    let lines = FIELDS
        .iter()
        .filter_map(|field| thresholds.iter().find(|threshold| threshold.name == *field))
        .map(|threshold| {
            format!("{:<26} {:>8}   {}", threshold.name, threshold.value, threshold.source)
        });
    Section { title: "Thresholds in force".to_owned(), lines: lines.collect() }
}

/// What was broken, what it cost and what it was allowed to cost.
fn broke(observed: &Observed, broken: Break) -> Section {
    let at = |time: Option<Duration>| {
        time.map_or("not reached".to_owned(), |at| format!("at {:.1} s", at.as_secs_f64()))
    };
    let (first, second) = (at(observed.broken), at(observed.mended));
    let notice = notice(observed);
    let (name, mut lines) = match broken {
        Break::KillEndpoint => (
            "kill-endpoint",
            vec![
                format!("sim-{TARGET} was killed {first} and started again {second}"),
                format!(
                    "allowed   requests that were at sim-{TARGET}, or sent there within {notice:?}, may fail"
                ),
                format!(
                    "expected  stale by then, no pick while dead, picked again within {RETURN:?}"
                ),
            ],
        ),
        Break::KillPlumbline => (
            "kill-plumbline",
            vec![
                format!("Plumbline was killed {first}, started 2 s later and ready {second}"),
                format!(
                    "allowed   failures until {HEALTH_CHECK:?} after it was ready: Envoy checks its health every second"
                ),
                "expected  every request is answered afterwards".to_owned(),
            ],
        ),
        Break::Saturate => (
            "saturate",
            vec![
                format!(
                    "sim-{TARGET} was pinned at 50 waiting requests {first}, all four {second}"
                ),
                "allowed   no failure".to_owned(),
                format!(
                    "expected  no pick of sim-{TARGET} from {notice:?} after its pin; with all pinned, requests still pass"
                ),
            ],
        ),
    };
    let groups = failures(observed, |_| true);
    lines.push(if groups.is_empty() {
        "seen      no failure".to_owned()
    } else {
        "seen".to_owned()
    });
    lines.extend(groups.iter().map(|group| format!("  {group}")));
    Section { title: format!("Broken: {name}"), lines }
}

fn sorted(times: impl Iterator<Item = Duration>) -> Vec<Duration> {
    let mut times: Vec<_> = times.collect();
    times.sort_unstable();
    times
}

/// Nearest rank; `None` of nothing.
fn quantile(sorted: &[Duration], share: f64) -> Option<Duration> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

/// A time in three digits and the unit that suits it.
fn time(time: Option<Duration>) -> String {
    let Some(time) = time else { return "–".to_owned() };
    if time == Duration::MAX {
        return "∞".to_owned();
    }
    let seconds = time.as_secs_f64();
    let (value, unit) = match seconds {
        s if s < 0.000_999_5 => (s * 1e6, "µs"),
        s if s < 0.999_5 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let digits = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    // Microseconds are counted, so that their digits after the point would be made up.
    let digits = if unit == "µs" { 0 } else { digits };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::super::observed::Answer;
    use super::*;

    /// Mutants: the rank above, an interpolation, or a panic on nothing.
    #[test]
    fn quantiles_are_nearest_rank() {
        let times: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 0.5), Some(Duration::from_millis(100)));
        assert_eq!(quantile(&times, 0.99), Some(Duration::from_millis(198)));
        assert_eq!(quantile(&times[..1], 0.99), Some(Duration::from_millis(1)));
        assert_eq!(quantile(&[], 0.5), None);
    }

    /// Mutants: a longer word anywhere, or a block that is left out.
    #[test]
    fn every_line_fits_and_every_block_is_there() {
        let endpoint = "127.0.0.1:65535".parse().unwrap();
        let outcome = |number: u64, answer| Outcome {
            number,
            kind: Kind::ALL[number as usize % Kind::ALL.len()],
            sent: Duration::from_secs(100),
            ended: Duration::from_millis(111_100),
            first: Some(Duration::from_millis(1234)),
            answer,
            served_by: Some(endpoint),
            gateway: Some(Line {
                details: "upstream_reset_before_response_started{connection_termination}".into(),
                request_wait: Some(Duration::from_micros(99_940)),
                response_wait: Some(Duration::from_micros(99_940)),
                ..Line::default()
            }),
        };
        let good = (0..12_000).map(|number| outcome(number, Answer::Whole(200)));
        let bad = (0..1_000).map(|number| outcome(number, Answer::Cut(200)));
        let observed = Observed {
            endpoints: vec![endpoint; 4],
            outcomes: good.chain(bad).collect(),
            broken: Some(Duration::from_secs(100)),
            mended: Some(Duration::from_secs(200)),
            staleness: Duration::from_millis(200),
            ..Observed::default()
        };
        let decisions =
            Decisions { count: 13_000, p50: Duration::from_micros(100), p99: Duration::MAX };
        for broken in [Break::KillEndpoint, Break::KillPlumbline, Break::Saturate] {
            let context =
                Context { broken: Some(broken), thresholds: &[], decisions: Some(decisions) };
            let violations = super::super::verdict::verdict(&observed, None);
            let mut sections = sections(&observed, &context);
            sections.push(verdict(&observed, &violations));
            let titles: Vec<_> =
                sections.iter().filter_map(|section| section.title.split(' ').next()).collect();
            let expected =
                ["Requests", "Endpoints", "Plumbline", "Thresholds", "Broken:", "Failed"];
            assert_eq!(titles, expected);
            for line in sections.iter().flat_map(|section| &section.lines) {
                assert!(line.chars().count() <= 98, "{} {line}", line.chars().count());
            }
        }
    }

    /// Mutant: a unit that changes only after the rounding has shown "1000 ms".
    #[test]
    fn times_have_three_digits_at_most() {
        let shown = |nanos| time(Some(Duration::from_nanos(nanos)));
        assert_eq!(shown(640_000), "640 µs");
        assert_eq!(shown(999_900), "1.00 ms");
        assert_eq!(shown(12_340_000), "12.3 ms");
        assert_eq!(shown(999_700_000), "1.00 s");
        assert_eq!(shown(15_000_000_000), "15.0 s");
        assert_eq!(time(None), "–");
    }
}
