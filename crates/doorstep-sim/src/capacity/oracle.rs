//! The best obedient sender: it knows the receiver, and keeps to Retry-After and the throttle windows.
//!
//! For limits that count over time it keeps a copy of the limiter, which sees every request arrive, and sends as soon as a request
//! will be admitted. Ways vary, for the oracle as for everybody, so it keeps a margin: the one that delivered most in rehearsals. For
//! limits on what is there at once there is no such copy, since nobody knows when the receiver will be done; there it sends with a
//! fixed number in flight or at a fixed pace, whichever delivered most in rehearsals. It cannot foresee random refusals, and pays for them as everybody
//! does; where throttle windows grow it tests with a single request after each, so that they start anew.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::time::{Millis, Timestamp};

pub use super::plan::{Margin, Plan};
use super::site::{Quota, Shared, Site};
use super::target::{Backlog, Course, START, Target};
use super::{arena_on, feed};
use crate::arena::{Request, Sender, Ways};
use crate::senders::{Obedience, RETRIED_AFTER};

#[derive(Debug)]
pub struct Oracle {
    /// As the receiver's own: it counts requests when they arrive.
    quota: Quota,
    lanes: Vec<Lane>,
    /// When a request is expected that leaves now, and when one is that left before and has not arrived yet.
    expected_after: Millis,
    others_after: Millis,
    /// When each request left that has not arrived yet.
    in_air: BTreeMap<u64, Timestamp>,
    /// The episode in which each request left.
    in_flight: BTreeMap<u64, u64>,
    n_started: u64,
    plan: Plan,
    /// The limit was found to be used up until then, if nothing arrives.
    no_room_before: Timestamp,
    /// Microseconds: when the next request is on time by the plan.
    next_at: i64,
    concurrency: usize,
    endless: bool,
    /// Whose turn it is: destinations of a shared host get the same.
    turn: usize,
    looks_again_at: Option<Timestamp>,
    /// A limit that changes has to be looked at again soon.
    changes: bool,
}

#[derive(Debug, Default)]
struct Lane {
    ready: u64,
    later: VecDeque<Timestamp>,
    in_flight: usize,
    /// Of these, the ones that left since the last throttle began.
    in_flight_since: usize,
    /// It has refused, and has not accepted anything since.
    unproven: bool,
    obedience: Obedience,
    /// Microseconds: when the next request is on time by the configured rate.
    next_at: i64,
}

/// The configured rate and burst of a destination, by default (G10).
const INTERVAL: i64 = 1_000;
const BURST: i64 = 100;
const LOOKS_EVERY: Millis = Millis(250);

/// What the oracle finds when it begins: the receiver, and for each destination what is waiting and what has to be kept to.
#[derive(Clone, Debug)]
pub struct Takeover {
    pub site: Site,
    pub waiting: Vec<u64>,
    pub obedience: Vec<Obedience>,
}

impl Takeover {
    /// The same, with nothing to keep to.
    pub fn released(mut self) -> Self {
        self.obedience.fill(Obedience::default());
        self
    }

    pub fn held_until(&self) -> Timestamp {
        self.obedience.iter().map(|obedience| obedience.held_until).max().unwrap_or(START)
    }
}

/// The oracle at this site from one time to another. `backlog`: what is waiting for each destination at the start.
pub fn run(target: &Arc<Target>, site: Site, plan: Plan, backlog: &[u64], from: Timestamp, to: Timestamp) -> Site {
    let obedience = vec![Obedience::default(); target.destinations];
    take_over(target, Takeover { site, waiting: backlog.to_vec(), obedience }, plan, from, to)
}

/// The oracle from one time to another, where somebody else was before.
pub fn take_over(target: &Arc<Target>, takeover: Takeover, plan: Plan, from: Timestamp, to: Timestamp) -> Site {
    let ways = if plan.margin == Margin::Exact { mean_of(target.ways) } else { target.ways };
    let oracle = Oracle::new(target, &takeover, plan, ways);
    let shared = Shared::new(takeover.site);
    let mut arena = arena_on(&shared, target, from).with_ways(ways);
    arena.add_fed(Box::new(oracle), &vec![feed(target, from); target.destinations]);
    arena.run_until(to);
    drop(arena);
    shared.0.borrow().clone()
}

