//! One event to one destination: the unit of work, and what is written when it has been tried.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{DeliveryId, DestinationId};
use crate::outcome::{Class, Outcome};
use crate::retry::{Charge, DeadReason, Decision, Progress};
use crate::time::{Millis, Timestamp};

/// A delivery that is not finished. It carries all that its next attempt needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    pub id: DeliveryId,
    /// Its event's number in the store.
    pub event_seq: u64,
    pub destination_id: DestinationId,
    /// Ingest order within the store.
    pub seq: u64,
    pub due_at: Timestamp,
    /// Requests made so far, those that cost nothing included.
    pub requests: u32,
    pub progress: Progress,
    pub ordering: Option<OrderingSlot>,
    /// How often in a row its payload could not be read when its turn came.
    pub unreadable: u32,
}

/// A delivery whose payload cannot be read rests this long before it is tried again, then twice as long each time, up to the maximum.
pub const UNREADABLE_REST: Millis = Millis::from_secs(30);
pub const UNREADABLE_REST_MAX: Millis = Millis::from_mins(15);

/// A delivery's place among those with the same ordering key (O1, O2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderingSlot {
    pub key: Arc<str>,
    /// Counts up by one within the key, so that a receiver can detect gaps.
    pub sequence: u64,
}

/// Whether a destination's deliveries keep their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ordering {
    #[default]
    Unordered,
    /// One at a time per key, in ingest order; other keys flow in parallel.
    ByKey { behind_dead: BehindDead },
}

/// What happens to the deliveries behind a dead one with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BehindDead {
    /// They go on.
    #[default]
    Skip,
    /// They wait until a person has retried or abandoned it.
    Hold,
}

/// First attempts and retries queue apart, so that neither can crowd out the other (G15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Track {
    First,
    Retry,
}

impl Track {
    pub const ALL: [Self; 2] = [Self::First, Self::Retry];
}

/// A delivery's place in its track: by due time, then by ingest order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub due_at: Timestamp,
    pub seq: u64,
}

impl Delivery {
    pub fn place(&self) -> Place {
        Place { due_at: self.due_at, seq: self.seq }
    }

    /// A first attempt that was throttled or served as a probe is still a first attempt: it has cost nothing.
    pub fn track(&self) -> Track {
        if self.progress.attempts == 0 { Track::First } else { Track::Retry }
    }

    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.progress.give_up_at <= now
    }

    /// The delivery after an attempt: what it has spent, and when it is due again.
    pub fn after(&self, outcome: &Outcome, decision: Decision, charge: Charge, now: Timestamp) -> Self {
        let mut next = self.clone();
        next.unreadable = 0;
        next.requests = next.requests.saturating_add(1);
        let paid = match outcome.class() {
            Class::Throttled => false,
            Class::Transient | Class::Ambiguous => charge == Charge::Attempt,
            // It has ended: there is no budget left to spare.
            Class::Success | Class::Permanent => true,
        };
        next.progress.attempts = next.progress.attempts.saturating_add(u32::from(paid));
        // Also of a probe: a doubtful answer is about this delivery, whatever else the request was for.
        let ambiguous = outcome.class() == Class::Ambiguous;
        next.progress.ambiguous = next.progress.ambiguous.saturating_add(u32::from(ambiguous));
        if let Decision::RetryAt(at) = decision {
            next.due_at = at;
            next.progress.last_delay = at.since(now);
        }
        next
    }

    /// The delivery after its payload could not be read: it steps aside and pays nothing (D6), so that others go first.
    pub fn set_aside(self, now: Timestamp) -> Self {
        let unreadable = self.unreadable.saturating_add(1);
        // Ten doublings are beyond the maximum already.
        let rest = Millis(UNREADABLE_REST.0 << (unreadable - 1).min(10)).min(UNREADABLE_REST_MAX);
        Self { due_at: now + rest, unreadable, ..self }
    }
}

/// What is written once a delivery has been tried, has run out of time, or has nothing left to send: outcome and decision together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The delivery as it is from now on.
    pub delivery: Delivery,
    /// `None`: it ended without a further request.
    pub outcome: Option<Outcome>,
    pub decision: Decision,
    /// Whether the next delivery with the same ordering key may go now.
    pub releases_key: bool,
    pub settled_at: Timestamp,
    /// What to say to whoever asks why, where the decision alone does not.
    pub note: Option<&'static str>,
}

/// The note of a delivery that ends because there is nothing left to send.
const ERASED: &str = "its payload was erased";
/// The note of a delivery that runs out of time while its payload cannot be read.
const UNREADABLE: &str = "its payload could not be read";

impl Settlement {
    pub fn new(
        delivery: Delivery,
        outcome: Option<Outcome>,
        decision: Decision,
        ordering: Ordering,
        now: Timestamp,
    ) -> Self {
        let releases_key = delivery.ordering.is_some() && releases_key(decision, ordering);
        Self { delivery, outcome, decision, releases_key, settled_at: now, note: None }
    }

    /// It ends the delivery without a request. Whoever says so may have read the delivery before its last answer was
    /// written, so a store ends it as it is written there.
    pub fn ends_untried(&self) -> bool {
        self.outcome.is_none() && matches!(self.decision, Decision::Dead(_))
    }

    /// There is nothing left to send: whoever erased the payload has abandoned this delivery by that.
    pub fn void(delivery: Delivery, ordering: Ordering, now: Timestamp) -> Self {
        let decision = Decision::Dead(DeadReason::Abandoned);
        Self { note: Some(ERASED), ..Self::new(delivery, None, decision, ordering, now) }
    }

