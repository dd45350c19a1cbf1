//! What the gate promises, by the part that keeps it.

mod throttle;
mod advertised;
mod breaker;
mod concurrency;
mod climb;
mod pace;
mod steering;
mod ramp;
mod suspension;
mod whole;

use super::*;
use crate::dice::{Dice, SeededDice};

const CLOCK_MAX: i64 = i64::MAX / 1_001;
const T0: Timestamp = Timestamp(1_700_000_000_000);
const OK: Outcome = Outcome::Accepted { quota: None };
const DOWN: Outcome = Outcome::Failed { status: 500, wait: None };

/// A gate, its limits and a clock that moves by hand.
struct Bench {
    gate: Gate,
    limits: GateLimits,
    now: Timestamp,
    jitter: Jitter,
}

impl Bench {
    fn new() -> Self {
        Self {
            gate: Gate::restore(GateState::default()),
            limits: GateLimits::default(),
            now: T0,
            jitter: Jitter::LOWEST,
        }
    }

    fn pass(&mut self, span: Millis) -> &mut Self {
        self.now = self.now + span;
        self
    }

    fn admit(&mut self) -> Permit {
        match self.gate.admit(&self.limits, self.now) {
            Admission::Go(permit) => permit,
            Admission::Wait(hold) => panic!("held: {hold:?} at {:?}", self.now),
        }
    }

    fn held(&mut self) -> Hold {
        match self.gate.admit(&self.limits, self.now) {
            Admission::Wait(hold) => hold,
            Admission::Go(_) => panic!("admitted at {:?}", self.now),
        }
    }

    fn settle(&mut self, permit: Permit, outcome: Outcome) -> Vec<GateChange> {
        self.gate.settle(permit, &outcome, &self.limits, self.now, self.jitter)
    }

    fn send(&mut self, outcome: Outcome) -> Vec<GateChange> {
        let permit = self.admit();
        self.settle(permit, outcome)
    }

    /// As many as go at once.
    fn admit_all(&mut self) -> Vec<Permit> {
        let mut permits = Vec::new();
        while let Admission::Go(permit) = self.gate.admit(&self.limits, self.now) {
            permits.push(permit);
        }
        permits
    }

    fn wait_out(&mut self) -> Hold {
        let hold = self.held();
        self.now = hold.until.expect("a hold with a time");
        hold
    }

    /// Until nothing holds.
    fn wait_for_all(&mut self) {
        while let Some(hold) = self.gate.hold(&self.limits, self.now) {
            self.now = hold.until.expect("a hold with a time");
        }
    }

    /// Shows the gate a queue whose first delivery has waited for a minute and gives up after `left`.
    fn show_queue(&mut self, n: usize, left: Millis) {
        let queue = Queue { n, due_at: self.now - Millis::from_mins(1), give_up_at: self.now + left };
        self.gate.sees(queue, &self.limits, self.now);
    }

    /// Sends from a queue, as soon as each hold ends.
    fn send_when_allowed(&mut self, outcome: Outcome) -> Vec<GateChange> {
        self.show_queue(64, Millis::from_hours(72));
        self.wait_for_all();
        self.send(outcome)
    }

    fn trip(&mut self) {
        for _ in 0..self.limits.breaker.failures_in_row {
            self.send(DOWN);
        }
        assert!(self.gate.state().breaker.is_tripped());
    }
}

fn refusal(secs: impl Into<Option<u64>>) -> Outcome {
    Outcome::Throttled { wait: secs.into().map(Millis::from_secs) }
}

fn throttled_for(bench: &Bench) -> Millis {
    bench.gate.state().throttle.until().unwrap().since(bench.now)
}
