//! A receiver's "not so fast": it is left alone for as long as it asks, or ever longer if it does not say (G1–G5).
//! So is one that is unavailable and says for how long; that is no throttle and is not counted as one (G7).

use serde::{Deserialize, Serialize};

use super::{GateChange, GateLimits, Hold, Permit, Why};
use crate::dice::Jitter;
use crate::retry::stretched;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Throttle {
    until: Option<Timestamp>,
    reason: Option<ThrottleReason>,
    /// Throttles since the last success.
    consecutive: u32,
    updated_at: Timestamp,
    /// Counts the throttles, so that an answer can be told from one to an earlier request.
    episode: u32,
    /// Counts how often it said that it is unavailable, for the same reason.
    #[serde(default)]
    maintenances: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThrottleReason {
    /// It refused and said for how long.
    Asked,
    /// It refused and did not say for how long.
    Unsaid,
    /// It accepted, and said that its quota is now spent.
    QuotaSpent,
    /// It answered 503 and said for how long.
    Maintenance,
}

/// "Retry after 0" is often a rounded-down fraction; taken to the letter it would be a busy loop.
const ASKED_MIN: Millis = Millis::from_secs(1);

impl Throttle {
    pub fn until(&self) -> Option<Timestamp> {
        self.until
    }

    pub fn reason(&self) -> Option<ThrottleReason> {
        self.reason
    }

    pub fn consecutive(&self) -> u32 {
        self.consecutive
    }

    pub fn updated_at(&self) -> Timestamp {
        self.updated_at
    }

    pub(super) fn episode(&self) -> u32 {
        self.episode
    }

    pub(super) fn hold(&self, now: Timestamp) -> Option<Hold> {
        self.until.filter(|until| now < *until).map(|until| Hold::until(Why::Throttle, until))
    }

    pub(super) fn maintenances(&self) -> u32 {
        self.maintenances
    }

    /// The receiver is unavailable and says for how long. Says whether that is news: an answer to a request that was already on its way
    /// when it said so is none.
    pub(super) fn is_news(&mut self, permit: &Permit) -> bool {
        let is_news = permit.maintenances == self.maintenances;
        self.maintenances = self.maintenances.wrapping_add(u32::from(is_news));
        is_news
    }

    /// A clock that was set back must not turn a minute into a year.
    pub(super) fn notice_clock(&mut self, limits: &GateLimits, now: Timestamp) {
        self.until = self.until.map(|until| until.min(now + limits.wait_max));
    }

    /// Whether a refusal of this request is a new throttle: an answer to one that was already on its way when the
    /// present throttle began belongs to that one.
    pub(super) fn begins_with(&self, permit: &Permit) -> bool {
        permit.throttle_episode == self.episode
    }

    /// Takes a refusal in. Says so if it begins a new throttle or lengthens the present one: either has to be stored.
    pub(super) fn refused(
        &mut self,
        permit: &Permit,
        asked: Option<Millis>,
        limits: &GateLimits,
        now: Timestamp,
        jitter: Jitter,
    ) -> Option<GateChange> {
        let begins = self.begins_with(permit);
        if begins {
            self.episode = self.episode.wrapping_add(1);
            self.consecutive = self.consecutive.saturating_add(1);
        }
        let (wait, reason) = match asked {
            Some(asked) => (stretched(asked.max(ASKED_MIN), jitter), ThrottleReason::Asked),
            None if begins => (unsaid_wait(self.consecutive, limits), ThrottleReason::Unsaid),
            None => return None,
        };
        let longer = self.extend(now + wait.min(limits.wait_max), reason, now);
        (begins || longer).then(|| self.change())
    }

    /// It is left alone for this long, for a reason that is no throttle to count: its quota is spent, or it is unavailable.
    pub(super) fn held(
        &mut self,
        (wait, reason): (Millis, ThrottleReason),
        limits: &GateLimits,
        now: Timestamp,
        jitter: Jitter,
    ) -> Option<GateChange> {
        let until = now + stretched(wait, jitter).min(limits.wait_max);
        (until > now && self.extend(until, reason, now)).then(|| self.change())
    }

    // Answers arrive out of order: a short wait must not cut a longer one.
    fn extend(&mut self, until: Timestamp, reason: ThrottleReason, now: Timestamp) -> bool {
        let longer = self.until.is_none_or(|current| until > current);
        if longer {
            (self.until, self.reason, self.updated_at) = (Some(until), Some(reason), now);
        }
        longer
    }

    fn change(&self) -> GateChange {
        GateChange::Throttled {
            until: self.until.unwrap_or_default(),
            reason: self.reason.unwrap_or(ThrottleReason::Unsaid),
            consecutive: self.consecutive,
        }
    }

    /// A success ends the row, unless its request left before the throttle began.
    pub(super) fn succeeded(&mut self, permit: &Permit, now: Timestamp) -> Option<GateChange> {
        if permit.throttle_episode != self.episode || self.consecutive == 0 {
            return None;
        }
        (self.consecutive, self.updated_at) = (0, now);
        Some(GateChange::Unthrottled)
    }

    /// It was left alone because its quota was spent, which was not so.
    pub(super) fn quota_was_wrong(&mut self, now: Timestamp) {
        if self.reason == Some(ThrottleReason::QuotaSpent) {
            (self.until, self.reason, self.updated_at) = (None, None, now);
        }
    }

    pub(super) fn clear(&mut self, now: Timestamp) {
        (self.until, self.reason, self.consecutive, self.updated_at) = (None, None, 0, now);
    }
}

fn unsaid_wait(consecutive: u32, limits: &GateLimits) -> Millis {
    let step = usize::try_from(consecutive.saturating_sub(1)).unwrap_or(usize::MAX);
    let waits = &limits.throttle_waits;
    waits.get(step).or(waits.last()).copied().unwrap_or(ASKED_MIN)
}