    /// Its time is up.
    pub fn expired(delivery: Delivery, ordering: Ordering, now: Timestamp) -> Self {
        let note = (delivery.unreadable > 0).then_some(UNREADABLE);
        Self { note, ..Self::new(delivery, None, Decision::Dead(DeadReason::Expired), ordering, now) }
    }

    /// Its payload cannot be read. It is tried again later, and keeps its ordering key until then.
    pub fn set_aside(delivery: Delivery, ordering: Ordering, now: Timestamp) -> Self {
        let next = delivery.set_aside(now);
        let decision = Decision::RetryAt(next.due_at);
        Self::new(next, None, decision, ordering, now)
    }
}

fn releases_key(decision: Decision, ordering: Ordering) -> bool {
    match decision {
        Decision::Delivered | Decision::Dead(DeadReason::Abandoned) => true,
        Decision::RetryAt(_) | Decision::Requeue => false,
        Decision::Dead(DeadReason::Exhausted | DeadReason::Expired | DeadReason::Rejected) => match ordering {
            // The destination was changed while this was on its way: nothing is left to keep in order.
            Ordering::Unordered => true,
            Ordering::ByKey { behind_dead: BehindDead::Skip } => true,
            Ordering::ByKey { behind_dead: BehindDead::Hold } => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn an_attempt_is_paid_for_unless_it_was_throttled_or_a_failed_probe() {
        let give_up_at = Timestamp(1_000_000);
        let delivery = Delivery {
            id: DeliveryId(1),
            event_seq: 1,
            destination_id: DestinationId(1),
            seq: 1,
            due_at: Timestamp(5),
            requests: 2,
            progress: Progress { attempts: 2, ambiguous: 1, last_delay: Millis(7), give_up_at },
            ordering: None,
            unreadable: 0,
        };
        let after = |outcome: Outcome, decision, charge| {
            let next = delivery.after(&outcome, decision, charge, Timestamp(100));
            assert_eq!(next.requests, 3, "every request is counted");
            (next.progress.attempts, next.progress.ambiguous, next.progress.last_delay.0, next.due_at.0)
        };
        let retry = Decision::RetryAt(Timestamp(160));
        let (paid, probe) = (Charge::Attempt, Charge::Probe);
        let (accepted, dead) = (Outcome::Accepted { quota: None }, Decision::Dead(DeadReason::Rejected));
        for (outcome, decision, charge, expected) in [
            (Outcome::Throttled { wait: None }, Decision::Requeue, paid, (2, 1, 7, 5)),
            (Outcome::TimedOut, retry, paid, (3, 1, 60, 160)),
            (Outcome::Ambiguous { status: 404, wait: None }, retry, paid, (3, 2, 60, 160)),
            (Outcome::Blocked, retry, paid, (3, 2, 60, 160)),
            (Outcome::Gone, dead, paid, (3, 1, 7, 5)),
            (Outcome::Throttled { wait: None }, Decision::Requeue, probe, (2, 1, 7, 5)),
            (Outcome::TimedOut, retry, probe, (2, 1, 60, 160)),
            (Outcome::Ambiguous { status: 404, wait: None }, retry, probe, (2, 2, 60, 160)),
            (accepted, Decision::Delivered, probe, (3, 1, 7, 5)),
            (Outcome::Gone, dead, probe, (3, 1, 7, 5)),
        ] {
            assert_eq!(after(outcome, decision, charge), expected, "{outcome:?} {charge:?}");
        }
    }

    #[test]
    fn one_that_cannot_be_read_rests_longer_each_time_and_pays_nothing() {
        let give_up_at = Timestamp(i64::MAX);
        let progress = Progress { attempts: 2, ambiguous: 1, last_delay: Millis(7), give_up_at };
        let mut delivery = Delivery {
            id: DeliveryId(1),
            event_seq: 1,
            destination_id: DestinationId(1),
            seq: 1,
            due_at: Timestamp(5),
            requests: 3,
            progress,
            ordering: None,
            unreadable: 0,
        };
        let now = Timestamp(1_000_000);
        for (unreadable, seconds) in [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 900), (7, 900)] {
            let next = delivery.clone().set_aside(now);
            assert_eq!(next.due_at, now + Millis::from_secs(seconds), "after {unreadable} times");
            assert_eq!(next, Delivery { due_at: next.due_at, unreadable, ..delivery.clone() }, "nothing else changes");
            delivery = next;
        }
        let often = Delivery { unreadable: u32::MAX, ..delivery.clone() };
        assert_eq!(often.set_aside(now).due_at, now + Millis::from_mins(15));
        let read = delivery.after(&Outcome::TimedOut, Decision::RetryAt(now), Charge::Attempt, now);
        assert_eq!(read.unreadable, 0, "a request was made, so it could be read");
    }

    #[test]
    fn a_key_is_released_by_an_end_and_by_nothing_else() {
        let (skip, hold) = (BehindDead::Skip, BehindDead::Hold);
        for (decision, after_skip, after_hold) in [
            (Decision::Delivered, true, true),
            (Decision::RetryAt(Timestamp(1)), false, false),
            (Decision::Requeue, false, false),
            (Decision::Dead(DeadReason::Exhausted), true, false),
            (Decision::Dead(DeadReason::Expired), true, false),
            (Decision::Dead(DeadReason::Rejected), true, false),
            (Decision::Dead(DeadReason::Abandoned), true, true),
        ] {
            let check = |behind_dead| releases_key(decision, Ordering::ByKey { behind_dead });
            assert_eq!((check(skip), check(hold)), (after_skip, after_hold), "{decision:?}");
        }
    }
}
