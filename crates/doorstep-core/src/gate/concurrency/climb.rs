//! The number at once with which most gets done, where answers take the longer the more are in flight (G7, G9).
//!
//! Answers are counted in epochs. If, with all slots in use, they take much longer than the shortest ever seen, fewer are tried at
//! once. From there it is a climb: a step that gets more done is followed by another in the same direction, any other by one back
//! and a rest. It is over when it comes back to the cap and most gets done there.

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Climb {
    /// Set once answers took much longer with more at once.
    limit: Option<u32>,
    /// The direction of the next step.
    down: bool,
    /// Epochs until the next step.
    rest: u32,
    /// What got done in the epoch before the last step, in thousandths of an answer per second.
    done_before: u64,
    /// The shortest answer ever seen.
    shortest: Option<Millis>,
    /// What answers took on average when it turned out that this was not the load.
    harmless: Millis,
    epoch: Epoch,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Epoch {
    began_at: Option<Timestamp>,
    answers: u64,
    /// Of these, the ones that left with the limit reached.
    bound: u64,
    took: Millis,
}

/// An epoch has at least this many answers …
const ANSWERS_MIN: u64 = 20;
/// … and at least this many per request at once, and lasts as many times as long as an answer takes on average: less would measure the
/// start of the epoch, and not what gets done.
const ROUNDS_MIN: u64 = 2;
/// Only an epoch with this share of requests that left with the limit reached, in per cent, says something about the limit.
const BOUND_PERCENT: u64 = 70;
/// Answers that take this share of the shortest on average, in per cent, are slow …
const SLOW_PERCENT: u64 = 350;
/// … if they take this much longer as well: below it is noise.
const SLOW_MIN: Millis = Millis(5);
/// … and so many times what was found to be harmless.
const SLOW_HARMLESS: u64 = 2;
/// A step is better if it gets more done by one part in so many: less is noise.
const BETTER_SHARE: u64 = 50;
/// After a step that was not better, so many epochs pass before the next: trying costs a little each time.
const REST: u32 = 4;
/// A request that failed and took so many times as long as the shortest answer shows overload, and not an outage.
const FAILED_SLOWLY: u64 = 4;

impl Climb {
    pub(super) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// A clock that was set back must not stretch an epoch.
    pub(super) fn notice_clock(&mut self, now: Timestamp) {
        if self.epoch.began_at.is_some_and(|began_at| began_at > now) {
            self.epoch = Epoch::default();
        }
    }

    /// `limit`: what holds now. `cap`: what is configured.
    pub(super) fn answered(&mut self, took: Millis, is_bound: bool, limit: u32, cap: u32, now: Timestamp) {
        self.shortest = Some(self.shortest.map_or(took, |shortest| shortest.min(took)).max(Millis(1)));
        self.epoch.count(took, is_bound, now);
        let lasted = self.epoch.lasted(now);
        if !self.epoch.is_over(limit, lasted) {
            return;
        }
        let epoch = std::mem::take(&mut self.epoch);
        if epoch.bound * 100 >= epoch.answers * BOUND_PERCENT {
            self.learn(epoch.mean(), epoch.done(lasted), limit, cap);
        }
    }

    /// It failed again and again: if it failed slowly, half as many are tried next.
    pub(super) fn tripped(&mut self, took: Millis, n_in_flight: u32, limit: u32) {
        let is_slow = self.shortest.is_some_and(|shortest| took > shortest.times(FAILED_SLOWLY));
        if is_slow && n_in_flight > 1 {
            self.limit = Some((n_in_flight.min(limit) / 2).max(1));
        }
    }

    fn learn(&mut self, mean: Millis, done: u64, limit: u32, cap: u32) {
        if self.limit.is_none() {
            if self.is_slow(mean) {
                (self.down, self.done_before) = (true, done);
                self.limit = Some(self.first_limit(mean, limit));
            }
        } else if self.rest > 0 {
            self.rest -= 1;
            self.done_before = done;
            if self.rest == 0 {
                self.step(limit, cap);
            }
        } else if done > self.done_before + self.done_before / BETTER_SHARE {
            self.done_before = done;
            if limit >= cap && !self.down {
                // Most gets done with all slots: answers take this long whatever is in flight.
                (self.limit, self.harmless) = (None, mean);
            } else {
                self.step(limit, cap);
            }
        } else {
            self.down = !self.down;
            self.step(limit, cap);
            self.rest = REST;
        }
    }

    fn is_slow(&self, mean: Millis) -> bool {
        let is_longer = |shortest: Millis| mean.times(100) > shortest.times(SLOW_PERCENT) + SLOW_MIN.times(100);
        self.shortest.is_some_and(is_longer) && mean > self.harmless.times(SLOW_HARMLESS)
    }

    /// If the time grows with the square of the number, this is where it has doubled.
    fn first_limit(&self, mean: Millis, limit: u32) -> u32 {
        let ratio = self.shortest.map_or(1, |shortest| mean.0 / shortest.0.max(1));
        let root_percent = ratio.saturating_mul(10_000).isqrt().max(100);
        let fewer = u64::from(limit) * 100 / root_percent;
        u32::try_from(fewer).unwrap_or(limit).clamp(1, limit)
    }

    /// A fifth fewer or a quarter more, and by one at least.
    fn step(&mut self, limit: u32, cap: u32) {
        let next =
            if self.down { (limit - limit.div_ceil(5)).max(1) } else { limit.saturating_add((limit / 4).max(1)) };
        self.limit = Some(next.min(cap));
    }
}

impl Epoch {
    fn count(&mut self, took: Millis, is_bound: bool, now: Timestamp) {
        self.began_at.get_or_insert(now);
        self.answers += 1;
        self.bound += u64::from(is_bound);
        self.took = self.took + took;
    }

    fn lasted(&self, now: Timestamp) -> Millis {
        self.began_at.map_or(Millis::ZERO, |began_at| now.since(began_at))
    }

    fn is_over(&self, limit: u32, lasted: Millis) -> bool {
        self.answers >= (ROUNDS_MIN * u64::from(limit)).max(ANSWERS_MIN)
            && lasted.times(self.answers) >= self.took.times(ROUNDS_MIN)
    }

    fn mean(&self) -> Millis {
        Millis(self.took.0 / self.answers.max(1))
    }

    /// In thousandths of an answer per second.
    fn done(&self, lasted: Millis) -> u64 {
        self.answers * 1_000_000 / lasted.0.max(1)
    }
}
