//! The whole engine under a virtual clock: scheduler and gates as they are, the memory store, a writer that commits
//! in groups, hostile receivers, and a process that may die at any command.

mod clocks;
mod process;
mod disk;
mod network;
mod people;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use doorstep_core::consent::Verification;
use doorstep_core::delivery::{Delivery, Ordering, Place, Settlement, Track};
use doorstep_core::destination::{Destination, DestinationSecrets, DestinationSettings, TlsSettings};
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::event::{Event, NewDelivery, NewEvent};
use doorstep_core::gate::{GateLimits, GateState};
use doorstep_core::id::{DeliveryId, DestinationId, EventId, TenantId};
use doorstep_core::outcome::{Outcome, StatusOverrides};
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::retry::{DeadReason, RetryPolicy};
use doorstep_core::route::Subscription;
use doorstep_core::scheduler::{Command, DestinationPlan, Hand, Input, Scheduler, Ticket};
use doorstep_core::store::{self, DuePage, DueQuery, Settled, StoredEvent, Written};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_store::memory::{End, Memory};

use crate::checker::{Checker, Facts, Verdict};
use crate::receiver::{Receiver, Reply};
use crate::roll::Roll;
use crate::scenario::{Scenario, random_host, random_limits, random_ordering};
use clocks::Clocks;

#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    checker: Checker,
    dice: SeededDice,
    /// True time.
    now: Timestamp,
    clocks: Clocks,
    agenda: BTreeMap<(Timestamp, u64), Happening>,
    n_happenings: u64,
    store: Memory,
    process: Option<Process>,
    /// The process was told to stop, and finishes what is in flight.
    stopping: bool,
    /// Destinations that were removed.
    removed: BTreeSet<DestinationId>,
    lives: u32,
    n_commands: u64,
    trace: Option<Vec<String>>,
}

/// What dies in a crash.
#[derive(Debug)]
struct Process {
    scheduler: Scheduler,
    dice: SeededDice,
    gathered: Vec<Write>,
    committing: Vec<Write>,
    n_gathered: u64,
    n_committed: u64,
    /// Reads that wait for what was settled before them to be written.
    reads: Vec<(u64, Read)>,
    reads_under_way: usize,
    /// Said to be sent by what is being carried out, though there is nothing to send.
    empty: Vec<DeliveryId>,
    /// The same for what cannot be read.
    unreadable: Vec<DeliveryId>,
    wake_at: Option<Timestamp>,
    /// Stopping: nothing is in flight any more, and all gates are said to be saved.
    all_saved: bool,
}

#[derive(Clone, Debug)]
enum Write {
    Accept(usize),
    Settle(Settlement, Box<Facts>),
    SaveGate(DestinationId, Box<GateState>, Box<Facts>),
    Revive(DeliveryId),
    Abandon(DeliveryId),
    Erase(TenantId),
    Remove(DestinationId),
}

/// What follows from a write, for the scheduler.
#[derive(Debug)]
enum Told {
    /// To which destination one came, and whether it may go.
    Accepted(DestinationId, Vec<Delivery>),
    Available(Vec<Delivery>),
    Withdrawn(Delivery),
    Removed(DestinationId),
}

#[derive(Clone, Debug)]
struct Read {
    ticket: Ticket,
    destination_id: DestinationId,
    track: Track,
    after: Option<Place>,
    limit: usize,
}

#[derive(Clone, Debug)]
enum Happening {
    Arrives(usize),
    Reaches { life: u32, delivery_id: DeliveryId, destination_id: DestinationId, lost: bool },
    Answers { life: u32, delivery_id: DeliveryId, outcome: Outcome },
    Interrupts { life: u32, delivery_id: DeliveryId },
    Voids { life: u32, delivery_ids: Vec<DeliveryId> },
    SetsAside { life: u32, delivery_ids: Vec<DeliveryId> },
    Commits { life: u32 },
    Reads { life: u32, read: Read },
    ReadEnds { life: u32, ticket: Ticket, found: Option<DuePage> },
    Wakes { life: u32 },
    Sweeps { life: u32 },
    Hand(DestinationId, Hand),
    HandsOver(DestinationId),
    TakesBack { life: u32, destination_id: DestinationId },
    Abandons(usize, bool),
    Revives(DeliveryId),
    Changes(DestinationId),
    Erases(TenantId),
    Removes(DestinationId),
    RemovesTenant(TenantId),
    Stops,
    Starts,
    Heals,
}

