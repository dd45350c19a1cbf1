//! Deliveries whose payload cannot be read: counted, and named in the log, a bounded number a minute.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use doorstep_core::delivery::Delivery;
use doorstep_core::store::Unreadable;
use doorstep_core::time::{Millis, Timestamp};

/// So many are named in the log each minute. A tenant's lost key may concern a million of them.
pub const NAMED_PER_MINUTE: u64 = 20;
const MINUTE: Millis = Millis::from_mins(1);

#[derive(Debug, Default)]
pub struct UnreadablePayloads {
    total: AtomicU64,
    minute: Mutex<Minute>,
}

/// What was said since `from`.
#[derive(Debug, Default)]
struct Minute {
    from: Timestamp,
    named: u64,
    unnamed: u64,
}

/// How one is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// By name. So many were not named in the minute before.
    Named {
        unnamed_before: u64,
    },
    Counted,
}

impl UnreadablePayloads {
    /// How often that happened since the start.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// This delivery's turn came, and its payload could not be read.
    pub fn note(&self, delivery: &Delivery, what: &Unreadable, now: Timestamp) {
        let Report::Named { unnamed_before } = self.count(now) else { return };
        let event_id = what.event_id.as_ref().map(tracing::field::display);
        let tenant_id = what.tenant_id.map(tracing::field::display);
        tracing::error!(
            delivery_id = %delivery.id, event_id, tenant_id, destination_id = %delivery.destination_id, error = what.why,
            times = delivery.unreadable.saturating_add(1),
            "a payload cannot be read: its delivery steps aside and is tried again later; `doorstep check --deep` lists all of them"
        );
        if unnamed_before > 0 {
            tracing::error!(n = unnamed_before, "further payloads could not be read in the minute before");
        }
    }

    fn count(&self, now: Timestamp) -> Report {
        self.total.fetch_add(1, Ordering::Relaxed);
        let mut minute = self.minute.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = now >= minute.from + MINUTE || now < minute.from;
        let unnamed_before = if is_over { std::mem::take(&mut *minute).unnamed } else { 0 };
        if is_over {
            minute.from = now;
        }
        if minute.named >= NAMED_PER_MINUTE {
            minute.unnamed += 1;
            return Report::Counted;
        }
        minute.named += 1;
        Report::Named { unnamed_before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_only_a_few_are_named() {
        let unreadable = UnreadablePayloads::default();
        let at = |seconds: i64| Timestamp(1_700_000_000_000 + seconds * 1_000);
        let reports: Vec<Report> = (0..1_000).map(|_| unreadable.count(at(0))).collect();
        let named = reports.iter().filter(|report| matches!(report, Report::Named { .. })).count();
        assert_eq!((named as u64, unreadable.total()), (NAMED_PER_MINUTE, 1_000));
        assert_eq!(unreadable.count(at(59)), Report::Counted);
        assert_eq!(unreadable.count(at(60)), Report::Named { unnamed_before: 1_001 - NAMED_PER_MINUTE });
        assert_eq!(unreadable.count(at(61)), Report::Named { unnamed_before: 0 });
        assert_eq!(unreadable.count(at(-100)), Report::Named { unnamed_before: 0 }, "a clock that was set back");
    }
}
