//! How evenly tenants are served when all want more than there is (G12).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::dice::SeededDice;
use doorstep_core::gate::GateLimits;
use doorstep_core::id::{DeliveryId, DestinationId, TenantId};
use doorstep_core::outcome::Outcome;
use doorstep_core::retry::{Progress, RetryPolicy};
use doorstep_core::scheduler::{Command, DestinationPlan, Input, Scheduler, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

use crate::roll::Roll;

/// Jain's index of what tenants of equal weight were served: 1 is perfectly even, 1/n is all for one.
///
/// The tenants have from one to twenty destinations each, all with an endless backlog, and compete for a few slots.
pub fn jain_index(seed: u64) -> f64 {
    let mut bench = Bench::new(seed);
    bench.run(TURNS_EACH * bench.n_tenants);
    let served: Vec<f64> =
        (1..=bench.n_tenants).map(|t| f64::from(bench.served.get(&t).copied().unwrap_or(0))).collect();
    let (sum, squares) = served.iter().fold((0.0, 0.0), |(sum, squares), n| (sum + n, squares + n * n));
    let n = bench.n_tenants as f64;
    sum * sum / (n * squares)
}

const TURNS_EACH: u64 = 200;
const START: Timestamp = Timestamp(1_700_000_000_000);

struct Bench {
    scheduler: Scheduler,
    dice: SeededDice,
    now: Timestamp,
    n_tenants: u64,
    /// Each destination's tenant.
    destinations: BTreeMap<u128, u64>,
    served: BTreeMap<u64, u32>,
    answers: BinaryHeap<Reverse<(Timestamp, u128, u128)>>,
    n_deliveries: u64,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let mut dice = SeededDice::new(seed);
        let limits = SchedulerLimits { in_flight_max: dice.pick(&[1, 3, 8]), ..SchedulerLimits::default() };
        let n_tenants = 2 + dice.below(9);
        let mut bench = Self {
            scheduler: Scheduler::new(limits),
            now: START,
            n_tenants,
            destinations: BTreeMap::new(),
            served: BTreeMap::new(),
            answers: BinaryHeap::new(),
            n_deliveries: 0,
            dice,
        };
        for tenant in 1..=n_tenants {
            for _ in 0..1 + bench.dice.below(20) {
                bench.add_destination(tenant);
            }
        }
        bench
    }

    fn add_destination(&mut self, tenant: u64) {
        let id = self.destinations.len() as u128 + 1;
        self.destinations.insert(id, tenant);
        let plan = DestinationPlan {
            id: DestinationId(id),
            tenant_id: TenantId(tenant.into()),
            host: "receiver.example".into(),
            limits: Arc::new(GateLimits { burst: 1_000_000, ..GateLimits::default() }),
            policy: Arc::new(RetryPolicy::standard()),
            ordering: Ordering::Unordered,
            awaits_consent: false,
        };
        self.tell(Input::Adopted { plan: Box::new(plan), gate: Box::default(), backlog: false });
        for _ in 0..20 {
            self.offer(id);
        }
    }

    fn offer(&mut self, destination: u128) {
        self.n_deliveries += 1;
        let give_up_at = START + Millis::from_hours(72);
        let delivery = Delivery {
            id: DeliveryId(self.n_deliveries.into()),
            event_seq: 0,
            destination_id: DestinationId(destination),
            seq: self.n_deliveries,
            due_at: self.now,
            requests: 0,
            progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
            ordering: None,
            unreadable: 0,
        };
        self.tell(Input::Accepted { deliveries: vec![delivery], behind: Vec::new() });
    }

    fn run(&mut self, turns: u64) {
        let mut turn = 0;
        while turn < turns
            && let Some(Reverse((at, delivery, destination))) = self.answers.pop()
        {
            self.now = at;
            turn += 1;
            let tenant = self.destinations[&destination];
            // The first turns went to whoever came first.
            if turn > 50 {
                *self.served.entry(tenant).or_default() += 1;
            }
            let outcome = Outcome::Accepted { quota: None };
            self.tell(Input::Answered { delivery_id: DeliveryId(delivery), outcome });
            self.offer(destination);
        }
    }

    fn tell(&mut self, input: Input) {
        let mut commands = Vec::new();
        self.scheduler.handle(input, self.now, &mut self.dice, &mut commands);
        for command in commands {
            if let Command::Send { delivery, .. } = command {
                let takes = Millis(1 + self.dice.below(100));
                self.answers.push(Reverse((self.now + takes, delivery.id.0, delivery.destination_id.0)));
            }
        }
    }
}