/// A world that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub deliveries: usize,
    /// Of these, how many had nothing to send.
    pub voided: usize,
    /// How often a payload could not be read.
    pub set_aside: usize,
    pub commands: u64,
    pub lasted: Millis,
}

/// A promise was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub promise: String,
    pub trace: Vec<String>,
}

const TIMEOUT: Millis = Millis::from_secs(15);
/// After everything is well again, it is all over within this time.
const DRAINS_WITHIN: Millis = Millis::from_hours(24 * 8);
/// A world that takes more steps than this is going round in circles.
const STEPS_MAX: u64 = 2_000_000;
/// Each so many steps, a waiting delivery is asked what it waits for.
const ASKS_EVERY: u64 = 16;

impl World {
    pub fn new(scenario: Scenario, seed: u64, traced: bool) -> Self {
        let calm = scenario.is_calm();
        let watched = |(plan, receiver): &(DestinationPlan, Receiver)| (plan.clone(), receiver.is_always_well());
        let plans = scenario.destinations.iter().map(watched).collect();
        let checker = Checker::new(plans, calm, &scenario.limits);
        let mut world = Self {
            checker,
            dice: SeededDice::new(seed ^ 0x5EED),
            now: scenario.start,
            clocks: Clocks::new(scenario.start, seed),
            agenda: BTreeMap::new(),
            n_happenings: 0,
            store: Memory::default(),
            process: None,
            stopping: false,
            removed: BTreeSet::new(),
            lives: 0,
            n_commands: 0,
            trace: traced.then(Vec::new),
            scenario,
        };
        world.plan_ahead();
        world
    }

    fn plan_ahead(&mut self) {
        for (plan, _) in &self.scenario.destinations {
            let put = store::Write::PutDestination(Box::new(destination(plan)));
            self.store.write(put, self.scenario.start);
        }
        self.at(self.scenario.start, Happening::Starts);
        for index in 0..self.scenario.arrivals.len() {
            self.at(self.scenario.arrivals[index].at, Happening::Arrives(index));
        }
        for (at, destination_id, hand) in self.scenario.hands.clone() {
            self.at(at, Happening::Hand(destination_id, hand));
        }
        for (at, destination_id) in self.scenario.handovers.clone() {
            self.at(at, Happening::HandsOver(destination_id));
        }
        for (at, index, thinks_again) in self.scenario.abandons.clone() {
            self.at(at, Happening::Abandons(index, thinks_again));
        }
        for (at, destination_id) in self.scenario.changes.clone() {
            self.at(at, Happening::Changes(destination_id));
        }
        for (at, tenant_id) in self.scenario.erasures.clone() {
            self.at(at, Happening::Erases(tenant_id));
        }
        for (at, destination_id) in self.scenario.removals.clone() {
            self.at(at, Happening::Removes(destination_id));
        }
        for (at, tenant_id) in self.scenario.farewells.clone() {
            self.at(at, Happening::RemovesTenant(tenant_id));
        }
        for at in self.scenario.stops.clone() {
            self.at(at, Happening::Stops);
        }
        self.at(self.scenario.heals_at, Happening::Heals);
    }

    /// Runs until everything has ended, or a promise is broken.
    pub fn run(mut self, seed: u64) -> Result<Report, Box<Failure>> {
        match self.go() {
            Ok(report) => Ok(report),
            Err(promise) => {
                let promise =
                    format!("{promise} (at {}, command {})", self.now.since(self.scenario.start), self.n_commands);
                Err(Box::new(Failure { seed, promise, trace: self.trace.unwrap_or_default() }))
            }
        }
    }

