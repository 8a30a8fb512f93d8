//! Routing: which endpoint gets this request.
//!
//! Decides by profile: a subset hint names the candidates, the gate sheds, filters narrow, scorers rank,
//! the picker chooses. A rewrite says which model, an objective how important. Chance comes in as a value and a
//! refusal goes out as one; nothing here can fail for another reason. Knows no protocol, no clock and
//! no scaling.

pub mod admission;
pub mod filter;
pub mod objectives;
pub mod picker;
pub mod profile;
pub mod rewrite;
pub mod scorer;
pub mod subset;

use rand::Rng;

use crate::endpoint::Suspicion;
use crate::pool::PoolView;
use crate::thresholds::Thresholds;

pub use filter::Filter;
pub use objectives::Objectives;
pub use profile::Profile;
pub use rewrite::Rewrites;
pub use subset::Subset;

/// Why no endpoint was picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The pool has no endpoint at all; one may come.
    EmptyPool,
    /// The pool has no endpoint that this request may use.
    NoEndpoints,
    /// This filter left none.
    Drained(Filter),
    /// The request is sheddable, and the endpoints that it may use are at the line.
    Saturated,
}

/// What a request brings to its decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// The endpoints that it may use; all without one.
    pub subset: Option<&'a Subset>,
    /// Its objective's priority.
    pub priority: i32,
    /// Estimated length of its prompt; 0 where nothing is known of it.
    pub prompt_tokens: u64,
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

/// Runs `profile` over the members that the request may use and returns the chosen indices, best first:
/// never none, at most `maxNumOfEndpoints`, each once.
///
/// # Errors
/// [`Refusal`] as a value; the caller knows the status that belongs to it.
pub fn schedule<'s>(
    view: &PoolView<'_>,
    ask: &Ask<'_>,
    profile: &Profile,
    thresholds: &Thresholds,
    rng: &mut impl Rng,
    scratch: &'s mut Scratch,
) -> Result<impl ExactSizeIterator<Item = usize> + 's, Refusal> {
    if view.members.is_empty() {
        return Err(Refusal::EmptyPool);
    }
    scratch.candidates.clear();
    let all = 0..view.members.len() as u32;
    match ask.subset {
        None => scratch.candidates.extend(all),
        Some(subset) => scratch
            .candidates
            .extend(all.filter(|i| subset.admits(view.members[*i as usize].endpoint.address))),
    }
    if scratch.candidates.is_empty() {
        return Err(Refusal::NoEndpoints);
    }
    let loads = scratch.candidates.iter().map(|i| &view.loads[*i as usize]);
    admission::admit(ask.priority, loads, thresholds)?;
    suspects_last(view, &mut scratch.candidates, &mut scratch.kept);
    for filter in &profile.filters {
        filter.apply(view, thresholds, &mut scratch.candidates, &mut scratch.kept);
        if scratch.candidates.is_empty() {
            return Err(Refusal::Drained(*filter));
        }
    }
    scratch.totals.clear();
    scratch.totals.resize(scratch.candidates.len(), 0.0);
    for (scorer, weight) in &profile.scorers {
        scorer.add(view, thresholds, ask, &scratch.candidates, *weight, &mut scratch.totals);
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

/// A suspect is no candidate while there are others, but for one request now and then, to see whether it
/// still works.
fn suspects_last(view: &PoolView<'_>, candidates: &mut Vec<u32>, kept: &mut Vec<u32>) {
    let of = |i: &u32| view.loads[*i as usize].suspicion;
    if candidates.iter().all(|i| of(i) == Suspicion::None) {
        return;
    }
    kept.clear();
    match candidates.iter().find(|i| of(i) == Suspicion::ProbeDue) {
        Some(probe) => kept.push(*probe),
        None => kept.extend(candidates.iter().filter(|i| of(i) == Suspicion::None)),
    }
    if !kept.is_empty() {
        std::mem::swap(candidates, kept);
    }
}

#[cfg(test)]
mod tests;
