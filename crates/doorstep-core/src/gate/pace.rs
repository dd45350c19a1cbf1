//! How fast: the configured rate, the rate that a throttling receiver has taught us, and the ramp after recovery.
//!
//! The slowest of the three counts. While one of the last two holds, requests are spaced evenly, because what a
//! receiver refuses is usually the burst. A pace that a person has pinned stands in for the learned one.

mod arrivals;
mod learned;
mod recovery;

use serde::{Deserialize, Serialize};

use super::{GateLimits, Hold, LearnedPace, LearnedReason, Permit, Why};
use crate::time::{Millis, Timestamp};
use learned::{Learned, Refused};
use recovery::Recovery;

pub use recovery::{Queue, Recovering};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pace {
    /// Microseconds since the epoch: when the next request is on time. Earlier ones use up the burst.
    next_at: i64,
    learned: Learned,
    /// The same at the configured rate, which a burst after a wait must keep to as well.
    #[serde(default)]
    configured_next_at: i64,
    /// After a wait, where refusals come by chance: how many more may leave at once, and how many have.
    #[serde(default)]
    burst_left: u32,
    #[serde(default)]
    burst_sent: u32,
    /// Since when there has been a learned pace.
    #[serde(default)]
    learned_since: Option<Timestamp>,
    recovery: Recovery,
}

/// What one request moved [`Pace::next_at`] by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paced {
    from: i64,
    to: i64,
    /// It left at a pinned pace, and says nothing about the learned one.
    pinned: bool,
    /// How often the receiver had refused by then.
    refusals: u32,
    /// Its place in a burst after a wait, from 1 on.
    position: Option<u32>,
}

/// Requests over time, in millionths of a request per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "u64", into = "u64")]
pub struct Rate(u64);

impl From<u64> for Rate {
    /// Whatever was stored.
    fn from(micros: u64) -> Self {
        Self::from_micros(micros)
    }
}

impl From<Rate> for u64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

impl Rate {
    /// The slowest pace there is: one request an hour.
    pub const SLOWEST: Self = Self(278);
    pub const FASTEST: Self = Self(1_000_000_000_000);

    pub fn per_second(n: u64) -> Self {
        Self::from_micros(n.saturating_mul(1_000_000))
    }

    /// `n` requests in `span`.
    pub fn over(n: u64, span: Millis) -> Self {
        let micros = u128::from(n) * 1_000_000_000 / u128::from(span.0.max(1));
        Self::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }

    /// How long `n` requests take.
    fn time_for(self, n: u64) -> Millis {
        Millis(u64::try_from(u128::from(n) * 1_000_000_000 / u128::from(self.0.max(1))).unwrap_or(u64::MAX))
    }

    fn from_micros(micros: u64) -> Self {
        Self(micros).clamp(Self::SLOWEST, Self::FASTEST)
    }

    /// For people and for the API.
    pub fn as_per_second(self) -> f64 {
        self.0 as f64 / 1e6
    }

    fn percent(self, percent: u64) -> Self {
        Self::from_micros(self.0 / 100 * percent + self.0 % 100 * percent / 100)
    }

    fn plus(self, micros: u64) -> Self {
        Self::from_micros(self.0.saturating_add(micros))
    }

    /// Microseconds from one request to the next. Rounded up: never faster than said.
    fn interval(self) -> i64 {
        i64::try_from(1_000_000_000_000u64.div_ceil(self.0)).unwrap_or(i64::MAX)
    }
}

impl Pace {
    /// The pace in force.
    pub fn rate(&self, limits: &GateLimits) -> Rate {
        self.even(limits).into_iter().flatten().fold(limits.rate, Rate::min)
    }

    /// What throttling has taught about this receiver, if it has.
    pub fn learned(&self) -> Option<Rate> {
        self.learned.rate()
    }

