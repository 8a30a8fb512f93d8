//! What arrives, and at what pool.
//!
//! Decides arrival times and sizes for a seed, the same for every rule. Lengths are log-normal, or those
//! of a public trace, whose copies are shifted at random and laid over each other at true speed. Rates
//! are requests a second, times nanoseconds since the run began.

use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::server::Hardware;
use super::{MILLI, SECOND};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Job {
    /// When it reaches the picker.
    pub(crate) at: u64,
    /// True length of its prompt.
    pub(crate) prompt: u32,
    /// What the picker takes the prompt for: up to a fifth off.
    pub(crate) estimate: u64,
    /// Tokens of its answer; no picker knows it.
    pub(crate) output: u32,
    /// Which picking replica it reaches, modulo their number.
    pub(crate) gateway: u32,
}

/// A log-normal length between bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Length {
    median: f64,
    sigma: f64,
    least: f64,
    most: f64,
}

/// Where lengths come from.
#[derive(Debug, Clone)]
pub(crate) enum Lengths {
    /// Prompt and output.
    Drawn(Length, Length),
    /// Rows of a trace: time, prompt, output; by time.
    Trace(Vec<(u64, u32, u32)>),
}

impl Lengths {
    /// A bit of everything.
    pub(crate) fn mixed() -> Self {
        Self::Drawn(length(1000.0, 1.0, 100.0, 16_000.0), length(200.0, 0.8, 20.0, 2000.0))
    }

    /// Short questions.
    pub(crate) fn chat() -> Self {
        Self::Drawn(length(300.0, 0.6, 20.0, 16_000.0), length(250.0, 0.7, 5.0, 2000.0))
    }

    /// Rows `TIMESTAMP,ContextTokens,GeneratedTokens` of one day; `None` where the file is absent.
    ///
    /// # Errors
    /// The first line that is no such row, by its number.
    pub(crate) fn azure(path: &Path) -> Result<Option<Self>, String> {
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(None) };
        let mut rows = Vec::new();
        for (number, line) in text.lines().enumerate().skip(1).filter(|(_, line)| !line.is_empty())
        {
            let row = azure_row(line).ok_or_else(|| {
                format!("{}: line {} is no row of the trace", path.display(), number + 1)
            })?;
            rows.push(row);
        }
        rows.sort_unstable();
        let first = rows.first().map_or(0, |row| row.0);
        rows.iter_mut().for_each(|row| row.0 -= first);
        match rows.last() {
            Some((span, ..)) if *span > 0 => Ok(Some(Self::Trace(rows))),
            _ => Err(format!("{}: no rows that last", path.display())),
        }
    }

    fn draw(&self, rng: &mut SmallRng) -> (u32, u32) {
        match self {
            Self::Drawn(prompt, output) => (prompt.draw(rng), output.draw(rng)),
            Self::Trace(rows) => {
                let (_, prompt, output) = rows[rng.random_range(0..rows.len())];
                (prompt, output)
            }
        }
    }
}

