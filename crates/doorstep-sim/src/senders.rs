//! Doorstep as a sender, and the simpler senders that it is measured against.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::{Request, Sender};

/// The real scheduler and gate, with destinations of one tenant at one host, whose deliveries all fit in memory.
#[derive(Debug)]
pub struct Doorstep {
    scheduler: Scheduler,
    dice: SeededDice,
    commands: Vec<Command>,
    n_offered: u64,
    /// What the answers oblige it to, for each destination, by our own books: a gate waits a little longer than it has to.
    obedience: Vec<Obedience>,
    /// The episode in which each request left.
    episodes: BTreeMap<u64, u64>,
    /// Whether a new delivery takes the place of each that is delivered or set back, so that the backlog never ends.
    endless: bool,
}

impl Doorstep {
    pub fn new(limits: GateLimits, endless: bool, seed: u64, now: Timestamp) -> Self {
        Self::with_destinations(1, limits, endless, seed, now)
    }

    pub fn with_destinations(n: usize, limits: GateLimits, endless: bool, seed: u64, now: Timestamp) -> Self {
        let scheduler = SchedulerLimits { in_flight_max: 100_000, window_max: 1_000_000, ..SchedulerLimits::default() };
        let mut sender = Self {
            scheduler: Scheduler::new(scheduler),
            dice: SeededDice::new(seed),
            commands: Vec::new(),
            n_offered: 0,
            obedience: vec![Obedience::default(); n],
            episodes: BTreeMap::new(),
            endless,
        };
        let (limits, policy) = (Arc::new(limits), Arc::new(RetryPolicy::standard()));
        for destination in 0..n {
            let plan = DestinationPlan {
                id: destination_id(destination),
                tenant_id: TenantId(1),
                host: "receiver.example".into(),
                limits: Arc::clone(&limits),
                policy: Arc::clone(&policy),
                ordering: Ordering::Unordered,
                awaits_consent: false,
            };
            sender.tell(Input::Adopted { plan: Box::new(plan), gate: Box::default(), backlog: false }, now);
        }
        sender
    }

    fn tell(&mut self, input: Input, now: Timestamp) {
        self.scheduler.handle(input, now, &mut self.dice, &mut self.commands);
    }

    fn delivery(&mut self, destination: usize, now: Timestamp) -> Delivery {
        self.n_offered += 1;
        Delivery {
            id: DeliveryId(self.n_offered.into()),
            event_seq: 0,
            destination_id: destination_id(destination),
            seq: self.n_offered,
            due_at: now,
            requests: 0,
            progress: Progress {
                attempts: 0,
                ambiguous: 0,
                last_delay: Millis::ZERO,
                give_up_at: now + Millis::from_hours(72),
            },
            ordering: None,
            unreadable: 0,
        }
    }
}

/// The scheduler's name for the destination that the arena knows by its number.
fn destination_id(destination: usize) -> DestinationId {
    DestinationId(destination as u128 + 1)
}

impl Sender for Doorstep {
    fn offer(&mut self, destination: usize, n: u64, now: Timestamp) {
        let deliveries = (0..n).map(|_| self.delivery(destination, now)).collect();
        self.tell(Input::Accepted { deliveries, behind: Vec::new() }, now);
    }

    fn start(&mut self, now: Timestamp) -> Vec<Request> {
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            self.tell(Input::Woken, now);
        }
        let started = self.commands.drain(..).filter_map(|command| match command {
            Command::Send { delivery, .. } => {
                let destination = usize::try_from(delivery.destination_id.0 - 1).expect("one of ours");
                self.episodes.insert(delivery.seq, self.obedience[destination].episode);
                Some(Request { destination, number: delivery.seq })
            }
            Command::Settle(_) | Command::Refill { .. } | Command::SaveGate { .. } | Command::Announce { .. } => None,
        });
        started.collect()
    }

    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp) {
        if let Some(episode) = self.episodes.remove(&request.number) {
            self.obedience[request.destination].answered(episode, outcome, now);
        }
        self.tell(Input::Answered { delivery_id: DeliveryId(request.number.into()), outcome: *outcome }, now);
        // A throttled delivery goes back to its place in the queue; one that failed waits for its own time.
        if self.endless && outcome.class() != Class::Throttled {
            self.offer(request.destination, 1, now);
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.scheduler.wake_at()
    }

    fn obedience(&self, destination: usize) -> Obedience {
        self.obedience[destination].clone()
    }
}

