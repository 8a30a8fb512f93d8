//! What one page says about one endpoint.
//!
//! Decides which series count: ranks on one port are added up, a repeated series counts once, the
//! newest LoRA line of a rank counts. Decides not how old a value may be: what a page does not say is
//! `None`, and the caller keeps what it knew. Counts are requests, KV-cache use is a fraction in
//! `[0, 1]`, block sizes are tokens.

use std::collections::BTreeSet;
use std::fmt;

use super::engine::{CacheInfo, Engine, Slot, Target};
use super::exposition::{Sample, lines};
use super::labels::Labels;
use super::spec::Spec;

/// Labels that tell data-parallel ranks behind one port apart: vLLM's, SGLang's.
const RANK_LABELS: [&str; 2] = ["engine", "dp_rank"];

/// How much of a label value a fault repeats, in characters.
const SHOWN: usize = 40;

/// One page, read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reading {
    /// Requests queued, whole, summed over the ranks.
    pub waiting: Option<f64>,
    /// Requests running, whole, summed over the ranks.
    pub running: Option<f64>,
    /// KV-cache use of the fullest rank, in `[0, 1]`.
    pub kv: Option<f64>,
    /// Mean KV-cache use of the ranks, in `[0, 1]`: times [`num_blocks`](Self::num_blocks) it is the
    /// blocks in use, as ranks of one server have caches of one size.
    pub kv_mean: Option<f64>,
    /// The largest number of series that waiting, running or KV-cache use had; 0 when none was there.
    pub ranks: u32,
    /// Tokens in a KV block, never 0.
    pub block_size: Option<u32>,
    /// KV blocks, summed over the ranks, never 0.
    pub num_blocks: Option<u32>,
    /// LoRA adapters; `None` where the page has no such line, which is no fault.
    pub lora: Option<Lora>,
    /// One value for each custom metric of the mapping, in its order.
    pub custom: Vec<Option<f64>>,
    /// Lines of wanted families that were malformed and left out.
    pub bad_lines: u32,
    /// Values of wanted families that were NaN, infinite or negative.
    pub bad_values: u32,
    /// KV-cache values over 1, which count as 1.
    pub over_one: u32,
    /// Why signals are missing, in the mapping's order.
    pub faults: Vec<Fault>,
}

/// The LoRA adapters of a server, its ranks together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Lora {
    /// Adapters with running requests.
    pub running: BTreeSet<String>,
    /// Adapters with waiting requests.
    pub waiting: BTreeSet<String>,
    /// How many adapters one rank can hold at once.
    pub max: Option<u32>,
}

/// Why a page does not give a signal that its engine exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// No line of the family.
    NotFound(String),
    /// The family is there, no series has the spec's labels.
    NoSeries(Spec),
    /// Every line was malformed, or a value was no reading.
    Unusable(String),
    /// A label that should hold a number does not.
    Label {
        /// The label.
        label: String,
        /// Its family.
        family: String,
        /// The head of its value.
        value: String,
    },
    /// The fault of a custom metric.
    Custom(String, Box<Fault>),
}

/// Reads `page`, any bytes at all, as the answer of an `engine`.
pub fn read_page(page: &[u8], engine: &Engine) -> Reading {
    let mut reading =
        Reading { custom: vec![None; engine.mapping.custom.len()], ..Reading::default() };
    let mut seen = vec![Seen::default(); engine.families];
    let mut hits = Vec::new();
    for (at, line) in lines(page, &engine.wanted).enumerate() {
        let Some(sample) = line.sample else {
            reading.bad_lines += 1;
            seen[line.family].malformed = true;
            continue;
        };
        seen[line.family].readable = true;
        reading.bad_values += u32::from(sample.value.is_none());
        for (target, wanted) in engine.targets.iter().enumerate() {
            if let Some(preference) = wanted.preference(line.family, sample.labels) {
                hits.push(Hit { target, preference, at, sample });
            }
        }
    }
    for (at, target) in engine.targets.iter().enumerate() {
        let of_target = || hits.iter().filter(|hit| hit.target == at);
        let best = of_target().map(|hit| hit.preference).min();
        let series: Vec<Hit<'_>> =
            of_target().filter(|hit| Some(hit.preference) == best).copied().collect();
        let read = if series.is_empty() {
            absent(target, &seen)
        } else {
            reading.take(target, series, engine)
        };
        if let Err(fault) = read {
            reading.faults.push(match target.slot {
                Slot::Custom(at) => {
                    Fault::Custom(engine.mapping.custom[at].0.clone(), Box::new(fault))
                }
                _ => fault,
            });
        }
    }
    reading
}

