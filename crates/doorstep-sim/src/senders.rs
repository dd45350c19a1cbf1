//! Doorstep as a sender, and the simpler senders that it is measured against.

use std::collections::BTreeMap;
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::Sender;

/// The real scheduler and gate, with one destination whose deliveries all fit in memory.
#[derive(Debug)]
pub struct Doorstep {
    scheduler: Scheduler,
    dice: SeededDice,
    commands: Vec<Command>,
    n_offered: u64,
    /// Whether each success is followed by a new delivery, so that the backlog never ends.
    endless: bool,
}

const DESTINATION: DestinationId = DestinationId(1);

impl Doorstep {
    pub fn new(limits: GateLimits, endless: bool, seed: u64, now: Timestamp) -> Self {
        let scheduler = SchedulerLimits { in_flight_max: 100_000, window_max: 1_000_000, ..SchedulerLimits::default() };
        let mut sender = Self {
            scheduler: Scheduler::new(scheduler),
            dice: SeededDice::new(seed),
            commands: Vec::new(),
            n_offered: 0,
            endless,
        };
        let plan = DestinationPlan {
            id: DESTINATION,
            tenant_id: TenantId(1),
            host: "receiver.example".into(),
            limits: Arc::new(limits),
            policy: Arc::new(RetryPolicy::standard()),
            ordering: Ordering::Unordered,
            awaits_consent: false,
        };
        sender.tell(Input::Adopted { plan: Box::new(plan), gate: Box::default(), backlog: false }, now);
        sender
    }

    fn tell(&mut self, input: Input, now: Timestamp) {
        self.scheduler.handle(input, now, &mut self.dice, &mut self.commands);
    }

    fn delivery(&mut self, now: Timestamp) -> Delivery {
        self.n_offered += 1;
        Delivery {
            id: DeliveryId(self.n_offered.into()),
            event_seq: 0,
            destination_id: DESTINATION,
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

impl Sender for Doorstep {
    fn offer(&mut self, n: u64, now: Timestamp) {
        let deliveries = (0..n).map(|_| self.delivery(now)).collect();
        self.tell(Input::Available { deliveries }, now);
    }

    fn start(&mut self, now: Timestamp) -> Vec<u64> {
        if self.scheduler.wake_at().is_some_and(|at| at <= now) {
            self.tell(Input::Woken, now);
        }
        let started = self.commands.drain(..).filter_map(|command| match command {
            Command::Send { delivery, .. } => Some(delivery.seq),
            Command::Settle(_) | Command::Refill { .. } | Command::SaveGate { .. } | Command::Announce { .. } => None,
        });
        started.collect()
    }

    fn answered(&mut self, request: u64, outcome: &Outcome, now: Timestamp) {
        self.tell(Input::Answered { delivery_id: DeliveryId(request.into()), outcome: *outcome }, now);
        if self.endless && outcome.class() == Class::Success {
            self.offer(1, now);
        }
    }

    fn wake_at(&self) -> Option<Timestamp> {
        self.scheduler.wake_at()
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
    fn offer(&mut self, n: u64, now: Timestamp) {
        for _ in 0..n {
            self.n_offered += 1;
            self.waiting.insert((now, self.n_offered), 0);
        }
    }

    fn start(&mut self, now: Timestamp) -> Vec<u64> {
        let mut started = Vec::new();
        while self.in_flight.len() < self.concurrency
            && let Some(first) = self.waiting.first_entry()
            && first.key().0 <= now
        {
            let ((_, message), failures) = first.remove_entry();
            self.in_flight.insert(message, failures);
            started.push(message);
        }
        started
    }

    fn answered(&mut self, request: u64, outcome: &Outcome, now: Timestamp) {
        let Some(failures) = self.in_flight.remove(&request) else { return };
        match outcome {
            Outcome::Accepted { .. } if self.endless => self.offer(1, now),
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
}
