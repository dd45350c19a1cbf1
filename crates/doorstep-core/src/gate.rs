//! The one object that decides whether a destination may be sent to now (G1–G11, G14, G16).
//!
//! Five parts, each in its own file, each able to say why it holds and until when: a person's or our own
//! suspension, the receiver's throttle, the breaker, the concurrency limit, the pace. A gate has one owner and no
//! lock. What must survive a restart is [`GateState`], a plain value; requests in flight do not survive one.

mod advertised;
mod breaker;
mod concurrency;
mod learned_pace;
mod limits;
mod pace;
mod suspension;
mod throttle;

use serde::{Deserialize, Serialize};

use crate::dice::Jitter;
use crate::outcome::{Outcome, Quota};
use crate::time::{Millis, Timestamp};

pub use advertised::AdvertisedQuota;
use advertised::{Advertised, Verdict};
pub use breaker::Breaker;
pub use concurrency::Concurrency;
pub use learned_pace::{LearnedPace, LearnedReason};
pub use limits::{BreakerLimits, GateLimits, SuspensionLimits};
use pace::Paced;
pub use pace::{Pace, Queue, Rate, Recovering};
pub use suspension::{Suspension, SuspensionReason};
pub use throttle::{Throttle, ThrottleReason};

/// Whether a destination may be sent to now.
#[derive(Clone, Debug)]
pub struct Gate {
    state: GateState,
    in_flight: u32,
    probe_in_flight: bool,
    /// On the heap: most receivers say nothing of a quota.
    advertised: Option<Box<Advertised>>,
    /// What is refused now is refused in company: see [`Gate::mark_in_company`].
    in_company: bool,
}

/// All that a gate knows and that outlives the process. Whole numbers only: it is stored and restored exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateState {
    pub suspension: Suspension,
    pub throttle: Throttle,
    pub breaker: Breaker,
    pub concurrency: Concurrency,
    pub pace: Pace,
}

/// The answer to "may I send now?".
#[derive(Debug)]
pub enum Admission {
    /// Yes: one request, to be settled or released exactly once.
    Go(Permit),
    Wait(Hold),
}

/// One request's leave to go. It remembers what the gate looked like, because answers arrive late and out of order.
#[derive(Debug)]
#[must_use = "a permit that is never settled or released takes its slot for ever"]
pub struct Permit {
    throttle_episode: u32,
    maintenances: u32,
    breaker_generation: u32,
    narrowings: u32,
    /// When it left.
    at: Timestamp,
    /// Requests in flight, with this one.
    n_in_flight: u32,
    /// With it, as many were in flight as were allowed when it left.
    bound: bool,
    probe: bool,
    pressed: bool,
    /// The receiver had said that it has room for it.
    granted: bool,
    /// What had been heard of its quota by then.
    heard: u32,
    paced: Paced,
}

impl Permit {
    /// Whether this request is the one that tests a tripped destination.
    pub fn is_probe(&self) -> bool {
        self.probe
    }
}

/// Why not now, and until when. Without a time it waits for an event: an answer, or a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub why: Why,
    pub until: Option<Timestamp>,
}

impl Hold {
    pub fn until(why: Why, until: Timestamp) -> Self {
        Self { why, until: Some(until) }
    }

    /// Whether it still holds at that time. What waits for an answer does not, as far as anybody knows.
    pub(crate) fn outlasts(&self, at: Timestamp) -> bool {
        match self.until {
            Some(until) => until > at,
            None => matches!(self.why, Why::Pause | Why::Suspension | Why::Consent),
        }
    }

    /// Held until something happens whose time nobody knows.
    pub fn for_event(why: Why) -> Self {
        Self { why, until: None }
    }
}

/// What a waiting delivery waits for (G16).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    DueTime,
    Pause,
    Suspension,
    /// The receiver has not agreed to be sent to.
    Consent,
    Throttle,
    Breaker,
    Concurrency,
    Pace,
    Ordering,
    ReplayRate,
    /// Many destinations share one receiving host, and that host's cap is reached.
    HostConcurrency,
    /// All of this process's slots are taken; it is next in turn.
    Capacity,
    /// Its payload cannot be read from the store: it is tried again later.
    UnreadablePayload,
}

/// A change worth storing and telling about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateChange {
    Throttled {
        until: Timestamp,
        reason: ThrottleReason,
        consecutive: u32,
    },
    /// It accepts again: the count of throttles is back to zero.
    Unthrottled,
    /// The breaker opened (again): nothing is sent until then.
    Tripped {
        until: Timestamp,
        trips: u32,
    },
    /// The probe came through: sending resumes, slowly.
    Recovered,
    Suspended(SuspensionReason),
}

