//! The best obedient sender: it knows the receiver, and keeps to Retry-After and the throttle windows.
//!
//! For limits that count over time it is exact: it keeps a copy of the limiter, books each request for the moment at
//! which it will arrive, and sends as soon as that is admitted. No sender has had more by any time. For limits on what is there at
//! once there is no such plan, since nobody knows when the receiver will be done; there it sends with a fixed number in flight or at
//! a fixed pace, whichever delivered most in rehearsals. It cannot foresee random refusals, and pays for them as everybody
//! does; where throttle windows grow it tests with a single request after each, so that they start anew.

use std::collections::VecDeque;
use std::sync::Arc;

use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::time::{Millis, Timestamp};

use super::site::{Quota, Shared, Site};
use super::target::{Backlog, Course, Limit, START, Target};
use super::{arena_on, feed};
use crate::arena::{Request, Sender, Ways};
use crate::senders::{Obedience, RETRIED_AFTER};

#[derive(Debug)]
pub struct Oracle {
    quota: Quota,
    lanes: Vec<Lane>,
    /// How long a request takes to arrive.
    way: Millis,
    in_flight: usize,
    plan: Plan,
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

/// How the oracle sends to a receiver, found out once for each.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    in_flight_max: usize,
    /// Microseconds from one request to the next.
    interval: u64,
    /// After a throttle, whether a single request goes first.
    probes: bool,
}

const REHEARSAL: Millis = Millis::from_mins(5);

impl Plan {
    pub fn for_target(target: &Arc<Target>) -> Self {
        let most = target.concurrency as usize * target.destinations;
        let greedy = Self { in_flight_max: most, interval: 0, probes: target.is_silent() };
        let (known, slower) = match target.limit {
            Limit::Counted { .. } | Limit::Queue { .. } => return greedy,
            Limit::AtOnce(n) => (n, 1),
            // At the knee it takes twice as long.
            Limit::Overload { knee, .. } => (knee, 2),
        };
        // A little and a lot more than the receiver can take at once: requests are also on their way.
        let around = [50, 75, 100, 110, 125, 150, 200, 250, 300, 400, 600, 1_000].map(|percent| known * percent / 100);
        let below = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map(|percent| most as u64 * percent / 100);
        let mut numbers: Vec<_> =
            around.into_iter().chain(below).map(|n| usize::try_from(n).unwrap_or(most).clamp(1, most)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let fixed = numbers.into_iter().map(|in_flight_max| Self { in_flight_max, ..greedy });
        // Requests that come evenly find room more often, if the way is long.
        let busy_micros = (target.service.0.0 + target.service.1.0) * 1_000 / 2 * slower;
        let paced = (3..=20).map(|n| Self { interval: busy_micros * 20 / (known * n), ..greedy });
        let best = fixed.chain(paced).max_by_key(|&plan| {
            let site = run(target, Site::new(target), plan, &[0], START, START + REHEARSAL);
            site.ledger.between(0, usize::MAX).accepted
        });
        best.unwrap_or(greedy)
    }
}

/// The oracle at this site from one time to another. `backlog`: what is waiting for each destination at the start.
pub fn run(target: &Arc<Target>, site: Site, plan: Plan, backlog: &[u64], from: Timestamp, to: Timestamp) -> Site {
    // Its requests arrive when it means them to.
    let mean = |(least, most): (Millis, Millis)| Millis((least.0 + most.0) / 2);
    let (there, back) = (mean(target.ways.there), mean(target.ways.back));
    let ways = Ways { there: (there, there), back: (back, back) };
    let mut oracle = Oracle::new(target, site.quota().clone(), plan, there);
    for (lane, n) in oracle.lanes.iter_mut().zip(backlog) {
        lane.ready += n;
    }
    let shared = Shared::new(site);
    let mut arena = arena_on(&shared, target, from).with_ways(ways);
    arena.add_fed(Box::new(oracle), &vec![feed(target, from); target.destinations]);
    arena.run_until(to);
    drop(arena);
    shared.0.borrow().clone()
}

impl Oracle {
    fn new(target: &Target, quota: Quota, plan: Plan, way: Millis) -> Self {
        Self {
            quota,
            lanes: (0..target.destinations).map(|_| Lane::default()).collect(),
            way,
            in_flight: 0,
            plan,
            next_at: 0,
            concurrency: target.concurrency as usize,
            endless: matches!(target.backlog, Backlog::Endless),
            turn: 0,
            looks_again_at: None,
            changes: !matches!(target.course, Course::Constant),
        }
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
        while self.in_flight < self.plan.in_flight_max {
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
            if let Err(wait) = self.quota.admit(now + self.way) {
                let wait = if self.changes { wait.min(LOOKS_EVERY) } else { wait };
                self.looks_again_at = Some(now + wait);
                break;
            }
            let lane = &mut self.lanes[destination];
            lane.next_at = lane.next_at.max(micros) + INTERVAL;
            self.next_at = self.next_at.max(micros).saturating_add_unsigned(self.plan.interval);
            lane.ready = lane.ready.saturating_sub(1);
            lane.in_flight += 1;
            lane.in_flight_since += 1;
            self.in_flight += 1;
            self.turn = destination + 1;
            started.push(Request { destination, number: lane.obedience.episode });
        }
        started
    }

    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp) {
        let lane = &mut self.lanes[request.destination];
        self.in_flight -= 1;
        lane.in_flight -= 1;
        if request.number == lane.obedience.episode {
            lane.in_flight_since -= 1;
            lane.unproven &= outcome.class() != Class::Success;
        }
        let before = lane.obedience.episode;
        lane.obedience.answered(request.number, outcome, now);
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
}
