//! Pickers: the last choice, from scored candidates to an ordered list.
//!
//! Decides how scores and chance become an order. Ties are broken uniformly at random: a fixed order
//! would send every idle-pool request to the same endpoint.

use std::cmp::Ordering;

use rand::Rng;
use rand::seq::SliceRandom;

/// A candidate with its total score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scored {
    /// Index into the view.
    pub index: u32,
    /// Sum of the weighted scores; never NaN when it comes from a profile.
    pub score: f64,
}

/// How a picker ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// `max-score-picker`: the highest total first.
    MaxScore,
    /// `random-picker`: uniform, scores do not matter.
    Random,
    /// `weighted-random-picker`: drawn in proportion to the score, without replacement. Candidates at
    /// or below zero come last; all at zero is uniform.
    WeightedRandom,
}

/// A picker of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Picker {
    /// How it ranks.
    pub choice: Choice,
    /// `maxNumOfEndpoints`: how many endpoints to return, the rest being fallbacks; at least 1.
    pub max_endpoints: usize,
}

impl Picker {
    /// A picker of one endpoint.
    pub const fn one(choice: Choice) -> Self {
        Self { choice, max_endpoints: 1 }
    }

    /// Its `type` in an EndpointPickerConfig.
    pub fn name(self) -> &'static str {
        match self.choice {
            Choice::MaxScore => "max-score-picker",
            Choice::Random => "random-picker",
            Choice::WeightedRandom => "weighted-random-picker",
        }
    }

    /// Orders `scored` best first and cuts it to `max_endpoints`.
    pub fn pick(self, scored: &mut Vec<Scored>, rng: &mut impl Rng) {
        match self.choice {
            Choice::MaxScore if self.max_endpoints <= 1 => return pick_one(scored, rng),
            Choice::MaxScore => {
                scored.shuffle(rng);
                scored.sort_by(|a, b| by_score(b.score, a.score));
            }
            Choice::Random => scored.shuffle(rng),
            Choice::WeightedRandom => {
                scored.shuffle(rng);
                // Efraimidis and Spirakis' U^(1/w) by its logarithm: ln(U) / w orders the same and
                // does not underflow for small scores, as the power does below 0.001.
                for candidate in scored.iter_mut() {
                    let draw = rng.random_range(f64::MIN_POSITIVE..1.0_f64).ln();
                    candidate.score = if candidate.score > 0.0 {
                        draw / candidate.score
                    } else {
                        f64::NEG_INFINITY
                    };
                }
                scored.sort_by(|a, b| by_score(b.score, a.score));
            }
        }
        scored.truncate(self.max_endpoints.max(1));
    }
}

/// The common case without a sort: one pass that keeps the best and, among equals, each with equal
/// chance.
fn pick_one(scored: &mut Vec<Scored>, rng: &mut impl Rng) {
    let mut best: Option<Scored> = None;
    let mut equals = 1_u32;
    for candidate in scored.iter() {
        // Nearly all of a large pool, and quicker told than by the full order.
        if best.is_some_and(|best| candidate.score < best.score) {
            continue;
        }
        match best.map(|b| by_score(candidate.score, b.score)) {
            None | Some(Ordering::Greater) => {
                best = Some(*candidate);
                equals = 1;
            }
            Some(Ordering::Equal) => {
                equals += 1;
                if rng.random_range(0..equals) == 0 {
                    best = Some(*candidate);
                }
            }
            Some(Ordering::Less) => {}
        }
    }
    scored.clear();
    scored.extend(best);
}

/// Exact comparison, no tolerance for ties; NaN is the worst of all.
fn by_score(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan()))
}
