//! Bytes of request bodies that all streams hold together.
//!
//! Counts them; the limit and what happens above it are the caller's. Sizes are bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The sum of all held request bodies in bytes; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct HeldBytes(Arc<AtomicUsize>);

impl HeldBytes {
    /// One request holds `new` bytes instead of `old`; answers the sum.
    pub fn replace(&self, old: usize, new: usize) -> usize {
        if old == new {
            return self.now();
        }
        // Wraps: adding the difference of two sizes may be a subtraction.
        let difference = new.wrapping_sub(old);
        self.0.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference)
    }

    /// The sum now.
    pub fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}
