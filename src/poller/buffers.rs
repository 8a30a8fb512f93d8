//! Page buffers that scrapes take turns with.
//!
//! Decides nothing but reuse: at any instant few of a thousand endpoints are in the middle of a page,
//! so memory follows those and not the endpoints. Sizes are bytes.

use std::sync::{Arc, Mutex, PoisonError};

/// A larger buffer is given back to the system: a page of that size is an accident.
const LARGEST: usize = 512 << 10;

/// Buffers that nobody uses at the moment; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Buffers(Arc<Mutex<Vec<Vec<u8>>>>);

/// A buffer on loan; it goes back when dropped, on whatever path.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) buffer: Vec<u8>,
    home: Buffers,
}

impl Buffers {
    /// An empty buffer, the one that came back last where there is one.
    pub(super) fn take(&self) -> Loan {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut buffer = free.unwrap_or_default();
        buffer.clear();
        Loan { buffer, home: self.clone() }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if self.buffer.capacity() <= LARGEST {
            let buffer = std::mem::take(&mut self.buffer);
            self.home.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a buffer that is not given back; a huge one that is.
    #[test]
    fn a_buffer_is_used_again_unless_it_is_huge() {
        let buffers = Buffers::default();
        for (size, kept) in [(1000, 1), (LARGEST + 1, 0), (2000, 1)] {
            let mut loan = buffers.take();
            loan.buffer.reserve_exact(size);
            drop(loan);
            assert_eq!(buffers.0.lock().unwrap().len(), kept, "{size}");
        }
        assert!(buffers.take().buffer.capacity() >= 2000);
    }
}
