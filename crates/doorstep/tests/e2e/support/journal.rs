//! A list that somebody else writes, and that can be waited for.

use std::sync::{Condvar, Mutex};
use std::time::Instant;

use super::PATIENCE;

#[derive(Debug)]
pub(crate) struct Journal<T> {
    entries: Mutex<Vec<T>>,
    grown: Condvar,
}

impl<T> Default for Journal<T> {
    fn default() -> Self {
        Self { entries: Mutex::default(), grown: Condvar::new() }
    }
}

impl<T: Clone> Journal<T> {
    pub(crate) fn push(&self, entry: T) {
        self.entries.lock().unwrap().push(entry);
        self.grown.notify_all();
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.entries.lock().unwrap().clone()
    }

    /// What has come after the first `n`.
    pub(crate) fn after(&self, n: usize) -> Vec<T> {
        self.entries.lock().unwrap()[n..].to_vec()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.lock().unwrap().len()
    }

    /// Waits until what is there satisfies.
    pub(crate) fn wait<R>(&self, what: &str, mut look: impl FnMut(&[T]) -> Option<R>) -> R {
        let end = Instant::now() + PATIENCE;
        let mut entries = self.entries.lock().unwrap();
        loop {
            if let Some(found) = look(&entries) {
                return found;
            }
            let left = end.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for {what}; there are {} entries", entries.len());
            (entries, _) = self.grown.wait_timeout(entries, left).unwrap();
        }
    }

    /// Waits for so many, and returns all that are there.
    pub(crate) fn wait_for(&self, n: usize) -> Vec<T> {
        self.wait(&format!("{n} entries"), |entries| (entries.len() >= n).then(|| entries.to_vec()))
    }
}
