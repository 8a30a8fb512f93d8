//! The gate: which requests are shed while the line is reached.
//!
//! Decides on priority and saturation alone, as the Go picker does without flow control: only what its
//! objective calls sheddable (a negative priority) is ever shed, and only while the endpoints that it
//! may use score 1.0 or more in the mean. Having no endpoint at all is no saturation; that is decided
//! before.

use super::Refusal;
use crate::endpoint::Load;
use crate::saturation;
use crate::thresholds::Thresholds;

/// Pool saturation at which the gate closes; the line itself is full.
const CLOSED: f64 = 1.0;

/// Whether a request of this priority may go on, given the loads of all that it may use.
///
/// # Errors
/// [`Refusal::Saturated`] for a negative priority while the gate is closed.
pub fn admit<'a>(
    priority: i32,
    loads: impl IntoIterator<Item = &'a Load>,
    thresholds: &Thresholds,
) -> Result<(), Refusal> {
    if priority >= 0 || saturation::pool_saturation(loads, thresholds) < CLOSED {
        return Ok(());
    }
    Err(Refusal::Saturated)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::endpoint::Signal;

    fn load(waiting: f64) -> Load {
        let read = |value| Signal::Read { value, age: Duration::ZERO };
        Load { waiting: read(waiting), kv: read(0.0), ..Load::default() }
    }

    fn shed(priority: i32, loads: &[Load]) -> bool {
        admit(priority, loads, &Thresholds::default()) == Err(Refusal::Saturated)
    }

    /// Mutants: `>` for `>=` at the line; the worst endpoint instead of the mean; `<=` at priority 0.
    #[test]
    fn only_the_sheddable_are_shed_and_only_at_the_line() {
        let (below, at_line) = ([load(9.0), load(0.5)], [load(9.0), load(1.0)]);
        assert!(!shed(-1, &below) && shed(-1, &at_line));
        assert!(!shed(0, &at_line) && !shed(i32::MAX, &at_line) && shed(i32::MIN, &at_line));
    }

    /// Mutant: an unknown load taken for none.
    #[test]
    fn an_unknown_pool_is_full() {
        assert!(shed(-1, &[Load::default()]));
    }
}
