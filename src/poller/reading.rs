//! What one page says about one endpoint.
//!
//! Decides which series count: ranks on one port are added up, a repeated series counts once, the
//! newest LoRA line of a rank counts. Decides not how old a value may be: what a page does not say is
//! `None`, and the caller keeps what it knew. Counts are requests, KV-cache use is a fraction in
//! `[0, 1]`, block sizes and capacities are tokens.

mod fault;
mod series;

use std::collections::BTreeSet;

use self::series::{Hit, distinct, newest, per_rank, time, with_value};
use super::engine::{CacheInfo, Engine, Slot, Target};
use super::exposition::{Sample, lines};
use super::labels::Labels;
use crate::store::{Vital, Vitals};

pub use self::fault::Fault;
pub use crate::store::{Lora, RankCache};

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
    /// The largest number of series that waiting, running or KV-cache use had; 0 when none was there.
    pub ranks: u32,
    /// Tokens in a KV block, never 0.
    pub block_size: Option<u32>,
    /// KV blocks, summed over the ranks, never 0.
    pub num_blocks: Option<u32>,
    /// The KV caches as the page tells of them, in the order of rank labels.
    pub caches: Vec<RankCache>,
    /// Numbers beside the load; capacities and sizes among them, reckoned from the above.
    pub vitals: Vitals<Option<f64>>,
    /// The model by which the queue is told, `model_name`.
    pub model: Option<String>,
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

/// What kinds of line a family had.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    malformed: bool,
    readable: bool,
}

/// What is known of one rank while a page is read.
#[derive(Debug, Clone, Copy)]
struct RankValue<'p> {
    rank: &'p [u8],
    value: f64,
}

/// What the capacity is reckoned from.
#[derive(Debug, Default)]
struct Caches<'p> {
    /// KV-cache use, one value a rank.
    used: Vec<RankValue<'p>>,
    /// Capacity in tokens as the server itself tells it.
    told: Vec<RankValue<'p>>,
}

