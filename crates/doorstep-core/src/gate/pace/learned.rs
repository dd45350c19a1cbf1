//! Finding out what a throttling receiver really admits (G6).
//!
//! Two facts bound the rate `R` that we do not know. What was admitted from the end of one throttle to the end of the
//! next, over that time, is at most `R`. The pace at which it refused is at least `R`. So after the first refusal we
//! start from the lower bound and grow; after the next one we know a ceiling, approach it ever more slowly, and stay
//! just below. Once in a while the ceiling is doubted, more and more seldom while it proves right.

use serde::{Deserialize, Serialize};

use super::{GateLimits, Rate};
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Learned {
    rate: Option<Rate>,
    ceiling: Option<Ceiling>,
    /// The end of the last throttle, or the first success, and the successes since.
    cycle_began_at: Option<Timestamp>,
    cycle_admitted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ceiling {
    rate: Rate,
    /// When it is next doubted, how long it is trusted after it proves right, and by how much it is then raised.
    doubted_at: Timestamp,
    trust: Millis,
    raise_percent: u64,
}

/// With no ceiling known, the pace doubles in about this time: `ln 2 / 15 s` more per success …
const GROWTH_PER_SUCCESS: u64 = 46_210;
/// … but a slow one grows by no more than this per success, or it would overshoot before it hears of it.
const GROWTH_PERCENT_MAX: u64 = 10;
/// We stay at this share of the ceiling, in per cent: the rest is room for uneven arrival.
const BELOW_CEILING_PERCENT: u64 = 97;
/// After a refusal the pace falls at most to this share of what was refused.
const DECREASE_PERCENT: u64 = 70;
/// Two thirds of the gap to the ceiling are closed in this time.
const APPROACH: Millis = Millis::from_secs(20);
/// A new ceiling is trusted this long; one that proved right twice as long each time, up to the maximum.
const TRUST_MIN: Millis = Millis::from_mins(15);
const TRUST_MAX: Millis = Millis::from_hours(4);
/// A doubted ceiling rises by this much, then twice that each minute until something gives.
const RAISE_PERCENT_MIN: u64 = 3;
const RAISE_PERCENT_MAX: u64 = 100;
const RAISE_EVERY: Millis = Millis::from_mins(1);

impl Learned {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.rate
    }

    pub(super) fn succeeded(&mut self, pressed: bool, limits: &GateLimits, now: Timestamp) {
        self.cycle_began_at.get_or_insert(now);
        self.cycle_admitted = self.cycle_admitted.saturating_add(1);
        let Some(rate) = self.rate.filter(|_| pressed) else { return };
        let grown = match &mut self.ceiling {
            None => rate.plus(GROWTH_PER_SUCCESS.min(rate.0 * GROWTH_PERCENT_MAX / 100)),
            Some(ceiling) => {
                ceiling.doubt(now);
                ceiling.approached_from(rate)
            }
        };
        // At the configured rate there is nothing left to learn.
        self.rate = (grown < limits.rate).then_some(grown);
        if self.rate.is_none() {
            self.ceiling = None;
        }
    }

    /// A throttle began, and ends at `until`.
    pub(super) fn refused(&mut self, pressed: bool, now: Timestamp, until: Timestamp) {
        let cycle = until.since(self.cycle_began_at.unwrap_or(now));
        let admitted = Rate::over(self.cycle_admitted.max(1), cycle);
        self.rate = Some(match self.rate {
            None => admitted,
            Some(rate) => {
                // Without a queue behind it the pace was not what we really sent.
                let refused = if pressed { rate } else { admitted.max(rate.percent(50)) };
                self.ceiling = Some(Ceiling::after(self.ceiling, refused, until));
                if self.cycle_admitted == 0 {
                    refused.percent(50)
                } else {
                    admitted.max(refused.percent(DECREASE_PERCENT)).min(refused.percent(BELOW_CEILING_PERCENT))
                }
            }
        });
    }

    pub(super) fn resumes_at(&mut self, until: Timestamp) {
        (self.cycle_began_at, self.cycle_admitted) = (Some(until), 0);
    }
}

impl Ceiling {
    fn after(previous: Option<Self>, refused: Rate, now: Timestamp) -> Self {
        let confirmed = previous.filter(|p| refused >= p.rate.percent(95) && refused <= p.rate.percent(110));
        let trust = confirmed.map_or(TRUST_MIN, |p| p.trust.times(2).min(TRUST_MAX));
        Self { rate: refused, doubted_at: now + trust, trust, raise_percent: RAISE_PERCENT_MIN }
    }

    fn doubt(&mut self, now: Timestamp) {
        if now >= self.doubted_at {
            self.rate = self.rate.percent(100 + self.raise_percent);
            self.raise_percent = (self.raise_percent * 2).min(RAISE_PERCENT_MAX);
            self.doubted_at = now + RAISE_EVERY;
        }
    }

    /// One success nearer: exponentially closer over time, at most half the gap at once.
    fn approached_from(&self, rate: Rate) -> Rate {
        let gap = self.rate.percent(BELOW_CEILING_PERCENT).0.saturating_sub(rate.0);
        let since_last_micros = u128::from(rate.interval().unsigned_abs());
        let step = u128::from(gap) * since_last_micros / (u128::from(APPROACH.0) * 1_000);
        rate.plus(u64::try_from(step).unwrap_or(gap).min(gap / 2))
    }
}
