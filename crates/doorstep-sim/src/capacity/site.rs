//! A receiver at work, and what it wrote down.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::Arc;

use doorstep_core::defaults::TIMEOUT_DEFAULT;
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::hints::Hints;
use doorstep_core::outcome::{Outcome, StatusOverrides};
use doorstep_core::time::{Millis, Timestamp};

use super::target::{Course, Limit, START, Target};
use crate::arena::{Receiver, Reply};
use crate::limiter::{Kind, Limiter, Queue};
use crate::roll::Roll;

#[derive(Clone, Debug)]
pub struct Site {
    target: Arc<Target>,
    quota: Quota,
    /// When each request that it works on will be done.
    busy: BinaryHeap<Reverse<Timestamp>>,
    noise: SeededDice,
    service: SeededDice,
    pub ledger: Ledger,
}

/// The part of a limit that can be worked out in advance by somebody who knows it: a count per time, and its changes.
#[derive(Clone, Debug)]
pub struct Quota {
    target: Arc<Target>,
    state: State,
    /// The factor in force, and the second since the start for which it was looked up.
    applied: f64,
    followed_to: u64,
}

#[derive(Clone, Debug)]
enum State {
    Counted(Limiter),
    Queue(Queue),
    /// It depends on what is there at the time.
    Unlimited,
}

/// What came, by the second from the start.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    pub seconds: Vec<Second>,
    /// Accepted, by destination.
    pub accepted_by: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Second {
    pub accepted: u64,
    /// Refused, failed or timed out because of the load.
    pub refused: u64,
    /// Refused at random.
    pub noise: u64,
}

/// A refusal takes no work.
const REFUSED_AFTER: Millis = Millis(1);
const WAIT_MAX: Millis = Millis::from_hours(24);

impl Quota {
    pub fn new(target: &Arc<Target>) -> Self {
        let state = match target.limit {
            Limit::Counted { kind, capacity, window } => State::Counted(Limiter::new(kind, capacity, window, START)),
            Limit::Queue { interval, depth } => State::Queue(Queue::new(interval, depth)),
            Limit::AtOnce(_) | Limit::Overload { .. } => State::Unlimited,
        };
        Self { target: Arc::clone(target), state, applied: 1.0, followed_to: 0 }
    }

    /// Says how long an admitted request waits, or how long until one is admitted if the limit stays as it is.
    pub fn admit(&mut self, now: Timestamp) -> Result<Millis, Millis> {
        self.follow_course(now);
        match &mut self.state {
            State::Counted(limiter) => limiter.admit(now).map(|()| Millis::ZERO),
            State::Queue(queue) => queue.admit(now),
            State::Unlimited => Ok(Millis::ZERO),
        }
    }

    /// What it would say of itself in an answer.
    fn header(&self, now: Timestamp) -> Option<String> {
        let State::Counted(limiter) = &self.state else { return None };
        let (left, resets_in) = limiter.left(now);
        Some(format!("\"limit\";r={left};t={}", resets_in.0.div_ceil(1_000)))
    }

    /// The factor of the limit that is in force then.
    pub fn factor(&self, at: Timestamp) -> f64 {
        self.target.course.factor(Millis::from_secs(at.since(START).0 / 1_000))
    }

    /// Whether a request is admitted that arrives at `at` when these others arrive before it, or how long until then. Looks
    /// without counting.
    pub fn room(&self, at: Timestamp, others: impl ExactSizeIterator<Item = Timestamp>) -> Result<(), Millis> {
        if let (State::Counted(limiter), Limit::Counted { capacity, .. }) = (&self.state, self.target.limit) {
            let factor = self.factor(at);
            let capacity = if factor == 1.0 { capacity } else { changed(capacity, factor) };
            // A log of what was admitted is too long to be copied for each look.
            if let Some(room) = limiter.sliding_room(at, others.len(), capacity) {
                return room;
            }
        }
        if matches!(self.state, State::Unlimited) {
            return Ok(());
        }
        let mut copy = self.clone();
        for other in others {
            // One that is refused takes nothing.
            let _ = copy.admit(other.min(at));
        }
        copy.admit(at).map(|_| ())
    }

    /// The limit changes at full seconds, whoever looks at it and when: otherwise two copies of it would drift apart.
    fn follow_course(&mut self, now: Timestamp) {
        if matches!(self.target.course, Course::Constant) {
            return;
        }
        let second = now.since(START).0 / 1_000;
        while self.followed_to < second {
            self.followed_to += 1;
            let at = Millis::from_secs(self.followed_to);
            let factor = self.target.course.factor(at);
            if factor != self.applied {
                self.applied = factor;
                self.change(factor, START + at);
            }
        }
    }

    fn change(&mut self, factor: f64, now: Timestamp) {
        match (&mut self.state, self.target.limit) {
            // A bucket stays as large as it is and fills at another rate.
            (State::Counted(limiter), Limit::Counted { kind: Kind::TokenBucket, capacity, window }) => {
                limiter.change(capacity, Millis(((window.0 as f64 / factor) as u64).max(1)), now);
            }
            (State::Counted(limiter), Limit::Counted { capacity, window, .. }) => {
                limiter.change(changed(capacity, factor), window, now);
            }
            (State::Queue(queue), Limit::Queue { interval, .. }) => queue.change((interval as f64 / factor) as u64),
            _ => {}
        }
    }
}

