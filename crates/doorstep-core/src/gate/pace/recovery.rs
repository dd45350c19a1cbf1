//! The ramp after a standstill: a receiver that comes back is not met by everything that gathered meanwhile (G8, G11).
//!
//! While a destination flows we keep in mind how much it usually takes, and always how much arrives for it. When it
//! comes back, the pace climbs to almost twice the larger of the two, so that what gathered is gone in about the time in
//! which it gathered. The ramp ends when deliveries do not have to wait any more. A receiver that falls over again under
//! its backlog is brought back more gently the next time.

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::{GateLimits, Rate};
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Recovery {
    ramp: Option<Box<Ramp>>,
    usual: Option<Rate>,
    slice_began_at: Option<Timestamp>,
    slice_successes: u64,
    #[serde(default)]
    arrivals: Arrivals,
    /// Set while nothing is sent, but for probes.
    #[serde(default)]
    standstill: Option<Box<Standstill>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ramp {
    rate: Rate,
    target: Rate,
    /// Until then the target follows what arrives and nothing else. After that it grows by itself.
    target_until: Timestamp,
    /// How long the target stays.
    #[serde(default)]
    holds: Millis,
    #[serde(default)]
    began_at: Option<Timestamp>,
    /// Sending has not gone on yet: the standstill is still to be counted.
    #[serde(default)]
    pending: bool,
    /// When a delivery last had to wait for its turn, if one has.
    #[serde(default)]
    waited_at: Timestamp,
    /// How long it takes to double the pace, about.
    #[serde(default)]
    doubles_in: Millis,
    /// What arrived during the standstill and has not been accepted since.
    #[serde(default)]
    gathered: u64,
    /// How often in a row the receiver fell over on the ramp.
    #[serde(default)]
    falls: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Standstill {
    since: Timestamp,
    arrivals: u64,
}

/// What waits for a gate, as far as its owner has read it.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// At least so many.
    pub n: usize,
    /// When the first of them could have gone, and when it gives up.
    pub due_at: Timestamp,
    pub give_up_at: Timestamp,
}

/// How far a destination has come on the ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovering {
    pub pace: Rate,
    pub target: Rate,
    pub since: Option<Timestamp>,
}

/// The pace climbs to this share of the usual or the arrival rate, in per cent: a little less than twice, so that the fullest
/// second does not have more than that …
const TARGET_PERCENT: u64 = 190;
/// … or to this, for a peak of 20 in a second, if both rates are low or not known.
fn target_min() -> Rate {
    Rate::per_second(18)
}
/// It starts here …
fn start() -> Rate {
    Rate::per_second(1)
}
/// … and doubles in about 5 s, or in a twentieth of the standstill if that is less: what gathered in a short time should be gone in a
/// short time. Each success adds `ln 2` over that time.
const DOUBLES_IN_MIN: Millis = Millis::from_secs(1);
const DOUBLES_IN_MAX: Millis = Millis::from_secs(5);
const DOUBLINGS_PER_STANDSTILL: u64 = 20;
const LN_2: u64 = 693_147_181;
/// What arrives in a shorter time than this is no rate.
const STANDSTILL_MIN: Millis = Millis::from_secs(10);
/// Deliveries that give up soon are to be tried in this part of the time that is left, if the target allows it.
const HASTE: u64 = 2;

/// The ramp is over when for this long no delivery was sent later than this after it could have gone.
const CALM: Millis = Millis::from_secs(30);
const LATE: Millis = Millis::from_secs(1);
/// For this long after one was late, deliveries are taken to wait: on the ramp there is a request at least each second.
const WAITS: Millis = Millis::from_secs(5);

/// The target stays for twice the length of the standstill, which is enough to drain what gathered, and at least for this long. If
/// deliveries still wait then, it doubles each minute.
const TARGET_HOLDS: Millis = Millis::from_mins(10);
const TARGET_DOUBLES_EVERY: Millis = Millis::from_mins(1);
/// After a fall the lower target stays for this long, twice as long after each further one, up to [`TARGET_HOLDS`].
const FALL_HOLDS: Millis = Millis::from_mins(3);

