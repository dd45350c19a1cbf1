//! Places that many want: nobody takes more of them than their share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Who has how many. Whoever has none is forgotten, so there are never more of them than there are places.
#[derive(Debug)]
pub(crate) struct Shares<K>(Arc<Mutex<HashMap<K, usize>>>);

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash> {
    of: K,
    taken: Shares<K>,
}

impl<K: Eq + Hash + Clone> Shares<K> {
    /// `None`: they have `max` already.
    pub(crate) fn take(&self, of: K, max: usize) -> Option<Share<K>> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = taken.get(&of).copied().unwrap_or(0);
        if n >= max {
            return None;
        }
        taken.insert(of.clone(), n + 1);
        Some(Share { of, taken: self.clone() })
    }
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = self.taken.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(n) = taken.get_mut(&self.of) else { return };
        *n -= 1;
        if *n == 0 {
            taken.remove(&self.of);
        }
    }
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K> Default for Shares<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_their_share_and_who_has_none_is_forgotten() {
        let shares = Shares::default();
        let mut of_one: Vec<_> = (0..3).map(|_| shares.take("one", 3).unwrap()).collect();
        assert!(shares.take("one", 3).is_none());
        let of_another = shares.take("another", 3);
        assert!(of_another.is_some(), "the others have their own");
        of_one.pop();
        of_one.push(shares.take("one", 3).unwrap());
        assert!(shares.take("one", 3).is_none());
        drop((of_one, of_another));
        assert!(shares.0.lock().unwrap().is_empty());
    }
}
