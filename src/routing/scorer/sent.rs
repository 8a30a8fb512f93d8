//! What this picker has sent and not seen the end of: nothing that a scrape could be late with.
//!
//! Decides the formulas. Counts are requests and prompt tokens.

/// Up to `idle` requests score 1; above it the most of all candidates score 0.
pub(super) fn fewest(requests: u32, most: u32, idle: u32, max_busy_score: f64) -> f64 {
    if requests <= idle {
        return 1.0;
    }
    f64::from(most.saturating_sub(requests)) / f64::from(most) * max_busy_score
}

/// No tokens score 1, `threshold` tokens 0; those of the request itself count.
pub(super) fn few_tokens(in_flight: u64, own: u64, threshold: u64) -> f64 {
    let threshold = threshold.max(1);
    let free = threshold.saturating_sub(in_flight.saturating_add(own));
    // Exact up to 2^53 tokens.
    free as f64 / threshold as f64
}
