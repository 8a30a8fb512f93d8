//! From what is known of the pool to what one plan reads.
//!
//! Decides which reading stands for a replica: the highest second of the last minute for load, means
//! over five minutes for work, and nothing where nothing is known. Ages are seconds, times
//! milliseconds of the loop's clock.

use std::collections::BTreeMap;

use super::counter;
use super::observer::{Observer, Track};
use crate::config::variants::{VariantSpec, Variants};
use crate::endpoint::{Load, Signal};
use crate::pool::Member;
use crate::scaling::input::{FRESHNESS_SECONDS, Input, ModelInput, Replica, SchedulerQueue};
use crate::scaling::learned::Learned;
use crate::store::{Vital, VitalsView};

/// One endpoint at one instant.
pub(super) struct Seen<'a> {
    pub(super) member: &'a Member,
    pub(super) load: &'a Load,
    pub(super) vitals: Option<&'a VitalsView>,
}

/// The model, and what is known of it as a whole.
pub(super) struct Whole<'a> {
    pub(super) model_id: &'a str,
    pub(super) namespace: &'a str,
    pub(super) variants: &'a Variants,
    /// Requests held before any replica, and the bytes of their bodies.
    pub(super) held: SchedulerQueue,
    /// `None` while a peer cannot be read.
    pub(super) in_flight: Option<u64>,
    pub(super) retention_millis: u64,
    pub(super) grace_millis: u64,
}

/// What a plan reads, and the endpoints that are nobody's replicas.
pub(super) fn gather(
    whole: &Whole<'_>,
    seen: &[Seen<'_>],
    observer: &Observer,
    learned: &Learned,
    now_millis: u64,
) -> (Input, Vec<String>) {
    let (mut replicas, mut strangers) = (Vec::new(), Vec::new());
    let mut ready: BTreeMap<&str, u32> = BTreeMap::new();
    for one in seen {
        let endpoint = &one.member.endpoint;
        let Some(spec) = whole.variants.of(endpoint) else {
            strangers.push(endpoint.id.to_string());
            continue;
        };
        *ready.entry(&spec.variant.name).or_default() += 1;
        let mut replica = replica(one, observer.track(&endpoint.id), now_millis);
        replica.variant.clone_from(&spec.variant.name);
        replicas.push(replica);
    }
    let model = ModelInput {
        model_id: whole.model_id.to_owned(),
        namespace: whole.namespace.to_owned(),
        replicas,
        variants: Vec::new(),
        scheduler_queue: Some(whole.held),
        request_count: observer.finished(whole.retention_millis, now_millis),
        in_flight: whole.in_flight,
        arrival_rate: None,
        others: Vec::new(),
    };
    let of = |spec: &VariantSpec| {
        let ready = ready.get(spec.variant.name.as_str()).copied().unwrap_or(0);
        let key = format!("{}/{}", model.key(), spec.variant.name);
        let published = learned.published.get(&key).copied().unwrap_or_default();
        // What has not come within its time to start is not waited for.
        let late = now_millis >= published.since_millis.saturating_add(whole.grace_millis);
        let pending = if late { 0 } else { published.target.saturating_sub(ready) };
        let (current, desired) = (ready + pending, published.target);
        crate::scaling::input::Variant { current, pending, desired, ..spec.variant.clone() }
    };
    let variants = whole.variants.list.iter().map(of).collect();
    let model = ModelInput { variants, ..model };
    let input = Input {
        models: vec![model],
        gpus: whole.variants.gpus.clone(),
        freshness_seconds: FRESHNESS_SECONDS,
    };
    (input, strangers)
}

fn replica(one: &Seen<'_>, track: Option<&Track>, now_millis: u64) -> Replica {
    let load = one.load;
    let mut replica = Replica {
        pod: one.member.endpoint.id.to_string(),
        age_seconds: seconds(load.running),
        kv_age_seconds: Some(seconds(load.kv)),
        queue_age_seconds: Some(seconds(load.waiting)),
        kv_unmapped: !load.kv.is_mapped(),
        queue_unmapped: !load.waiting.is_mapped(),
        running: load.running.value(),
        kv: load.kv.value(),
        queue: load.waiting_per_rank().value(),
        ..Replica::default()
    };
    if let Some(track) = track {
        replica.kv = track.kv.window.highest(now_millis).or(replica.kv);
        replica.queue = track.queue.window.highest(now_millis).or(replica.queue);
        replica.kv_instant = load.kv.value();
        replica.tokens_in_use = track.used.window.highest(now_millis);
        work(&mut replica, track);
    }
    if let Some(vitals) = one.vitals {
        let get = |vital| vitals.get(vital).value().filter(|value| *value > 0.0);
        let blocks = (get(Vital::NumBlocks), get(Vital::BlockSize));
        (replica.num_gpu_blocks, replica.block_size) = match (blocks, get(Vital::KvCapacity)) {
            ((Some(blocks), Some(size)), _) => (Some(blocks), Some(size)),
            // An engine that counts tokens has blocks of one.
            (_, Some(tokens)) => (Some(tokens), Some(1.0)),
            _ => (None, None),
        };
    }
    replica
}

/// What the counters say of the requests that it served.
fn work(replica: &mut Replica, track: &Track) {
    let of = |vital| track.counter(vital);
    let mean = |sum, count| counter::mean(of(sum)?, of(count)?);
    replica.avg_input_tokens = mean(Vital::RequestPromptTokensSum, Vital::RequestPromptTokensCount);
    replica.avg_output_tokens =
        mean(Vital::RequestGenerationTokensSum, Vital::RequestGenerationTokensCount);
    replica.prefix_hit_rate = mean(Vital::PrefixHits, Vital::PrefixQueries);
    replica.request_rate = of(Vital::RequestGenerationTokensCount).and_then(counter::Counter::rate);
    // Little's law: the requests that run, over the tokens that come out a second, is the time from one
    // token of a request to the next.
    let tokens = of(Vital::GenerationTokens).and_then(counter::Counter::recent_rate);
    replica.itl_seconds = match (replica.running, tokens) {
        (Some(running), Some(tokens)) if running > 0.0 && tokens > 0.0 => Some(running / tokens),
        _ => None,
    };
}

/// The age of a reading; of one that was never made, older than anything.
fn seconds(signal: Signal) -> f64 {
    signal.age().map_or(f64::MAX, |age| age.as_secs_f64())
}