/// A sender as it is usually written: each message on its own, with a retry loop and a cap on requests at once.
#[derive(Debug)]
pub struct Naive {
    delays: Delays,
    concurrency: usize,
    in_flight: BTreeMap<u64, u32>,
    /// Messages by the time at which they may go, with the number of their failures.
    waiting: BTreeMap<(Timestamp, u64), u32>,
    n_offered: u64,
    endless: bool,
    dice: SeededDice,
}

/// How a naive sender spaces its retries.
#[derive(Clone, Copy, Debug)]
pub enum Delays {
    Fixed(Millis),
    /// Doubling up to a cap; `jitter`: anywhere between nothing and that.
    Exponential {
        base: Millis,
        cap: Millis,
        jitter: bool,
    },
}

impl Naive {
    pub fn new(delays: Delays, concurrency: usize, endless: bool, seed: u64) -> Self {
        Self {
            delays,
            concurrency,
            in_flight: BTreeMap::new(),
            waiting: BTreeMap::new(),
            n_offered: 0,
            endless,
            dice: SeededDice::new(seed),
        }
    }

    fn delay(&mut self, failures: u32) -> Millis {
        match self.delays {
            Delays::Fixed(delay) => delay,
            Delays::Exponential { base, cap, jitter } => {
                let full = base.doubled(failures.saturating_sub(1)).min(cap);
                if jitter { self.dice.roll().up_to(full) } else { full }
            }
        }
    }
}

impl Sender for Naive {
    fn offer(&mut self, _: usize, n: u64, now: Timestamp) {
        for _ in 0..n {
            self.n_offered += 1;
            self.waiting.insert((now, self.n_offered), 0);
        }
    }

    fn start(&mut self, now: Timestamp) -> Vec<Request> {
        let mut started = Vec::new();
        while self.in_flight.len() < self.concurrency
            && let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            let ((_, message), failures) = first.remove_entry();
            self.in_flight.insert(message, failures);
            started.push(Request { destination: 0, number: message });
        }
        started
    }

    fn answered(&mut self, Request { number: request, .. }: Request, outcome: &Outcome, now: Timestamp) {
        let Some(failures) = self.in_flight.remove(&request) else { return };
        match outcome {
            Outcome::Accepted { .. } if self.endless => self.offer(0, 1, now),
            Outcome::Accepted { .. } => {}
            Outcome::Throttled { wait } => {
                let failures = failures + 1;
                let wait = wait.unwrap_or(Millis::ZERO).max(self.delay(failures));
                self.waiting.insert((now + wait, request), failures);
            }
            _ => {
                let failures = failures + 1;
                let wait = self.delay(failures);
                self.waiting.insert((now + wait, request), failures);
            }
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        let room = self.in_flight.len() < self.concurrency;
        self.waiting.first_key_value().map(|((at, _), _)| *at).filter(|_| room)
    }

    /// It obeys nothing, so nothing binds it.
    fn obedience(&self, _: usize) -> Obedience {
        Obedience::default()
    }
}

/// What every obedient sender keeps to, whatever its pace: Retry-After and the throttle windows (G4, G5, G7).
#[derive(Clone, Debug, Default)]
pub struct Obedience {
    pub held_until: Timestamp,
    /// Throttles since the last success.
    consecutive: usize,
    /// Counts the throttles, so that an answer can be told from one to an earlier request.
    pub episode: u64,
}

/// How long a receiver is left alone that does not say for how long, by the count of throttles in a row.
const SILENT_WAITS: [Millis; 5] =
    [Millis::from_mins(1), Millis::from_mins(5), Millis::from_mins(15), Millis::from_hours(1), Millis::from_hours(6)];
const ASKED_MIN: Millis = Millis::from_secs(1);

impl Obedience {
    /// Whether it was refused and has had no success since: the next throttle window is a longer one.
    pub fn is_throttled(&self) -> bool {
        self.consecutive > 0
    }

