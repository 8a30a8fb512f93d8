//! The prefix cache: which prompt blocks the engine has computed before.
//!
//! Decides hits by chained block hashes and forgets the block used longest ago; holds no KV memory of
//! its own. Counts are blocks.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher as _};

/// Least recently used set of block hashes.
#[derive(Debug)]
pub(super) struct PrefixCache {
    capacity: usize,
    uses: u64,
    last_use: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl PrefixCache {
    /// Room for `capacity` blocks.
    pub(super) fn new(capacity: u64) -> Self {
        Self {
            capacity: usize::try_from(capacity).unwrap_or(usize::MAX),
            uses: 0,
            last_use: HashMap::new(),
            by_use: BTreeMap::new(),
        }
    }

    /// How many leading blocks of `prefix` are known; they count as used now.
    pub(super) fn matched(&mut self, prefix: &[u64]) -> u64 {
        let known = prefix.iter().take_while(|block| self.last_use.contains_key(block)).count();
        self.insert(&prefix[..known]);
        known as u64
    }

    /// Remembers the blocks as used now. The tail is used first: a prefix outlives what follows it.
    pub(super) fn insert(&mut self, prefix: &[u64]) {
        for block in prefix.iter().rev() {
            self.uses += 1;
            if let Some(before) = self.last_use.insert(*block, self.uses) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.uses, *block);
        }
        while self.last_use.len() > self.capacity {
            let Some((_, oldest)) = self.by_use.pop_first() else { break };
            self.last_use.remove(&oldest);
        }
    }
}

/// Hashes of the full blocks of a prompt, each chained to the one before and to `salt` (the adapter:
/// another adapter's keys and values differ).
pub(super) fn block_hashes(prompt: &[u8], block_bytes: usize, salt: &str) -> Vec<u64> {
    let mut chain = DefaultHasher::new();
    chain.write(salt.as_bytes());
    prompt
        .chunks_exact(block_bytes.max(1))
        .map(|block| {
            chain.write(block);
            chain.finish()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: hashing blocks without the chain makes `shifted` match; dropping the salt makes the
    /// adapter match.
    #[test]
    fn only_a_common_beginning_matches() {
        let mut cache = PrefixCache::new(100);
        cache.insert(&block_hashes(b"aaaabbbbcc", 4, ""));
        assert_eq!(cache.matched(&block_hashes(b"aaaabbbbdddd", 4, "")), 2);
        let shifted = block_hashes(b"xxxxbbbb", 4, "");
        assert_eq!(cache.matched(&shifted), 0);
        assert_eq!(cache.matched(&block_hashes(b"aaaabbbb", 4, "lora")), 0);
    }

    /// Mutant: evicting the newest, or not refreshing a match, loses block 1.
    #[test]
    fn the_block_used_longest_ago_goes_first() {
        let mut cache = PrefixCache::new(2);
        cache.insert(&[1]);
        cache.insert(&[2]);
        assert_eq!(cache.matched(&[1]), 1);
        cache.insert(&[3]);
        assert_eq!((cache.matched(&[1]), cache.matched(&[2]), cache.matched(&[3])), (1, 0, 1));
    }
}