fn mean_of(ways: Ways) -> Ways {
    let mean = |(least, most): (Millis, Millis)| Millis((least.0 + most.0) / 2);
    let (there, back) = (mean(ways.there), mean(ways.back));
    Ways { there: (there, there), back: (back, back) }
}

impl Oracle {
    fn new(target: &Target, takeover: &Takeover, plan: Plan, ways: Ways) -> Self {
        let lane = |(ready, obedience): (&u64, &Obedience)| Lane {
            ready: *ready,
            unproven: obedience.is_throttled(),
            obedience: obedience.clone(),
            ..Lane::default()
        };
        let (least, most) = ways.there;
        let quarters = if let Margin::Quarters(quarters) = plan.margin { quarters } else { 0 };
        let margin = Millis((most.0 - least.0).div_ceil(2) * quarters / 4);
        let mean = Millis((least.0 + most.0) / 2);
        Self {
            quota: takeover.site.quota().clone(),
            lanes: takeover.waiting.iter().zip(&takeover.obedience).map(lane).collect(),
            expected_after: least.max(Millis(mean.0.saturating_sub(margin.0))),
            others_after: most.min(mean + margin),
            in_air: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            n_started: 0,
            plan,
            no_room_before: Timestamp(0),
            next_at: 0,
            concurrency: target.concurrency as usize,
            endless: matches!(target.backlog, Backlog::Endless),
            turn: 0,
            looks_again_at: None,
            changes: !matches!(target.course, Course::Constant),
        }
    }

    /// Whether a request that leaves now will be admitted, as far as one can know; or when to look again.
    fn room(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        if self.plan.margin == Margin::Blind {
            return Ok(());
        }
        if now < self.no_room_before {
            return Err(self.no_room_before);
        }
        let others = || self.in_air.values().map(|left_at| now.max(*left_at + self.others_after));
        let (early, late) = (now + self.expected_after, now + self.others_after);
        let mut room = self.quota.room(early, others());
        // A limit that is lowered before a late request arrives has to have room for it as well.
        if room.is_ok() && self.changes && self.quota.factor(early) > self.quota.factor(late) {
            room = self.quota.room(late, others());
        }
        room.map_err(|wait| {
            let wait = if self.changes { wait.min(LOOKS_EVERY) } else { wait };
            self.no_room_before = now + wait.max(Millis(1));
            self.no_room_before
        })
    }

    /// The next destination that may be sent to, or the time at which one may.
    fn next_lane(&mut self, now: Timestamp) -> Result<usize, Option<Timestamp>> {
        let mut soonest: Option<Timestamp> = None;
        for n in 0..self.lanes.len() {
            let at = (self.turn + n) % self.lanes.len();
            let lane = &mut self.lanes[at];
            while lane.later.front().is_some_and(|due_at| *due_at <= now) {
                lane.later.pop_front();
                lane.ready += 1;
            }
            let probe_in_flight = self.plan.probes && lane.unproven && lane.in_flight_since > 0;
            if lane.in_flight >= self.concurrency || probe_in_flight {
                continue;
            }
            let has_one_at = match (lane.ready > 0 || self.endless, lane.later.front()) {
                (true, _) => now,
                (false, Some(due_at)) => *due_at,
                (false, None) => continue,
            };
            let on_time = Timestamp((lane.next_at - (BURST - 1) * INTERVAL).div_euclid(1_000));
            let may_go_at = has_one_at.max(lane.obedience.held_until).max(on_time);
            if may_go_at <= now {
                return Ok(at);
            }
            soonest = Some(soonest.map_or(may_go_at, |soonest| soonest.min(may_go_at)));
        }
        Err(soonest)
    }
}

impl Sender for Oracle {
    fn offer(&mut self, destination: usize, n: u64, _: Timestamp) {
        self.lanes[destination].ready += n;
    }

