//! What a scrape says beyond load: token counts, cache sizes, adapters, custom metrics.
//!
//! Decides that each value has its own age and that none is ever waited for: numbers are atomics,
//! texts are swapped whole, and only when they changed. One record belongs to one stay of one
//! endpoint, so a late writer cannot reach the next endpoint's. Counts are as the server exports
//! them, since its start; sizes are tokens, times Unix seconds.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;

use super::Shared;
use super::cell::Stamped;
use crate::endpoint::Signal;
use crate::pool::Slot;

/// A number that a server tells beside its load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Vital {
    /// Prompt tokens processed.
    PromptTokens,
    /// Tokens generated.
    GenerationTokens,
    /// Sum of the prompt tokens of finished requests.
    RequestPromptTokensSum,
    /// Finished requests in that sum.
    RequestPromptTokensCount,
    /// Sum of the generated tokens of finished requests.
    RequestGenerationTokensSum,
    /// Finished requests in that sum.
    RequestGenerationTokensCount,
    /// Tokens, or blocks, looked up in the prefix cache.
    PrefixQueries,
    /// Those that were found, in the same unit.
    PrefixHits,
    /// Requests that ended well, whatever the reason of their end.
    Succeeded,
    /// When the server's process started, Unix seconds.
    ProcessStart,
    /// Tokens in a KV block.
    BlockSize,
    /// KV blocks, summed over the ranks.
    NumBlocks,
    /// Tokens that the KV caches of all ranks hold together.
    KvCapacity,
    /// Tokens in use in them: each rank's use times its own capacity.
    KvUsed,
}

impl Vital {
    /// All of them, each at its own index.
    pub const ALL: [Self; 14] = [
        Self::PromptTokens,
        Self::GenerationTokens,
        Self::RequestPromptTokensSum,
        Self::RequestPromptTokensCount,
        Self::RequestGenerationTokensSum,
        Self::RequestGenerationTokensCount,
        Self::PrefixQueries,
        Self::PrefixHits,
        Self::Succeeded,
        Self::ProcessStart,
        Self::BlockSize,
        Self::NumBlocks,
        Self::KvCapacity,
        Self::KvUsed,
    ];
}

/// One value for each of [`Vital::ALL`].
pub type Vitals<T> = [T; Vital::ALL.len()];

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

/// The KV cache of one data-parallel rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RankCache {
    /// The value of the label that tells ranks apart; empty where there is none.
    pub rank: String,
    /// Tokens in a block.
    pub block_size: Option<u32>,
    /// Blocks.
    pub num_blocks: Option<u32>,
}

/// What one scrape told; what it left out keeps its value and ages.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Told<'a> {
    /// The numbers.
    pub vitals: Vitals<Option<f64>>,
    /// The adapters.
    pub lora: Option<&'a Lora>,
    /// The model that it serves.
    pub model: Option<&'a str>,
    /// The caches, rank by rank; empty when the page says nothing of them.
    pub caches: &'a [RankCache],
    /// Custom metrics, in the order of the writer's keys.
    pub custom: &'a [Option<f64>],
}

/// A text value and when it was last told, whether or not it had changed.
#[derive(Debug)]
struct Held<T> {
    value: ArcSwapOption<T>,
    at: AtomicU64,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self { value: ArcSwapOption::empty(), at: AtomicU64::new(0) }
    }
}

impl<T> Held<T> {
    /// `same` tells whether the value held is the new one; `make` is called when it is not.
    fn tell(&self, at: u64, same: impl Fn(&T) -> bool, make: impl FnOnce() -> T) {
        if !self.value.load().as_deref().is_some_and(same) {
            self.value.store(Some(Arc::new(make())));
        }
        self.at.store(at, Ordering::Release);
    }

    fn read(&self, now: u64) -> Option<(Arc<T>, Duration)> {
        // The time first: the pair may be a newer value under an older time, never the reverse.
        let at = self.at.load(Ordering::Acquire);
        let value = self.value.load_full()?;
        Some((value, Duration::from_nanos(now.saturating_sub(at))))
    }
}

/// The record of one endpoint.
#[derive(Debug)]
pub(super) struct Record {
    vitals: Vitals<Stamped>,
    lora: Held<Lora>,
    model: Held<String>,
    caches: Held<Vec<RankCache>>,
    custom: Vec<(String, Stamped)>,
}

/// A look at one endpoint's record at one instant.
#[derive(Clone)]
pub struct VitalsView {
    record: Arc<Record>,
    now: u64,
}

impl VitalsView {
    /// One number.
    pub fn get(&self, vital: Vital) -> Signal {
        self.record.vitals[vital as usize].load(self.now)
    }

    /// The custom metric `key`; unmapped where the endpoint's engine has no such key.
    pub fn custom(&self, key: &str) -> Signal {
        let found = self.record.custom.iter().find(|(known, _)| known == key);
        found.map_or(Signal::Unmapped, |(_, value)| value.load(self.now))
    }

    /// Keys of the custom metrics that the endpoint's engine has.
    pub fn custom_keys(&self) -> impl Iterator<Item = &str> {
        self.record.custom.iter().map(|(key, _)| key.as_str())
    }

    /// The adapters and their age; `None` until a page named some.
    pub fn lora(&self) -> Option<(Arc<Lora>, Duration)> {
        self.record.lora.read(self.now)
    }

    /// The model that it said it serves, last time it said so.
    pub fn model(&self) -> Option<Arc<String>> {
        self.record.model.read(self.now).map(|(model, _)| model)
    }

