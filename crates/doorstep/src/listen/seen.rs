//! Which events have been accepted already.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// So many of the latest are remembered.
pub(super) const REMEMBERED_MAX: usize = 1_000_000;

/// Keeps hashes of 64 bits: among a million events two share one once in some thirty million runs.
#[derive(Debug)]
pub(super) struct Seen {
    hashes: HashSet<u64>,
    /// Oldest first.
    order: VecDeque<u64>,
    most: usize,
}

impl Seen {
    pub(super) fn new(most: usize) -> Self {
        Self { hashes: HashSet::new(), order: VecDeque::new(), most }
    }

    /// One event may go to several paths, each of which is a receiver of its own.
    pub(super) fn contains(&self, path: &str, event_id: &str) -> bool {
        self.hashes.contains(&hash(path, event_id))
    }

    pub(super) fn insert(&mut self, path: &str, event_id: &str) {
        let hash = hash(path, event_id);
        if self.hashes.insert(hash) {
            self.order.push_back(hash);
        }
        if self.order.len() > self.most
            && let Some(oldest) = self.order.pop_front()
        {
            self.hashes.remove(&oldest);
        }
    }
}

fn hash(path: &str, event_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (path, event_id).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_remembered_and_older_ones_forgotten() {
        let mut seen = Seen::new(2);
        for id in ["a", "b", "b", "c"] {
            seen.insert("/", id);
        }
        assert_eq!(["a", "b", "c"].map(|id| seen.contains("/", id)), [false, true, true]);
        assert!(!seen.contains("/other", "c"), "another path is another receiver");
    }
}