/// A series that answers a target.
#[derive(Debug, Clone, Copy)]
struct Hit<'p> {
    target: usize,
    /// How good the name is that it was found under, 0 the best.
    preference: usize,
    /// Place on the page.
    at: usize,
    sample: Sample<'p>,
}

/// What kinds of line a family had.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    malformed: bool,
    readable: bool,
}

/// Why `target` has no series at all.
fn absent(target: &Target, seen: &[Seen]) -> Result<(), Fault> {
    let family = target.spec.family().to_owned();
    if target.names.iter().any(|name| seen[*name].malformed) {
        return Err(Fault::Unusable(family));
    }
    if target.names.iter().any(|name| seen[*name].readable) {
        return Err(Fault::NoSeries(target.spec.clone()));
    }
    // A server without adapters has no LoRA family; that is the usual case and no fault.
    if target.slot == Slot::Lora { Ok(()) } else { Err(Fault::NotFound(family)) }
}

// === impl Reading ===

impl Reading {
    /// Whether the page gave no signal of load at all. Static cache facts and LoRA lines say nothing
    /// about load and do not count.
    pub fn is_blank(&self) -> bool {
        self.waiting.is_none() && self.running.is_none() && self.kv.is_none()
    }

    /// Stores what `series`, at least one, say for `target`.
    fn take(
        &mut self,
        target: &Target,
        series: Vec<Hit<'_>>,
        engine: &Engine,
    ) -> Result<(), Fault> {
        let unusable = || Fault::Unusable(target.spec.family().to_owned());
        match target.slot {
            Slot::Waiting => self.waiting = Some(self.sum(series).ok_or_else(unusable)?),
            Slot::Running => self.running = Some(self.sum(series).ok_or_else(unusable)?),
            Slot::Kv => self.take_kv(series).ok_or_else(unusable)?,
            Slot::Lora => return self.take_lora(target, series),
            Slot::CacheInfo => {
                if let Some(info) = &engine.mapping.cache_info {
                    return self.take_cache(info, series);
                }
            }
            Slot::BlockSize => {
                let size = newest(series).and_then(whole).ok_or_else(unusable)?;
                self.block_size = self.block_size.or(Some(size));
            }
            Slot::NumBlocks => {
                let mut ranks = per_rank(series, time).into_iter().map(whole);
                let blocks: u32 =
                    ranks.try_fold(0, |sum: u32, n| sum.checked_add(n?)).ok_or_else(unusable)?;
                self.num_blocks = self.num_blocks.or(Some(blocks));
            }
            // A custom metric can be anything, a temperature for one, so nothing is added up.
            Slot::Custom(at) => {
                let value = newest(series).and_then(|sample| sample.value);
                self.custom[at] = Some(value.ok_or_else(unusable)?);
            }
        }
        Ok(())
    }

    /// The whole requests of all series. A rank whose value is unknown makes the sum unknown: to
    /// leave it out would show a busier server as the idler one. A malformed line is no rank at all.
    fn sum(&mut self, series: Vec<Hit<'_>>) -> Option<f64> {
        let series = self.distinct(series);
        series.iter().try_fold(0.0, |sum, hit| Some(sum + hit.sample.value?.trunc()))
    }

    /// The fullest rank and the mean. More than full is not a thing a cache can be: such a value
    /// counts as 1, which every limit refuses as it refuses what the server said.
    fn take_kv(&mut self, series: Vec<Hit<'_>>) -> Option<()> {
        let series = self.distinct(series);
        let (mut most, mut sum) = (0.0_f64, 0.0);
        for hit in &series {
            let value = hit.sample.value?;
            self.over_one += u32::from(value > 1.0);
            most = most.max(value.min(1.0));
            sum += value.min(1.0);
        }
        self.kv = Some(most);
        self.kv_mean = Some((sum / series.len() as f64).min(most));
        Some(())
    }

