//! Whether a page is of the same server process as the one before.
//!
//! Decides by what only a restart changes: the start time of the process, or a counter that fell.

use crate::store::{Vital, Vitals};

/// Start times are told in fractions of a second and rounded by some exporters.
const SAME_START: f64 = 1.0;

/// Numbers that only grow while a process lives.
const COUNTERS: [Vital; 9] = [
    Vital::PromptTokens,
    Vital::GenerationTokens,
    Vital::RequestPromptTokensSum,
    Vital::RequestPromptTokensCount,
    Vital::RequestGenerationTokensSum,
    Vital::RequestGenerationTokensCount,
    Vital::PrefixQueries,
    Vital::PrefixHits,
    Vital::Succeeded,
];

/// What the pages of one endpoint said last.
#[derive(Debug, Default)]
pub(super) struct Life {
    last: Vitals<Option<f64>>,
}

impl Life {
    /// Remembers the page, and tells whether its server is another one. What a page leaves out tells
    /// nothing.
    pub(super) fn is_another(&mut self, page: &Vitals<Option<f64>>) -> bool {
        let both = |vital: Vital| Some((self.last[vital as usize]?, page[vital as usize]?));
        let started = both(Vital::ProcessStart).is_some_and(|(a, b)| (a - b).abs() > SAME_START);
        let fell = COUNTERS.iter().any(|vital| both(*vital).is_some_and(|(old, new)| new < old));
        for (last, new) in self.last.iter_mut().zip(page) {
            *last = new.or(*last);
        }
        started || fell
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a missing number taken for 0; a start time compared exactly; a gauge that may fall in
    /// the list.
    #[test]
    fn a_restart_shows_in_start_time_or_counters() {
        let mut life = Life::default();
        let mut page: Vitals<Option<f64>> = [None; Vital::ALL.len()];
        let mut says = |changes: &[(Vital, Option<f64>)]| {
            for (vital, value) in changes {
                page[*vital as usize] = *value;
            }
            life.is_another(&page)
        };
        assert!(!says(&[(Vital::ProcessStart, Some(1000.0)), (Vital::Succeeded, Some(5.0))]));
        assert!(!says(&[(Vital::ProcessStart, Some(1000.4)), (Vital::Succeeded, Some(5.0))]));
        assert!(!says(&[(Vital::Succeeded, None), (Vital::KvUsed, Some(9.0))]));
        assert!(!says(&[(Vital::KvUsed, Some(1.0))]));
        assert!(says(&[(Vital::Succeeded, Some(4.0))]), "a counter fell across a gap");
        assert!(says(&[(Vital::ProcessStart, Some(2000.0)), (Vital::Succeeded, Some(9.0))]));
        assert!(!says(&[]), "told once");
    }
}
