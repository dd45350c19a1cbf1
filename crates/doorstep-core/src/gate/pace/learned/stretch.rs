//! What was admitted between a throttle's end and the next refusal, and what that shows.

use serde::{Deserialize, Serialize};

use super::super::Rate;
use crate::time::Millis;

/// What was admitted between a throttle's end and the next refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretch {
    pub(super) admitted: u64,
    pub(super) lasted: Millis,
    /// With the throttle that followed it.
    pub(super) cycle: Millis,
    pub(super) refused_at: Rate,
}

/// Of the wait that followed the first refusal, so much counts as time in which the receiver admitted nothing more.
const FIRST_WAIT_MAX: Millis = Millis::from_mins(1);

/// Windows that people choose for their limits.
const ROUND_WINDOWS: [Millis; 5] =
    [Millis::from_secs(1), Millis::from_secs(10), Millis::from_mins(1), Millis::from_mins(15), Millis::from_hours(1)];

impl Stretch {
    /// How long it was left alone after it.
    pub(super) fn waited(self) -> Millis {
        Millis(self.cycle.0.saturating_sub(self.lasted.0))
    }

    /// What to go on with after the first refusal. A wait that is longer than this says more about the sender than about the receiver.
    pub(super) fn first_pace(self) -> Rate {
        Rate::over(self.admitted.max(1), self.lasted + self.waited().min(FIRST_WAIT_MAX))
    }

    /// It admits at least this much over time.
    pub(super) fn at_least(self) -> Rate {
        Rate::over(self.admitted.max(1), self.cycle)
    }

    /// If as many were admitted at one pace as at quite another, they are counted per window, and the window is
    /// not shorter than either stretch.
    pub(super) fn limit_per_window(self, last: Self) -> Option<Rate> {
        let as_many = is_within(self.admitted, last.admitted, 130);
        let as_fast = is_within(self.refused_at.0, last.refused_at.0, 150);
        if !as_many || as_fast {
            return None;
        }
        // A stretch may reach into a second window before it is refused there.
        let longer = self.lasted.max(last.lasted);
        let window = ROUND_WINDOWS.into_iter().find(|window| window.times(3) >= longer.times(2))?;
        Some(Rate::over(self.admitted.min(last.admitted), window))
    }
}

pub(super) fn is_within(a: u64, b: u64, percent: u128) -> bool {
    u128::from(a.max(b)) * 100 <= u128::from(a.min(b)) * percent
}
