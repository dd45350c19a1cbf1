//! What a bystander knows of a destination from its answers.

use std::collections::VecDeque;

use doorstep_core::gate::ThrottleReason;
use doorstep_core::id::DestinationId;
use doorstep_core::outcome::{Outcome, Quota};
use doorstep_core::time::{Millis, Timestamp};

use super::ramp::Back;
use super::{Verdict, ensure};

/// What is known of a destination from its answers.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Nothing may be sent before: it was asked not to.
    pub(super) quiet_until: Timestamp,
    pub(super) throttles_in_row: usize,
    /// The number of the first request that a later throttle may count.
    pub(super) throttle_counts_from: u64,
    /// The number of the first request whose failure may count, after the receiver has said that it is unavailable.
    pub(super) maintenance_counts_from: u64,
    pub(super) tripped: Option<Tripped>,
    pub(super) failures_in_row: u32,
    /// Answers to earlier requests say nothing about the present.
    pub(super) row_counts_from: u64,
    /// Answers since it last came back or tripped, and whether they were failures.
    pub(super) recent: VecDeque<(Timestamp, bool)>,
    pub(super) paused: bool,
    pub(super) suspended: bool,
    pub(super) permanent_in_row: u32,
    pub(super) gone_in_row: u32,
    /// It has come back from a standstill, and has answered so often since.
    pub(super) ramp: Option<u32>,
    /// The same, until the ramp of the pace is over for certain or does not matter any more.
    pub(super) back: Option<Back>,
    /// Since when nothing is sent to it but probes.
    pub(super) still_since: Option<Timestamp>,
    /// It has ever asked to be sent less.
    pub(super) was_throttled: bool,
    /// How often it has tripped while it was coming back.
    pub(super) falls: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Tripped {
    pub(super) until: Timestamp,
    pub(super) since_request: u64,
}

/// How long a destination is left alone that refuses without saying for how long.
const UNSAID: [u64; 5] = [60, 300, 900, 3_600, 21_600];
const DAY: Millis = Millis::from_hours(24);
const MINUTE: Millis = Millis::from_mins(1);

impl Facts {
    /// Whether most of the last minute's requests failed, at least ten of them. A minute is counted in steps of ten
    /// seconds: between 50 and 60 s it may be so or so, and `None` says that.
    pub(super) fn mostly_fails(&self, now: Timestamp) -> Option<bool> {
        let over = |span: Millis| {
            let recent: Vec<bool> = self.recent.iter().filter(|(at, _)| *at + span > now).map(|(_, f)| *f).collect();
            let failures = recent.iter().filter(|failed| **failed).count();
            recent.len() >= 10 && failures * 2 >= recent.len()
        };
        let starts = self.recent.iter().map(|(at, _)| now.since(*at) + Millis(1));
        let spans = starts.filter(|span| (Millis(50_000)..=MINUTE).contains(span));
        let mut verdicts = [Millis(50_000), Millis(50_001), MINUTE].into_iter().chain(spans).map(over);
        let first = verdicts.next()?;
        verdicts.all(|other| other == first).then_some(first)
    }

    /// It says no for good, again and again.
    pub(super) fn is_unwanted(&self) -> bool {
        self.gone_in_row >= 3 || self.permanent_in_row >= 100
    }

    /// It comes back from a standstill.
    pub(super) fn comes_back(&mut self, now: Timestamp) {
        let after = self.still_since.take().map_or(Millis::ZERO, |since| now.since(since));
        self.ramp = Some(0);
        self.back = Some(Back { at: now, after, n_accepted: 0, haste: 0.0, waited_at: now, well: true });
    }

    /// Nothing is sent to it from now on but probes.
    pub(super) fn stands_still(&mut self, now: Timestamp) {
        self.still_since.get_or_insert(now);
        self.back = None;
    }

    /// After each answer one more at once, until it is as many as it may have.
    pub(super) fn climb(&mut self, concurrency: u32) {
        let answers = self.ramp.map(|answers| answers + 1);
        self.ramp = answers.filter(|answers| 1 + answers < concurrency);
    }

    fn counts(&mut self, request: u64, failed: bool, now: Timestamp) {
        if self.tripped.is_none() && request >= self.row_counts_from {
            self.recent.retain(|(at, _)| *at + MINUTE > now);
            self.recent.push_back((now, failed));
        }
    }