    /// Takes in what came back for a request that left in `episode`.
    pub fn answered(&mut self, episode: u64, outcome: &Outcome, now: Timestamp) {
        let current = episode == self.episode;
        let wait = match *outcome {
            Outcome::Accepted { .. } => {
                if current {
                    self.consecutive = 0;
                }
                return;
            }
            Outcome::Throttled { wait } => {
                if current {
                    self.episode += 1;
                    self.consecutive += 1;
                }
                match wait {
                    Some(wait) => wait.max(ASKED_MIN),
                    None if current => SILENT_WAITS[(self.consecutive - 1).min(SILENT_WAITS.len() - 1)],
                    None => Millis::ZERO,
                }
            }
            Outcome::Failed { wait, .. } if outcome.is_maintenance() => wait.unwrap_or(Millis::ZERO),
            _ => Millis::ZERO,
        };
        self.held_until = self.held_until.max(now + wait);
    }
}

/// Additive increase, multiplicative decrease: the pace grows by one per second each second, and halves with each refusal or
/// failure. Obedient, and with nothing else to it.
#[derive(Debug)]
pub struct Aimd {
    /// Requests per second.
    rate: f64,
    /// Microseconds since the epoch.
    next_at: i64,
    /// A burst of refusals halves the pace once: those that left before then do not count again.
    halved_at: Timestamp,
    obedience: Obedience,
    concurrency: usize,
    /// When each request left, and in which episode.
    in_flight: BTreeMap<u64, (Timestamp, u64)>,
    ready: u64,
    /// Failed deliveries, by the time at which they may go again.
    later: VecDeque<Timestamp>,
    n_started: u64,
    endless: bool,
}

const AIMD_START: f64 = 1.0;
const AIMD_SLOWEST: f64 = 1.0 / 60.0;
const AIMD_FASTEST: f64 = 1_000.0;
/// A failed delivery goes again after this long.
pub const RETRIED_AFTER: Millis = Millis::from_secs(1);

impl Aimd {
    pub fn new(concurrency: usize, endless: bool) -> Self {
        Self {
            rate: AIMD_START,
            next_at: 0,
            halved_at: Timestamp(0),
            obedience: Obedience::default(),
            concurrency,
            in_flight: BTreeMap::new(),
            ready: 0,
            later: VecDeque::new(),
            n_started: 0,
            endless,
        }
    }
}

impl Sender for Aimd {
    fn offer(&mut self, _: usize, n: u64, _: Timestamp) {
        self.ready += n;
    }

    fn start(&mut self, now: Timestamp) -> Vec<Request> {
        while self.later.front().is_some_and(|at| *at <= now) {
            self.later.pop_front();
            self.ready += 1;
        }
        let mut started = Vec::new();
        let micros = now.0.saturating_mul(1_000);
        while self.ready > 0
            && self.in_flight.len() < self.concurrency
            && self.obedience.held_until <= now
            && self.next_at < micros + 1_000
        {
            self.next_at = self.next_at.max(micros) + (1_000_000.0 / self.rate) as i64;
            self.ready -= 1;
            self.n_started += 1;
            self.in_flight.insert(self.n_started, (now, self.obedience.episode));
            started.push(Request { destination: 0, number: self.n_started });
        }
        started
    }

    fn answered(&mut self, request: Request, outcome: &Outcome, now: Timestamp) {
        let Some((left_at, episode)) = self.in_flight.remove(&request.number) else { return };
        self.obedience.answered(episode, outcome, now);
        match outcome.class() {
            Class::Success => {
                self.rate = (self.rate + (1.0 / self.rate).min(self.rate)).min(AIMD_FASTEST);
                self.ready += u64::from(self.endless);
                return;
            }
            Class::Throttled => self.ready += 1,
            Class::Transient | Class::Ambiguous | Class::Permanent if self.endless => self.ready += 1,
            Class::Transient | Class::Ambiguous | Class::Permanent => self.later.push_back(now + RETRIED_AFTER),
        }
        if left_at >= self.halved_at {
            (self.rate, self.halved_at) = ((self.rate / 2.0).max(AIMD_SLOWEST), now);
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        if self.ready == 0 || self.in_flight.len() >= self.concurrency {
            return self.later.front().copied();
        }
        Some(self.obedience.held_until.max(Timestamp(self.next_at.div_euclid(1_000))))
    }

    fn obedience(&self, _: usize) -> Obedience {
        self.obedience.clone()
    }
}

#[cfg(test)]
mod tests;
