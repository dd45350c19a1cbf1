//! How many requests at once: adaptive below the configured cap (G9), opened slowly for a destination that is not known yet, and a
//! ramp after recovery (G8, G11).

mod climb;

use serde::{Deserialize, Serialize};

use super::{GateLimits, Hold, Permit, Why};
use crate::time::Timestamp;
use climb::Climb;

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
    /// What it was before it was narrowed a little.
    #[serde(default)]
    before_narrowing: Option<u32>,
    /// Slots opened beyond [`OPEN_AT_FIRST`]: each success opens one more, up to the cap.
    #[serde(default)]
    opened: u32,
    /// What the receiver's refusals have shown.
    #[serde(default)]
    admits: Option<u32>,
    /// On the heap, and only once something was answered: most destinations are idle.
    #[serde(default)]
    climb: Option<Box<Climb>>,
}

/// A destination that is not known yet meets this many requests at once, the default cap, whatever its own cap is.
const OPEN_AT_FIRST: u32 = 10;

/// A single 503 narrows by one part in so many.
const LITTLE: u32 = 8;

impl Concurrency {
    pub fn limit(&self, limits: &GateLimits) -> u32 {
        let climbed_to = self.climb.as_ref().and_then(|climb| climb.limit());
        let open = limits.concurrency.min(OPEN_AT_FIRST.saturating_add(self.opened));
        [self.narrowed_to, climbed_to, self.admits].into_iter().flatten().fold(open, u32::min).max(1)
    }

    pub(super) fn admits(&mut self, at_once: Option<u32>) {
        self.admits = at_once;
    }

    /// A clock that was set back must not keep it from learning.
    pub(super) fn notice_clock(&mut self, now: Timestamp) {
        if let Some(climb) = &mut self.climb {
            climb.notice_clock(now);
        }
    }

    /// The receiver accepted: one more slot is opened, and how long it took is taken in.
    pub(super) fn accepted(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp) {
        if OPEN_AT_FIRST.saturating_add(self.opened) < limits.concurrency {
            self.opened += 1;
        }
        if now < permit.at {
            // The clock was set back: how long it took is not known.
            return;
        }
        let limit = self.limit(limits);
        let climb = self.climb.get_or_insert_default();
        climb.answered(now.since(permit.at), permit.bound, limit, limits.concurrency, now);
    }

    /// The breaker tripped.
    pub(super) fn tripped(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp) {
        let limit = self.limit(limits);
        if let Some(climb) = &mut self.climb {
            climb.tripped(now.since(permit.at), permit.n_in_flight, limit);
        }
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
        self.before_narrowing = None;
        self.narrowed_to = Some((self.limit(limits) / 2).max(1));
        (self.credit, self.ramping) = (0, false);
    }

    /// A sign of overload, unless it was this request alone: a little narrower. A second one of the same round narrows as
    /// [`Concurrency::narrow`] does.
    pub(super) fn narrow_a_little(&mut self, permit: &Permit, limits: &GateLimits) {
        let round = self.narrowings.wrapping_sub(permit.narrowings);
        let limit = if round == 0 {
            let limit = self.limit(limits);
            self.narrowings = self.narrowings.wrapping_add(1);
            self.before_narrowing = Some(limit);
            limit - (limit / LITTLE).max(1)
        } else if round == 1
            && let Some(before) = self.before_narrowing.take()
        {
            before / 2
        } else {
            return;
        };
        self.narrowed_to = Some(limit.max(1));
        (self.credit, self.ramping) = (0, false);
    }

    pub(super) fn ramp(&mut self) {
        self.narrowings = self.narrowings.wrapping_add(1);
        (self.narrowed_to, self.credit, self.ramping) = (Some(1), 0, true);
    }
}