    /// The same with all that is known of it. While a pace is pinned it is kept, and not in force.
    pub fn learned_pace(&self, limits: &GateLimits) -> Option<LearnedPace> {
        Some(LearnedPace {
            pace: self.learned.rate()?.min(limits.rate),
            estimate: self.learned.estimate(),
            at_once: self.learned.at_once(),
            reason: self.learned.reason(),
            since: self.learned_since,
            next_probe_at: self.learned.next_probe_at(),
        })
    }

    /// Whether a ramp after a standstill may be in force.
    pub(super) fn has_ramp(&self) -> bool {
        self.recovery.rate().is_some()
    }

    /// How far it has come on the ramp after a standstill, while that holds.
    pub fn recovering(&self, now: Timestamp) -> Option<Recovering> {
        self.recovery.recovering(now)
    }

    /// So many new deliveries want to go.
    pub(super) fn arrived(&mut self, n: u64, now: Timestamp) {
        self.recovery.arrived(n, now);
    }

    pub(super) fn sees(&mut self, queue: Queue, limits: &GateLimits, now: Timestamp) {
        let before = self.rate(limits);
        self.recovery.sees(queue, limits, now);
        let sooner = before.interval().saturating_sub(self.rate(limits).interval());
        // The next one was to wait for the old interval.
        if sooner > 0 && self.next_at > micros(now) {
            self.next_at = self.next_at.saturating_sub(sooner).max(micros(now));
        }
    }

    fn burst(&self, limits: &GateLimits) -> i64 {
        if self.is_even(limits) { 1 } else { i64::from(limits.burst.max(1)) }
    }

    fn is_even(&self, limits: &GateLimits) -> bool {
        self.even(limits).into_iter().any(|pace| pace.is_some())
    }

    /// The paces at which requests are spaced evenly.
    fn even(&self, limits: &GateLimits) -> [Option<Rate>; 2] {
        [limits.pinned.or(self.learned.rate()), self.recovery.rate()]
    }

    /// Whether the receiver was found to refuse by chance, whatever it is sent.
    pub(super) fn refuses_by_chance(&self) -> bool {
        self.learned.refuses_by_chance()
    }

    fn in_burst(&self, limits: &GateLimits, now: Timestamp) -> bool {
        self.burst_left > 0
            && limits.pinned.is_none()
            && self.recovery.rate().is_none()
            && self.learned.rate().is_some()
            && self.configured_next_at.saturating_sub(configured_burst(limits, -1)) <= micros(now)
    }

    /// `granted`: the receiver says that it has room, so the learned pace does not count.
    pub(super) fn hold(&self, limits: &GateLimits, now: Timestamp, granted: bool) -> Option<Hold> {
        if self.in_burst(limits, now) {
            return None;
        }
        let admits_at = if granted && limits.pinned.is_none() && self.recovery.rate().is_none() {
            self.configured_next_at.saturating_sub(configured_burst(limits, -1))
        } else {
            let tolerance = (self.burst(limits) - 1).saturating_mul(self.rate(limits).interval());
            self.next_at.saturating_sub(tolerance)
        };
        if admits_at <= micros(now) {
            return None;
        }
        // Rounded up to the next whole millisecond: never early.
        let until = Timestamp(admits_at.div_euclid(1_000).saturating_add(i64::from(admits_at.rem_euclid(1_000) > 0)));
        Some(Hold::until(Why::Pace, until))
    }

    /// A clock that was set back must not hold a request for longer than the pace itself asks, nor keep it slow for
    /// longer than its own terms. `goes_on_at`: now, or when the throttle ends.
    pub(super) fn notice_clock(&mut self, limits: &GateLimits, now: Timestamp, goes_on_at: Timestamp) {
        let burst = self.burst(limits).saturating_add(i64::from(self.burst_sent));
        let ahead = burst.saturating_mul(self.rate(limits).interval());
        self.next_at = self.next_at.min(micros(now).saturating_add(ahead).max(micros(goes_on_at)));
        let configured = micros(now).saturating_add(configured_burst(limits, 0));
        self.configured_next_at = self.configured_next_at.min(configured);
        self.learned.notice_clock(goes_on_at);
        self.learned_since = self.learned_since.map(|since| since.min(now));
        self.recovery.notice_clock(goes_on_at);
    }

