//! What was written is told before what was read.
//!
//! What a write makes available is told to the scheduler by whoever asked for the write, some time after it is on disk. A read
//! may see it before that. Told first of the read, the scheduler would send the delivery, settle it and forget it, and then
//! take the late news for another one. So a read is told only after everybody who had begun to write has told.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tellings(Arc<Mutex<Ages>>);

/// Those who have begun, by when: an age ends when somebody waits for it, and the next one begins.
#[derive(Debug, Default)]
struct Ages {
    /// The number of the first one.
    first: u64,
    /// Oldest first; new ones join the last.
    open: VecDeque<Age>,
}

#[derive(Debug, Default)]
struct Age {
    untold: usize,
    waiting: Vec<oneshot::Sender<()>>,
}

/// Somebody has begun to write. Dropped when all is told that there is to tell.
#[derive(Debug)]
pub struct Telling {
    age: u64,
    all: Tellings,
}

impl Tellings {
    pub(crate) fn begin(&self) -> Telling {
        let mut ages = self.lock();
        if ages.open.is_empty() {
            ages.open.push_back(Age::default());
        }
        let age = ages.first + ages.open.len() as u64 - 1;
        if let Some(last) = ages.open.back_mut() {
            last.untold += 1;
        }
        Telling { age, all: self.clone() }
    }

    /// Returns once all who have begun by now have told. Whoever begins later is not waited for.
    pub(crate) async fn all_told(&self) {
        let told = {
            let mut ages = self.lock();
            if ages.open.iter().all(|age| age.untold == 0) {
                return;
            }
            let (waits, told) = oneshot::channel();
            if let Some(last) = ages.open.back_mut() {
                last.waiting.push(waits);
            }
            ages.open.push_back(Age::default());
            told
        };
        // Answered or dropped, it is over.
        let _ = told.await;
    }

    fn lock(&self) -> MutexGuard<'_, Ages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let mut ages = self.all.lock();
        let at = usize::try_from(self.age - ages.first).unwrap_or(usize::MAX);
        if let Some(age) = ages.open.get_mut(at) {
            age.untold -= 1;
        }
        while ages.open.len() > 1 && ages.open.front().is_some_and(|oldest| oldest.untold == 0) {
            let over = ages.open.pop_front();
            ages.first += 1;
            for waits in over.into_iter().flat_map(|age| age.waiting) {
                // Whoever waited may have gone.
                let _ = waits.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_reader_waits_for_all_who_began_before_and_for_nobody_else() {
        let tellings = Tellings::default();
        tellings.all_told().await;
        let (first, second) = (tellings.begin(), tellings.begin());
        let mut reader = pin!(tellings.all_told());
        assert!(reader.as_mut().now_or_never().is_none());
        let later = tellings.begin();
        let mut later_reader = pin!(tellings.all_told());
        assert!(later_reader.as_mut().now_or_never().is_none());
        drop(second);
        assert!(reader.as_mut().now_or_never().is_none());
        drop(first);
        assert!(reader.now_or_never().is_some(), "both have told");
        assert!(later_reader.as_mut().now_or_never().is_none());
        drop(later);
        assert!(later_reader.now_or_never().is_some());
    }

    #[tokio::test]
    async fn a_later_one_that_is_done_early_does_not_let_the_reader_go() {
        let tellings = Tellings::default();
        let slow = tellings.begin();
        let mut reader = pin!(tellings.all_told());
        assert!(reader.as_mut().now_or_never().is_none());
        drop(tellings.begin());
        let mut next_reader = pin!(tellings.all_told());
        assert!(next_reader.as_mut().now_or_never().is_none(), "the slow one began before this reader too");
        drop(slow);
        assert!(reader.now_or_never().is_some() && next_reader.now_or_never().is_some());
        tellings.all_told().await;
        assert_eq!(tellings.lock().open.len(), 1, "nothing is left behind");
    }
}
