//! The whole engine under a virtual clock: scheduler and gates as they are, the memory store, a writer that commits
//! in groups, hostile receivers, and a process that may die at any command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use doorstep_core::delivery::{Delivery, Ordering, Place, Settlement, Track};
use doorstep_core::destination::{Destination, DestinationSecrets, DestinationSettings};
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::event::{Event, NewDelivery, NewEvent};
use doorstep_core::gate::{GateLimits, GateState};
use doorstep_core::id::{DeliveryId, DestinationId, EventId};
use doorstep_core::outcome::{Outcome, StatusOverrides};
use doorstep_core::retry::{DeadReason, RetryPolicy};
use doorstep_core::route::Subscription;
use doorstep_core::scheduler::{Command, DestinationPlan, Hand, Input, Scheduler, Ticket};
use doorstep_core::store::{self, DuePage, DueQuery, Settled, Written};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_store::memory::{End, Memory};

use crate::checker::{Checker, Facts, Verdict};
use crate::receiver::{Receiver, Reply};
use crate::roll::Roll;
use crate::scenario::{Scenario, random_host};

#[derive(Debug)]
pub struct World {
    scenario: Scenario,
    checker: Checker,
    dice: SeededDice,
    /// True time. The process reads a clock that is off by `skew`.
    now: Timestamp,
    skew: i64,
    agenda: BTreeMap<(Timestamp, u64), Happening>,
    n_happenings: u64,
    store: Memory,
    process: Option<Process>,
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
    wake_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
enum Write {
    Accept(usize),
    Settle(Settlement, Box<Facts>),
    SaveGate(DestinationId, Box<GateState>, Box<Facts>),
    Revive(DeliveryId),
    Abandon(DeliveryId),
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
    Starts,
    Heals,
}

/// A world that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub deliveries: usize,
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
        let watched =
            |(plan, receiver): &(DestinationPlan, Receiver)| (plan.clone(), calm && receiver.is_always_well());
        let plans = scenario.destinations.iter().map(watched).collect();
        let checker = Checker::new(plans, scenario.limits.in_flight_max, scenario.limits.per_host_max);
        let mut world = Self {
            checker,
            dice: SeededDice::new(seed ^ 0x5EED),
            now: scenario.start,
            skew: 0,
            agenda: BTreeMap::new(),
            n_happenings: 0,
            store: Memory::default(),
            process: None,
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
            self.happen(happening)?;
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
            commands: self.n_commands,
            lasted: self.now.since(self.scenario.start),
        })
    }

    fn is_over(&self) -> bool {
        let idle = self.process.as_ref().is_some_and(|p| p.gathered.is_empty() && p.committing.is_empty());
        self.now > self.scenario.heals_at && idle && self.store.n_unfinished() == 0
    }

    fn what_is_left(&self) -> String {
        let Some(row) = self.store.rows().find(|row| row.end.is_none()) else { return String::new() };
        let hold = self.process.as_ref().map(|p| p.scheduler.hold(&row.delivery, self.clock()));
        format!("{} due {:?} behind {} held {hold:?}", row.delivery.id, row.delivery.due_at, row.behind)
    }

    fn clock(&self) -> Timestamp {
        Timestamp(self.now.0 + self.skew)
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
            | Happening::Commits { .. }
            | Happening::Reads { .. }
            | Happening::ReadEnds { .. }
            | Happening::Wakes { .. }
            | Happening::TakesBack { .. }
            | Happening::Sweeps { .. } => Ok(()),
        }
    }

    // The process.

    fn start(&mut self) -> Verdict {
        self.lives += 1;
        self.note(|| "the process starts".to_owned());
        self.process = Some(Process {
            scheduler: Scheduler::new(self.scenario.limits.clone()),
            dice: SeededDice::new(self.dice.roll().0),
            gathered: Vec::new(),
            committing: Vec::new(),
            n_gathered: 0,
            n_committed: 0,
            reads: Vec::new(),
            reads_under_way: 0,
            wake_at: None,
        });
        for (tenant_id, weight) in self.scenario.tenants.clone() {
            self.tell(Input::Weighted { tenant_id, weight }, None)?;
        }
        for index in 0..self.scenario.destinations.len() {
            self.take_back(self.scenario.destinations[index].0.id)?;
        }
        self.soon(60_000, Happening::Sweeps { life: self.lives });
        Ok(())
    }

    fn take_back(&mut self, destination_id: DestinationId) -> Verdict {
        let found = self.scenario.destinations.iter().find(|(plan, _)| plan.id == destination_id);
        let Some((plan, _)) = found else { return Ok(()) };
        let (plan, gate) = (Box::new(plan.clone()), Box::new(self.store.gate(destination_id)));
        self.tell(Input::Adopted { plan, gate, backlog: true }, None)
    }

    /// Whoever takes a destination over reads its gate after it was written.
    fn take_over(&mut self, destination_id: DestinationId) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let leaving = process.scheduler.gate(destination_id).is_some();
        let written = process.gathered.is_empty() && process.committing.is_empty();
        if leaving || written {
            return self.take_back(destination_id);
        }
        self.at(self.now + Millis(20), Happening::TakesBack { life: self.lives, destination_id });
        Ok(())
    }

    /// Given up now, and taken back once all that was in flight or to be written has come to its end.
    fn hand_over(&mut self, destination_id: DestinationId) -> Verdict {
        self.note(|| format!("{destination_id} is given up"));
        self.tell(Input::Dropped { destination_id }, None)?;
        let wait = if self.dice.one_in(2) { Millis::from_mins(5) } else { Millis(self.dice.below(100)) };
        self.at(self.now + wait, Happening::TakesBack { life: self.lives, destination_id });
        Ok(())
    }

    fn crash(&mut self) {
        self.note(|| "CRASH".to_owned());
        let Some(mut process) = self.process.take() else { return };
        // A commit that was under way may or may not have reached the disk.
        if self.dice.one_in(2) {
            let batch = std::mem::take(&mut process.committing);
            self.apply(batch);
        }
        self.checker.crashed();
        self.lives += 1;
        if let Some(jump) = self.scenario.faults.clock_jumps.pop() {
            self.skew += jump;
            self.note(|| format!("the clock is set by {jump} ms"));
            self.checker.clock_set(self.clock());
        }
        self.soon(60_000, Happening::Starts);
    }

    /// Tells the scheduler and carries out what it says. `during`: the answer that it is told of.
    fn tell(&mut self, input: Input, during: Option<&Outcome>) -> Verdict {
        let now = self.clock();
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut commands = Vec::new();
        process.scheduler.handle(input, now, &mut process.dice, &mut commands);
        let gathered_before = process.n_gathered;
        for command in commands {
            self.n_commands += 1;
            if self.scenario.faults.crashes_at.contains(&self.n_commands) {
                self.crash();
                return Ok(());
            }
            self.carry_out(command, during, gathered_before)?;
        }
        self.start_commit();
        self.set_alarm();
        Ok(())
    }

    fn carry_out(&mut self, command: Command, during: Option<&Outcome>, gathered_before: u64) -> Verdict {
        let now = self.clock();
        match command {
            Command::Send { delivery, probe } => {
                self.note(|| {
                    format!("{} → {}{}", delivery.id, delivery.destination_id, if probe { " (probe)" } else { "" })
                });
                self.checker.started(&delivery, now)?;
                let (delivery_id, destination_id) = (delivery.id, delivery.destination_id);
                let lost = self.dice.percent(self.scenario.faults.lost_results);
                self.soon(20, Happening::Reaches { life: self.lives, delivery_id, destination_id, lost });
                Ok(())
            }
            Command::Settle(settlement) => {
                self.note(|| format!("{} {:?}", settlement.delivery.id, settlement.decision));
                self.checker.said(&settlement, now)?;
                let facts = Box::new(self.checker.facts(settlement.delivery.destination_id));
                self.gather(Write::Settle(settlement, facts));
                Ok(())
            }
            Command::SaveGate { destination_id, state } => {
                // Written as a whole with what follows: the facts are taken once all has been announced.
                let facts = Box::new(self.checker.facts(destination_id));
                self.gather(Write::SaveGate(destination_id, state, facts));
                Ok(())
            }
            Command::Announce { destination_id, change } => {
                self.note(|| format!("{destination_id} {change:?}"));
                self.checker.announced(destination_id, &change, during, now)?;
                let said = self.process.as_ref().map_or(0, |process| process.n_gathered - gathered_before);
                self.refresh_gathered_facts(destination_id, said);
                Ok(())
            }
            Command::Refill { ticket, destination_id, track, after, limit } => {
                self.wants_read(Read { ticket, destination_id, track, after, limit });
                Ok(())
            }
        }
    }

    /// What is written of an input's consequences is written with all that was announced of them.
    fn refresh_gathered_facts(&mut self, destination_id: DestinationId, said: u64) {
        let fresh = self.checker.facts(destination_id);
        let Some(process) = &mut self.process else { return };
        let from = process.gathered.len() - usize::try_from(said).unwrap_or(0).min(process.gathered.len());
        for write in &mut process.gathered[from..] {
            match write {
                Write::SaveGate(id, _, facts) if *id == destination_id => **facts = fresh.clone(),
                Write::Settle(settlement, facts) if settlement.delivery.destination_id == destination_id => {
                    **facts = fresh.clone();
                }
                _ => {}
            }
        }
    }

    fn set_alarm(&mut self) {
        let now = self.clock();
        let Some(process) = &mut self.process else { return };
        let Some(at) = process.scheduler.wake_at() else { return };
        if process.wake_at.is_some_and(|alarm| alarm <= at && alarm > now) {
            return;
        }
        process.wake_at = Some(at);
        let at = self.now + at.since(now);
        self.at(at, Happening::Wakes { life: self.lives });
    }

    fn wakes(&mut self) -> Verdict {
        if let Some(process) = &mut self.process {
            process.wake_at = None;
        }
        self.tell(Input::Woken, None)
    }

    fn sweeps(&mut self) -> Verdict {
        let deliveries = self.store.overdue(self.clock(), 5);
        self.tell(Input::Overdue { deliveries }, None)?;
        let next = self.now + Millis::from_mins(1);
        // Nothing gives up for hours: no need to look each minute.
        let due = self.store.next_give_up_at().map_or(next, |at| self.now + at.since(self.clock()));
        self.at(next.max(due), Happening::Sweeps { life: self.lives });
        Ok(())
    }

    // The writer and the store.

    fn gather(&mut self, write: Write) {
        let Some(process) = &mut self.process else { return };
        process.gathered.push(write);
        process.n_gathered += 1;
    }

    fn start_commit(&mut self) {
        let Some(process) = &mut self.process else { return };
        if process.committing.is_empty() && !process.gathered.is_empty() {
            process.committing = std::mem::take(&mut process.gathered);
            self.soon(10, Happening::Commits { life: self.lives });
        }
    }

    fn commits(&mut self) -> Verdict {
        if self.dice.percent(self.scenario.faults.failed_commits) {
            self.at(self.now + Millis::from_secs(1), Happening::Commits { life: self.lives });
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let batch = std::mem::take(&mut process.committing);
        process.n_committed += batch.len() as u64;
        let (deliveries, withdrawn) = self.apply(batch);
        self.start_commit();
        self.start_reads();
        for delivery in withdrawn {
            self.note(|| format!("{} abandoned by hand", delivery.id));
            self.tell(Input::Withdrawn { delivery: Box::new(delivery) }, None)?;
        }
        if deliveries.is_empty() { Ok(()) } else { self.tell(Input::Available { deliveries }, None) }
    }

    /// One transaction. Returns the deliveries that may go, and those that a person has ended.
    fn apply(&mut self, batch: Vec<Write>) -> (Vec<Delivery>, Vec<Delivery>) {
        let now = self.clock();
        let (mut available, mut withdrawn) = (Vec::new(), Vec::new());
        for write in batch {
            match write {
                Write::Accept(index) => available.extend(self.accept(index, now)),
                Write::Revive(id) => available.extend(self.revive(id, now)),
                Write::Abandon(id) => withdrawn.extend(self.abandon(id, now, &mut available)),
                Write::Settle(settlement, facts) => {
                    self.checker.written(&settlement, &facts);
                    available.extend(self.store.settle(Settled { settlement, attempt: None }));
                }
                Write::SaveGate(destination_id, state, facts) => {
                    self.store.write(store::Write::SaveGate { destination_id, state }, now);
                    self.checker.gate_written(destination_id, *facts);
                }
            }
        }
        (available, withdrawn)
    }

    fn abandon(&mut self, id: DeliveryId, now: Timestamp, available: &mut Vec<Delivery>) -> Option<Delivery> {
        self.store.row(id).filter(|row| row.end.is_none())?;
        self.checker.abandoned(id);
        match self.store.write(store::Write::Abandon { delivery_id: id, note: String::new() }, now) {
            Written::Abandoned { ended, available: more } => {
                available.extend(more);
                Some(*ended)
            }
            other => unreachable!("an unfinished delivery can be ended: {other:?}"),
        }
    }

    fn accept(&mut self, index: usize, now: Timestamp) -> Vec<Delivery> {
        let arrival = &self.scenario.arrivals[index];
        let plan = &self.scenario.destinations[arrival.destination].0;
        let id = DeliveryId(index as u128 + 1);
        let delivery = NewDelivery {
            id,
            destination_id: plan.id,
            ordered: arrival.key.is_some(),
            give_up_at: plan.policy.give_up_at(now, arrival.ttl),
        };
        let event = event(index, plan, arrival.key.clone(), now);
        let new = Box::new(NewEvent { event, deliveries: vec![delivery] });
        let written = self.store.write(store::Write::Accept(new), now);
        if let Some(row) = self.store.row(id) {
            self.checker.accepted(&row.delivery);
        }
        match written {
            Written::Accepted { available, .. } => available,
            other => unreachable!("every event is another one: {other:?}"),
        }
    }

    fn wants_read(&mut self, read: Read) {
        let Some(process) = &mut self.process else { return };
        process.reads_under_way += 1;
        process.reads.push((process.n_gathered, read));
        self.start_reads();
    }

    fn start_reads(&mut self) {
        let Some(process) = &mut self.process else { return };
        let committed = process.n_committed;
        let ready = process.reads.extract_if(.., |(barrier, _)| *barrier <= committed);
        for (_, read) in ready.collect::<Vec<_>>() {
            self.soon(5, Happening::Reads { life: self.lives, read });
        }
    }

    fn reads(&mut self, read: Read) {
        let failed = self.dice.percent(self.scenario.faults.failed_reads);
        let Read { destination_id, track, after, limit, .. } = read;
        let found = self.store.due(&DueQuery { destination_id, track, after, limit });
        let found = (!failed).then_some(found);
        self.soon(20, Happening::ReadEnds { life: self.lives, ticket: read.ticket, found });
    }

    fn read_ends(&mut self, ticket: Ticket, found: Option<DuePage>) -> Verdict {
        if let Some(process) = &mut self.process {
            process.reads_under_way -= 1;
        }
        match found {
            Some(DuePage { deliveries, exhausted }) => {
                self.tell(Input::Refilled { ticket, deliveries, exhausted }, None)
            }
            None => self.tell(Input::RefillFailed { ticket }, None),
        }
    }

    // The network.

    fn arrives(&mut self, index: usize) -> Verdict {
        // A producer whose event is not acknowledged sends it again.
        if self.process.is_none() {
            self.at(self.now + Millis::from_secs(10), Happening::Arrives(index));
        } else {
            self.gather(Write::Accept(index));
            self.start_commit();
        }
        Ok(())
    }

    fn reaches(&mut self, life: u32, delivery_id: DeliveryId, destination_id: DestinationId, lost: bool) {
        let now = self.now;
        let found = self.scenario.destinations.iter_mut().find(|(plan, _)| plan.id == destination_id);
        let Some((_, receiver)) = found else { return };
        let reply = receiver.receive(now);
        let overrides = StatusOverrides::default();
        let (after, outcome) = match reply {
            Reply::Answer { after, status, hints } if after < TIMEOUT => {
                if (200..300).contains(&status) {
                    self.checker.received(delivery_id);
                }
                (after, Outcome::from_status(status, hints, &overrides))
            }
            Reply::Answer { .. } => {
                self.checker.received(delivery_id);
                (TIMEOUT, Outcome::TimedOut)
            }
            Reply::Silence => (TIMEOUT, Outcome::TimedOut),
            Reply::Reset { after } => (after, Outcome::Unreachable),
        };
        let happening = if lost {
            Happening::Interrupts { life, delivery_id }
        } else {
            Happening::Answers { life, delivery_id, outcome }
        };
        self.at(self.now + after, happening);
    }

    fn answers(&mut self, delivery_id: DeliveryId, outcome: Outcome) -> Verdict {
        self.note(|| format!("{delivery_id} ← {outcome:?}"));
        let now = self.clock();
        let destination_id = self.store.row(delivery_id).map(|row| row.delivery.destination_id);
        self.checker.answered(delivery_id, &outcome, now);
        let life = self.lives;
        self.tell(Input::Answered { delivery_id, outcome }, Some(&outcome))?;
        match destination_id {
            Some(id) if life == self.lives => self.checker.settled_down(id),
            _ => Ok(()),
        }
    }

    // People.

    fn hand(&mut self, destination_id: DestinationId, hand: Hand) -> Verdict {
        let owned = self.process.as_ref().is_some_and(|p| p.scheduler.gate(destination_id).is_some());
        if !owned {
            self.at(self.now + Millis::from_mins(2), Happening::Hand(destination_id, hand));
            return Ok(());
        }
        self.note(|| format!("{destination_id} {hand:?} by hand"));
        self.checker.handled(destination_id, hand, self.clock());
        self.tell(Input::Handled { destination_id, hand }, None)
    }

    /// Another host, another cap.
    fn change(&mut self, destination_id: DestinationId) -> Verdict {
        let (host, concurrency) = (random_host(&mut self.dice), self.dice.pick(&[1, 2, 5, 10]));
        let found = self.scenario.destinations.iter_mut().find(|(plan, _)| plan.id == destination_id);
        let Some((plan, _)) = found else { return Ok(()) };
        plan.host = host;
        plan.limits = Arc::new(GateLimits { concurrency, ..(*plan.limits).clone() });
        let plan = plan.clone();
        self.note(|| format!("{destination_id} moves to {} with a cap of {concurrency}", plan.host));
        self.checker.changed(plan.clone());
        self.tell(Input::Changed { plan: Box::new(plan) }, None)
    }

    fn heal(&mut self) -> Verdict {
        if self.process.is_none() {
            self.at(self.now + Millis::from_mins(2), Happening::Heals);
            return Ok(());
        }
        self.note(|| "all is well again".to_owned());
        for (_, receiver) in &mut self.scenario.destinations {
            receiver.heal();
        }
        for index in 0..self.scenario.destinations.len() {
            self.hand(self.scenario.destinations[index].0.id, Hand::Resume)?;
        }
        self.revive_holders()
    }

    /// A person sends those again that are dead and hold up others.
    fn revive_holders(&mut self) -> Verdict {
        let holds = |row: &&doorstep_store::memory::Row| {
            let plan = self.scenario.destinations.iter().find(|(plan, _)| plan.id == row.delivery.destination_id);
            matches!(row.end, Some(End::Dead(reason)) if reason != DeadReason::Abandoned)
                && row.delivery.ordering.is_some()
                && plan.is_some_and(|(plan, _)| matches!(plan.ordering, Ordering::ByKey { .. }))
        };
        let dead: Vec<DeliveryId> = self.store.rows().filter(holds).map(|row| row.delivery.id).collect();
        for id in dead {
            self.gather(Write::Revive(id));
        }
        self.start_commit();
        Ok(())
    }

    fn revive(&mut self, id: DeliveryId, now: Timestamp) -> Vec<Delivery> {
        let give_up_at = now + Millis::from_hours(72);
        match self.store.write(store::Write::Revive { delivery_id: id, give_up_at }, now) {
            Written::Revived { available } => {
                if let Some(row) = self.store.row(id) {
                    self.checker.revived(&row.delivery, now);
                }
                available
            }
            // Somebody was faster.
            _ => Vec::new(),
        }
    }

    /// Asks a waiting delivery what it waits for.
    fn ask_why(&mut self) -> Verdict {
        let Some(process) = &self.process else { return Ok(()) };
        let index = self.dice.below(self.scenario.arrivals.len() as u64);
        let now = Timestamp(self.now.0 + self.skew);
        let Some(row) = self.store.row(DeliveryId(u128::from(index) + 1)) else { return Ok(()) };
        let owned = process.scheduler.gate(row.delivery.destination_id).is_some();
        if row.end.is_some() || row.behind || !owned {
            return Ok(());
        }
        let writing = !process.gathered.is_empty() || !process.committing.is_empty();
        let busy = writing || process.reads_under_way > 0 || process.scheduler.in_flight() > 0;
        let hold = process.scheduler.hold(&row.delivery, now);
        // What is in the window is nearer to the truth than the row until the writer has caught up.
        if writing || row.delivery.is_expired(now) {
            return Ok(());
        }
        let wakes_at = process.scheduler.wake_at();
        if wakes_at.is_some_and(|at| at <= now) {
            return Ok(());
        }
        self.checker.hold_is_right(&row.delivery, hold, busy, wakes_at, now)
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
        },
        secrets: DestinationSecrets::default(),
        created_at: Timestamp(0),
        updated_at: Timestamp(0),
        version: 1,
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
    }
}