/// Reads `page`, any bytes at all, as the answer of an `engine`.
pub fn read_page(page: &[u8], engine: &Engine) -> Reading {
    let mut reading =
        Reading { custom: vec![None; engine.mapping.custom.len()], ..Reading::default() };
    let mut seen = vec![Seen::default(); engine.families];
    let mut hits = Vec::with_capacity(2 * engine.targets.len());
    for (at, line) in lines(page, &engine.wanted).enumerate() {
        let Some(sample) = line.sample else {
            reading.bad_lines += 1;
            seen[line.family].malformed = true;
            continue;
        };
        seen[line.family].readable = true;
        reading.bad_values += u32::from(sample.value.is_none());
        for (target, preference) in &engine.answers[line.family] {
            if engine.targets[*target].spec.selects(sample.labels) {
                hits.push(Hit { target: *target, preference: *preference, at, sample });
            }
        }
    }
    hits.sort_unstable_by_key(|hit| (hit.target, hit.preference, hit.at));
    let mut rest = hits.as_mut_slice();
    let mut caches = Caches::default();
    for (at, target) in engine.targets.iter().enumerate() {
        let all = rest.partition_point(|hit| hit.target == at);
        let (series, after) = rest.split_at_mut(all);
        rest = after;
        let best = series.first().map(|hit| hit.preference);
        let best = series.partition_point(|hit| Some(hit.preference) == best);
        let read = match &mut series[..best] {
            [] => absent(target, &seen),
            series => reading.take(target, series, engine, &mut caches),
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
    reading.reckon(&caches);
    reading
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
    match target.slot {
        // A server without adapters has no LoRA family; that is the usual case and no fault.
        Slot::Lora | Slot::Vital(_) | Slot::Capacity => Ok(()),
        _ => Err(Fault::NotFound(family)),
    }
}

// === impl Reading ===

impl Reading {
    /// Whether the page gave no signal of load at all. Static cache facts and LoRA lines say nothing
    /// about load and do not count.
    pub fn is_blank(&self) -> bool {
        self.waiting.is_none() && self.running.is_none() && self.kv.is_none()
    }

    /// One number beside the load.
    pub fn vital(&self, vital: Vital) -> Option<f64> {
        self.vitals[vital as usize]
    }

    /// Stores what `series`, at least one, say for `target`.
    fn take<'p>(
        &mut self,
        target: &Target,
        series: &mut [Hit<'p>],
        engine: &Engine,
        caches: &mut Caches<'p>,
    ) -> Result<(), Fault> {
        let unusable = || Fault::Unusable(target.spec.family().to_owned());
        match target.slot {
            Slot::Waiting => {
                let named = series.first().and_then(|hit| hit.sample.labels.get("model_name"));
                self.model = named.map(|name| name.text().into_owned());
                self.waiting = Some(self.requests(series).ok_or_else(unusable)?);
            }
            Slot::Running => self.running = Some(self.requests(series).ok_or_else(unusable)?),
            Slot::Kv => self.take_kv(series, caches).ok_or_else(unusable)?,
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
            Slot::NumBlocks => self.take_blocks(series).ok_or_else(unusable)?,
            Slot::Capacity => {
                for hit in per_rank(series, time) {
                    let value = whole(hit.sample).ok_or_else(unusable)?;
                    caches.told.push(RankValue { rank: hit.rank(), value: value.into() });
                }
            }
            Slot::Vital(Vital::ProcessStart) => {
                // Of several processes the youngest tells of a restart.
                let starts = series.iter().filter_map(|hit| hit.sample.value);
                let start = starts.reduce(f64::max).ok_or_else(unusable)?;
                self.vitals[Vital::ProcessStart as usize] = Some(start);
            }
            Slot::Vital(vital) => {
                self.vitals[vital as usize] = Some(sum(distinct(series)).ok_or_else(unusable)?);
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
    fn requests(&mut self, series: &mut [Hit<'_>]) -> Option<f64> {
        let series = distinct(series);
        self.count(series);
        let sum = series.iter().try_fold(0.0, |sum, hit| Some(sum + hit.sample.value?.trunc()));
        sum.filter(|sum: &f64| sum.is_finite())
    }

    /// The fullest rank. More than full is not a thing a cache can be: such a value counts as 1,
    /// which every limit refuses as it refuses what the server said.
    fn take_kv<'p>(&mut self, series: &mut [Hit<'p>], caches: &mut Caches<'p>) -> Option<()> {
        let series = distinct(series);
        self.count(series);
        let mut most = 0.0_f64;
        for hit in series.iter() {
            let value = hit.sample.value?;
            self.over_one += u32::from(value > 1.0);
            most = most.max(value.min(1.0));
        }
        self.kv = Some(most);
        let fullest = per_rank(series, |hit| hit.sample.value.unwrap_or(0.0));
        caches.used = fullest
            .iter()
            .map(|hit| RankValue {
                rank: hit.rank(),
                value: hit.sample.value.unwrap_or(0.0).min(1.0),
            })
            .collect();
        Some(())
    }

    fn count(&mut self, series: &[Hit<'_>]) {
        self.ranks = self.ranks.max(u32::try_from(series.len()).unwrap_or(u32::MAX));
    }

    /// The adapters of each rank's newest line. The value of such a line is the time it was written;
    /// older lines stay on the page.
    fn take_lora(&mut self, target: &Target, series: &mut [Hit<'_>]) -> Result<(), Fault> {
        let family = target.spec.family();
        let series = with_value(series);
        if series.is_empty() {
            return Err(Fault::Unusable(family.to_owned()));
        }
        let mut lora = Lora::default();
        let mut fault = None;
        for hit in per_rank(series, |hit| hit.sample.value.unwrap_or_default()) {
            adapters(&hit.sample, "running_lora_adapters", &mut lora.running);
            adapters(&hit.sample, "waiting_lora_adapters", &mut lora.waiting);
            match number(hit.sample.labels, "max_lora", family) {
                Ok(max) => lora.max = lora.max.max(max),
                Err(bad) => fault = Some(bad),
            }
        }
        self.lora = Some(lora);
        fault.map_or(Ok(()), Err)
    }

    /// Block size of the first rank, blocks of all. A number that one rank does not tell is unknown.
    fn take_cache(&mut self, info: &CacheInfo, series: &mut [Hit<'_>]) -> Result<(), Fault> {
        let family = info.spec.family();
        let (mut sizes, mut blocks) = (Ok(()), Ok(()));
        for hit in per_rank(series, time) {
            let read = |label: &str, faulty: &mut Result<(), Fault>| {
                number(hit.sample.labels, label, family).unwrap_or_else(|fault| {
                    if faulty.is_ok() {
                        *faulty = Err(fault);
                    }
                    None
                })
            };
            self.caches.push(RankCache {
                rank: String::from_utf8_lossy(hit.rank()).into_owned(),
                block_size: read(&info.block_size_label, &mut sizes),
                num_blocks: read(&info.num_blocks_label, &mut blocks),
            });
        }
        if sizes.is_ok() {
            self.block_size = self.caches.first().and_then(|cache| cache.block_size);
        }
        self.num_blocks = self.summed_blocks();
        sizes.and(blocks)
    }

    /// Blocks as gauges; the labels of a cache information count before them.
    fn take_blocks(&mut self, series: &mut [Hit<'_>]) -> Option<()> {
        let ranks = per_rank(series, time);
        let read = |hit: &Hit<'_>| {
            let rank = String::from_utf8_lossy(hit.rank()).into_owned();
            Some(RankCache { rank, block_size: None, num_blocks: Some(whole(hit.sample)?) })
        };
        let caches: Vec<RankCache> = ranks.iter().map(read).collect::<Option<_>>()?;
        if self.num_blocks.is_none() {
            self.caches = caches;
            self.num_blocks = Some(self.summed_blocks()?);
        }
        Some(())
    }

    fn summed_blocks(&self) -> Option<u32> {
        let mut blocks = self.caches.iter().map(|cache| cache.num_blocks);
        blocks.try_fold(0, |sum: u32, n| sum.checked_add(n?)).filter(|sum| *sum > 0)
    }

    /// Sizes and capacities, from what the page told of each rank.
    fn reckon(&mut self, caches: &Caches<'_>) {
        for cache in &mut self.caches {
            cache.block_size = cache.block_size.or(self.block_size);
        }
        let capacities = self.capacities(caches);
        let total = capacities.iter().try_fold(0.0, |sum, (_, capacity)| Some(sum + (*capacity)?));
        // One cache without a rank's label stands for each of the ranks.
        let times = match &capacities[..] {
            [(b"", _)] => caches.used.len().max(1),
            _ => 1,
        };
        let total = total.filter(|total| *total > 0.0).map(|total| total * times as f64);
        let capacity_of = |rank: &[u8]| match &capacities[..] {
            [(b"", capacity)] => *capacity,
            all => all.iter().find(|(known, _)| *known == rank)?.1,
        };
        let used = caches.used.iter();
        let used = used.map(|used| Some(used.value * capacity_of(used.rank)?));
        let used = used.sum::<Option<f64>>().filter(|_| !caches.used.is_empty());
        for (vital, value) in [
            (Vital::BlockSize, self.block_size.map(f64::from)),
            (Vital::NumBlocks, self.num_blocks.map(f64::from)),
            (Vital::KvCapacity, total),
            (Vital::KvUsed, used),
        ] {
            self.vitals[vital as usize] = value;
        }
    }

    /// Tokens that each rank's cache holds; blocks are believed before a bare number.
    fn capacities<'a>(&'a self, caches: &'a Caches<'_>) -> Vec<(&'a [u8], Option<f64>)> {
        let by_blocks = |cache: &'a RankCache| {
            let tokens = f64::from(cache.block_size?) * f64::from(cache.num_blocks?);
            Some((cache.rank.as_bytes(), Some(tokens)))
        };
        let whole: Option<Vec<_>> = self.caches.iter().map(by_blocks).collect();
        match whole {
            Some(capacities) if !capacities.is_empty() => capacities,
            _ => caches.told.iter().map(|told| (told.rank, Some(told.value))).collect(),
        }
    }
}

/// The sum of all values; unknown when one is, or when it is beyond any number.
fn sum(series: &[Hit<'_>]) -> Option<f64> {
    let sum: Option<f64> = series.iter().map(|hit| hit.sample.value).sum();
    sum.filter(|sum| sum.is_finite())
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
