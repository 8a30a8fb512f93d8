//! Routing: which endpoint gets this request.
//!
//! Decides by profile: filters narrow the candidates, scorers rank them, the picker chooses. Chance
//! comes in as a value and a refusal goes out as one; nothing here can fail for another reason. Knows
//! no protocol, no clock and no scaling.

pub mod filter;
pub mod picker;
pub mod profile;
pub mod scorer;

use rand::Rng;

use crate::pool::PoolView;
use crate::thresholds::Thresholds;

pub use profile::Profile;

/// Why no endpoint was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The pool has no endpoint that this request may use.
    NoEndpoints,
}

/// Buffers of one decision, reused for the next: no allocation per endpoint once they have grown.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Indices of the candidates that are left, into the view.
    candidates: Vec<u32>,
    /// What a filter kept, before it replaces the candidates.
    kept: Vec<u32>,
    /// Summed score of each candidate, parallel to `candidates`.
    totals: Vec<f64>,
    /// The picker's working list.
    ranked: Vec<picker::Scored>,
}

impl Scratch {
    /// The summed scores of the last decision as (index into the view, total), for tests and traces.
    pub fn totals(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.candidates.iter().zip(&self.totals).map(|(i, total)| (*i as usize, *total))
    }
}

/// Runs `profile` over the whole view and returns the chosen indices, best first: never none, at most
/// `maxNumOfEndpoints`, each once.
///
/// # Errors
/// [`Refusal`] as a value; the caller knows the status that belongs to it.
pub fn schedule<'s>(
    view: &PoolView<'_>,
    profile: &Profile,
    thresholds: &Thresholds,
    rng: &mut impl Rng,
    scratch: &'s mut Scratch,
) -> Result<impl ExactSizeIterator<Item = usize> + 's, Refusal> {
    scratch.candidates.clear();
    scratch.candidates.extend(0..view.members.len() as u32);
    for filter in &profile.filters {
        filter.apply(view, thresholds, &mut scratch.candidates, &mut scratch.kept);
    }
    if scratch.candidates.is_empty() {
        return Err(Refusal::NoEndpoints);
    }
    scratch.totals.clear();
    scratch.totals.resize(scratch.candidates.len(), 0.0);
    for (scorer, weight) in &profile.scorers {
        scorer.add(view, thresholds, &scratch.candidates, *weight, &mut scratch.totals);
    }
    scratch.ranked.clear();
    scratch.ranked.extend(
        scratch
            .candidates
            .iter()
            .zip(&scratch.totals)
            .map(|(index, total)| picker::Scored { index: *index, score: *total }),
    );
    profile.picker.pick(&mut scratch.ranked, rng);
    Ok(scratch.ranked.iter().map(|scored| scored.index as usize))
}

#[cfg(test)]
mod tests;