    fn start(&mut self, now: Timestamp) -> Vec<Request> {
        let mut started = Vec::new();
        self.looks_again_at = None;
        let micros = now.0.saturating_mul(1_000);
        while self.in_flight.len() < self.plan.in_flight_max {
            if self.next_at >= micros + 1_000 {
                self.looks_again_at = Some(Timestamp(self.next_at.div_euclid(1_000)));
                break;
            }
            let destination = match self.next_lane(now) {
                Ok(destination) => destination,
                Err(soonest) => {
                    self.looks_again_at = soonest;
                    break;
                }
            };
            if let Err(looks_again_at) = self.room(now) {
                self.looks_again_at = Some(looks_again_at);
                break;
            }
            let lane = &mut self.lanes[destination];
            lane.next_at = lane.next_at.max(micros) + INTERVAL;
            self.next_at = self.next_at.max(micros).saturating_add_unsigned(self.plan.interval);
            lane.ready = lane.ready.saturating_sub(1);
            lane.in_flight += 1;
            lane.in_flight_since += 1;
            self.turn = destination + 1;
            self.n_started += 1;
            self.in_air.insert(self.n_started, now);
            self.in_flight.insert(self.n_started, lane.obedience.episode);
            started.push(Request { destination, number: self.n_started });
        }
        started
    }

    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp) {
        let Some(episode) = self.in_flight.remove(&request.number) else { return };
        let lane = &mut self.lanes[request.destination];
        lane.in_flight -= 1;
        if episode == lane.obedience.episode {
            lane.in_flight_since -= 1;
            lane.unproven &= outcome.class() != Class::Success;
        }
        let before = lane.obedience.episode;
        lane.obedience.answered(episode, outcome, now);
        if lane.obedience.episode != before {
            (lane.unproven, lane.in_flight_since) = (true, 0);
        }
        match outcome.class() {
            Class::Success => {}
            Class::Throttled => lane.ready += 1,
            Class::Transient | Class::Ambiguous | Class::Permanent if self.endless => {}
            Class::Transient | Class::Ambiguous | Class::Permanent => lane.later.push_back(now + RETRIED_AFTER),
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.looks_again_at
    }

    fn arrived(&mut self, request: Request, now: Timestamp) -> bool {
        self.in_air.remove(&request.number);
        // What it says is for others: the receiver asks its own.
        let _ = self.quota.admit(now);
        self.no_room_before = now;
        self.plan.margin != Margin::Blind
    }

    fn obedience(&self, destination: usize) -> Obedience {
        self.lanes[destination].obedience.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn throttled(times: u64, at: Timestamp) -> Obedience {
        let mut obedience = Obedience::default();
        for episode in 0..times {
            obedience.answered(episode, &Outcome::Throttled { wait: None }, at);
        }
        obedience
    }

    fn takeover(target: &Arc<Target>, obedience: Obedience) -> Takeover {
        Takeover { site: Site::new(target), waiting: vec![0], obedience: vec![obedience] }
    }

    #[test]
    fn who_takes_over_waits_for_as_long_as_the_receiver_has_asked() {
        // 7 per 1.7 s, and silent: a minute for the first refusal, five for the second.
        let target = Arc::new(Target::named().swap_remove(2));
        let plan = Plan::for_target(&target);
        let run = |obedience| {
            let end = START + Millis::from_mins(10);
            take_over(&target, takeover(&target, obedience), plan, START, end).ledger
        };
        let free = run(Obedience::default());
        assert!(free.between(0, 300).accepted > 1_200, "{:?}", free.between(0, 300));
        let held = run(throttled(2, START));
        assert_eq!(held.between(0, 300).accepted, 0);
        assert!(held.between(300, 600).accepted > 1_200, "{:?}", held.between(300, 600));
    }

    #[test]
    fn who_takes_over_after_a_refusal_tests_with_one_request() {
        let target = Arc::new(Target::named().swap_remove(2));
        let plan = Plan::for_target(&target);
        let starts = |obedience| {
            let now = START + Millis::from_hours(7);
            Oracle::new(&target, &takeover(&target, obedience), plan, target.ways).start(now).len()
        };
        assert_eq!((starts(Obedience::default()), starts(throttled(1, START))), (7, 1));
    }

    #[test]
    fn a_row_of_throttles_goes_on() {
        let target = Arc::new(Target::named().swap_remove(2));
        let mut oracle =
            Oracle::new(&target, &takeover(&target, throttled(2, START)), Plan::for_target(&target), target.ways);
        let now = START + Millis::from_mins(5);
        let probe = oracle.start(now).remove(0);
        oracle.answered(probe, &Outcome::Throttled { wait: None }, now);
        assert_eq!(oracle.obedience(0).held_until, now + Millis::from_mins(15), "the third window of G4");
    }
}
