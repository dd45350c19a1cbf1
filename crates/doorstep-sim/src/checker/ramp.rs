//! What a receiver meets when it comes back from a standstill (G8): a climb, a peak, and a backlog that shrinks.

use std::collections::VecDeque;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::gate::Rate;
use doorstep_core::time::{Millis, Timestamp};

use super::{Account, Checker, Verdict, Watched, ensure};

/// When a destination came back from a standstill, and what has happened since.
#[derive(Clone, Copy, Debug)]
pub(super) struct Back {
    pub(super) at: Timestamp,
    /// How long the standstill was.
    pub(super) after: Millis,
    pub(super) n_accepted: u32,
    /// What was added to the pace, per second, for deliveries that were to give up soon.
    pub(super) haste: f64,
    /// When a request last was one that had been waiting for more than a second.
    pub(super) waited_at: Timestamp,
    /// Every answer since was a quick yes.
    pub(super) well: bool,
}

/// Nothing waited for this long: the ramp may be over.
const CALM: Millis = Millis::from_secs(30);
/// So long after it came back, or twice the standstill, the ramp holds for as long as deliveries wait.
const RAMP_HOLDS: Millis = Millis::from_mins(10);
/// After a longer standstill than this the climb is as slow as it gets.
const LONG: Millis = Millis::from_secs(100);

/// The fullest stretch of time that was seen.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    recent: VecDeque<Timestamp>,
    most: usize,
}

/// Whoever averages over at least half of this, however the time is divided, gets no more than `most` in half of this.
const STRETCH: Millis = Millis::from_secs(20);

impl Busiest {
    pub(super) fn add(&mut self, now: Timestamp) {
        while self.recent.front().is_some_and(|first| *first + STRETCH <= now) {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        self.most = self.most.max(self.recent.len());
    }

    fn per_second(&self) -> f64 {
        self.most as f64 * 2_000.0 / STRETCH.0 as f64
    }
}

impl Watched {
    /// Twice what usually flows or arrives, or twenty a second.
    fn peak(&self) -> f64 {
        (2.0 * self.flowed.per_second().max(self.arrived.per_second())).max(20.0)
    }
}

impl Checker {
    /// `waited`: how long this delivery, which starts now, could have been sent before.
    pub(super) fn within_ramp(&mut self, delivery: &Delivery, waited: Millis, now: Timestamp) -> Verdict {
        let id = delivery.destination_id;
        let Some(watched) = self.destinations.get_mut(&id) else { return Ok(()) };
        let Some(back) = &mut watched.facts.back else { return Ok(()) };
        if now.since(back.waited_at) >= CALM || now.since(back.at) >= RAMP_HOLDS.max(back.after.times(2)) {
            watched.facts.back = None;
            return Ok(());
        }
        if waited > Millis::from_secs(1) {
            back.waited_at = now;
        }
        let back = *back;
        let (peak, limit) = (watched.peak(), watched.plan.limits.rate.as_per_second());
        let started = watched.starts.iter().filter(|start| **start >= back.at).count() as f64;
        ensure(started <= peak + 1.0, || format!("{started} requests to {id} in one second, over its peak of {peak}"))?;
        let each = if back.after >= LONG { 0.139 } else { 0.694 };
        let climbed = 1.0 + each * f64::from(back.n_accepted);
        // Once the pace was raised, it stays raised.
        let haste = back.haste.max(self.urgent_rate(delivery, back, now) - climbed);
        if let Some(back) = self.destinations.get_mut(&id).and_then(|watched| watched.facts.back.as_mut()) {
            back.haste = haste;
        }
        let rate = climbed + haste;
        if rate < limit && started > rate + 2.0 {
            let n = back.n_accepted;
            return Err(format!("{started} requests to {id} in one second, {n} accepted since it came back"));
        }
        self.drains(delivery, back, now)
    }

    /// How fast a destination's deliveries have to be tried, per second, for all to be tried in time.
    fn urgent_rate(&self, delivery: &Delivery, back: Back, now: Timestamp) -> f64 {
        let id = delivery.destination_id;
        let here = self.deliveries.values().filter(|account| account.destination_id == Some(id));
        let n = here.clone().count() as f64;
        let ends = here.map(|account| account.give_up_at).filter(|give_up_at| *give_up_at >= back.at);
        ends.min().map_or(0.0, |give_up_at| 2.0 * n * 1_000.0 / give_up_at.since(now).0.max(1) as f64)
    }

    /// What gathered is gone after half a minute and a tenth of a second for each, if nothing but our own pace is in the way.
    fn drains(&self, delivery: &Delivery, back: Back, now: Timestamp) -> Verdict {
        let Watched { plan, facts, .. } = &self.destinations[&delivery.destination_id];
        let free = self.calm && back.well && !facts.was_throttled && facts.falls == 0;
        let limits = &plan.limits;
        let rate = limits.pinned.map_or(limits.rate, |pinned| limits.rate.min(pinned));
        if !free || plan.ordering != Ordering::Unordered || rate < Rate::per_second(50) {
            return Ok(());
        }
        if now.since(back.at) <= Millis::from_secs(30) || self.deliveries[&delivery.id].due_at >= back.at {
            return Ok(());
        }
        let here = |account: &&Account| account.destination_id == Some(delivery.destination_id);
        let n = self.deliveries.values().filter(here).count() as u64;
        let until = back.at + Millis::from_secs(30) + Millis(n * 100);
        ensure(now <= until, || {
            let (id, late) = (delivery.id, now.since(back.at));
            format!("{id} is sent {late} after its destination came back, where {n} waited at most")
        })
    }
}
