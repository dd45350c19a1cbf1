//! The ramp after a standstill: a receiver that comes back is not met by everything that gathered meanwhile (G8, G11).
//!
//! While a destination flows we keep in mind how much it usually takes. When it comes back, the pace climbs from
//! almost nothing to a little more than that, stays there for a while, and only then goes on to what is configured.
//! A receiver that falls over again under its backlog is brought back more gently the next time.

use serde::{Deserialize, Serialize};

use super::{GateLimits, Rate};
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recovery {
    ramp: Option<Ramp>,
    usual: Option<Rate>,
    slice_began_at: Option<Timestamp>,
    slice_successes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ramp {
    rate: Rate,
    target: Rate,
    /// From then on the target doubles every minute.
    target_until: Timestamp,
}

/// The pace climbs to this share of the usual rate, in per cent …
const TARGET_PERCENT: u64 = 175;
/// … or to this, if the usual rate was less or is not known.
fn target_min() -> Rate {
    Rate::per_second(5)
}
/// It starts here …
fn start() -> Rate {
    Rate::per_second(1)
}
/// … and doubles in about 5 s: `ln 2 / 5 s` more per success.
const GROWTH_PER_SUCCESS: u64 = 138_630;
/// How long the target stays where it is.
const TARGET_HOLDS: Millis = Millis::from_mins(10);
const TARGET_DOUBLES_EVERY: Millis = Millis::from_mins(1);

/// The usual rate is an average over slices, each counting for an eighth.
const SLICE: Millis = Millis::from_secs(10);
const SLICE_SHARE: u64 = 8;

impl Recovery {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.ramp.map(|ramp| ramp.rate)
    }

    pub(super) fn notice_clock(&mut self, goes_on_at: Timestamp) {
        self.slice_began_at = self.slice_began_at.map(|began_at| began_at.min(goes_on_at));
        if let Some(ramp) = &mut self.ramp {
            ramp.target_until = ramp.target_until.min(goes_on_at + TARGET_HOLDS);
        }
    }

    pub(super) fn succeeded(&mut self, pressed: bool, limits: &GateLimits, now: Timestamp) {
        self.count(now);
        let Some(ramp) = &mut self.ramp else { return };
        if now >= ramp.target_until {
            if !pressed {
                // Nothing queues behind the ramp any more.
                self.ramp = None;
                return;
            }
            ramp.target = ramp.target.percent(200);
            ramp.target_until = now + TARGET_DOUBLES_EVERY;
        }
        ramp.rate = ramp.rate.plus(GROWTH_PER_SUCCESS).min(ramp.target);
        if ramp.rate >= limits.rate {
            self.ramp = None;
        }
    }

    fn count(&mut self, now: Timestamp) {
        let began_at = *self.slice_began_at.get_or_insert(now);
        let elapsed = now.since(began_at);
        if elapsed >= SLICE {
            let slice = Rate::over(self.slice_successes, elapsed);
            let usual = self.usual.map_or(slice.0, |usual| usual.0 - usual.0 / SLICE_SHARE + slice.0 / SLICE_SHARE);
            self.usual = Some(Rate::from_micros(usual));
            (self.slice_began_at, self.slice_successes) = (Some(now), 0);
        }
        self.slice_successes += 1;
    }

    /// The time until sending goes on is not counted as time in which nothing was wanted.
    pub(super) fn paused(&mut self) {
        (self.slice_began_at, self.slice_successes) = (None, 0);
    }

    /// If it fell over on the ramp, the next one is half as high.
    pub(super) fn tripped(&mut self) {
        self.paused();
        if let Some(ramp) = &mut self.ramp {
            ramp.target = ramp.target.percent(50).max(start());
        }
    }

    pub(super) fn begin(&mut self, limits: &GateLimits, now: Timestamp) {
        let target = match self.ramp {
            Some(ramp) => ramp.target,
            None => self.usual.map_or(target_min(), |usual| usual.percent(TARGET_PERCENT).max(target_min())),
        };
        let rate = start().min(target).min(limits.rate);
        self.ramp = Some(Ramp { rate, target, target_until: now + TARGET_HOLDS });
    }
}
