//! What a run comes to.
//!
//! Decides what a good request is: its first token within a second, and a tenth of a second for each
//! further one in the mean. Failed and unfinished requests are bad. Times are seconds in figures,
//! nanoseconds in records.

/// Longest time to the first token of a good request.
const TTFT: f64 = 1.0;
/// Longest mean time of each further token of a good request.
const TPOT: f64 = 0.1;

/// One request's life.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    at: u64,
    output: u32,
    /// The server that it went to.
    pub(crate) server: usize,
    /// When its first token came.
    pub(crate) first: Option<u64>,
    /// When its last token came.
    pub(crate) last: Option<u64>,
    /// Whether its server refused it.
    pub(crate) failed: bool,
}

impl Record {
    /// A request that arrives at `at` and asks for `output` tokens.
    pub(crate) fn new(at: u64, output: u32) -> Self {
        Self { at, output, server: 0, first: None, last: None, failed: false }
    }

    /// Seconds to the first token; to the end of the run where none came.
    fn ttft(&self, stop: u64) -> f64 {
        seconds(self.first.unwrap_or(stop).saturating_sub(self.at))
    }

    /// Seconds for each token after the first; `None` of an unfinished request.
    fn tpot(&self) -> Option<f64> {
        let took = seconds(self.last?.saturating_sub(self.first?));
        Some(took / f64::from(self.output.saturating_sub(1).max(1)))
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// One run in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Figures {
    /// Requests measured.
    pub(crate) requests: usize,
    /// Of these, finished or refused before the run stopped.
    pub(crate) settled: usize,
    /// Share of good requests.
    pub(crate) good: f64,
    /// Median and 99th percentile of the time to the first token, refused requests left out.
    pub(crate) ttft: [f64; 2],
    /// 99th percentile of the time of each further token.
    pub(crate) tpot: f64,
    /// 99th percentile over time of the most less the fewest requests at a server.
    pub(crate) spread: f64,
    /// Sequences that lost their cache.
    pub(crate) preemptions: u64,
}

impl Figures {
    /// The figures of the requests that arrived from `warm_up` on, in a run that stopped at `stop`.
    pub(crate) fn of(
        records: &[Record],
        warm_up: u64,
        stop: u64,
        spread: &mut [u32],
        preemptions: u64,
    ) -> Self {
        let measured: Vec<&Record> = records.iter().filter(|record| record.at >= warm_up).collect();
        let good = |record: &&&Record| {
            !record.failed
                && record.ttft(stop) <= TTFT
                && record.tpot().is_some_and(|tpot| tpot <= TPOT)
        };
        let answered = measured.iter().filter(|record| !record.failed);
        let mut ttft: Vec<f64> = answered.map(|record| record.ttft(stop)).collect();
        let mut tpot: Vec<f64> = measured.iter().filter_map(|record| record.tpot()).collect();
        ttft.sort_by(f64::total_cmp);
        tpot.sort_by(f64::total_cmp);
        spread.sort_unstable();
        let spread: Vec<f64> = spread.iter().map(|spread| f64::from(*spread)).collect();
        Self {
            requests: measured.len(),
            settled: measured
                .iter()
                .filter(|record| record.failed || record.last.is_some())
                .count(),
            good: measured.iter().filter(good).count() as f64 / measured.len().max(1) as f64,
            ttft: [quantile(&ttft, 0.5), quantile(&ttft, 0.99)],
            tpot: quantile(&tpot, 0.99),
            spread: quantile(&spread, 0.99),
            preemptions,
        }
    }
}

/// The value below which the share `q` of the sorted values lies; 0 of none.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let at = (sorted.len() as f64 * q) as usize;
    sorted.get(at.min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

/// Mean and standard deviation; 0 for the latter of fewer than two.
pub(crate) fn mean(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() })
}

/// By how much `ours` is worse than `rival`, seed by seed, where that is more than noise: twice the
/// standard error of the differences, and at least `least`. Larger values are worse.
pub(crate) fn worse(ours: &[f64], rival: &[f64], least: f64) -> Option<f64> {
    let differences: Vec<f64> = ours.iter().zip(rival).map(|(ours, rival)| ours - rival).collect();
    let (mean, deviation) = mean(&differences);
    let noise = 2.0 * deviation / (differences.len().max(1) as f64).sqrt();
    (mean > noise.max(least)).then_some(mean)
}
