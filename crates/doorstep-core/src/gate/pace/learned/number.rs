//! How many requests at once the receiver admits, where it refuses by that and not by the pace (G6, G9).
//!
//! A stretch tells: if what was refused had more in flight than what was admitted, the receiver may count what it has in hand. Then that
//! number is kept to, and the pace is set aside. It has to prove itself: a stretch that gets less done than the pace would, waits
//! included, ends the trial, and the next one comes much later.

use serde::{Deserialize, Serialize};

use super::super::Rate;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Number {
    /// In force if set.
    limit: Option<u32>,
    /// The most in flight of what was admitted: in this stretch, and in the last one.
    most: u32,
    last_most: u32,
    /// The fewest in flight of what was refused at the end of the last stretch.
    last_fewest: u32,
    /// Trials that failed, and the stretches until the next one.
    failed: u32,
    rest: u32,
    /// A few more are tried from then on.
    raised_at: Timestamp,
    /// What it was before a few more were tried.
    held: Option<u32>,
    /// How often in a row they were refused.
    refused_probes: u32,
    /// By how much it is raised next.
    step: u32,
    /// How long an answer takes, in milliseconds, on average.
    took: u32,
    /// One more than the number has been refused.
    confirmed: bool,
    /// Admitted with as many in flight as the number allows.
    bound: u32,
}

/// A burst of which fewer were admitted rather shows a strict limit over time.
const BURST_MIN: u32 = 3;
/// Of a stretch that was no single burst, so many must have been admitted to show anything.
const ADMITTED_MIN: u64 = 20;
/// A little more in flight may be admitted than refused, one part in so many: what has been answered is in flight until we hear of it.
const OVERLAP_SHARE: u32 = 8;
/// After the first trial that failed so many stretches pass, after each further one four times as many, up to so many.
const REST_MIN: u32 = 8;
const REST_MAX: u32 = 2_048;
/// A probe raises the number by one part in so many, and at least by one.
const RAISE_SHARE: u32 = 8;
/// A probe that holds is followed by the next one in a part of the time, with twice the step.
const RAISES_PER_PROBE: u64 = 6;
/// Requests are spaced so that so many times as many could be sent as are answered.
const SPACING: u64 = 3;
/// Each answer counts for one part in so many …
const TOOK_SHARE: u32 = 8;
/// … and for no more than this: the clock may have been set.
const TOOK_MAX: u32 = 60_000;
/// Until one more has been refused, a burst is all that the number rests on: it is raised by one part in so many, and at least by one …
const UNCONFIRMED_RAISE_SHARE: u32 = 4;
/// … as soon as so many more than twice the number were admitted.
const BOUND_MIN: u32 = 4;
/// Each refused probe doubles the time to the next one, so many times.
const PROBES_MAX: u32 = 3;

impl Number {
    pub(super) fn limit(&self) -> Option<u32> {
        self.limit
    }

    pub(super) fn next_probe_at(&self) -> Option<Timestamp> {
        self.limit.map(|_| self.raised_at)
    }

    /// Requests are spaced, so that more in flight is no burst: a receiver that counts per time would refuse that, too.
    pub(super) fn spacing(&self) -> Option<Rate> {
        self.limit.map(|limit| Rate::over(u64::from(limit) * SPACING, Millis(self.took.clamp(1, TOOK_MAX).into())))
    }

    pub(super) fn answered(&mut self, took: Millis) {
        let took = u32::try_from(took.0).unwrap_or(TOOK_MAX).min(TOOK_MAX);
        let before = if self.took == 0 { took } else { self.took.min(TOOK_MAX) };
        self.took = before - before / TOOK_SHARE + took / TOOK_SHARE;
    }

    pub(super) fn admitted(&mut self, n_in_flight: u32) {
        self.most = self.most.max(n_in_flight);
    }

    pub(super) fn admitted_late(&mut self, n_in_flight: u32) {
        self.last_most = self.last_most.max(n_in_flight);
    }

    /// A stretch ended.
    pub(super) fn refused(&mut self, n_in_flight: u32) {
        (self.last_most, self.last_fewest, self.most) = (self.most, n_in_flight, 0);
    }

    /// Another request of the stretch that ended was refused.
    pub(super) fn refused_too(&mut self, n_in_flight: u32) {
        self.last_fewest = self.last_fewest.min(n_in_flight);
    }

    /// So many were refused in a row that it seemed down: no time for trials.
    pub(super) fn tripped(&mut self) {
        self.rest = self.rest.max(REST_MIN);
    }

    pub(super) fn notice_clock(&mut self, latest: Timestamp) {
        self.raised_at = self.raised_at.min(latest);
    }