/// A destination at a glance (M1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateStatus {
    Active,
    Throttled,
    Failing,
    Probing,
    /// It is back, and what gathered meanwhile follows on the ramp.
    Recovering,
    Suspended,
    Paused,
}

impl Gate {
    /// A gate as it was stored. Whatever was in flight then is not any more.
    pub fn restore(state: GateState) -> Self {
        Self { state, in_flight: 0, probe_in_flight: false, advertised: None, in_company: false }
    }

    pub fn state(&self) -> &GateState {
        &self.state
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// So many new deliveries are for this destination, whether or not they can go. What arrives says how fast a backlog has to
    /// drain.
    pub fn arrived(&mut self, n: u64, now: Timestamp) {
        self.state.pace.arrived(n, now);
    }

    /// Whether the gate wants to know what waits: see [`Gate::sees`].
    pub fn wants_to_see(&self) -> bool {
        self.state.pace.has_ramp()
    }

    /// Takes in what waits, which the ramp after a standstill goes by.
    pub fn sees(&mut self, queue: Queue, limits: &GateLimits, now: Timestamp) {
        let GateState { suspension, throttle, breaker, pace, .. } = &mut self.state;
        if suspension.hold().is_none() && throttle.hold(now).is_none() && !breaker.is_tripped() {
            pace.sees(queue, limits, now);
        }
    }

    /// May one request go now? Only a yes spends anything.
    pub fn admit(&mut self, limits: &GateLimits, now: Timestamp) -> Admission {
        self.state.throttle.notice_clock(limits, now);
        self.state.breaker.notice_clock(limits, now);
        // The pace goes on when the throttle ends: until then it rightly waits for longer than it asks itself.
        let goes_on_at = self.state.throttle.until().map_or(now, |until| until.max(now));
        self.state.pace.notice_clock(limits, now, goes_on_at);
        self.state.concurrency.notice_clock(now);
        if let Some(advertised) = &mut self.advertised {
            advertised.notice_clock(now);
        }
        if self.state.throttle.hold(now).is_none() {
            let at_once = self.state.pace.decide(limits, now);
            self.state.concurrency.admits(at_once);
        }
        if let Some(hold) = self.hold(limits, now) {
            return Admission::Wait(hold);
        }
        let probe = self.state.breaker.is_tripped();
        let granted = self.grants(now);
        if let Some(advertised) = &mut self.advertised {
            advertised.spend();
        }
        self.in_flight += 1;
        self.probe_in_flight |= probe;
        Admission::Go(Permit {
            throttle_episode: self.state.throttle.episode(),
            maintenances: self.state.throttle.maintenances(),
            breaker_generation: self.state.breaker.generation(),
            narrowings: self.state.concurrency.narrowings(),
            at: now,
            n_in_flight: self.in_flight,
            bound: self.in_flight >= self.state.concurrency.limit(limits),
            probe,
            pressed: self.state.pace.is_pressed(limits, now),
            granted,
            heard: self.advertised.as_ref().map_or(0, |advertised| advertised.heard()),
            paced: self.state.pace.spend(limits, now),
        })
    }

    /// Why nothing may be sent now, if so.
    pub fn hold(&self, limits: &GateLimits, now: Timestamp) -> Option<Hold> {
        let GateState { suspension, throttle, breaker, concurrency, pace } = &self.state;
        suspension
            .hold()
            .or_else(|| throttle.hold(now))
            .or_else(|| breaker.hold(self.probe_in_flight, now))
            .or_else(|| concurrency.hold(limits, self.in_flight))
            .or_else(|| self.advertised.as_ref()?.hold(self.in_flight, now))
            .or_else(|| pace.hold(limits, now, self.grants(now)))
    }

    /// Whether the receiver says that it has room for more.
    fn grants(&self, now: Timestamp) -> bool {
        self.advertised.as_ref().is_some_and(|advertised| advertised.grants(now))
    }

    /// What the receiver says of its quota, while that is trusted.
    pub fn advertised_quota(&self, now: Timestamp) -> Option<AdvertisedQuota> {
        self.advertised.as_ref()?.quota(now)
    }

    /// Another destination at the same host was refused lately as well: they may share a limit, and the refusal that is settled next may
    /// be due to the other.
    pub fn mark_in_company(&mut self) {
        self.in_company = true;
    }

    /// Learns from what came back, and says what changed.
    pub fn settle(
        &mut self,
        permit: Permit,
        outcome: &Outcome,
        limits: &GateLimits,
        now: Timestamp,
        jitter: Jitter,
    ) -> Vec<GateChange> {
        self.leave(&permit);
        let in_company = std::mem::take(&mut self.in_company);
        let mut changes = Vec::new();
        match *outcome {
            Outcome::Accepted { quota } => {
                self.state.suspension.answered();
                changes.extend(self.state.throttle.succeeded(&permit, now));
                self.state.concurrency.widen(limits);
                self.state.concurrency.accepted(&permit, limits, now);
                self.state.pace.succeeded(&permit, limits, now);
                changes.extend(self.flows(&permit, limits, now));
                match self.says(quota, &permit, limits, now) {
                    Verdict::NotSpent => {}
                    Verdict::Spent { resets_in } => {
                        let spent = (resets_in, ThrottleReason::QuotaSpent);
                        changes.extend(self.state.throttle.held(spent, limits, now, jitter));
                    }
                    Verdict::Wrong => self.state.throttle.quota_was_wrong(now),
                }
            }
            Outcome::Throttled { wait } => {
                self.state.suspension.answered();
                self.contradicts_quota(&permit, now);
                changes.extend(self.throttled(&permit, (wait, in_company), limits, now, jitter));
            }
            Outcome::Failed { status, wait } => {
                self.state.suspension.answered();
                // These say "too busy"; a plain 500 says only that this one went wrong.
                match status {
                    502 | 504 => self.state.concurrency.narrow(&permit, limits),
                    503 if self.state.pace.refuses_by_chance() => {}
                    // It may have been one part of many that is broken.
                    503 => self.state.concurrency.narrow_a_little(&permit, limits),
                    _ => {}
                }
                // Where neither the pace nor the requests at once held anything back, a slower pace could only make a backlog, unless it
                // says for how long: that is a wait for all.
                let is_load = permit.pressed || permit.n_in_flight > 1 && (permit.bound || wait.is_some());
                let is_present = !permit.probe && permit.breaker_generation == self.state.breaker.generation();
                if status == 503 && is_load && is_present {
                    let until = now + wait.unwrap_or_default().min(limits.wait_max);
                    self.contradicts_quota(&permit, now);
                    self.state.pace.overloaded((&permit, in_company), limits, now, until);
                }
                // It counts once that it is unavailable, however many requests were on their way.
                let says_when = outcome.is_maintenance() && wait > Some(Millis::ZERO);
                let counts = !says_when || self.state.throttle.is_news(&permit) || permit.probe;
                if counts {
                    changes.extend(self.fails(&permit, limits, now, jitter));
                }
                if let Some(wait) = wait.filter(|_| outcome.is_maintenance()) {
                    changes.extend(self.unavailable(wait, limits, now, jitter));
                }
            }
            Outcome::TimedOut | Outcome::Unreachable => {
                self.state.concurrency.narrow(&permit, limits);
                changes.extend(self.fails(&permit, limits, now, jitter));
            }
            Outcome::Ambiguous { .. } => {
                self.state.suspension.answered();
                self.state.concurrency.widen(limits);
                // It answers, so it is not down; but a probe must succeed to be one.
                if permit.probe {
                    changes.extend(self.fails(&permit, limits, now, jitter));
                } else {
                    changes.extend(self.flows(&permit, limits, now));
                }
            }
            Outcome::Blocked => {
                // No request was made: only a probe learns from that.
                if permit.probe {
                    changes.extend(self.fails(&permit, limits, now, jitter));
                }
            }
            Outcome::Rejected { .. } | Outcome::Gone => {
                let gone = matches!(outcome, Outcome::Gone);
                self.state.concurrency.widen(limits);
                changes.extend(self.flows(&permit, limits, now));
                if let Some(change) = self.state.suspension.refused_for_good(gone, limits) {
                    self.state.pace.paused(now);
                    changes.push(change);
                }
            }
        }
        changes
    }

    /// Gives the permit back and learns nothing: the request's fate is unknown, by our own fault (D6). It may have gone out, so it
    /// stays counted in the pace.
    pub fn release(&mut self, permit: Permit) {
        self.leave(&permit);
    }

    /// Gives the permit back as if it had never been: there was nothing to send.
    pub fn hand_back(&mut self, permit: Permit) {
        self.leave(&permit);
        self.state.pace.hand_back(permit.paced);
    }

    fn leave(&mut self, permit: &Permit) {
        assert!(self.in_flight > 0, "settled a request that was never admitted");
        self.in_flight -= 1;
        if permit.probe {
            self.probe_in_flight = false;
        }
    }

    /// It accepted, and perhaps says what is left of its quota.
    fn says(&mut self, quota: Option<Quota>, permit: &Permit, limits: &GateLimits, now: Timestamp) -> Verdict {
        if quota.is_none() && self.advertised.is_none() {
            return Verdict::NotSpent;
        }
        let quota = quota.map(|quota| Quota { resets_in: quota.resets_in.min(limits.wait_max), ..quota });
        self.advertised.get_or_insert_default().accepted(quota, permit.heard, self.in_flight, now)
    }

    /// It refused a request for which it had said to have room.
    fn contradicts_quota(&mut self, permit: &Permit, now: Timestamp) {
        if let Some(advertised) = self.advertised.as_mut().filter(|_| permit.granted) {
            advertised.ignore(now);
        }
    }

    fn throttled(
        &mut self,
        permit: &Permit,
        (wait, in_company): (Option<Millis>, bool),
        limits: &GateLimits,
        now: Timestamp,
        jitter: Jitter,
    ) -> Option<GateChange> {
        let begins = self.state.throttle.begins_with(permit);
        let change = self.state.throttle.refused(permit, wait, limits, now, jitter);
        let until = self.state.throttle.until()?;
        if begins {
            self.state.pace.refused((permit, in_company), limits, now, until);
        } else {
            self.state.pace.refused_too(permit, until);
        }
        change
    }

    /// It says for how long it is unavailable. After a standstill as long as a breaker's, it meets the same ramp.
    fn unavailable(&mut self, wait: Millis, limits: &GateLimits, now: Timestamp, jitter: Jitter) -> Option<GateChange> {
        let change = self.state.throttle.held((wait, ThrottleReason::Maintenance), limits, now, jitter)?;
        let until = self.state.throttle.until()?;
        self.state.pace.resumes_at(until);
        // A tripped one meets it after its probe.
        if wait >= limits.breaker.cool_down && !self.state.breaker.is_tripped() {
            self.state.pace.paused(now);
            self.recover(limits, until, now);
        }
        Some(change)
    }

    /// An answer that shows a living receiver.
    fn flows(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp) -> Option<GateChange> {
        let change = self.state.breaker.answered(permit, limits, now)?;
        self.recover(limits, now, now);
        Some(change)
    }

    fn fails(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp, jitter: Jitter) -> Option<GateChange> {
        let change = self.state.breaker.failed(permit, limits, now, jitter)?;
        self.state.concurrency.tripped(permit, limits, now);
        self.state.pace.tripped(now);
        Some(change)
    }

    /// A receiver that comes back meets a ramp, not a herd.
    fn recover(&mut self, limits: &GateLimits, at: Timestamp, now: Timestamp) {
        self.state.concurrency.ramp();
        self.state.pace.recover(limits, at, now);
    }

    /// Holds everything until [`Gate::resume`]. Nothing is discarded.
    pub fn pause(&mut self, now: Timestamp) {
        self.state.suspension.pause();
        self.state.pace.paused(now);
    }

    /// Ends a pause or a suspension; the backlog drains with the ramp.
    pub fn resume(&mut self, limits: &GateLimits, now: Timestamp) {
        // A tripped one meets the ramp after its probe.
        if self.state.suspension.resume() && !self.state.breaker.is_tripped() {
            self.recover(limits, now, now);
        }
    }

    /// Lets one probe go now instead of at the end of the cool-down.
    pub fn force_probe(&mut self, now: Timestamp) {
        self.state.breaker.probe_now(now);
    }

    /// Ends a throttle or a receiver's maintenance by hand, and forgets the count of throttles and what the receiver said of its quota.
    /// The learned pace stays.
    pub fn clear_throttle(&mut self, limits: &GateLimits, now: Timestamp) {
        self.advertised = None;
        self.state.throttle.clear(now);
        self.state.pace.cleared(limits, now);
    }

    /// Forgets the pace that throttling has taught: until the receiver refuses again, it is sent to as configured.
    pub fn forget_learned(&mut self) {
        self.state.pace.forget_learned();
    }

    /// What it has learned of its receiver and is worth saving: the pace, and the requests at once.
    pub(crate) fn learned(&self, limits: &GateLimits) -> (Option<LearnedPace>, u32) {
        (self.state.pace.learned_pace(limits), self.state.concurrency.limit(limits))
    }

    pub fn status(&self, now: Timestamp) -> GateStatus {
        if let Some(hold) = self.state.suspension.hold() {
            return if hold.why == Why::Pause { GateStatus::Paused } else { GateStatus::Suspended };
        }
        if self.state.throttle.hold(now).is_some() {
            return GateStatus::Throttled;
        }
        match (self.state.breaker.is_tripped(), self.probe_in_flight) {
            (true, true) => GateStatus::Probing,
            (true, false) => GateStatus::Failing,
            (false, _) if self.state.pace.recovering(now).is_some() => GateStatus::Recovering,
            (false, _) => GateStatus::Active,
        }
    }
}

#[cfg(test)]
mod tests;
