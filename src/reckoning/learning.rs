//! How fast each server is, learned from the first chunks and the ends of our own requests.
//!
//! Decides prefill speed (tokens per busy second) and pace (time per output token relative to the
//! pool) from counters that only grow. Within 20 % of the pool a server counts as equal: without that
//! band equal servers drift apart for nothing. Times are seconds.

use crate::endpoint::Speed;

/// Time over which evidence fades: of busy time for prefill, of any time for pace.
const FADE: f64 = 10.0;
/// Weight of the pool's speed in a server's own, in seconds of busy time.
const PRIOR_BUSY: f64 = 5.0;
/// The same for pace, in output tokens.
const PRIOR_TOKENS: f64 = 200.0;
/// Busy time from which a server's evidence counts for the pool, and from which it counts in full.
const LEAST_BUSY: f64 = 0.2;
const FULL_BUSY: f64 = 1.0;
/// Slowest prefill that is believed, tokens per second.
const SLOWEST: f64 = 50.0;
/// Pace is kept within this factor of the pool's.
const WIDEST: f64 = 4.0;
/// Differences up to this factor count as none.
const DEAD_BAND: f64 = 1.2;

/// What was observed of a server since it is known. Each number only grows.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Observed {
    /// Seconds in which a streaming request of ours waited for its first chunk.
    pub busy: f64,
    /// Uncached prompt tokens of streaming requests whose first chunk came.
    pub prefilled: f64,
    /// Seconds between first and last chunk, summed over requests whose output was counted.
    pub decoding: f64,
    /// Output tokens of these after their first.
    pub decoded: f64,
}

/// The fading sums of one server.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Evidence {
    seen: Observed,
    faded: Observed,
}

impl Evidence {
    /// Evidence that begins at `seen`.
    pub fn from(seen: Observed) -> Self {
        Self { seen, faded: Observed::default() }
    }

    /// Takes what was observed up to now, `elapsed` seconds after the last time.
    pub fn observe(&mut self, now: Observed, elapsed: f64) {
        let busy = (now.busy - self.seen.busy).max(0.0);
        // Speed is that of a server at work: what was learned does not fade while it rests.
        let at_work = (-busy / FADE).exp();
        let any_time = (-elapsed / FADE).exp();
        let old = self.faded;
        self.faded = Observed {
            busy: old.busy * at_work + busy,
            prefilled: old.prefilled * at_work + (now.prefilled - self.seen.prefilled).max(0.0),
            decoding: old.decoding * any_time + (now.decoding - self.seen.decoding).max(0.0),
            decoded: old.decoded * any_time + (now.decoded - self.seen.decoded).max(0.0),
        };
        self.seen = now;
    }
}

/// What a pool as a whole shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PoolSpeed {
    prefill: f64,
    /// Seconds per output token; `None` before any was counted.
    token: Option<f64>,
}

impl PoolSpeed {
    /// The mean over the servers, each by how much is known of it.
    pub fn of<'a>(pool: impl IntoIterator<Item = &'a Evidence>) -> Self {
        let (mut speeds, mut weights, mut decoding, mut decoded) = (0.0, 0.0, 0.0, 0.0);
        for Evidence { faded, .. } in pool {
            if faded.busy > LEAST_BUSY {
                let weight = faded.busy.min(FULL_BUSY);
                speeds += weight * faded.prefilled / faded.busy;
                weights += weight;
            }
            decoding += faded.decoding;
            decoded += faded.decoded;
        }
        let prefill = if weights > 0.0 { speeds / weights } else { Speed::default().prefill };
        let token = (decoded > 0.0 && decoding > 0.0).then(|| decoding / decoded);
        Self { prefill: prefill.max(SLOWEST), token }
    }

    /// The speed of one server of this pool.
    pub fn speed(&self, Evidence { faded, .. }: &Evidence) -> Speed {
        let own = (faded.prefilled + PRIOR_BUSY * self.prefill) / (faded.busy + PRIOR_BUSY);
        let pace = self.token.map_or(1.0, |token| {
            let own = (faded.decoding + PRIOR_TOKENS * token) / (faded.decoded + PRIOR_TOKENS);
            (own / token).clamp(1.0 / WIDEST, WIDEST)
        });
        Speed { prefill: banded(own.max(SLOWEST), self.prefill), pace: banded(pace, 1.0) }
    }
}

fn banded(own: f64, pool: f64) -> f64 {
    if (own / pool).ln().abs() < DEAD_BAND.ln() { pool } else { own }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that was busy all the time and read `prefill` tokens a second, `token` seconds each.
    fn after(seconds: f64, prefill: f64, token: f64) -> Evidence {
        let mut evidence = Evidence::default();
        for tick in 1..=(seconds * 10.0) as u32 {
            let time = f64::from(tick) / 10.0;
            let now = Observed {
                busy: time,
                prefilled: time * prefill,
                decoding: time,
                decoded: time / token,
            };
            evidence.observe(now, 0.1);
        }
        evidence
    }

    /// Mutants: the prior left out; busy time faded by the clock; either band gone.
    #[test]
    fn a_slow_server_is_told_from_equal_ones() {
        let pool =
            [after(30.0, 8000.0, 0.02), after(30.0, 8000.0, 0.02), after(30.0, 4000.0, 0.04)];
        let mean = PoolSpeed::of(&pool);
        let [fast, _, slow] = pool.map(|evidence| mean.speed(&evidence));
        // 9.5 s of evidence against a prior of 5 s at the pool's 6667 tokens a second.
        assert!((4900.0..5100.0).contains(&slow.prefill), "{slow:?}");
        assert_eq!(fast.prefill, mean.prefill, "within the band");
        assert!(slow.pace > 1.2 && fast.pace < slow.pace, "{slow:?} {fast:?}");
        let mut rested = pool[2];
        rested.observe(pool[2].seen, 100.0);
        assert_eq!(mean.speed(&rested).prefill, slow.prefill, "rest teaches nothing");
        assert_eq!(mean.speed(&rested).pace, 1.0, "old paces fade");
    }

    /// Mutants: little evidence counted; a pool of nothing dividing by zero.
    #[test]
    fn without_evidence_everybody_is_equal() {
        let little = after(0.1, 100.0, 1.0);
        let mean = PoolSpeed::of([&Evidence::default(), &little]);
        assert_eq!(mean.prefill, 10_000.0);
        assert_eq!(mean.speed(&Evidence::default()), Speed::default());
        assert_eq!(PoolSpeed::of([]).token, None);
    }

    /// Mutants: the floor or the clamp gone.
    #[test]
    fn beliefs_have_bounds() {
        let pool = [after(60.0, 0.0, 1.0), after(60.0, 9000.0, 0.001)];
        let mean = PoolSpeed::of(&pool);
        let dead = mean.speed(&pool[0]);
        assert!(dead.prefill >= SLOWEST && dead.pace <= WIDEST, "{dead:?}");
        assert!(PoolSpeed::of([&pool[0]]).prefill >= SLOWEST);
    }
}