    /// Whether to begin a trial after the last stretch. `burst`: all that was admitted was on its way at once.
    pub(super) fn tries(&mut self, admitted: u64, burst: bool, probe_after: Millis, now: Timestamp) {
        if self.rest > 0 {
            self.rest -= 1;
            return;
        }
        let fits = if burst {
            u32::try_from(admitted).ok().filter(|admitted| *admitted >= BURST_MIN)
        } else if admitted >= ADMITTED_MIN && self.is_apart() {
            Some(self.last_fewest.saturating_sub(1))
        } else {
            None
        };
        self.limit = fits.filter(|fits| *fits > 0);
        (self.step, self.refused_probes, self.held) = (0, 0, None);
        (self.confirmed, self.bound) = (!burst, 0);
        self.raised_at = now + probe_after;
    }

    /// A stretch of the trial ended. `better`: clearly more got done in it than the pace would have.
    pub(super) fn judged(&mut self, admitted: u64, better: bool, probe_after: Millis, now: Timestamp) {
        let mut probe_after = probe_after;
        if let Some(held) = self.held.take() {
            self.limit = Some(held);
            (self.step, self.confirmed) = (0, true);
            self.refused_probes = self.refused_probes.saturating_add(1).min(PROBES_MAX);
            probe_after = probe_after.doubled(self.refused_probes);
        } else if self.is_apart() && (better || admitted < u64::from(self.last_fewest)) {
            // It was one too many: at once, or with what was being filled up.
            self.limit = Some(self.last_fewest.saturating_sub(1).max(1));
            self.confirmed = true;
        } else if !better {
            self.limit = None;
            self.rest = REST_MIN.saturating_mul(4u32.saturating_pow(self.failed)).min(REST_MAX);
            self.failed = self.failed.saturating_add(1);
        }
        self.bound = 0;
        self.raised_at = now + probe_after;
    }

    /// More may be admitted by now. Says so if it has come to `cap`, what is configured, and is over.
    pub(super) fn probes(&mut self, is_bound: bool, cap: u32, probe_after: Millis, now: Timestamp) -> bool {
        self.bound = self.bound.saturating_add(u32::from(is_bound));
        let enough = |limit: u32| !self.confirmed && self.bound >= limit.saturating_mul(2).saturating_add(BOUND_MIN);
        let due = self.limit.filter(|limit| is_bound && (now >= self.raised_at || enough(*limit)));
        if due.is_some_and(|limit| limit >= cap) {
            (self.limit, self.held) = (None, None);
            return true;
        }
        if let Some(limit) = due {
            if self.held.is_some() {
                self.refused_probes = 0;
            }
            self.held = Some(limit);
            self.bound = 0;
            self.step = if self.confirmed {
                self.step.saturating_mul(2).max(limit / RAISE_SHARE).max(1)
            } else {
                (limit / UNCONFIRMED_RAISE_SHARE).max(1)
            };
            self.limit = Some(limit.saturating_add(self.step));
            self.raised_at = now + Millis(probe_after.0 / RAISES_PER_PROBE);
        }
        false
    }