/// The usual rate is an average over slices, each counting for an eighth.
const SLICE: Millis = Millis::from_secs(10);
const SLICE_SHARE: u64 = 8;

impl Recovery {
    pub(super) fn rate(&self) -> Option<Rate> {
        self.ramp.as_deref().map(|ramp| ramp.rate)
    }

    /// Whether the ramp holds something back: it has begun, and deliveries wait.
    pub(super) fn recovering(&self, now: Timestamp) -> Option<Recovering> {
        let holds_back = |ramp: &&Ramp| self.standstill.is_none() && now.since(ramp.waited_at) < WAITS;
        let ramp = self.ramp.as_deref().filter(holds_back)?;
        Some(Recovering { pace: ramp.rate, target: ramp.target, since: ramp.began_at })
    }

    pub(super) fn notice_clock(&mut self, goes_on_at: Timestamp) {
        self.slice_began_at = self.slice_began_at.map(|began_at| began_at.min(goes_on_at));
        self.arrivals.notice_clock(goes_on_at);
        if let Some(standstill) = &mut self.standstill {
            standstill.since = standstill.since.min(goes_on_at);
        }
        if let Some(ramp) = &mut self.ramp {
            ramp.target_until = ramp.target_until.min(goes_on_at + ramp.holds.max(TARGET_HOLDS));
            ramp.began_at = ramp.began_at.map(|began_at| began_at.min(goes_on_at));
            ramp.waited_at = ramp.waited_at.min(goes_on_at);
        }
    }

    pub(super) fn arrived(&mut self, n: u64, now: Timestamp) {
        self.arrivals.arrived(n, now);
        if let Some(standstill) = &mut self.standstill {
            standstill.arrivals = standstill.arrivals.saturating_add(n);
        }
    }

    /// Takes in what waits. If it gives up soon, the pace rises at once to what it takes to try it in time, but not above the
    /// target.
    pub(super) fn sees(&mut self, queue: Queue, limits: &GateLimits, now: Timestamp) {
        self.open(limits, now);
        let Some(ramp) = self.ramp.as_mut().filter(|_| self.standstill.is_none()) else { return };
        if now.since(queue.due_at) > LATE {
            ramp.waited_at = ramp.waited_at.max(now);
        }
        let n = ramp.gathered.max(u64::try_from(queue.n).unwrap_or(u64::MAX));
        let wanted = Rate::over(n.saturating_mul(HASTE), queue.give_up_at.since(now));
        ramp.rate = ramp.rate.max(wanted.min(ramp.target).min(limits.rate));
    }

    pub(super) fn succeeded(&mut self, pressed: bool, limits: &GateLimits, now: Timestamp) {
        self.open(limits, now);
        if self.standstill.is_some() {
            return;
        }
        if self.ramp.is_none() {
            return self.count(now);
        }
        let goal = self.goal(now);
        let Some(ramp) = &mut self.ramp else { return };
        if ramp.is_over(pressed, goal, now) || ramp.climb(limits) {
            self.ramp = None;
        }
    }

    /// Of what flows freely. On the ramp it is our pace that is seen, and not what the receiver usually takes.
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

    /// What the pace should climb to.
    fn goal(&mut self, now: Timestamp) -> Rate {
        let arrival = self.arrivals.rate(now);
        target(self.usual.map_or(arrival, |usual| usual.max(arrival)))
    }

    /// The time until sending goes on is not counted as time in which nothing was wanted.
    pub(super) fn paused(&mut self, now: Timestamp) {
        (self.slice_began_at, self.slice_successes) = (None, 0);
        self.standstill.get_or_insert_with(|| Box::new(Standstill { since: now, arrivals: 0 }));
    }

    /// Nothing is sent from now on, because it fails. If it fell over on the ramp, the next one is half as high, even where less
    /// arrives than that: a receiver that cannot take more cannot drain its backlog either.
    pub(super) fn tripped(&mut self, now: Timestamp) {
        let on_ramp = self.standstill.is_none();
        self.paused(now);
        let Some(ramp) = &mut self.ramp else { return };
        ramp.pending = false;
        if on_ramp && ramp.is_calm(now) {
            self.ramp = None;
        } else if on_ramp {
            ramp.target = ramp.target.percent(50).max(start());
            ramp.falls = ramp.falls.saturating_add(1);
        }
    }

