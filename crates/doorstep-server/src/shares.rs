//! Places that many want: nobody takes more of them than their share.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Who has how many, and what all of somebody's have in common. Whoever has none is forgotten, so there are never more of them than there are places.
#[derive(Debug)]
pub(crate) struct Shares<K, V = ()>(Arc<Mutex<HashMap<K, Taken<V>>>>);

#[derive(Debug, Default)]
struct Taken<V> {
    n: usize,
    common: Arc<V>,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<K: Eq + Hash, V = ()> {
    of: K,
    pub(crate) common: Arc<V>,
    shares: Shares<K, V>,
}

impl<K: Eq + Hash + Clone, V: Default> Shares<K, V> {
    /// `None`: they have `max` already.
    pub(crate) fn take(&self, of: K, max: usize) -> Option<Share<K, V>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&of).map_or(0, |taken| taken.n) >= max {
            return None;
        }
        let taken = all.entry(of.clone()).or_default();
        taken.n += 1;
        Some(Share { of, common: Arc::clone(&taken.common), shares: self.clone() })
    }
}

impl<K: Eq + Hash, V> Drop for Share<K, V> {
    fn drop(&mut self) {
        let mut all = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(taken) = all.get_mut(&self.of) else { return };
        taken.n -= 1;
        if taken.n == 0 {
            all.remove(&self.of);
        }
    }
}

impl<K, V> Clone for Shares<K, V> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<K, V> Default for Shares<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_more_than_their_share_and_who_has_none_is_forgotten() {
        let shares = Shares::<_>::default();
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