    fn is_apart(&self) -> bool {
        self.last_most < self.last_fewest.saturating_add(self.last_fewest / OVERLAP_SHARE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp(1_700_000_000_000);
    const TRUST: Millis = Millis::from_mins(2);

    /// In trial with three at once, after a stretch in which a fourth was refused.
    fn three_at_once() -> Number {
        let mut number = Number::default();
        stretch(&mut number, 3, 4);
        number.tries(20, false, TRUST, T0);
        assert_eq!(number.limit(), Some(3));
        number
    }

    /// The same after a burst of which three were admitted.
    fn three_of_a_burst() -> Number {
        let mut number = Number::default();
        number.refused(4);
        number.admitted_late(3);
        number.tries(3, true, TRUST, T0);
        assert_eq!(number.limit(), Some(3));
        number
    }

    /// A stretch in which up to `most` were admitted and `fewest` refused.
    fn stretch(number: &mut Number, most: u32, fewest: u32) {
        number.admitted(most);
        number.refused(fewest);
    }

    #[test]
    fn a_stretch_shows_a_number_only_if_what_was_refused_had_more_in_flight() {
        for (most, fewest, admitted, limit) in
            [(5, 6, 20, Some(5)), (31, 29, 50, Some(28)), (8, 6, 100, None), (5, 6, 19, None), (1, 1, 100, None)]
        {
            let mut number = Number::default();
            stretch(&mut number, most, fewest);
            number.tries(admitted, false, TRUST, T0);
            assert_eq!(number.limit(), limit, "{most} admitted, {fewest} refused");
        }
    }

    #[test]
    fn a_trial_that_gets_less_done_ends_and_the_next_ones_come_ever_later() {
        let mut number = Number::default();
        let mut stretches = 0u32;
        let mut between = Vec::new();
        while between.len() < 4 {
            stretches += 1;
            stretch(&mut number, 5, 6);
            if number.limit().is_some() {
                number.judged(20, false, TRUST, T0);
                between.push(stretches);
                stretches = 0;
            } else {
                number.tries(20, false, TRUST, T0);
            }
        }
        assert_eq!(between, [2, 10, 34, 130]);
    }

    #[test]
    fn more_are_tried_once_in_a_while_and_taken_back_if_refused() {
        let mut number = three_at_once();
        number.probes(true, 50, TRUST, T0);
        assert_eq!(number.limit(), Some(3), "not yet");
        let at = T0 + TRUST;
        number.probes(false, 50, TRUST, at);
        assert_eq!(number.limit(), Some(3), "there is not enough to send");
        number.probes(true, 50, TRUST, at);
        assert_eq!(number.limit(), Some(4));
        // One was admitted with four in flight: it was just answered when the next one left.
        stretch(&mut number, 4, 4);
        number.judged(20, true, TRUST, at);
        assert_eq!(number.limit(), Some(3));
        number.probes(true, 50, TRUST, at + TRUST);
        assert_eq!(number.limit(), Some(3), "the next one comes later");
        number.probes(true, 50, TRUST, at + TRUST.times(2));
        assert_eq!(number.limit(), Some(4));
    }

    #[test]
    fn what_holds_is_raised_further_and_sooner() {
        let mut number = three_at_once();
        let mut now = T0 + TRUST;
        let mut limits = Vec::new();
        for _ in 0..5 {
            number.probes(true, 50, TRUST, now);
            limits.extend(number.limit());
            now = now + Millis(TRUST.0 / RAISES_PER_PROBE);
        }
        assert_eq!(limits, [4, 6, 10, 18, 34]);
        number.probes(true, 50, TRUST, now);
        assert_eq!(number.limit(), Some(66));
        assert!(number.probes(true, 50, TRUST, now + TRUST), "more than is configured: it is over");
        assert_eq!(number.limit(), None);
    }

    #[test]
    fn a_number_that_falls_is_followed() {
        let mut number = three_at_once();
        // Before it fell, three were admitted in the same stretch.
        stretch(&mut number, 3, 2);
        number.judged(20, true, TRUST, T0);
        assert_eq!(number.limit(), Some(3));
        stretch(&mut number, 1, 2);
        number.judged(20, true, TRUST, T0);
        assert_eq!(number.limit(), Some(1));
    }

    #[test]
    fn requests_are_spaced_by_what_an_answer_takes() {
        let mut number = three_at_once();
        for _ in 0..100 {
            number.answered(Millis(300));
        }
        assert_eq!(number.spacing(), Some(Rate::per_second(30)));
        assert_eq!(Number::default().spacing(), None);
        // A clock that was set forward by a year.
        number.answered(Millis::from_hours(24 * 365));
        assert!(number.spacing() >= Some(Rate::per_second(1)), "{:?}", number.spacing());
    }

    #[test]
    fn a_number_that_rests_on_a_burst_is_raised_until_one_more_is_refused() {
        let mut number = three_of_a_burst();
        let admits = |n: u32, number: &mut Number| {
            for _ in 0..n {
                number.probes(true, 50, TRUST, T0);
            }
            number.limit()
        };
        assert_eq!(admits(9, &mut number), Some(3));
        assert_eq!(admits(1, &mut number), Some(4), "twice the number and four more were admitted");
        stretch(&mut number, 3, 4);
        number.judged(30, false, TRUST, T0);
        assert_eq!(admits(1_000, &mut number), Some(3), "from now on it is trusted for a while");
    }

    #[test]
    fn a_burst_of_which_one_or_two_were_admitted_shows_no_number() {
        for (admitted, limit) in [(1, None), (2, None), (3, Some(3))] {
            let mut number = Number::default();
            number.refused(10);
            number.tries(admitted, true, TRUST, T0);
            assert_eq!(number.limit(), limit);
        }
    }

    #[test]
    fn a_number_that_is_one_too_many_is_lowered_and_the_trial_goes_on() {
        let mut number = Number::default();
        stretch(&mut number, 29, 30);
        number.tries(51, false, TRUST, T0);
        assert_eq!(number.limit(), Some(29));
        // It is refused as soon as it is reached: little got done, but it shows the number all the more.
        stretch(&mut number, 28, 29);
        number.judged(28, false, TRUST, T0);
        assert_eq!(number.limit(), Some(28));
        stretch(&mut number, 27, 28);
        number.judged(500, false, TRUST, T0);
        assert_eq!(number.limit(), None, "and if little gets done with it, it is over");
    }

    #[test]
    fn where_it_seemed_down_there_is_no_trial_for_a_while() {
        let mut number = Number::default();
        number.tripped();
        for _ in 0..REST_MIN {
            stretch(&mut number, 5, 6);
            number.tries(100, false, TRUST, T0);
            assert_eq!(number.limit(), None);
        }
        number.tries(100, false, TRUST, T0);
        assert_eq!(number.limit(), Some(5));
    }
}
