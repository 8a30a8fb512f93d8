//! The live table: what a person sees while the traffic runs.
//!
//! Decides columns, units and rounding; writes nowhere. Every line fits 80 columns, so that redrawing
//! in place works in any terminal. A value that is unknown is a dash, never a zero.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::observed::{Reading, Sample};

/// Columns of the bar that stands for a whole.
const BAR: usize = 20;

/// One endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    /// What Plumbline last knew of it.
    pub(super) reading: Option<Reading>,
    /// Requests that went there.
    pub(super) picks: usize,
}

/// What one frame shows.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) at: Duration,
    pub(super) duration: Duration,
    pub(super) rows: Vec<Row>,
    pub(super) sent: usize,
    /// Ended requests by status, as [`super::observed::Outcome::label`] names them.
    pub(super) ended: BTreeMap<String, usize>,
    /// Pool saturation; `None` while Plumbline does not answer.
    pub(super) saturation: Option<f64>,
}

impl View {
    /// Rows of endpoints with what `sample` says about each.
    pub(super) fn rows<'a>(
        models: impl Iterator<Item = (&'a str, std::net::SocketAddr)>,
        sample: Option<&Sample>,
        picks: impl Fn(std::net::SocketAddr) -> usize,
    ) -> Vec<Row> {
        models
            .map(|(name, address)| Row {
                name: name.to_owned(),
                reading: sample.and_then(|sample| sample.of(address)).copied(),
                picks: picks(address),
            })
            .collect()
    }

    fn picks(&self) -> usize {
        self.rows.iter().map(|row| row.picks).sum()
    }

    /// `470 × 200   3 × 503   9 open`, the good ones first.
    fn totals(&self) -> String {
        let ended: usize = self.ended.values().sum();
        let mut text = format!("{} sent", self.sent);
        for (label, count) in &self.ended {
            let _ = write!(text, " · {count} × {label}");
        }
        let _ = write!(text, " · {} open", self.sent.saturating_sub(ended));
        text
    }

    fn saturation(&self) -> String {
        self.saturation.map_or("–".to_owned(), |value| format!("{value:.2}"))
    }
}

/// The frame that is redrawn in place, line by line.
pub(super) fn frame(view: &View) -> Vec<String> {
    let (at, of) = (view.at.as_secs_f64(), view.duration.as_secs_f64());
    let mut lines = vec![
        String::new(),
        format!("  {at:.0} s of {of:.0} s{:>8}pool saturation {}", "", view.saturation()),
        String::new(),
        "  endpoint  waiting  running    kv   score  in flight   share of picks".to_owned(),
    ];
    let whole = view.picks();
    lines.extend(view.rows.iter().map(|row| endpoint(row, whole)));
    lines.extend([String::new(), format!("  {}", view.totals())]);
    lines.iter_mut().for_each(|line| cut(line, 80));
    lines
}

fn endpoint(row: &Row, whole: usize) -> String {
    let number = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.0}"));
    let stale = row.reading.is_some_and(|reading| reading.stale);
    let fresh = row.reading.filter(|reading| !reading.stale);
    let waiting = number(fresh.and_then(|reading| reading.waiting));
    let running = number(fresh.and_then(|reading| reading.running));
    let kv = fresh.and_then(|reading| reading.kv);
    let kv = kv.map_or("–".to_owned(), |kv| format!("{:.0} %", kv * 100.0));
    let score = match row.reading {
        None => "–".to_owned(),
        Some(_) if stale => "stale".to_owned(),
        Some(reading) => format!("{:.2}", reading.score),
    };
    let in_flight = number(row.reading.map(|reading| reading.in_flight as f64));
    let share = share(row.picks, whole);
    format!(
        "  {:<8} {waiting:>8} {running:>8} {kv:>6} {score:>7} {in_flight:>10}   {:>4} {}",
        row.name,
        format!("{:.0} %", share * 100.0),
        bar(share)
    )
    .trim_end()
    .to_owned()
}

/// The line that stands for a frame where nothing can be redrawn.
pub(super) fn line(view: &View) -> String {
    let whole = view.picks();
    let shares: Vec<_> =
        view.rows.iter().map(|row| format!("{:.0}", share(row.picks, whole) * 100.0)).collect();
    format!(
        "{:>4.0} s  {}  saturation {}  shares {} %",
        view.at.as_secs_f64(),
        view.totals(),
        view.saturation(),
        shares.join("/")
    )
}

/// A part of a whole; 0 of nothing.
pub(super) fn share(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// A bar of eighths.
pub(super) fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

fn cut(line: &mut String, columns: usize) {
    if let Some((at, _)) = line.char_indices().nth(columns) {
        line.truncate(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        let reading = |stale| Reading {
            address: "127.0.0.1:1".parse().unwrap(),
            waiting: Some(2.0),
            running: Some(11.0),
            kv: Some(0.314),
            score: if stale { 1.0 } else { 0.4 },
            in_flight: 12,
            stale,
        };
        let row = |name: &str, reading, picks| Row { name: name.to_owned(), reading, picks };
        View {
            at: Duration::from_secs(12),
            duration: Duration::from_secs(30),
            rows: vec![
                row("sim-0", Some(reading(false)), 30),
                row("sim-1", Some(reading(true)), 10),
                row("sim-2", None, 0),
            ],
            sent: 45,
            ended: BTreeMap::from([("200".to_owned(), 38), ("503".to_owned(), 2)]),
            saturation: Some(0.4),
        }
    }

    /// Mutants: a stale reading shown as if it were fresh, an unknown one as zero, or shares of all
    /// requests sent instead of those picked.
    #[test]
    fn the_frame_reads_as_meant() {
        let expected = "
  12 s of 30 s        pool saturation 0.40

  endpoint  waiting  running    kv   score  in flight   share of picks
  sim-0           2       11   31 %    0.40         12   75 % ███████████████
  sim-1           –        –      –   stale         12   25 % █████
  sim-2           –        –      –       –          –    0 %

  45 sent · 38 × 200 · 2 × 503 · 5 open";
        assert_eq!(frame(&view()).join("\n"), expected);
        assert_eq!(
            line(&view()),
            "  12 s  45 sent · 38 × 200 · 2 × 503 · 5 open  saturation 0.40  shares 75/25/0 %"
        );
    }

    /// Mutant: a cut by bytes, which may fall inside of a character, or none.
    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let mut wide = view();
        wide.ended = (400..430).map(|status| (format!("{status} –"), 100)).collect();
        assert!(frame(&wide).iter().all(|line| line.chars().count() <= 80));
    }
}