    /// Sending goes on then.
    pub(super) fn begin(&mut self, limits: &GateLimits, at: Timestamp, now: Timestamp) {
        let (target, falls) = self.ramp.as_ref().map_or((target_min(), 0), |ramp| (ramp.target, ramp.falls));
        self.ramp = Some(Box::new(Ramp {
            rate: start().min(target).min(limits.rate),
            target,
            target_until: at + TARGET_HOLDS,
            holds: TARGET_HOLDS,
            began_at: Some(at),
            pending: true,
            waited_at: Timestamp::default(),
            doubles_in: DOUBLES_IN_MAX,
            gathered: 0,
            falls,
        }));
        // A state that was stored by an earlier version does not say when sending stopped.
        self.standstill.get_or_insert_with(|| Box::new(Standstill { since: at - TARGET_HOLDS, arrivals: 0 }));
        self.open(limits, now);
    }

    /// Once the standstill is over, it is known how long it was and what arrived meanwhile.
    fn open(&mut self, limits: &GateLimits, now: Timestamp) {
        let is_due = |ramp: &Ramp| ramp.pending && ramp.began_at.is_none_or(|began_at| began_at <= now);
        if !self.ramp.as_deref().is_some_and(is_due) {
            return;
        }
        let goal = self.goal(now);
        let (Some(ramp), Some(standstill)) = (&mut self.ramp, self.standstill.take()) else { return };
        let lasted = ramp.began_at.unwrap_or(now).since(standstill.since);
        ramp.pending = false;
        ramp.gathered = standstill.arrivals;
        if ramp.falls == 0 {
            let arrived = Rate::over(standstill.arrivals, lasted.max(STANDSTILL_MIN));
            ramp.target = ramp.target.max(goal).max(target(arrived));
            ramp.holds = TARGET_HOLDS.max(lasted.times(2));
            ramp.doubles_in = Millis(lasted.0 / DOUBLINGS_PER_STANDSTILL).clamp(DOUBLES_IN_MIN, DOUBLES_IN_MAX);
        } else {
            ramp.holds = FALL_HOLDS.doubled(ramp.falls - 1).min(TARGET_HOLDS);
        }
        ramp.target_until = now + ramp.holds;
        ramp.rate = start().min(ramp.target).min(limits.rate);
    }
}

impl Ramp {
    fn is_calm(&self, now: Timestamp) -> bool {
        now.since(self.began_at.unwrap_or_default().max(self.waited_at)) >= CALM
    }

    /// Whether the ramp is over. If not, its target may have risen.
    fn is_over(&mut self, pressed: bool, goal: Rate, now: Timestamp) -> bool {
        if self.is_calm(now) {
            return true;
        }
        if self.falls == 0 {
            self.target = self.target.max(goal);
        }
        if now < self.target_until {
            return false;
        }
        if self.falls == 0 && !pressed {
            return true;
        }
        let doubled = self.target.percent(200);
        if self.falls > 0 && doubled >= goal {
            // It has stayed well for long enough to be trusted again.
            (self.target, self.falls) = (self.target.max(goal), 0);
            self.target_until = now + TARGET_HOLDS;
        } else {
            (self.target, self.target_until) = (doubled, now + TARGET_DOUBLES_EVERY);
        }
        false
    }

    /// A success proves a little more. Returns whether the pace has reached what is configured.
    fn climb(&mut self, limits: &GateLimits) -> bool {
        self.gathered = self.gathered.saturating_sub(1);
        let doubles_in = self.doubles_in.clamp(DOUBLES_IN_MIN, DOUBLES_IN_MAX);
        self.rate = self.rate.plus(LN_2 / doubles_in.0).min(self.target);
        self.rate >= limits.rate
    }
}

fn target(rate: Rate) -> Rate {
    rate.percent(TARGET_PERCENT).max(target_min())
}
