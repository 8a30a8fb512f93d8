//! `prefill-load-scorer`: how long this request would wait on each candidate, in seconds.
//!
//! Decides the default order of candidates. The detector's two roofs are in it as seconds: the prompts
//! that are still to be read, and the KV cache; between them stands the batch, which every further
//! request makes slower for all. It reads this picker's own ledger first, so a request that was sent a
//! moment ago counts before any scrape shows it. No term has a threshold: thresholds say who may be
//! picked.
//!
//! ```text
//! cost = (P + 4u) / mu  +  0.5 s * n h / (1 + mean n h)  +  0.05 s * k / (1 - k)
//! ```

use std::time::Duration;

use crate::endpoint::Load;
use crate::reckoning::LEAST_TOKENS;

/// Weight of a request's own prompt: what it delays comes after it, too.
const OWN: f64 = 4.0;
/// Seconds that a batch twice as large as the mean costs.
const BATCH: f64 = 0.5;
/// Seconds that a KV cache half full costs.
const KV: f64 = 0.05;
/// Fullest KV cache that is told apart.
const FULLEST: f64 = 0.999;

/// Adds `weight / (1 + cost)` to the total of each candidate, for a request of `tokens`.
///
/// Readings older than `limit` count as none. A candidate without a fresh one scores 0, unless no
/// candidate has any; then the ledger alone ranks them.
pub(super) fn add<'a>(
    loads: impl Iterator<Item = &'a Load> + Clone,
    tokens: u64,
    limit: Duration,
    weight: f64,
    totals: &mut [f64],
) {
    let (mut sum, mut count, mut any_fresh) = (0.0, 0.0, false);
    for load in loads.clone() {
        sum += batch(load);
        count += 1.0;
        any_fresh |= is_fresh(load, limit);
    }
    // The divisor of the batch term, once for all.
    let per_batch = BATCH / (1.0 + sum / f64::max(count, 1.0));
    let own = tokens.max(LEAST_TOKENS) as f64;
    for (total, load) in totals.iter_mut().zip(loads) {
        if is_fresh(load, limit) || !any_fresh {
            *total += weight / (1.0 + cost(load, own, per_batch, any_fresh));
        }
    }
}

/// Requests there, others' included, by how much longer each takes than elsewhere.
fn batch(load: &Load) -> f64 {
    (f64::from(load.in_flight) + load.others) * load.speed.pace
}

fn is_fresh(load: &Load, limit: Duration) -> bool {
    let signals = [load.waiting, load.running, load.kv];
    signals.iter().any(|signal| signal.fresh(limit).is_some())
}

/// Seconds; `readings` tells whether scraped ones are believed.
fn cost(load: &Load, own: f64, per_batch: f64, readings: bool) -> f64 {
    let queued = load.in_flight_tokens as f64 + load.others_tokens;
    let prefill = (queued + OWN * own) / load.speed.prefill;
    let used = load.kv_now().value().filter(|_| readings).unwrap_or(0.0);
    let more = if load.capacity > 0.0 { own / load.capacity } else { 0.0 };
    let full = (used + more).clamp(0.0, FULLEST);
    prefill + per_batch * batch(load) + KV * full / (1.0 - full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Signal, Speed};

    const LIMIT: Duration = Duration::from_millis(200);

    fn fresh(kv: f64) -> Load {
        let read = |value| Signal::Read { value, age: Duration::ZERO };
        Load { waiting: read(0.0), running: read(0.0), kv: read(kv), ..Load::default() }
    }

    fn costs(loads: &[Load], tokens: u64) -> Vec<f64> {
        let mut totals = vec![0.0; loads.len()];
        add(loads.iter(), tokens, LIMIT, 1.0, &mut totals);
        totals.iter().map(|score| 1.0 / score - 1.0).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    /// Mutants: any constant or term; the own prompt's weight; the least prompt.
    #[test]
    fn the_cost_is_three_terms_in_seconds() {
        let idle = costs(&[fresh(0.0)], 1000)[0];
        assert!(close(idle, 4.0 * 1000.0 / 10_000.0), "{idle}");
        assert!(close(costs(&[fresh(0.0)], 3)[0], 4.0 * 16.0 / 10_000.0));
        let queued = Load { in_flight_tokens: 2000, others_tokens: 500.0, ..fresh(0.0) };
        assert!(close(costs(&[queued], 1000)[0], (2500.0 + 4000.0) / 10_000.0));
        let slow = Load { speed: Speed { prefill: 1000.0, pace: 1.0 }, ..fresh(0.0) };
        assert!(close(costs(&[slow], 1000)[0], 4.0));
        let busy = Load { in_flight: 6, others: 2.0, ..fresh(0.0) };
        let both = costs(&[busy, fresh(0.0)], 16);
        assert!(close(both[0] - both[1], 0.5 * 8.0 / 5.0), "{both:?}");
        let paced = Load { speed: Speed { prefill: 10_000.0, pace: 2.0 }, ..busy };
        let both = costs(&[paced, fresh(0.0)], 16);
        assert!(close(both[0] - both[1], 0.5 * 16.0 / 9.0), "{both:?}");
        assert!(close(costs(&[fresh(0.5)], 16)[0], 0.0064 + 0.05));
        let small = Load { capacity: 4000.0, ..fresh(0.25) };
        assert!(close(costs(&[small], 1000)[0], 0.4 + 0.05));
        assert!(close(costs(&[fresh(1.0)], 16)[0], 0.0064 + 0.05 * 999.0));
    }

    /// Mutants: an endpoint that was never read scored like an idle one; a cut also where nobody is
    /// fresh; stale KV believed.
    #[test]
    fn the_stale_is_never_idle_and_the_ledger_ranks_when_all_are() {
        let stale = Signal::Read { value: 0.9, age: Duration::from_millis(201) };
        let old = |in_flight| Load { in_flight, waiting: stale, kv: stale, ..Load::default() };
        let mut totals = [0.0; 3];
        add([old(0), fresh(0.9), Load::default()].iter(), 16, LIMIT, 2.0, &mut totals);
        assert!(totals[0] == 0.0 && totals[1] > 0.0 && totals[2] == 0.0, "{totals:?}");
        let mut totals = [0.0; 3];
        add([old(2), old(1), Load::default()].iter(), 16, LIMIT, 2.0, &mut totals);
        assert!(totals[0] < totals[1] && totals[1] < totals[2], "{totals:?}");
    }
}
