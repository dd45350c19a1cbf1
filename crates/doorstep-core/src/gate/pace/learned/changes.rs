//! Whether the receiver's limit changes from time to time: what held for a while is then soon out of date.

use serde::{Deserialize, Serialize};

use super::super::Rate;
use crate::time::Millis;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Changes {
    /// The pace of the last stretch that shows one.
    sustained: Option<Rate>,
    /// Grows with each stretch that differs from the one before it, and shrinks with each that does not.
    seen: u32,
}

/// A stretch shows a pace if so many were admitted in it, and it lasted for so many times the wait after it.
const ADMITTED_MIN: u64 = 20;
const LASTED_WAITS: u64 = 5;
/// It differs if it is more than so many per cent of the other.
const DIFFERS_PERCENT: u64 = 160;
const SEEN_MAX: u32 = 4;

impl Changes {
    pub(super) fn seen(&self) -> u32 {
        self.seen.min(SEEN_MAX)
    }

    pub(super) fn stretch_ended(&mut self, admitted: u64, lasted: Millis, waited: Millis) {
        if admitted < ADMITTED_MIN || lasted < waited.times(LASTED_WAITS) {
            return;
        }
        let now = Rate::over(admitted, lasted);
        if let Some(before) = self.sustained.replace(now) {
            let differs = now.max(before) > now.min(before).percent(DIFFERS_PERCENT);
            self.seen = if differs { self.seen.saturating_add(1).min(SEEN_MAX) } else { self.seen.saturating_sub(1) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Millis = Millis::from_mins(1);
    const SECOND: Millis = Millis::from_secs(1);

    #[test]
    fn stretches_that_differ_are_changes_and_others_are_not() {
        let mut changes = Changes::default();
        let mut seen = |admitted: u64| {
            changes.stretch_ended(admitted, MINUTE, SECOND);
            changes.seen()
        };
        assert_eq!([60, 90, 60].map(&mut seen), [0, 0, 0], "not more than 160 per cent");
        assert_eq!([100, 50, 100, 50, 100, 50].map(&mut seen), [1, 2, 3, 4, 4, 4]);
        assert_eq!([50, 51, 52, 53, 54].map(&mut seen), [3, 2, 1, 0, 0], "it has been steady since");
    }

    #[test]
    fn a_stretch_that_is_short_or_small_shows_nothing() {
        let mut changes = Changes::default();
        for (admitted, lasted) in [(1_000, MINUTE), (19, MINUTE), (10, Millis::from_secs(4)), (u64::MAX, Millis::ZERO)]
        {
            changes.stretch_ended(admitted, lasted, SECOND);
            assert_eq!(changes.seen(), 0, "{admitted} in {lasted}");
        }
    }
}