    /// The caches, rank by rank, and their age; `None` until a page told of them.
    pub fn caches(&self) -> Option<(Arc<Vec<RankCache>>, Duration)> {
        self.record.caches.read(self.now)
    }
}

/// The right to change one endpoint's record.
pub struct VitalsWriter {
    shared: Arc<Shared>,
    record: Arc<Record>,
}

impl VitalsWriter {
    /// A fresh record for `slot`, in place of what was there.
    pub(super) fn new(
        shared: Arc<Shared>,
        slot: Slot,
        mapped: Vitals<bool>,
        custom: impl IntoIterator<Item = String>,
    ) -> Self {
        let record = Record {
            vitals: mapped
                .map(|mapped| if mapped { Stamped::default() } else { Stamped::unmapped() }),
            lora: Held::default(),
            model: Held::default(),
            caches: Held::default(),
            custom: custom.into_iter().map(|key| (key, Stamped::default())).collect(),
        };
        let record = Arc::new(record);
        shared.records[slot.0 as usize].store(Some(Arc::clone(&record)));
        Self { shared, record }
    }

    /// Publishes what a scrape that ended at `at` told.
    pub fn publish(&self, told: &Told<'_>, at: Instant) {
        let at = self.shared.slab.nanos(at);
        let record = &self.record;
        let custom = record.custom.iter().map(|(_, stamped)| stamped).zip(told.custom);
        for (stamped, value) in record.vitals.iter().zip(&told.vitals).chain(custom) {
            if let Some(value) = value {
                stamped.store(*value, at);
            }
        }
        if let Some(lora) = told.lora {
            record.lora.tell(at, |held| held == lora, || lora.clone());
        }
        if let Some(model) = told.model {
            record.model.tell(at, |held| held == model, || model.to_owned());
        }
        if !told.caches.is_empty() {
            record.caches.tell(at, |held| held == told.caches, || told.caches.to_vec());
        }
    }
}

/// A view of `slot`'s record as of `now`.
pub(super) fn view(shared: &Shared, slot: Slot, now: Instant) -> Option<VitalsView> {
    let record = shared.records[slot.0 as usize].load_full()?;
    Some(VitalsView { record, now: shared.slab.nanos(now) })
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;
    use crate::endpoint::Endpoint;

    fn endpoint(name: &str) -> Endpoint {
        Endpoint::new("default", name, ([127, 0, 0, 1], 1).into())
    }

    /// Mutants: one age for all; a value that was left out erased; an unmapped one shown as never read.
    #[test]
    #[allow(clippy::disallowed_methods)] // The zero of the arithmetic below, not a measurement.
    fn each_value_has_its_own_age() {
        let now = Instant::now();
        let (store, mut writer) = Store::new(now);
        let slot = writer.apply(vec![endpoint("a")]).started[0].slot;
        assert!(store.vitals(slot, now).is_none());
        let mapped = Vital::ALL.map(|vital| vital != Vital::PrefixHits);
        let vitals = store.vitals_writer(slot, mapped, ["temp".to_owned()]);
        let mut told = Told { custom: &[Some(70.0)], ..Told::default() };
        told.vitals[Vital::Succeeded as usize] = Some(5.0);
        told.vitals[Vital::ProcessStart as usize] = Some(1.7e9);
        let lora = Lora { max: Some(4), ..Lora::default() };
        told.lora = Some(&lora);
        vitals.publish(&told, now);
        let later = now + Duration::from_millis(40);
        let mut told = Told { lora: Some(&lora), custom: &[None], ..Told::default() };
        told.vitals[Vital::Succeeded as usize] = Some(6.0);
        vitals.publish(&told, later);

        let view = store.vitals(slot, later + Duration::from_millis(10)).unwrap();
        let read = |value, ms| Signal::Read { value, age: Duration::from_millis(ms) };
        assert_eq!(view.get(Vital::Succeeded), read(6.0, 10));
        assert_eq!(view.get(Vital::ProcessStart), read(1.7e9, 50));
        assert_eq!(view.get(Vital::PromptTokens), Signal::Never);
        assert_eq!(view.get(Vital::PrefixHits), Signal::Unmapped);
        assert_eq!((view.custom("temp"), view.custom("x")), (read(70.0, 50), Signal::Unmapped));
        assert_eq!(view.custom_keys().collect::<Vec<_>>(), ["temp"]);
        assert_eq!(view.lora(), Some((Arc::new(lora), Duration::from_millis(10))));
        assert_eq!(view.caches(), None);
    }

    /// Mutant: leaving the record when its slot gets another endpoint.
    #[test]
    #[allow(clippy::disallowed_methods)]
    fn a_slot_does_not_hand_a_record_on() {
        let now = Instant::now();
        let (store, mut writer) = Store::new(now);
        let slot = writer.apply(vec![endpoint("a")]).started[0].slot;
        let old = store.vitals_writer(slot, Vital::ALL.map(|_| true), []);
        writer.apply(vec![]);
        let started = writer.apply(vec![endpoint("b")]).started;
        assert_eq!(started[0].slot, slot);
        let mut told = Told::default();
        told.vitals[0] = Some(1.0);
        old.publish(&told, now);
        assert!(store.vitals(slot, now).is_none(), "a late writer reaches its own record only");
    }

    /// Mutant: two kinds with one index.
    #[test]
    fn every_vital_stands_at_its_own_index() {
        for (at, vital) in Vital::ALL.into_iter().enumerate() {
            assert_eq!(vital as usize, at);
        }
    }
}