/// `2023-11-16 18:15:46.6805900,374,44` as nanoseconds of the day and two lengths.
fn azure_row(line: &str) -> Option<(u64, u32, u32)> {
    let mut fields = line.trim_end().split(',');
    let clock = fields.next()?.split_once(' ')?.1;
    let mut parts = clock.split(':');
    let (hours, minutes): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let seconds: f64 = parts.next()?.parse().ok()?;
    let at = (hours * 60 + minutes) * 60 * SECOND + (seconds * 1e9) as u64;
    Some((at, fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

const fn length(median: f64, sigma: f64, least: f64, most: f64) -> Length {
    Length { median, sigma, least, most }
}

impl Length {
    fn draw(&self, rng: &mut SmallRng) -> u32 {
        // Box and Muller's normal deviate.
        let (u, v) = (rng.random_range(f64::MIN_POSITIVE..1.0), rng.random::<f64>());
        let normal = (-2.0 * f64::ln(u)).sqrt() * (std::f64::consts::TAU * v).cos();
        (self.median * (self.sigma * normal).exp()).clamp(self.least, self.most) as u32
    }
}

/// What happens to servers during a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Event {
    /// Nothing.
    None,
    /// The last server is not there before this time.
    Joins(u64),
    /// The first server refuses what arrives between these times, at once.
    FailsFast(u64, u64),
}

/// A pool and what arrives at it.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    /// Name in the table.
    pub(crate) name: &'static str,
    /// Every server's hardware.
    pub(crate) hardware: Hardware,
    /// Slowness of each server; 1 is the hardware's own speed.
    pub(crate) slowness: Vec<f64>,
    /// Lengths of the requests.
    pub(crate) lengths: Lengths,
    /// Arrivals without bursts, as a share of what the servers finish under saturation.
    pub(crate) load: f64,
    /// Requests of a burst, all within 50 ms, one burst every 20 s; 0 for none.
    pub(crate) burst: usize,
    /// Pickers at work.
    pub(crate) replicas: u32,
    /// What happens meanwhile.
    pub(crate) event: Event,
    /// Arrivals before this time are not measured.
    pub(crate) warm_up: u64,
    /// Arrivals end at this time.
    pub(crate) end: u64,
}

impl Workload {
    /// Eight equal servers at `load`, one picker, for `seconds` after the warm-up.
    pub(crate) fn new(
        name: &'static str,
        hardware: Hardware,
        lengths: Lengths,
        load: f64,
        seconds: u64,
    ) -> Self {
        let warm_up = 10 * SECOND;
        Self {
            name,
            hardware,
            slowness: vec![1.0; 8],
            lengths,
            load,
            burst: 0,
            replicas: 1,
            event: Event::None,
            warm_up,
            end: warm_up + seconds * SECOND,
        }
    }

    /// Arrivals of this seed, by time, where one server of full speed finishes `capacity` a second.
    pub(crate) fn jobs(&self, capacity: f64, seed: u64) -> Vec<Job> {
        let mut rng = SmallRng::seed_from_u64(seed);
        let speed: f64 = self.slowness.iter().map(|slowness| 1.0 / slowness).sum();
        let rate = self.load * capacity * speed;
        let mut jobs = Vec::new();
        match &self.lengths {
            Lengths::Trace(rows) => superpose(rows, rate, self.end, &mut rng, &mut jobs),
            drawn @ Lengths::Drawn(..) => {
                let mut at = 0.0;
                loop {
                    at -= rng.random_range(f64::MIN_POSITIVE..1.0).ln() / rate * 1e9;
                    if at as u64 >= self.end {
                        break;
                    }
                    let lengths = drawn.draw(&mut rng);
                    jobs.push(job(at as u64, lengths, &mut rng));
                }
            }
        }
        if self.burst > 0 {
            let mut start = self.warm_up + 5 * SECOND;
            while start < self.end {
                for _ in 0..self.burst {
                    let at = start + rng.random_range(0..50 * MILLI);
                    let lengths = self.lengths.draw(&mut rng);
                    jobs.push(job(at, lengths, &mut rng));
                }
                start += 20 * SECOND;
            }
        }
        jobs.sort_by_key(|job| job.at);
        jobs
    }
}

/// As many copies of the trace as make up the rate, each from another point on; the last one thinned.
fn superpose(
    rows: &[(u64, u32, u32)],
    rate: f64,
    end: u64,
    rng: &mut SmallRng,
    jobs: &mut Vec<Job>,
) {
    let span = rows.last().map_or(1, |row| row.0 + 1);
    let mut copies = rate / (rows.len() as f64 / (span as f64 / 1e9));
    while copies > 0.0 {
        let shift = rng.random_range(0..span);
        for (time, prompt, output) in rows {
            let at = (time + shift) % span;
            if at < end && (copies >= 1.0 || rng.random::<f64>() < copies) {
                jobs.push(job(at, (*prompt, *output), rng));
            }
        }
        copies -= 1.0;
    }
}

fn job(at: u64, (prompt, output): (u32, u32), rng: &mut SmallRng) -> Job {
    let estimate = (f64::from(prompt) * rng.random_range(0.8..1.2)) as u64;
    Job { at, prompt: prompt.max(1), estimate, output: output.max(1), gateway: rng.random() }
}