    pub(super) fn learn(&mut self, request: u64, outcome: &Outcome, n_requests: u64, now: Timestamp) {
        self.was_throttled |= matches!(outcome, Outcome::Throttled { .. })
            || matches!(outcome, Outcome::Accepted { quota: Some(Quota { left: 0, .. }) });
        if let Some(back) = &mut self.back {
            back.well &= matches!(outcome, Outcome::Accepted { .. });
        }
        match outcome {
            Outcome::Throttled { wait } => {
                if request >= self.throttle_counts_from {
                    self.throttle_counts_from = n_requests + 1;
                    self.throttles_in_row += 1;
                    let unsaid = Millis::from_secs(UNSAID[(self.throttles_in_row - 1).min(UNSAID.len() - 1)]);
                    self.quiet_for(wait.unwrap_or(unsaid), now);
                } else if let Some(wait) = wait {
                    self.quiet_for(*wait, now);
                }
            }
            Outcome::Accepted { quota } => {
                if request >= self.throttle_counts_from {
                    self.throttles_in_row = 0;
                }
                self.quiet_for(
                    quota.filter(|quota| quota.left == 0).map_or(Millis::ZERO, |quota| quota.resets_in),
                    now,
                );
                if let Some(back) = &mut self.back {
                    back.n_accepted += 1;
                }
                self.row_ends(request);
                self.counts(request, false, now);
            }
            Outcome::Failed { .. } | Outcome::TimedOut | Outcome::Unreachable => {
                let mut is_news = true;
                if let Outcome::Failed { status: 503, wait: Some(wait) } = outcome
                    && *wait > Millis::ZERO
                {
                    self.quiet_for(*wait, now);
                    is_news = request >= self.maintenance_counts_from;
                    self.maintenance_counts_from = self.maintenance_counts_from.max(n_requests + 1);
                }
                if is_news {
                    self.counts(request, true, now);
                }
                if is_news && self.tripped.is_none() && request >= self.row_counts_from {
                    self.failures_in_row += 1;
                }
            }
            Outcome::Ambiguous { .. } | Outcome::Rejected { .. } | Outcome::Gone => {
                self.row_ends(request);
                self.counts(request, false, now);
            }
            Outcome::Blocked => {}
        }
        match outcome {
            Outcome::Gone => {
                (self.permanent_in_row, self.gone_in_row) = (self.permanent_in_row + 1, self.gone_in_row + 1)
            }
            Outcome::Rejected { .. } => (self.permanent_in_row, self.gone_in_row) = (self.permanent_in_row + 1, 0),
            // Silence is no answer.
            Outcome::TimedOut | Outcome::Unreachable | Outcome::Blocked => {}
            Outcome::Accepted { .. }
            | Outcome::Throttled { .. }
            | Outcome::Failed { .. }
            | Outcome::Ambiguous { .. } => (self.permanent_in_row, self.gone_in_row) = (0, 0),
        }
    }

    fn row_ends(&mut self, request: u64) {
        if request >= self.row_counts_from {
            self.failures_in_row = 0;
        }
    }

    fn quiet_for(&mut self, wait: Millis, now: Timestamp) {
        if wait > Millis::ZERO {
            self.quiet_until = self.quiet_until.max(now + wait.min(DAY));
        }
    }

    pub(super) fn throttle_is_right(
        &self,
        id: DestinationId,
        until: Timestamp,
        reason: ThrottleReason,
        consecutive: u32,
        during: Option<&Outcome>,
        now: Timestamp,
    ) -> Verdict {
        let counted = self.throttles_in_row;
        let right = usize::try_from(consecutive).is_ok_and(|n| n == counted);
        ensure(right, || format!("{id} counts throttle {consecutive}, which is number {counted}"))?;
        let quiet = self.quiet_until.since(now);
        let wait = until.since(now);
        let asked = matches!(during, Some(Outcome::Throttled { wait: Some(_) }));
        let longest = match (asked, reason) {
            (false, ThrottleReason::Unsaid) => quiet,
            _ => (quiet.max(Millis::from_secs(1)) + Millis(quiet.0 / 10) + Millis(100)).min(DAY),
        };
        ensure(wait >= quiet, || format!("{id} is left alone for {wait}, less than {quiet}"))?;
        ensure(wait <= longest, || format!("{id} is left alone for {wait}, more than {longest}"))
    }
}
