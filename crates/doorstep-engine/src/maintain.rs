//! Keeping house: what is old is forgotten, a little at a time and off the hot path (R4).

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use doorstep_core::clock::Now;
use doorstep_core::delivery::Delivery;
use doorstep_core::scheduler::Input;
use doorstep_core::store::{Ages, Purged, Store, StoreError};
use doorstep_core::time::Millis;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::run::Handle;
use crate::writer::Writer;

/// At most so many of each kind in one step. A step is one transaction, and a commit may have to wait for it.
pub const STEP_MAX: usize = 250;
/// When nothing is left to forget, it is looked for again after this long.
pub const LOOKS_EVERY: Duration = Duration::from_mins(1);
/// While there is more to forget, the store is left alone for so many times as long as the last step took, and at least
/// for this long.
const RESTS_PER_STEP: u32 = 9;
pub const RESTS_FOR_MIN: Duration = Duration::from_millis(50);

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub delivered: Millis,
    pub dead: Millis,
    pub attempts: Millis,
    /// At least; an event is kept for as long as any of its deliveries.
    pub events: Millis,
    pub activity: Millis,
    /// Also of keys that have ended.
    pub audit: Millis,
}

impl Default for Retention {
    fn default() -> Self {
        let days = |n: u64| Millis::from_hours(24 * n);
        Self {
            delivered: days(30),
            dead: days(90),
            attempts: days(30),
            events: days(30),
            activity: days(90),
            audit: days(365),
        }
    }
}

impl Retention {
    /// What is to be forgotten at that time.
    pub fn ages(&self, Now { at: now, wall }: Now) -> Ages {
        Ages {
            delivered: now - self.delivered,
            dead: now - self.dead,
            attempts: now - self.attempts,
            events: now - self.events,
            activity: now - self.activity,
            audit: now - self.audit,
            // Keys end by the wall clock. A clock that is wrong for a while must not take away what it cannot give back.
            keys: now.min(wall) - self.audit,
            // One that is over is good for nothing: what was done in it is in the audit log.
            sessions: now,
            // By then everything that carries the key's sequence numbers was removed too.
            idle: now - self.delivered.max(self.dead).max(self.events),
        }
    }
}

/// Starts a task that keeps house. It ends with the run loop.
pub fn start(store: Arc<dyn Store>, writer: Writer, run: Handle, clock: Clock, retention: Retention) -> JoinHandle<()> {
    tokio::spawn(async move {
        let purge = |ages| store.purge(ages, STEP_MAX);
        let tell = |deliveries| run.tell(Input::Available { deliveries });
        tokio::select! {
            () = run.ended() => {}
            () = keep_house(retention, || clock.look(), || writer.begin_telling(), purge, tell) => {}
        }
    })
}

async fn keep_house<G, P, T>(
    retention: Retention,
    now: impl Fn() -> Now,
    begin_telling: impl Fn() -> G,
    purge: impl Fn(Ages) -> P,
    tell_available: impl Fn(Vec<Delivery>) -> T,
) where
    P: Future<Output = Result<Purged, StoreError>>,
    T: Future<Output = ()>,
{
    loop {
        let (began, untold) = (Instant::now(), begin_telling());
        let purged = purge(retention.ages(now())).await.unwrap_or_else(|fault| {
            tracing::warn!(error = %fault, "what is old could not be removed; it is tried again in a minute");
            Purged::default()
        });
        let rest = rests_for(purged.is_full(STEP_MAX), began.elapsed());
        if !purged.available.is_empty() {
            tell_available(purged.available).await;
        }
        drop(untold);
        tokio::time::sleep(rest).await;
    }
}

