//! What the receiver seems to take: approached, trusted for a while, then doubted.

use serde::{Deserialize, Serialize};

use super::super::Rate;
use super::BELOW_CEILING_PERCENT;
use super::stretch::is_within;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ceiling {
    pub(super) rate: Rate,
    /// What it was before it was doubted, and the paces that held until it was raised the last times.
    pub(super) trusted: Rate,
    held: Option<Rate>,
    held_before: Option<Rate>,
    /// When it is next doubted, how long it is trusted after it proves right, and by how much it is then raised.
    pub(super) doubted_at: Timestamp,
    pub(super) trust: Millis,
    raise_percent: u64,
    /// Two thirds of the gap are closed in this time.
    #[serde(default)]
    approach: Millis,
}

/// Two thirds of the gap to the ceiling are closed in this part of the time for which it is trusted, or in the time that so many requests
/// take, within these bounds.
const APPROACHES_PER_TRUST: u64 = 2;
const APPROACH_REQUESTS: u64 = 30;
const APPROACH_MIN: Millis = Millis::from_secs(10);
const APPROACH_MAX: Millis = Millis::from_secs(60);
/// A new ceiling is trusted for so many times the wait that a refusal cost, within these bounds: a wrong doubt costs that wait again …
const TRUST_PER_WAIT: u64 = 25;
const TRUST_MIN: Millis = Millis::from_secs(30);
pub(super) const TRUST_MAX: Millis = Millis::from_mins(20);
/// … for at least this long, where that wait is not all that it costs …
const TRUST_MIN_COSTLY: Millis = Millis::from_mins(2);
/// … and for half as long for each change of the limit that was seen, but for so many times the wait.
const TRUST_PER_WAIT_MIN: u64 = 8;
/// One that proved right is trusted for twice as long each time, up to so many times as long or this, or up to more where so many requests
/// take longer.
const TRUST_GROWTH: u64 = 2;
const TRUST_PROVEN: Millis = Millis::from_mins(4);
pub(super) const TRUST_GROWTH_SLOW: u64 = 8;
const TRUST_REQUESTS: u64 = 200;
/// A new ceiling is trusted for at least so many requests, if they take no longer than this.
const TRUST_REQUESTS_MIN: u64 = 100;
const TRUST_SLOW_MAX: Millis = Millis::from_mins(5);
/// One that rests on a guess of the window is doubted sooner.
pub(super) const TRUST_GUESSED: Millis = Millis::from_mins(10);
/// A doubted ceiling rises by this much, then by twice as much each time, until something gives: so many times in the time for which it
/// was trusted, and at least once a minute.
const RAISE_PERCENT_MIN: u64 = 3;
const RAISE_PERCENT_MAX: u64 = 100;
const RAISE_EVERY_MAX: Millis = Millis::from_mins(1);
const RAISES_PER_TRUST: u64 = 6;

/// How long a ceiling is trusted after a refusal that cost this wait. `in_company`: others share the limit, and each doubt is refused to
/// them as well.
pub(super) fn trust(wait: Millis, changes: u32, in_company: bool) -> Millis {
    let trust = wait.times(TRUST_PER_WAIT);
    if in_company || wait == Millis::ZERO {
        // What is refused without a wait costs an attempt.
        return trust.clamp(TRUST_MIN_COSTLY, TRUST_MAX);
    }
    let trust = trust.clamp(TRUST_MIN, TRUST_MAX);
    Millis(trust.0 >> changes).max(wait.times(TRUST_PER_WAIT_MIN))
}

impl Ceiling {
    pub(super) fn after(previous: Option<Self>, refused: Rate, trust: Millis, now: Timestamp) -> Self {
        let confirmed = previous.filter(|p| is_within(refused.0, p.trusted.0, 110));
        // Slow limits would be doubted with every few requests.
        let trust = trust.max(refused.time_for(TRUST_REQUESTS_MIN).min(TRUST_SLOW_MAX));
        let longest = trust
            .times(TRUST_GROWTH)
            .max(TRUST_PROVEN)
            .max(refused.time_for(TRUST_REQUESTS).min(trust.times(TRUST_GROWTH_SLOW)));
        let trust = confirmed.map_or(trust, |p| p.trust.times(2).min(longest));
        Self {
            rate: refused,
            trusted: refused,
            held: None,
            held_before: None,
            doubted_at: now + trust,
            trust,
            raise_percent: RAISE_PERCENT_MIN,
            approach: Millis(trust.0 / APPROACHES_PER_TRUST)
                .max(refused.time_for(APPROACH_REQUESTS))
                .clamp(APPROACH_MIN, APPROACH_MAX),
        }
    }

