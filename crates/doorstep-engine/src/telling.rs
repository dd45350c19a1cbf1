//! The scheduler hears of writes in an order that it can rely on.
//!
//! What a write makes available is told to the scheduler by whoever asked for the write, some time after it is on disk. Two
//! things must not come before it:
//! - A read that saw the delivery. Told of the read first, the scheduler would send the delivery, settle it and forget it, and
//!   then take the late news for another one.
//! - The news that a person ended the delivery. Told of the end first, the scheduler would send what has ended, beside the next
//!   delivery of its ordering key.
//!
//! In the same way, that a delivery is sent again must not come before the news of its earlier end. So each telling has a number, in
//! the order in which the writes are committed, and all these wait for the earlier ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

#[derive(Clone, Debug, Default)]
pub(crate) struct Tellings(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Tellings that have begun and not ended.
    open: BTreeSet<u64>,
    /// Waiting until no telling before this number is open.
    waiting: BTreeMap<u64, Vec<oneshot::Sender<()>>>,
}

/// Somebody has begun to write. Dropped when all is told that there is to tell.
#[derive(Debug)]
pub struct Telling {
    number: u64,
    all: Tellings,
}

impl Tellings {
    pub(crate) fn begin(&self) -> Telling {
        self.begin_with(|| ()).0
    }

    /// Begins, and hands the write over before anybody else can begin: numbers are in the order of the commits.
    pub(crate) fn begin_with<T>(&self, hand_over: impl FnOnce() -> T) -> (Telling, T) {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.open.insert(number);
        let handed_over = hand_over();
        drop(state);
        (Telling { number, all: self.clone() }, handed_over)
    }

    /// Returns once all that have begun by now have ended. Those that begin later are not waited for.
    pub(crate) async fn all_told(&self) {
        let next = self.lock().next;
        self.told_before(next).await;
    }

    async fn told_before(&self, number: u64) {
        let told = {
            let mut state = self.lock();
            if state.open.first().is_none_or(|first| *first >= number) {
                return;
            }
            let (waits, told) = oneshot::channel();
            state.waiting.entry(number).or_default().push(waits);
            told
        };
        // Answered or dropped, it is over.
        let _ = told.await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Telling {
    /// Returns once all that was written before this is told.
    pub async fn earlier_told(&self) {
        self.all.told_before(self.number).await;
    }
}

impl Drop for Telling {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.open.remove(&self.number);
        let told_to = state.open.first().copied().unwrap_or(state.next);
        while let Some(first) = state.waiting.first_entry()
            && *first.key() <= told_to
        {
            for waits in first.remove() {
                // The waiting task may be gone.
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
        let state = tellings.lock();
        assert!(state.open.is_empty() && state.waiting.is_empty(), "nothing is left behind: {state:?}");
    }

    #[tokio::test]
    async fn an_end_is_told_after_what_was_written_before_it_and_waits_for_nothing_later() {
        let tellings = Tellings::default();
        let (accepted, ended, also_ended) = (tellings.begin(), tellings.begin(), tellings.begin());
        let mut next_end = pin!(also_ended.earlier_told());
        {
            let mut end = pin!(ended.earlier_told());
            assert!(end.as_mut().now_or_never().is_none(), "the delivery is not yet told of");
            drop(accepted);
            assert!(end.now_or_never().is_some(), "it waits neither for itself nor for the later one");
        }
        assert!(next_end.as_mut().now_or_never().is_none());
        drop(ended);
        assert!(next_end.now_or_never().is_some());
    }
}
