//! What must never happen, in its own words.
//!
//! The checker sees what a bystander could see: which requests started and how they ended, what was said to be written
//! and what was written. It keeps its own books and never asks the code under test what it thinks.

mod ends;
mod facts;
mod gates;
mod ramp;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering};
use doorstep_core::gate::{Hold, Why};
use doorstep_core::id::{DeliveryId, DestinationId};
use doorstep_core::outcome::{Class, Outcome};
use doorstep_core::retry::{DeadReason, Decision};
use doorstep_core::scheduler::{DestinationPlan, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

pub use facts::Facts;
use ramp::Busiest;

/// A promise that was not kept, in words.
pub type Verdict = Result<(), String>;

#[derive(Debug)]
pub struct Checker {
    destinations: BTreeMap<DestinationId, Watched>,
    deliveries: BTreeMap<DeliveryId, Account>,
    order: BTreeMap<(DestinationId, Arc<str>), Vec<DeliveryId>>,
    open: BTreeMap<DeliveryId, Request>,
    n_requests: u64,
    n_voided: usize,
    n_set_aside: usize,
    /// Nothing goes wrong but the receivers, and there is room for all.
    calm: bool,
    /// The number of the request whose answer came last.
    last_answered: u64,
    in_flight_max: usize,
    /// Lives that a person has ended, each with its `give_up_at`, of which the process has not been told yet.
    untold_ends: BTreeMap<(DeliveryId, Timestamp), Untold>,
    per_host_max: Option<usize>,
}

#[derive(Debug)]
struct Watched {
    plan: DestinationPlan,
    facts: Facts,
    /// The facts as they were when the gate was last written.
    written: Facts,
    starts: VecDeque<Timestamp>,
    /// What has come for it, and what it has accepted other than on a ramp.
    arrived: Busiest,
    flowed: Busiest,
    /// It never does anything wrong, and neither does anything but other receivers.
    undisturbed: bool,
    n_accepted: u64,
    /// For so many of its requests at once there is room, whatever others do, and in the window that is read at once.
    room: u32,
    /// A person removed it, and that is written; and the scheduler knows.
    removed: bool,
    dropped: bool,
}

#[derive(Clone, Debug, Default)]
struct Account {
    destination_id: Option<DestinationId>,
    /// Answers that cost an attempt, as said and as written.
    spent: u32,
    spent_written: u32,
    ambiguous: u32,
    ambiguous_written: u32,
    due_at: Timestamp,
    due_at_written: Timestamp,
    give_up_at: Timestamp,
    end: Option<Decision>,
    end_written: Option<Decision>,
    received: bool,
    /// Its payload is gone, and that is written.
    erased: bool,
    /// It is dead, and its destination held the keys of the dead when that was said.
    holds_key: bool,
}

/// A delivery as it was when a person ended it: until the process is told, it may still send it, and nothing else.
#[derive(Clone, Debug)]
struct Untold {
    account: Account,
    /// Those that came before it in its key.
    before: Vec<DeliveryId>,
}

#[derive(Clone, Debug)]
struct Request {
    destination_id: DestinationId,
    number: u64,
    started_at: Timestamp,
    host: Arc<str>,
    /// Tells the delivery's life from one that a person gave it later.
    give_up_at: Timestamp,
    /// It went out while its destination was tripped.
    probe: bool,
}

/// With so many slots there are enough for every destination of a world.
const ROOM_FOR_ALL: usize = 1_000;

impl Checker {
    /// `plans`: each destination, and whether its receiver is always well. `calm`: nothing goes wrong but receivers.
    pub fn new(plans: Vec<(DestinationPlan, bool)>, calm: bool, limits: &SchedulerLimits) -> Self {
        let SchedulerLimits { in_flight_max, per_host_max, window_max, .. } = *limits;
        let window_max = u32::try_from(window_max).unwrap_or(u32::MAX);
        let watched = |plan: DestinationPlan, well: bool| Watched {
            undisturbed: calm
                && well
                && plan.ordering == Ordering::Unordered
                && plan.limits.burst > 5
                && plan.limits.pinned.is_none(),
            n_accepted: 0,
            room: if in_flight_max >= ROOM_FOR_ALL { plan.limits.concurrency.min(window_max) } else { 1 },
            removed: false,
            dropped: false,
            plan,
            facts: Facts::default(),
            written: Facts::default(),
            starts: VecDeque::new(),
            arrived: Busiest::default(),
            flowed: Busiest::default(),
        };
        Self {
            destinations: plans.into_iter().map(|(plan, well)| (plan.id, watched(plan, well))).collect(),
            deliveries: BTreeMap::new(),
            order: BTreeMap::new(),
            open: BTreeMap::new(),
            n_requests: 0,
            n_voided: 0,
            n_set_aside: 0,
            calm,
            last_answered: 0,
            in_flight_max,
            untold_ends: BTreeMap::new(),
            per_host_max,
        }
    }

    /// Accepted, written and acknowledged.
    pub fn accepted(&mut self, delivery: &Delivery) {
        let account = Account {
            destination_id: Some(delivery.destination_id),
            due_at: delivery.due_at,
            due_at_written: delivery.due_at,
            give_up_at: delivery.progress.give_up_at,
            ..Account::default()
        };
        self.deliveries.insert(delivery.id, account);
        if let Some(watched) = self.destinations.get_mut(&delivery.destination_id) {
            watched.n_accepted += 1;
            watched.arrived.add(delivery.due_at);
        }
        if let Some(slot) = &delivery.ordering {
            self.order.entry((delivery.destination_id, Arc::clone(&slot.key))).or_default().push(delivery.id);
        }
    }

    /// A person sends a dead letter again, with a fresh budget.
    pub fn revived(&mut self, delivery: &Delivery, now: Timestamp) {
        let account = self.deliveries.entry(delivery.id).or_default();
        let (received, erased, holds_key) = (account.received, account.erased, account.holds_key);
        *account = Account {
            destination_id: Some(delivery.destination_id),
            due_at: now,
            due_at_written: now,
            give_up_at: delivery.progress.give_up_at,
            received,
            erased,
            ..Account::default()
        };
        if let Some(slot) = &delivery.ordering
            && !holds_key
            && let Some(order) = self.order.get_mut(&(delivery.destination_id, Arc::clone(&slot.key)))
        {
            order.retain(|id| *id != delivery.id);
            order.push(delivery.id);
        }
    }

    /// A person changed its settings.
    pub fn changed(&mut self, plan: DestinationPlan) {
        if let Some(watched) = self.destinations.get_mut(&plan.id) {
            watched.plan = plan;
            // What was sent at another rate says nothing about the new one.
            watched.starts.clear();
            watched.facts.back = None;
        }
    }

    /// A person removed it, with all that was queued for it, and that is written.
    pub fn removed(&mut self, id: DestinationId) {
        if let Some(watched) = self.destinations.get_mut(&id) {
            watched.removed = true;
        }
    }

    /// The scheduler hears that it is removed.
    pub fn dropped(&mut self, id: DestinationId) {
        if let Some(watched) = self.destinations.get_mut(&id) {
            watched.dropped = true;
        }
    }

    /// A person ended it, and that is written. Until the process is told so, it may still send it: the person has no
    /// answer yet.
    pub fn abandoned(&mut self, delivery: &Delivery) {
        let before = self.before(delivery).copied().collect();
        if let Some(account) = self.deliveries.get_mut(&delivery.id) {
            let untold = Untold { account: account.clone(), before };
            self.untold_ends.insert((delivery.id, delivery.progress.give_up_at), untold);
            account.end = Some(Decision::Dead(DeadReason::Abandoned));
            (account.end_written, account.holds_key) = (account.end, false);
        }
    }

    /// The process knows that a person ended it.
    pub fn end_told(&mut self, delivery: &Delivery) {
        self.untold_ends.remove(&(delivery.id, delivery.progress.give_up_at));
    }

    /// A receiver said 2xx.
    pub fn received(&mut self, id: DeliveryId) {
        if let Some(account) = self.deliveries.get_mut(&id) {
            account.received = true;
        }
    }

    /// An answer reaches the scheduler.
    pub fn answered(&mut self, id: DeliveryId, outcome: &Outcome, now: Timestamp) {
        let Some(request) = self.open.remove(&id) else { return };
        self.last_answered = request.number;
        let account = self.deliveries.entry(id).or_default();
        match outcome.class() {
            _ if account.give_up_at != request.give_up_at => {}
            Class::Throttled => {}
            Class::Ambiguous => {
                account.spent += u32::from(!request.probe);
                account.ambiguous += 1;
            }
            // A probe is the destination's matter: its failure costs the delivery nothing.
            Class::Transient => account.spent += u32::from(!request.probe),
            Class::Success | Class::Permanent => account.spent += 1,
        }
        let n_requests = self.n_requests;
        if let Some(watched) = self.destinations.get_mut(&request.destination_id) {
            if matches!(outcome, Outcome::Accepted { .. }) && watched.facts.back.is_none() {
                watched.flowed.add(now);
            }
            watched.facts.learn(request.number, outcome, n_requests, now);
            if let Some(back) = &mut watched.facts.back {
                back.well &= now.since(request.started_at) < Millis::from_secs(1);
            }
            watched.facts.climb(watched.plan.limits.concurrency);
        }
    }

    pub fn interrupted(&mut self, id: DeliveryId) {
        self.open.remove(&id);
    }

    /// A person erased its payload, and that is written.
    pub fn erased(&mut self, id: DeliveryId) {
        if let Some(account) = self.deliveries.get_mut(&id) {
            account.erased = true;
        }
    }

    /// There was nothing to send: no request was made, so none counts.
    pub fn voided(&mut self, id: DeliveryId) -> Verdict {
        let Some(request) = self.not_sent(id) else { return Ok(()) };
        self.n_voided += 1;
        let removed = self.destinations.get(&request.destination_id).is_some_and(|watched| watched.removed);
        ensure(self.deliveries[&id].erased || removed, || format!("{id} has a payload and was not sent"))
    }

    /// Its payload could not be read: no request was made, so none counts.
    pub fn set_aside(&mut self, id: DeliveryId) {
        self.n_set_aside += usize::from(self.not_sent(id).is_some());
    }

    /// A request that was not made after all.
    fn not_sent(&mut self, id: DeliveryId) -> Option<Request> {
        let request = self.open.remove(&id)?;
        if let Some(watched) = self.destinations.get_mut(&request.destination_id)
            && let Some(at) = watched.starts.iter().position(|start| *start == request.started_at)
        {
            watched.starts.remove(at);
        }
        Some(request)
    }

    /// Whoever had nothing to send, or cannot be read, holds up nobody. `hold`: what another one there would wait for.
    pub fn goes_on_after(&self, id: DeliveryId, hold: Option<Hold>) -> Verdict {
        let rests = hold.is_some_and(|hold| hold.why == Why::Capacity && hold.until.is_some());
        ensure(!rests, || format!("the destination of {id} rests though nothing went wrong: {hold:?}"))
    }

    /// How many had nothing to send.
    pub fn n_voided(&self) -> usize {
        self.n_voided
    }

    /// How often a payload could not be read.
    pub fn n_set_aside(&self) -> usize {
        self.n_set_aside
    }

    pub fn n_deliveries(&self) -> usize {
        self.deliveries.len()
    }
}

fn ensure(kept: bool, broken: impl FnOnce() -> String) -> Verdict {
    if kept { Ok(()) } else { Err(broken()) }
}