    /// Whether it is raised now, from the pace that has held until now.
    pub(super) fn doubt(&mut self, pace: Rate, now: Timestamp) -> bool {
        let due = now >= self.doubted_at;
        if due {
            (self.held_before, self.held) = (self.held, Some(pace));
            self.rate = self.rate.percent(100 + self.raise_percent);
            self.raise_percent = (self.raise_percent * 2).min(RAISE_PERCENT_MAX);
            self.doubted_at = now + Millis(self.trust.0 / RAISES_PER_TRUST).min(RAISE_EVERY_MAX);
        }
        due
    }

    /// The doubt was wrong: what was trusted before it is right after all, and trusted for longer. Not so if a good deal
    /// more held for a minute and was not refused in the next one either: then the receiver takes more than it did.
    pub(super) fn restored(self, trust: Millis, now: Timestamp) -> Option<Self> {
        self.held?;
        let grew = self.held_before.is_some_and(|held| held > self.trusted.percent(110));
        (!grew).then(|| Self::after(Some(self), self.trusted, trust, now))
    }

    /// In which time two thirds of the gap are closed: while it is doubted, before it is raised again.
    pub(super) fn approach(&self) -> Millis {
        // It may have been stored by a version that did not note it.
        let approach = self.approach.clamp(APPROACH_MIN, APPROACH_MAX);
        match self.held {
            Some(_) => Millis(self.trust.0 / RAISES_PER_TRUST).clamp(Millis(1), approach),
            None => approach,
        }
    }

    /// One success nearer: exponentially closer over time, at most half the gap at once.
    pub(super) fn approached_from(&self, rate: Rate) -> Rate {
        let gap = self.rate.percent(BELOW_CEILING_PERCENT).0.saturating_sub(rate.0);
        let since_last_micros = u128::from(rate.interval().unsigned_abs());
        let step = u128::from(gap) * since_last_micros / (u128::from(self.approach().0) * 1_000);
        rate.plus(u64::try_from(step).unwrap_or(gap).min(gap / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn a_ceiling_is_trusted_by_what_a_doubt_costs() {
        let secs = Millis::from_secs;
        for (wait, changes, in_company, trusted) in [
            (1, 0, false, 30),
            (4, 0, false, 100),
            (60, 0, false, 1_200),
            (3_600, 0, false, 28_800),
            (1, 1, false, 15),
            (1, 4, false, 8),
            (60, 4, false, 480),
            (0, 4, false, 120),
            (1, 4, true, 120),
        ] {
            assert_eq!(
                trust(secs(wait), changes, in_company),
                secs(trusted),
                "{wait} s, {changes} changes, {in_company}"
            );
        }
    }

    #[test]
    fn one_that_proves_right_is_trusted_for_longer_and_one_that_falls_is_not() {
        let trust = Millis::from_secs(30);
        let mut ceiling = Ceiling::after(None, Rate::per_second(10), trust, T0);
        let mut trusted = Vec::new();
        for _ in 0..5 {
            ceiling = Ceiling::after(Some(ceiling), Rate::per_second(10), trust, T0);
            trusted.push(ceiling.trust.0 / 1_000);
        }
        assert_eq!(trusted, [60, 120, 240, 240, 240]);
        assert_eq!(Ceiling::after(Some(ceiling), Rate::per_second(5), trust, T0).trust, trust);
    }
    #[test]
    fn one_that_was_stored_by_another_version_or_damaged_is_approached_all_the_same() {
        for held in [None, Some(Rate::per_second(9))] {
            let stored = Ceiling::after(None, Rate::per_second(10), Millis::ZERO, T0);
            let stored = Ceiling { held, trust: Millis::ZERO, approach: Millis::ZERO, ..stored };
            let pace = Rate::per_second(5);
            assert!((pace..=Rate::per_second(10)).contains(&stored.approached_from(pace)), "{held:?}");
        }
    }
}
