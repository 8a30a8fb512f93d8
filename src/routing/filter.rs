//! Filters: which candidates may be picked at all.
//!
//! Decides membership of the candidate list, never its order. The set is closed, so it is an enum.

use crate::pool::PoolView;
use crate::saturation;
use crate::thresholds::Thresholds;

/// A filter of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filter {
    /// The utilization detector as a filter (seed): drops stale endpoints and those at or over a
    /// limit. Fails open: if none is left the list comes back whole, for the scorers to choose the
    /// least bad.
    Utilization,
    /// Keeps servers that decode: by the role in their labels, and those without one. It does not fail
    /// open: a prefill server cannot answer.
    Decode,
}

/// Label that says what a server of a disaggregated pool does.
const ROLE: &str = "llm-d.ai/role";

/// Roles that include decoding.
const DECODING: [&str; 4] = ["decode", "prefill-decode", "both", "encode-prefill-decode"];

impl Filter {
    /// Its `type` in an EndpointPickerConfig.
    pub fn name(self) -> &'static str {
        match self {
            Self::Utilization => "utilization-detector",
            Self::Decode => "decode-filter",
        }
    }

    /// Narrows `candidates` (indices into the view) in place; `kept` is scratch space.
    pub fn apply(
        self,
        view: &PoolView<'_>,
        thresholds: &Thresholds,
        candidates: &mut Vec<u32>,
        kept: &mut Vec<u32>,
    ) {
        match self {
            Self::Utilization => {
                kept.clear();
                kept.extend(
                    candidates
                        .iter()
                        .filter(|i| saturation::admits(&view.loads[**i as usize], thresholds)),
                );
                if !kept.is_empty() {
                    std::mem::swap(candidates, kept);
                }
            }
            Self::Decode => candidates.retain(|i| {
                let role = view.members[*i as usize].endpoint.labels.get(ROLE);
                role.is_none_or(|role| DECODING.contains(&role.as_str()))
            }),
        }
    }
}
