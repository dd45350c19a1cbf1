//! What a receiver says of its own quota (`RateLimit`, `X-RateLimit-*`): used at once, and trusted while it fits what is seen (G3, G6).
//!
//! No more leave than the quota has left. Requests in flight may be counted in what the receiver said or not, so they are taken off; their
//! answers tell. While the quota has room, the learned pace holds nothing back. It is a hint: what contradicts it ends the trust.

use super::{Hold, Why};
use crate::outcome::Quota;
use crate::time::{Millis, Timestamp};

/// Only in memory: the next answer says it again.
#[derive(Clone, Debug, Default)]
pub(super) struct Advertised {
    /// So many more requests may leave before the quota resets.
    left: u64,
    resets_at: Timestamp,
    /// What the receiver said last.
    said: u64,
    /// Counts the answers that said something, so that a request can be told that left after one of them.
    heard: u32,
    /// The longest time to a reset that was ever said, and the most that was left in the present window: what to expect after a reset.
    window: Millis,
    most: u64,
    claim: Claim,
    ignored_until: Timestamp,
    spent: Spent,
}

/// Not more than so many of the later requests are accepted until then.
#[derive(Clone, Copy, Debug, Default)]
struct Claim {
    left: u64,
    heard: u32,
    until: Timestamp,
    accepted: u64,
}

/// Nothing is left until then.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    until: Timestamp,
    /// So many requests were accepted all the same, and each again as the last one.
    beyond: u32,
    ignored_until: Timestamp,
}

/// What an answer says of a quota that is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    NotSpent,
    /// It has to be waited for until then.
    Spent {
        resets_in: Millis,
    },
    /// It is said to be spent, again and again, and requests are accepted all the same.
    Wrong,
}

/// The quota of a receiver as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdvertisedQuota {
    pub left: u64,
    pub resets_at: Timestamp,
}

/// No wait that a receiver asks for is longer.
const LONGEST: Millis = Millis::from_hours(24 * 30);
/// A quota that was wrong is ignored for this long.
const IGNORED_FOR: Millis = Millis::from_mins(10);
/// A quota that is counted late may let a few pass for the last one. One that says so of each is no quota.
const BEYOND_MAX: u32 = 3;

impl Advertised {
    /// Whether the quota is known, trusted, and has room.
    pub(super) fn grants(&self, now: Timestamp) -> bool {
        self.left > 0 && now < self.resets_at && self.is_trusted(now)
    }

    pub(super) fn is_trusted(&self, now: Timestamp) -> bool {
        now >= self.ignored_until
    }

    pub(super) fn quota(&self, now: Timestamp) -> Option<AdvertisedQuota> {
        let known = self.is_trusted(now) && now < self.resets_at;
        known.then_some(AdvertisedQuota { left: self.left, resets_at: self.resets_at })
    }

    /// Holds only while an answer is awaited: it brings news, and without one the quota could be wrong for ever.
    pub(super) fn hold(&self, in_flight: u32, now: Timestamp) -> Option<Hold> {
        let spent = self.left == 0 && in_flight > 0 && now < self.resets_at && self.is_trusted(now);
        spent.then(|| Hold::until(Why::Pace, self.resets_at))
    }

    pub(super) fn notice_clock(&mut self, now: Timestamp) {
        self.ignored_until = self.ignored_until.min(now + IGNORED_FOR);
        self.spent.notice_clock(now);
        self.resets_at = self.resets_at.min(now + self.window);
        if now >= self.resets_at && self.most > 0 {
            // It has reset. Until an answer says more, this window is expected to be like the last one.
            (self.left, self.resets_at) = (self.most, now + self.window);
            (self.most, self.said) = (0, 0);
        }
    }

    pub(super) fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    pub(super) fn heard(&self) -> u32 {
        self.heard
    }

    /// A request was accepted. `heard`: what [`Advertised::heard`] was when it left; `in_flight`: the others.
    pub(super) fn accepted(&mut self, quota: Option<Quota>, heard: u32, in_flight: u32, now: Timestamp) -> Verdict {
        let is_later = heard >= self.claim.heard && now < self.claim.until;
        self.claim.accepted = self.claim.accepted.saturating_add(is_later.into());
        let is_newer = heard == self.heard;
        let Some(quota) = quota else {
            if is_newer {
                self.forget();
            }
            return Verdict::NotSpent;
        };
        // Of requests that were under way together nobody knows which was counted first: the lesser count is right, unless the difference
        // is more than their number. Then the quota has been filled up.
        let together = u64::from(in_flight) + 1;
        let is_filled = quota.left > self.said.saturating_add(together);
        let is_said = is_newer || is_filled || quota.left < self.said;
        self.heard = self.heard.wrapping_add(1);
        if is_said {
            if is_filled || is_newer && quota.left > self.said || now >= self.claim.until {
                self.claim = Claim { left: quota.left, heard: self.heard, until: now + quota.resets_in, accepted: 0 };
            }
            (self.said, self.resets_at) = (quota.left, now + quota.resets_in);
            self.window = self.window.max(quota.resets_in);
        }
        self.left = self.said.saturating_sub(in_flight.into());
        self.most = self.most.max(quota.left.saturating_add(1));
        let verdict = match quota {
            Quota { left: 0, resets_in } => self.spent.again(resets_in, now),
            Quota { .. } => Verdict::NotSpent,
        };
        if self.claim.accepted > self.claim.left || verdict == Verdict::Wrong {
            self.ignore(now);
        }
        verdict
    }

    /// It says nothing any more.
    fn forget(&mut self) {
        let (heard, ignored_until, spent) = (self.heard, self.ignored_until, self.spent);
        *self = Self { heard, ignored_until, spent, ..Self::default() };
    }

    /// What it said was wrong: it refused a request for which it had room, or accepted more.
    pub(super) fn ignore(&mut self, now: Timestamp) {
        self.forget();
        self.ignored_until = now + IGNORED_FOR;
    }
}

impl Spent {
    /// A request was accepted as the last one.
    fn again(&mut self, resets_in: Millis, now: Timestamp) -> Verdict {
        self.beyond = if now < self.until { self.beyond.saturating_add(1) } else { 0 };
        self.until = self.until.max(now + resets_in);
        if self.beyond > BEYOND_MAX {
            self.ignored_until = now + IGNORED_FOR;
        }
        if now < self.ignored_until { Verdict::Wrong } else { Verdict::Spent { resets_in } }
    }

    fn notice_clock(&mut self, now: Timestamp) {
        self.until = self.until.min(now + LONGEST);
        self.ignored_until = self.ignored_until.min(now + IGNORED_FOR);
    }
}