    /// Whether the pace is what a request at this time waited for: only then does its success prove that the receiver can take
    /// this much.
    pub(super) fn is_pressed(&self, limits: &GateLimits, now: Timestamp) -> bool {
        micros(now) < self.next_at.saturating_add(self.rate(limits).interval().max(LATENESS))
    }

    /// Takes one request's place.
    pub(super) fn spend(&mut self, limits: &GateLimits, now: Timestamp) -> Paced {
        let position = self.takes_from_burst(limits, now);
        let (now, from, interval) = (micros(now), self.next_at, self.rate(limits).interval());
        // A request that comes a little late does not push back those after it.
        let on_time = if now.saturating_sub(self.next_at) <= LATENESS { self.next_at } else { now };
        self.next_at = on_time.saturating_add(interval);
        self.configured_next_at = self.configured_next_at.max(now).saturating_add(limits.rate.interval());
        let refusals = self.learned.refusals();
        Paced { from, to: self.next_at, pinned: limits.pinned.is_some(), refusals, position }
    }

    /// A burst takes the places of as many later requests: on the whole the pace is kept. The first one after it counts as the last of
    /// it: it tells whether the burst left room.
    fn takes_from_burst(&mut self, limits: &GateLimits, now: Timestamp) -> Option<u32> {
        if self.in_burst(limits, now) {
            self.burst_left -= 1;
            self.burst_sent = self.burst_sent.saturating_add(1);
            return Some(self.burst_sent);
        }
        match std::mem::take(&mut self.burst_sent) {
            0 => None,
            sent => Some(sent.saturating_add(1)),
        }
    }

    /// A request was not made after all. If others have taken later places since, this one is lost: to give it to another would
    /// send two at once that were to be apart.
    pub(super) fn hand_back(&mut self, Paced { from, to, .. }: Paced) {
        if self.next_at == to {
            self.next_at = from;
        }
    }

    pub(super) fn succeeded(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp) {
        let was_even = self.is_even(limits);
        if learns_from(permit, limits) {
            let before = self.learned.rate();
            self.learned.answered(now.since(permit.at));
            self.learned.succeeded(
                permit.paced.refusals,
                (permit.pressed, permit.n_in_flight, permit.paced.position),
                limits,
                now,
            );
            self.note_since(before, now);
        } else {
            // What is admitted at a pinned pace is not counted: the count goes on when the pin is taken away.
            self.learned.resumes_at(now);
        }
        self.recovery.succeeded(permit.pressed, limits, now);
        if was_even && !self.is_even(limits) {
            // The burst may have been used up before requests were spaced evenly, and is not given again at once.
            let burst = (self.burst(limits) - 1).saturating_mul(limits.rate.interval());
            self.next_at = self.next_at.max(micros(now).saturating_add(burst));
        }
    }

    /// The receiver refused, and is left alone until then.
    pub(super) fn refused(
        &mut self,
        (permit, in_company): (&Permit, bool),
        limits: &GateLimits,
        now: Timestamp,
        until: Timestamp,
    ) {
        if learns_from(permit, limits) {
            let before = self.learned.rate();
            if permit.paced.refusals == self.learned.refusals() {
                self.learned.refused(refusal_of(permit, in_company, None), now, until);
            } else {
                // An overload that began since has taught from it.
                self.learned.refused_too(permit.paced.refusals, permit.n_in_flight, permit.paced.position);
            }
            self.note_since(before, now);
        }
        self.resumes_at(until);
        self.waits(limits, now, until);
    }

    /// A wait begins, and a burst may follow it.
    fn waits(&mut self, limits: &GateLimits, now: Timestamp, until: Timestamp) {
        self.burst_left = self.learned.next_burst(until.since(now)).min(limits.burst).saturating_sub(1);
        self.burst_sent = 0;
    }