    /// `series` without repetitions, in label order: of equal label blocks the newest counts, and
    /// among equally new ones the first.
    fn distinct<'p>(&mut self, mut series: Vec<Hit<'p>>) -> Vec<Hit<'p>> {
        series.sort_by(|a, b| {
            let (left, right) = (a.sample, b.sample);
            left.labels
                .cmp(&right.labels)
                .then(time(&right).total_cmp(&time(&left)))
                .then(a.at.cmp(&b.at))
        });
        series.dedup_by(|later, kept| later.sample.labels == kept.sample.labels);
        self.ranks = self.ranks.max(u32::try_from(series.len()).unwrap_or(u32::MAX));
        series
    }

    /// The adapters of each rank's newest line. The value of such a line is the time it was written;
    /// older lines stay on the page.
    fn take_lora(&mut self, target: &Target, mut series: Vec<Hit<'_>>) -> Result<(), Fault> {
        let family = target.spec.family();
        series.retain(|hit| hit.sample.value.is_some());
        if series.is_empty() {
            return Err(Fault::Unusable(family.to_owned()));
        }
        let mut lora = Lora::default();
        let mut fault = None;
        for sample in per_rank(series, |sample| sample.value.unwrap_or_default()) {
            adapters(&sample, "running_lora_adapters", &mut lora.running);
            adapters(&sample, "waiting_lora_adapters", &mut lora.waiting);
            match number(sample.labels, "max_lora", family) {
                Ok(max) => lora.max = lora.max.max(max),
                Err(bad) => fault = Some(bad),
            }
        }
        self.lora = Some(lora);
        fault.map_or(Ok(()), Err)
    }

    /// Block size of the first rank, blocks of all. A number that one rank does not tell is unknown.
    fn take_cache(&mut self, info: &CacheInfo, series: Vec<Hit<'_>>) -> Result<(), Fault> {
        let ranks = per_rank(series, time);
        let family = info.spec.family();
        let read = |label| ranks.iter().map(move |rank| number(rank.labels, label, family));
        let sizes: Result<Vec<_>, _> = read(info.block_size_label.as_str()).collect();
        let blocks: Result<Vec<_>, _> = read(info.num_blocks_label.as_str()).collect();
        self.block_size = sizes.as_ref().ok().and_then(|sizes| sizes.first().copied().flatten());
        self.num_blocks = blocks
            .as_ref()
            .ok()
            .and_then(|blocks| blocks.iter().try_fold(0, |sum: u32, n| sum.checked_add((*n)?)));
        sizes.and(blocks).map(|_| ())
    }
}

/// When the sample was taken; one without a time counts as taken at 0, as upstream.
fn time(sample: &Sample<'_>) -> f64 {
    sample.timestamp.unwrap_or(0.0)
}

/// The newest of `series`, the first among equally new ones.
fn newest(series: Vec<Hit<'_>>) -> Option<Sample<'_>> {
    series
        .into_iter()
        .map(|hit| hit.sample)
        .reduce(|kept, later| if time(&later) > time(&kept) { later } else { kept })
}

/// The series of each rank that scores highest, the first among equals, in the order of rank labels.
fn per_rank<'p>(mut series: Vec<Hit<'p>>, score: impl Fn(&Sample<'p>) -> f64) -> Vec<Sample<'p>> {
    let rank = |sample: &Sample<'p>| {
        RANK_LABELS.iter().find_map(|label| sample.labels.get(label)).map(|value| value.raw())
    };
    let order = |a: &Hit<'p>, b: &Hit<'p>| {
        let better = score(&b.sample).total_cmp(&score(&a.sample));
        rank(&a.sample).cmp(&rank(&b.sample)).then(better).then(a.at.cmp(&b.at))
    };
    series.sort_by(order);
    series.dedup_by(|later, kept| rank(&later.sample) == rank(&kept.sample));
    series.into_iter().map(|hit| hit.sample).collect()
}

/// The sample's value as a whole number that is not 0.
fn whole(sample: Sample<'_>) -> Option<u32> {
    let value = sample.value?.trunc();
    // The bounds make the conversion exact.
    (1.0..=f64::from(u32::MAX)).contains(&value).then_some(value as u32)
}

/// The number in `label`: `None` when the label is absent, empty or 0, which tells nothing.
fn number(labels: Labels<'_>, label: &str, family: &str) -> Result<Option<u32>, Fault> {
    let Some(value) = labels.get(label).map(|value| value.text()).filter(|text| !text.is_empty())
    else {
        return Ok(None);
    };
    match value.parse::<u32>() {
        Ok(number) => Ok((number > 0).then_some(number)),
        Err(_) => Err(Fault::Label {
            label: label.to_owned(),
            family: family.to_owned(),
            value: value.chars().take(SHOWN).collect(),
        }),
    }
}

/// Adds the names in the comma list that `label` holds.
fn adapters(sample: &Sample<'_>, label: &str, names: &mut BTreeSet<String>) {
    let Some(list) = sample.labels.get(label) else { return };
    let list = list.text();
    names.extend(list.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned));
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound(family) => write!(f, "metric family {family:?} not found"),
            Self::NoSeries(spec) => write!(f, "no series matches {spec}"),
            Self::Unusable(family) => write!(f, "metric family {family:?} has no usable value"),
            Self::Label { label, family, value } => {
                write!(f, "label {label:?} of metric family {family:?}: {value:?} is no count")
            }
            Self::Custom(key, fault) => write!(f, "custom metric {key:?}: {fault}"),
        }
    }
}
