//! What one decision costs, as the number of blocked destinations grows from a thousand to a million.
//!
//! `make bench`. Ten destinations are ready; all others have a delivery queued and are paused. Compare the rows of one
//! run with each other: the seconds depend on the machine.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark reads the clock and prints")]

use std::sync::Arc;
use std::time::Instant;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::dice::SeededDice;
use doorstep_core::gate::{Gate, GateLimits, GateState, Rate};
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::Outcome;
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

const READY: u128 = 10;
const DECISIONS: u32 = 1_000_000;
const ROUNDS: u32 = 3;

fn main() {
    println!("| destinations | of which ready | decision, best of {ROUNDS} | ratio to the first row |");
    println!("| --- | --- | --- | --- |");
    let mut first = None;
    for destinations in [1_000, 10_000, 100_000, 1_000_000] {
        let mut desk = Desk::new(destinations);
        let best = (0..ROUNDS).map(|_| desk.time()).fold(f64::MAX, f64::min);
        let first = *first.get_or_insert(best);
        println!("| {destinations} | {READY} | {best:.0} ns | {:.2} |", best / first);
    }
}

struct Desk {
    scheduler: Scheduler,
    dice: SeededDice,
    now: Timestamp,
    n_deliveries: u64,
    flying: Vec<(DeliveryId, DestinationId)>,
}

impl Desk {
    fn new(destinations: u128) -> Self {
        let limits = SchedulerLimits { in_flight_max: 50, ..SchedulerLimits::default() };
        let mut desk = Self {
            scheduler: Scheduler::new(limits),
            dice: SeededDice::new(1),
            now: Timestamp(1_700_000_000_000),
            n_deliveries: 0,
            flying: Vec::new(),
        };
        let (limits, policy) = (Arc::new(unlimited()), Arc::new(RetryPolicy::standard()));
        let host: Arc<str> = "receiver.example".into();
        let paused = paused();
        for id in 1..=destinations {
            let ready = id <= READY;
            let plan = DestinationPlan {
                id: DestinationId(id),
                tenant_id: TenantId(id % 100),
                host: Arc::clone(&host),
                limits: Arc::clone(&limits),
                policy: Arc::clone(&policy),
                ordering: Ordering::Unordered,
                awaits_consent: false,
            };
            let gate = Box::new(if ready { GateState::default() } else { paused.clone() });
            desk.tell(Input::Adopted { plan: Box::new(plan), gate, backlog: false });
            for _ in 0..if ready { 32 } else { 1 } {
                desk.offer(DestinationId(id));
            }
        }
        desk
    }

    /// Nanoseconds from an answer to the next request, a new delivery included.
    fn time(&mut self) -> f64 {
        let began = Instant::now();
        for _ in 0..DECISIONS {
            let (delivery_id, destination_id) = self.flying.pop().expect("something is always on its way");
            self.now = self.now + Millis(1);
            self.tell(Input::Answered { delivery_id, outcome: Outcome::Accepted { quota: None } });
            self.offer(destination_id);
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(DECISIONS)
    }

    fn tell(&mut self, input: Input) {
        let mut commands = Vec::new();
        self.scheduler.handle(input, self.now, &mut self.dice, &mut commands);
        let sent = commands.into_iter().filter_map(|command| match command {
            Command::Send { delivery, .. } => Some((delivery.id, delivery.destination_id)),
            _ => None,
        });
        self.flying.extend(sent);
    }

    fn offer(&mut self, destination_id: DestinationId) {
        self.n_deliveries += 1;
        let give_up_at = self.now + Millis::from_hours(72);
        let delivery = Delivery {
            id: DeliveryId(self.n_deliveries.into()),
            event_seq: 0,
            destination_id,
            seq: self.n_deliveries,
            due_at: self.now,
            requests: 0,
            progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
            ordering: None,
            unreadable: 0,
        };
        self.tell(Input::Accepted { deliveries: vec![delivery], behind: Vec::new() });
    }
}

fn unlimited() -> GateLimits {
    GateLimits { rate: Rate::per_second(1_000_000), burst: 1_000_000, ..GateLimits::default() }
}

fn paused() -> GateState {
    let mut gate = Gate::restore(GateState::default());
    gate.pause(Timestamp(0));
    gate.state().clone()
}