fn changed(capacity: u64, factor: f64) -> u64 {
    ((capacity as f64 * factor).round() as u64).max(1)
}

impl Site {
    pub fn new(target: &Arc<Target>) -> Self {
        let mut dice = SeededDice::new(target.seed ^ (target.luck << 48) ^ 0x5172);
        Self {
            target: Arc::clone(target),
            quota: Quota::new(target),
            busy: BinaryHeap::new(),
            noise: SeededDice::new(dice.roll().0),
            service: SeededDice::new(dice.roll().0),
            ledger: Ledger { seconds: Vec::new(), accepted_by: vec![0; target.destinations] },
        }
    }

    /// As it is, but with nothing at work: for another sender to take over.
    pub fn taken_over(&self) -> Self {
        let ledger = Ledger { seconds: Vec::new(), accepted_by: vec![0; self.target.destinations] };
        Self { busy: BinaryHeap::new(), ledger, ..self.clone() }
    }

    pub fn quota(&self) -> &Quota {
        &self.quota
    }

    fn decide(&mut self, now: Timestamp) -> Reply {
        while self.busy.peek().is_some_and(|Reverse(done_at)| *done_at <= now) {
            self.busy.pop();
        }
        let at_once = self.busy.len() as u64;
        let (least, most) = self.target.service;
        let verdict = match self.target.limit {
            Limit::AtOnce(max) if at_once >= max => Err(most),
            _ => self.quota.admit(now),
        };
        let waits = match verdict {
            Ok(waits) => waits,
            Err(wait) => {
                self.ledger.second(now).refused += 1;
                return self.refusal(wait, now);
            }
        };
        // It counts against the limit all the same: what fails at random is behind the limiter.
        if self.target.noise_per_mille > 0 && self.noise.below(1_000) < self.target.noise_per_mille {
            self.ledger.second(now).noise += 1;
            return self.refusal(Millis::ZERO, now);
        }
        let mut after = waits + self.service.roll().between(least, most);
        if let Limit::Overload { knee, power } = self.target.limit {
            let load = (at_once + 1) as f64 / knee as f64;
            let slower = 1.0 + (0..power).map(|_| load).product::<f64>();
            after = Millis((after.0 as f64 * slower) as u64);
        }
        if matches!(self.target.limit, Limit::AtOnce(_) | Limit::Overload { .. }) {
            self.busy.push(Reverse(now + after));
        }
        if after > TIMEOUT_DEFAULT {
            self.ledger.second(now).refused += 1;
            return Reply { outcome: Outcome::TimedOut, after: TIMEOUT_DEFAULT };
        }
        Reply { outcome: self.answer(200, None, now), after }
    }

    fn refusal(&self, wait: Millis, now: Timestamp) -> Reply {
        Reply { outcome: self.answer(self.target.status, self.target.says.header(wait), now), after: REFUSED_AFTER }
    }

    fn answer(&self, status: u16, retry_after: Option<String>, now: Timestamp) -> Outcome {
        let quota = if self.target.advertises { self.quota.header(now) } else { None };
        let lines = [("retry-after", retry_after), ("ratelimit", quota)];
        let lines = lines.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?.as_bytes())));
        let hints = Hints::read(lines, now, WAIT_MAX);
        Outcome::from_status(status, hints, &StatusOverrides::default())
    }
}

/// A site that the arena sends to, and that can be looked at from outside.
#[derive(Clone, Debug)]
pub struct Shared(pub Rc<RefCell<Site>>);

impl Shared {
    pub fn new(site: Site) -> Self {
        Self(Rc::new(RefCell::new(site)))
    }
}

impl Receiver for Shared {
    fn receive(&mut self, destination: usize, now: Timestamp) -> Reply {
        let mut site = self.0.borrow_mut();
        let reply = site.decide(now);
        if matches!(reply.outcome, Outcome::Accepted { .. }) {
            site.ledger.second(now).accepted += 1;
            site.ledger.accepted_by[destination] += 1;
        }
        reply
    }
}

impl Ledger {
    fn second(&mut self, now: Timestamp) -> &mut Second {
        let index = usize::try_from(now.since(START).0 / 1_000).unwrap_or(usize::MAX);
        if self.seconds.len() <= index {
            self.seconds.resize(index + 1, Second::default());
        }
        &mut self.seconds[index]
    }

    /// Adds what came when the same receiver was played again.
    pub fn add(&mut self, other: &Self) {
        let longer = self.seconds.len().max(other.seconds.len());
        self.seconds.resize(longer, Second::default());
        for (sum, second) in self.seconds.iter_mut().zip(&other.seconds) {
            *sum = sum.plus(*second);
        }
        for (sum, accepted) in self.accepted_by.iter_mut().zip(&other.accepted_by) {
            *sum += accepted;
        }
    }

    /// What came between these seconds, the last not included.
    pub fn between(&self, from: usize, to: usize) -> Second {
        let to = to.min(self.seconds.len());
        let seconds = self.seconds.get(from.min(to)..to).unwrap_or_default();
        seconds.iter().fold(Second::default(), |sum, second| sum.plus(*second))
    }
}

impl Second {
    fn plus(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            noise: self.noise + other.noise,
        }
    }
}
