//! Choosing among the series that answer one target.
//!
//! Decides what a repeated series is and which series of a rank counts. Everything works in place: a
//! page is read twenty times a second.

use std::cmp::Ordering;

use crate::poller::exposition::Sample;

/// Labels that tell data-parallel ranks behind one port apart: vLLM's, SGLang's.
const RANK_LABELS: [&str; 2] = ["engine", "dp_rank"];

/// A series that answers a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit<'p> {
    pub(super) target: usize,
    /// How good the name is that it was found under, 0 the best.
    pub(super) preference: usize,
    /// Place on the page.
    pub(super) at: usize,
    pub(super) sample: Sample<'p>,
}

impl<'p> Hit<'p> {
    /// The label value of the rank, as the page spells it; empty where there is none.
    pub(super) fn rank(&self) -> &'p [u8] {
        let labels = self.sample.labels;
        RANK_LABELS.iter().find_map(|label| labels.get(label)).map_or(&[], |value| value.raw())
    }
}

/// When the sample was taken; one without a time counts as taken at 0, as upstream.
pub(super) fn time(hit: &Hit<'_>) -> f64 {
    hit.sample.timestamp.unwrap_or(0.0)
}

/// `series` without repetitions, in label order: of equal label blocks the newest counts, and among
/// equally new ones the first.
pub(super) fn distinct<'s, 'p>(series: &'s mut [Hit<'p>]) -> &'s mut [Hit<'p>] {
    if series.len() > 1 {
        series.sort_by(|a, b| {
            let labels = a.sample.labels.cmp(&b.sample.labels);
            labels.then(time(b).total_cmp(&time(a))).then(a.at.cmp(&b.at))
        });
    }
    keep_first(series, |a, b| a.sample.labels == b.sample.labels)
}

/// The series of each rank that scores highest, the first among equals, in the order of rank labels.
pub(super) fn per_rank<'s, 'p>(
    series: &'s mut [Hit<'p>],
    score: impl Fn(&Hit<'p>) -> f64,
) -> &'s mut [Hit<'p>] {
    if series.len() > 1 {
        series.sort_by(|a, b| {
            let better = score(b).total_cmp(&score(a));
            a.rank().cmp(b.rank()).then(better).then(a.at.cmp(&b.at))
        });
    }
    keep_first(series, |a, b| a.rank() == b.rank())
}

/// The newest of `series`, the first among equally new ones.
pub(super) fn newest<'p>(series: &[Hit<'p>]) -> Option<Sample<'p>> {
    let later = |kept: Hit<'p>, hit: Hit<'p>| match time(&hit).total_cmp(&time(&kept)) {
        Ordering::Greater => hit,
        _ => kept,
    };
    series.iter().copied().reduce(later).map(|hit| hit.sample)
}

/// Those of `series` that have a value, at its front.
pub(super) fn with_value<'s, 'p>(series: &'s mut [Hit<'p>]) -> &'s mut [Hit<'p>] {
    let mut kept = 0;
    for at in 0..series.len() {
        if series[at].sample.value.is_some() {
            series[kept] = series[at];
            kept += 1;
        }
    }
    &mut series[..kept]
}

/// Of neighbours that are the `same`, the first.
fn keep_first<'s, 'p>(
    series: &'s mut [Hit<'p>],
    same: impl Fn(&Hit<'p>, &Hit<'p>) -> bool,
) -> &'s mut [Hit<'p>] {
    let mut kept = 0;
    for at in 0..series.len() {
        if kept == 0 || !same(&series[kept - 1], &series[at]) {
            series[kept] = series[at];
            kept += 1;
        }
    }
    &mut series[..kept]
}