    /// It refused another of those that were on their way, and is left alone until then.
    pub(super) fn refused_too(&mut self, permit: &Permit, until: Timestamp) {
        self.learned.refused_too(permit.paced.refusals, permit.n_in_flight, permit.paced.position);
        self.resumes_at(until);
    }

    /// Sending goes on: says how many requests at once the receiver admits, if it refuses by that.
    pub(super) fn decide(&mut self, limits: &GateLimits, now: Timestamp) -> Option<u32> {
        if limits.pinned.is_some() {
            return None;
        }
        let before = self.learned.rate();
        self.learned.decide(now);
        self.note_since(before, now);
        self.learned.at_once()
    }

    /// It seems overloaded, and is left alone until then, if it says so. One overload teaches once, however many requests it
    /// catches.
    pub(super) fn overloaded(
        &mut self,
        (permit, in_company): (&Permit, bool),
        limits: &GateLimits,
        now: Timestamp,
        until: Timestamp,
    ) {
        if learns_from(permit, limits) && permit.paced.refusals == self.learned.refusals() {
            let before = self.learned.rate();
            let in_force = self.rate(limits);
            self.learned.overloaded(refusal_of(permit, in_company, Some(in_force)), now, until);
            self.note_since(before, now);
            self.resumes_at(until);
            self.waits(limits, now, until);
        }
    }

    fn note_since(&mut self, before: Option<Rate>, now: Timestamp) {
        match (before, self.learned.rate()) {
            (None, Some(_)) => self.learned_since = Some(now),
            (_, None) => self.learned_since = None,
            (Some(_), Some(_)) => {}
        }
    }

    /// Forgets what throttling has taught.
    pub(super) fn forget_learned(&mut self) {
        (self.learned, self.learned_since, self.burst_left) = (Learned::default(), None, 0);
    }

    pub(super) fn resumes_at(&mut self, until: Timestamp) {
        self.learned.resumes_at(until);
        self.next_at = self.next_at.max(micros(until));
    }

    /// A person ended the throttle: sending goes on now, but never faster than configured. A burst that was used up is not given
    /// again.
    pub(super) fn cleared(&mut self, limits: &GateLimits, now: Timestamp) {
        self.learned.resumes_at(now);
        self.burst_left = 0;
        let ahead = self.burst(limits).saturating_mul(limits.rate.interval());
        self.next_at = self.next_at.min(micros(now).saturating_add(ahead));
    }

    /// Nothing is sent from now on, by a person's wish or the receiver's.
    pub(super) fn paused(&mut self, now: Timestamp) {
        self.burst_left = 0;
        self.recovery.paused(now);
    }

    /// Nothing is sent from now on, because it fails.
    pub(super) fn tripped(&mut self, now: Timestamp) {
        self.burst_left = 0;
        let before = self.learned.rate();
        self.learned.tripped(now);
        self.note_since(before, now);
        self.recovery.tripped(now);
    }

    /// Sending goes on then: now, or later.
    pub(super) fn recover(&mut self, limits: &GateLimits, at: Timestamp, now: Timestamp) {
        self.recovery.begin(limits, at, now);
        self.next_at = self.next_at.max(micros(at));
    }
}

fn refusal_of(permit: &Permit, in_company: bool, in_force: Option<Rate>) -> Refused {
    Refused {
        in_company,
        pressed: permit.pressed,
        n_in_flight: permit.n_in_flight,
        position: permit.paced.position,
        in_force,
    }
}

fn learns_from(permit: &Permit, limits: &GateLimits) -> bool {
    limits.pinned.is_none() && !permit.paced.pinned
}

/// The time that the configured burst takes at the configured rate, and so many requests more.
fn configured_burst(limits: &GateLimits, more: i64) -> i64 {
    (i64::from(limits.burst.max(1)) + more).saturating_mul(limits.rate.interval())
}

/// Timers fire a little late; so much is made up for.
const LATENESS: i64 = 10_000;

fn micros(at: Timestamp) -> i64 {
    at.0.saturating_mul(1_000)
}
