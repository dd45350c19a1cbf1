//! How many requests at once: adaptive below the configured cap (G9), and a ramp after recovery (G8, G11).

use serde::{Deserialize, Serialize};

use super::{GateLimits, Hold, Permit, Why};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    /// Below the cap while the receiver has shown that it cannot take more; `None` is the cap itself.
    narrowed_to: Option<u32>,
    /// Answers since the last widening.
    credit: u32,
    /// While ramping, every answer widens by one, which doubles the limit each round: 1, 2, 4, 8 …
    ramping: bool,
    /// Counts the narrowings: one overload narrows once, however many requests it catches.
    narrowings: u32,
}

impl Concurrency {
    pub fn limit(&self, limits: &GateLimits) -> u32 {
        self.narrowed_to.unwrap_or(u32::MAX).min(limits.concurrency).max(1)
    }

    pub(super) fn narrowings(&self) -> u32 {
        self.narrowings
    }

    pub(super) fn hold(&self, limits: &GateLimits, in_flight: u32) -> Option<Hold> {
        (in_flight >= self.limit(limits)).then(|| Hold::for_event(Why::Concurrency))
    }

    /// An answer came: one more after each full round of them, or after each single one while ramping.
    pub(super) fn widen(&mut self, limits: &GateLimits) {
        let Some(limit) = self.narrowed_to else { return };
        self.credit += 1;
        if self.ramping || self.credit >= limit {
            self.credit = 0;
            let wider = limit.saturating_add(1);
            self.narrowed_to = (wider < limits.concurrency).then_some(wider);
            self.ramping &= self.narrowed_to.is_some();
        }
    }

    /// A sign of overload: half as many, but only once for all that were in flight together.
    pub(super) fn narrow(&mut self, permit: &Permit, limits: &GateLimits) {
        if permit.narrowings != self.narrowings {
            return;
        }
        self.narrowings = self.narrowings.wrapping_add(1);
        self.narrowed_to = Some((self.limit(limits) / 2).max(1));
        (self.credit, self.ramping) = (0, false);
    }

    pub(super) fn ramp(&mut self) {
        self.narrowings = self.narrowings.wrapping_add(1);
        (self.narrowed_to, self.credit, self.ramping) = (Some(1), 0, true);
    }
}