    fn go(&mut self) -> Result<Report, String> {
        let deadline = self.scenario.heals_at + DRAINS_WITHIN;
        let mut steps = 0u64;
        while let Some(((at, _), happening)) = self.agenda.pop_first() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err("it goes round in circles".to_owned());
            }
            if at > deadline {
                return Err(format!(
                    "it does not drain: {} are left: {}",
                    self.store.n_unfinished(),
                    self.what_is_left()
                ));
            }
            self.now = at;
            if self.process.is_some() {
                self.clocks.pass(at)?;
            }
            self.happen(happening)?;
            if self.stopping {
                self.wind_down()?;
            }
            if steps.is_multiple_of(ASKS_EVERY) {
                self.ask_why()?;
            }
            if self.is_over() {
                break;
            }
        }
        if self.store.n_unfinished() > 0 {
            return Err(format!(
                "everything stands still: {} are left: {}",
                self.store.n_unfinished(),
                self.what_is_left()
            ));
        }
        let well = self.scenario.destinations.iter().filter(|(_, receiver)| receiver.is_always_well());
        let well: BTreeSet<DestinationId> = well.map(|(plan, _)| plan.id).collect();
        let store = &self.store;
        self.checker
            .all_ended(&well, |id| store.row(id).map_or(DestinationId(0), |row| row.delivery.destination_id))?;
        Ok(Report {
            deliveries: self.checker.n_deliveries(),
            voided: self.checker.n_voided(),
            set_aside: self.checker.n_set_aside(),
            commands: self.n_commands,
            lasted: self.now.since(self.scenario.start),
        })
    }

    fn is_over(&self) -> bool {
        let idle = self.process.as_ref().is_some_and(|p| p.gathered.is_empty() && p.committing.is_empty());
        !self.stopping && self.now > self.scenario.heals_at && idle && self.store.n_unfinished() == 0
    }

    fn what_is_left(&self) -> String {
        let Some(row) = self.store.rows().find(|row| row.end.is_none()) else { return String::new() };
        let hold = self.process.as_ref().map(|p| p.scheduler.hold(&row.delivery, self.clock()));
        format!("{} due {:?} behind {} held {hold:?}", row.delivery.id, row.delivery.due_at, row.behind)
    }

    fn clock(&self) -> Timestamp {
        self.clocks.now()
    }

    fn at(&mut self, at: Timestamp, happening: Happening) {
        self.n_happenings += 1;
        self.agenda.insert((at.max(self.now), self.n_happenings), happening);
    }

    fn soon(&mut self, most: u64, happening: Happening) {
        let wait = Millis(self.dice.below(most + 1));
        self.at(self.now + wait, happening);
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>12} {}", self.now.since(self.scenario.start).to_string(), line()));
        }
    }

    fn happen(&mut self, happening: Happening) -> Verdict {
        match happening {
            Happening::Starts => self.start(),
            Happening::Arrives(index) => self.arrives(index),
            Happening::Heals => self.heal(),
            Happening::Hand(destination_id, hand) => self.hand(destination_id, hand),
            Happening::HandsOver(destination_id) => self.hand_over(destination_id),
            Happening::Abandons(index, thinks_again) => {
                let id = DeliveryId(index as u128 + 1);
                self.gather(Write::Abandon(id));
                self.start_commit();
                if thinks_again {
                    self.soon(50, Happening::Revives(id));
                }
                Ok(())
            }
            Happening::Revives(id) => {
                self.gather(Write::Revive(id));
                self.start_commit();
                Ok(())
            }
            Happening::Changes(destination_id) => self.change(destination_id),
            Happening::Erases(tenant_id) => {
                self.gather(Write::Erase(tenant_id));
                self.start_commit();
                Ok(())
            }
            Happening::Removes(destination_id) => {
                self.gather(Write::Remove(destination_id));
                self.start_commit();
                Ok(())
            }
            Happening::RemovesTenant(tenant_id) => self.remove_tenant(tenant_id),
            Happening::Stops => self.stop(),
            Happening::TakesBack { life, destination_id } if life == self.lives => self.take_over(destination_id),
            Happening::Reaches { life, delivery_id, destination_id, lost } => {
                self.reaches(life, delivery_id, destination_id, lost);
                Ok(())
            }
            Happening::Answers { life, delivery_id, outcome } if life == self.lives => {
                self.answers(delivery_id, outcome)
            }
            Happening::Interrupts { life, delivery_id } if life == self.lives => {
                self.note(|| format!("{delivery_id} interrupted"));
                self.checker.interrupted(delivery_id);
                self.tell(Input::Interrupted { delivery_id }, None)
            }
            Happening::Voids { life, delivery_ids } if life == self.lives => self.voids(delivery_ids),
            Happening::SetsAside { life, delivery_ids } if life == self.lives => self.sets_aside(delivery_ids),
            Happening::Commits { life } if life == self.lives => self.commits(),
            Happening::Reads { life, read } if life == self.lives => {
                self.reads(read);
                Ok(())
            }
            Happening::ReadEnds { life, ticket, found } if life == self.lives => self.read_ends(ticket, found),
            Happening::Wakes { life } if life == self.lives => self.wakes(),
            Happening::Sweeps { life } if life == self.lives => self.sweeps(),
            // From an earlier life.
            Happening::Answers { .. }
            | Happening::Interrupts { .. }
            | Happening::Voids { .. }
            | Happening::SetsAside { .. }
            | Happening::Commits { .. }
            | Happening::Reads { .. }
            | Happening::ReadEnds { .. }
            | Happening::Wakes { .. }
            | Happening::TakesBack { .. }
            | Happening::Sweeps { .. } => Ok(()),
        }
    }

    /// Asks a waiting delivery what it waits for.
    fn ask_why(&mut self) -> Verdict {
        let Some(process) = self.process.as_ref().filter(|_| !self.stopping) else { return Ok(()) };
        let index = self.dice.below(self.scenario.arrivals.len() as u64);
        let now = self.clock();
        let Some(row) = self.store.row(DeliveryId(u128::from(index) + 1)) else { return Ok(()) };
        let owned = process.scheduler.gate(row.delivery.destination_id).is_some();
        if row.end.is_some() || row.behind || !owned {
            return Ok(());
        }
        let writing = !process.gathered.is_empty() || !process.committing.is_empty();
        let reading = process.reads_under_way > 0;
        let busy = writing || reading || process.scheduler.in_flight() > 0;
        let hold = process.scheduler.hold(&row.delivery, now);
        // What is in the window is nearer to the truth than the row until the writer has caught up.
        if writing || row.delivery.is_expired(now) {
            return Ok(());
        }
        let wakes_at = process.scheduler.wake_at();
        if wakes_at.is_some_and(|at| at <= now) {
            return Ok(());
        }
        self.checker.hold_is_right(&row.delivery, hold, busy, reading, wakes_at, now)
    }
}