fn rests_for(more: bool, took: Duration) -> Duration {
    if more { (took * RESTS_PER_STEP).max(RESTS_FOR_MIN) } else { LOOKS_EVERY }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::path::Path;

    use doorstep_core::delivery::BehindDead;
    use doorstep_core::id::SessionId;
    use doorstep_core::reach::Reach;
    use doorstep_core::retry::Decision;
    use doorstep_core::store::{DeliveryFilter, Page, Write, Written};
    use doorstep_core::time::Timestamp;
    use doorstep_store::conformance::samples::{DEAD, DST, NOW, TENANT, accept, portal_session, put, settle};
    use doorstep_store::seal::{Keyring, MasterKey};
    use doorstep_store::sqlite::{SqliteLimits, SqliteStore};
    use tokio::sync::Notify;

    use super::*;

    const DAY: Millis = Millis::from_hours(24);

    /// Writes to [`DST`], and returns what may go.
    async fn write(store: &SqliteStore, writes: Vec<Write>) -> Vec<Delivery> {
        let written = store.write(writes, NOW).await.unwrap();
        let available = |written| match written {
            Written::Accepted { available, .. } => available,
            Written::Saved | Written::Settled { .. } => Vec::new(),
            other => panic!("{other:?}"),
        };
        written.into_iter().flat_map(available).collect()
    }

    fn on_time(at: Timestamp) -> Now {
        Now { at, wall: at }
    }

    fn open(directory: &Path) -> SqliteStore {
        let keys = Keyring::new(MasterKey::new(&[7; 32]));
        SqliteStore::open(directory, keys, &SqliteLimits::default()).unwrap()
    }

    async fn left(store: &SqliteStore) -> Vec<u128> {
        let page = Page { before_seq: None, limit: 10_000 };
        let found = store.deliveries(Reach::All, DeliveryFilter::default(), page).await.unwrap();
        found.iter().map(|line| line.delivery.id.0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_forgotten_in_small_steps_with_rests_between_them() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        write(&store, vec![put(DST)]).await;
        let n = STEP_MAX as u128 * 2 + 10;
        let made = write(&store, (1..=n).map(|id| accept(id, None)).collect()).await;
        let ended = made[1..].iter().map(|delivery| settle(delivery, Decision::Delivered, BehindDead::Skip, NOW));
        write(&store, ended.collect()).await;
        let (days, steps, began) = (Cell::new(30), RefCell::new(Vec::new()), Instant::now());
        let done = Notify::new();
        let (store, steps, days, done) = (&store, &steps, &days, &done);
        let purge = |ages| async move {
            let purged = store.purge(ages, STEP_MAX).await?;
            steps.borrow_mut().push((began.elapsed(), purged.delivered, purged.events));
            days.set(31);
            if steps.borrow().len() == 5 {
                done.notify_one();
            }
            Ok(purged)
        };
        let now = || on_time(NOW + DAY.times(days.get()));
        tokio::select! {
            () = keep_house(Retention::default(), now, || (), purge, |_| async {}) => {}
            () = done.notified() => {}
        }
        let (rest, full) = (RESTS_FOR_MIN, STEP_MAX);
        let expected = [
            (Duration::ZERO, 0, 0),
            (LOOKS_EVERY, full, full),
            (LOOKS_EVERY + rest, full, full),
            (LOOKS_EVERY + rest * 2, 9, 9),
            (LOOKS_EVERY * 2 + rest * 2, 0, 0),
        ];
        assert_eq!(*steps.borrow(), expected);
        assert_eq!(left(store).await, [1], "what has not ended is never old");
        assert!(store.events(vec![made[0].event_seq]).await.unwrap()[0].readable().is_some(), "nor is its event");
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_no_end_and_those_that_may_go_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let made = write(&store, vec![put(DST), accept(1, Some("key")), accept(2, Some("key"))]).await;
        write(&store, vec![settle(&made[0], DEAD, BehindDead::Hold, NOW)]).await;
        let (faults, told) = (Cell::new(2), RefCell::new(Vec::new()));
        let done = Notify::new();
        let (store, faults, told, done) = (&store, &faults, &told, &done);
        let purge = |ages| async move {
            if faults.get() > 0 {
                faults.set(faults.get() - 1);
                return Err(StoreError::Unavailable("a test says so".into()));
            }
            store.purge(ages, STEP_MAX).await
        };
        let tell = |deliveries: Vec<Delivery>| async move {
            told.borrow_mut().extend(deliveries);
            done.notify_one();
        };
        tokio::select! {
            () = keep_house(Retention::default(), || on_time(NOW + DAY.times(91)), || (), purge, tell) => {}
            () = done.notified() => {}
        }
        assert_eq!(faults.get(), 0);
        assert_eq!(told.borrow().iter().map(|delivery| delivery.id.0).collect::<Vec<_>>(), [2]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_portal_session_that_is_over_goes_soon_and_not_with_the_log() {
        let directory = tempfile::tempdir().unwrap();
        let store = open(directory.path());
        let session = |id| Write::PutPortalSession(Box::new(portal_session(SessionId(id), TENANT, NOW)));
        write(&store, vec![session(1), session(2)]).await;
        let (hours, done) = (Cell::new(0), Notify::new());
        let (store, hours, done) = (&store, &hours, &done);
        let steps = &RefCell::new(Vec::new());
        let purge = |ages| async move {
            let purged = store.purge(ages, STEP_MAX).await?;
            steps.borrow_mut().push(purged.access);
            hours.set(hours.get() + 2);
            if steps.borrow().len() == 2 {
                done.notify_one();
            }
            Ok(Purged::default())
        };
        tokio::select! {
            () = keep_house(Retention::default(), || on_time(NOW + Millis::from_hours(hours.get())), || (), purge, |_| async {}) => {}
            () = done.notified() => {}
        }
        assert_eq!(*steps.borrow(), [0, 2]);
    }

    #[test]
    fn a_key_is_forgotten_when_both_clocks_say_that_it_ended_long_ago() {
        let (retention, year) = (Retention::default(), DAY.times(365));
        for (at, wall) in [(NOW, NOW + DAY.times(4_000)), (NOW + DAY.times(4_000), NOW)] {
            assert_eq!(retention.ages(Now { at, wall }).keys, NOW - year);
        }
    }

    #[test]
    fn most_of_the_time_the_store_is_left_alone() {
        let ms = Duration::from_millis;
        for (more, took, rest) in [
            (true, ms(1), RESTS_FOR_MIN),
            (true, ms(40), ms(360)),
            (false, ms(1), LOOKS_EVERY),
            (false, ms(40), LOOKS_EVERY),
        ] {
            assert_eq!(rests_for(more, took), rest, "{more} {took:?}");
        }
    }
}