/// What the store knows of a destination here: that it is there.
fn destination(plan: &DestinationPlan) -> Destination {
    Destination {
        id: plan.id,
        tenant_id: plan.tenant_id,
        settings: DestinationSettings {
            name: None,
            url: String::new(),
            subscription: Subscription::default(),
            policy: RetryPolicy::clone(&plan.policy),
            status_overrides: StatusOverrides::default(),
            limits: GateLimits::clone(&plan.limits),
            ordering: plan.ordering,
            timeout: TIMEOUT,
            extra_signatures: BTreeSet::new(),
            tls: TlsSettings::default(),
            payload_mode: PayloadMode::Full,
            format: Format::Plain,
            send_traceparent: true,
            verification: Verification::default(),
            chosen: None,
            preset: None,
        },
        secrets: DestinationSecrets::default(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        version: 1,
        consent: None,
    }
}

fn event(index: usize, plan: &DestinationPlan, ordering_key: Option<Arc<str>>, now: Timestamp) -> Event {
    Event {
        id: EventId::generated(index as u128),
        tenant_id: plan.tenant_id,
        event_type: "something.happened".parse().unwrap_or_else(|_| unreachable!("it has two segments")),
        content_type: "application/json".into(),
        payload: Default::default(),
        ordering_key,
        produced_at: None,
        schema_version: None,
        headers: Vec::new(),
        ttl: None,
        accepted_at: now,
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}
