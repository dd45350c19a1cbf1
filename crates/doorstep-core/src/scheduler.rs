//! Who is next: destinations first, then their deliveries (G12, G15, O1, C4).
//!
//! The scheduler is told what happened ([`Input`]) and says what to do ([`Command`]); it does nothing itself. It keeps
//! one lane per destination: its gate and a small window of what the store holds. A lane that cannot send costs
//! nothing until its time comes or something happens to it, so the cost of a decision depends neither on how many
//! destinations are idle or blocked nor on how much is queued.
//!
//! What the one who carries out the commands promises:
//! - What follows from one input is written together, or not at all.
//! - A `Refill` sees everything that was settled by commands before it.
//! - A `Refill` of an ordered destination sees only the first unfinished delivery of each key; when a settlement
//!   releases a key, the next one arrives as `Available`.
//! - A delivery is `Accepted` or `Available` before it is `Withdrawn`, and that before it is `Available` again.
//! - A settlement of a delivery that has ended, or that a person has sent again since (its `give_up_at` is another
//!   then), changes nothing.
//! - A settlement that ends a delivery without a request ends it as it is written: `Overdue` may show an older copy.
//! - Every `Send` ends in exactly one `Answered`, `Interrupted`, `Voided` or `Unreadable`, every `Refill` in one `Refilled` or `RefillFailed`.

mod messages;
mod lane;
mod window;
mod turns;
mod shares;
mod hosts;
mod company;
mod dispatch;
mod saves;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::delivery::{Delivery, Ordering, Settlement, Track};
use crate::dice::Dice;
use crate::gate::{Gate, GateState, Hold, Permit, Why};
use crate::id::{DeliveryId, DestinationId};
use crate::id_map::IdMap;
use crate::outcome::Outcome;
use crate::retry::{Charge, Decision};
use crate::time::{Millis, Timestamp};
use company::Company;
use hosts::Hosts;
use lane::{Lane, LaneKey, Standing};
use shares::Shares;
use turns::Turns;

pub use messages::{Command, DestinationPlan, Hand, Input, SchedulerLimits, Ticket};

/// A lane goes on this long after a fault of our own: a read that failed, a request whose fate is unknown.
const RESTS_FOR: Millis = Millis::from_secs(1);

#[derive(Debug)]
pub struct Scheduler {
    limits: SchedulerLimits,
    lanes: Vec<Option<Lane>>,
    free: Vec<LaneKey>,
    by_destination: IdMap<DestinationId, LaneKey>,
    turns: Turns,
    timers: BTreeSet<(Timestamp, LaneKey)>,
    /// By when gates are saved that have learned something: one time for a lane.
    saves: BTreeSet<(Timestamp, LaneKey)>,
    refill_queue: VecDeque<(LaneKey, Track)>,
    /// Who holds the slots of each track, and the lanes that wait for one.
    slots: Shares<2>,
    refills: IdMap<Ticket, (DestinationId, Track)>,
    last_ticket: Ticket,
    flights: IdMap<DeliveryId, Flight>,
    in_flight_by_track: [usize; 2],
    hosts: Hosts,
    company: Company,
    turn: u32,
    stopped: bool,
    /// The lanes before this one have been looked at since nothing is in flight any more.
    saved_to: usize,
    lanes_visited: u64,
}

/// What is written of a delivery that had its turn, but no request.
type Unsent = fn(Delivery, Ordering, Timestamp) -> Settlement;

/// A request on its way.
#[derive(Debug)]
struct Flight {
    lane: LaneKey,
    /// Where it went: its destination may have moved since.
    host: Arc<str>,
    delivery: Delivery,
    permit: Permit,
    /// A person ended this delivery meanwhile: what comes back is no news of it any more …
    withdrawn: bool,
    /// … and has sent it again since.
    again: Option<Delivery>,
}

impl Flight {
    /// A person ended this life of the delivery. The news of a new life may have come first.
    fn withdraw(&mut self, ended: &Delivery) {
        if self.again.as_ref().is_some_and(|again| again.progress.give_up_at == ended.progress.give_up_at) {
            self.again = None;
        }
        self.withdrawn |= self.delivery.progress.give_up_at == ended.progress.give_up_at;
    }

    /// Its delivery is in the store and may go. That is no news, unless it is about another life than this one: then this one
    /// has ended, and the news of that may come later.
    fn is_available(&mut self, delivery: &Delivery) {
        if delivery.progress.give_up_at != self.delivery.progress.give_up_at {
            (self.withdrawn, self.again) = (true, Some(delivery.clone()));
        }
    }
}

impl Scheduler {
    pub fn new(limits: SchedulerLimits) -> Self {
        let (hosts, slots) = (Hosts::new(limits.per_host_max), Shares::new(limits.track_max()));
        Self {
            limits,
            lanes: Vec::new(),
            free: Vec::new(),
            by_destination: IdMap::default(),
            turns: Turns::default(),
            timers: BTreeSet::new(),
            saves: BTreeSet::new(),
            refill_queue: VecDeque::new(),
            slots,
            refills: IdMap::default(),
            last_ticket: Ticket(0),
            flights: IdMap::default(),
            in_flight_by_track: [0, 0],
            hosts,
            company: Company::default(),
            turn: 0,
            stopped: false,
            saved_to: 0,
            lanes_visited: 0,
        }
    }

    /// Takes in what happened and says what follows.
    pub fn handle(&mut self, input: Input, now: Timestamp, dice: &mut dyn Dice, out: &mut Vec<Command>) {
        match input {
            Input::Adopted { plan, gate, backlog } => self.adopt(*plan, *gate, backlog, now),
            Input::Changed { plan } => self.change(*plan, now),
            Input::Dropped { destination_id } => self.drop_lane(destination_id, now, out),
            Input::Weighted { tenant_id, weight } => {
                self.turns.weigh(tenant_id, weight);
                self.slots.weigh(tenant_id, self.turns.weight(tenant_id));
            }
            Input::Accepted { deliveries, behind } => self.accepted(deliveries, &behind, now),
            Input::Available { deliveries } => self.available(deliveries, now),
            Input::Refilled { ticket, deliveries, exhausted } => self.refilled(ticket, deliveries, exhausted, now),
            Input::RefillFailed { ticket } => self.refill_failed(ticket, now),
            Input::Answered { delivery_id, outcome } => self.answered(delivery_id, &outcome, now, dice, out),
            Input::Interrupted { delivery_id } => self.interrupted(delivery_id, now, out),
            Input::Voided { delivery_ids } => self.unsent(&delivery_ids, Settlement::void, now, out),
            Input::Unreadable { delivery_ids } => self.unsent(&delivery_ids, Settlement::set_aside, now, out),
            Input::Overdue { deliveries } => self.overdue(deliveries, now, out),
            Input::Withdrawn { delivery } => self.withdraw(&delivery, now),
            Input::Handled { destination_id, hand } => self.handled(destination_id, hand, now, out),
            Input::Woken => {
                self.woken(now);
                self.save_due(now, out);
            }
            Input::Stop => self.stop(out),
        }
        self.start_refills(out);
        self.dispatch(now, out);
    }

    /// When [`Input::Woken`] is due, if nothing happens before.
    pub fn wake_at(&self) -> Option<Timestamp> {
        [self.timers.first(), self.saves.first()].into_iter().flatten().map(|(at, _)| *at).min()
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// How often a lane was looked at since the start: what decisions cost, without a clock.
    pub fn lanes_visited(&self) -> u64 {
        self.lanes_visited
    }

    pub fn gate(&self, destination_id: DestinationId) -> Option<&Gate> {
        self.key(destination_id).and_then(|key| self.lane(key)).map(|lane| &lane.gate)
    }

    /// Why a delivery that could go by its ordering key does not go now; `None` if it is on its way (G16).
    pub fn hold(&self, delivery: &Delivery, now: Timestamp) -> Option<Hold> {
        if self.flights.contains_key(&delivery.id) {
            return None;
        }
        let lane = self.key(delivery.destination_id).and_then(|key| self.lane(key));
        let gate = lane.and_then(|lane| lane.own_hold(now).or(lane.blocked.map(|hold| self.as_it_is(hold, lane))));
        let why = if delivery.unreadable > 0 { Why::UnreadablePayload } else { Why::DueTime };
        let due = (delivery.due_at > now).then(|| Hold::until(why, delivery.due_at));
        Some(match (due, gate) {
            // Both have to end: what ends last is what it waits for.
            (Some(due), Some(gate)) if !gate.outlasts(delivery.due_at) => due,
            (_, Some(gate)) => gate,
            (Some(due), None) => due,
            (None, None) => Hold::for_event(Why::Capacity),
        })
    }

    /// Room at a host may have been offered to another lane, which has no slot yet: then it is a slot that both wait for.
    fn as_it_is(&self, hold: Hold, lane: &Lane) -> Hold {
        let is_host_idle = hold.why == Why::HostConcurrency && self.hosts.in_flight(&lane.plan.host) == 0;
        if is_host_idle { Hold::for_event(Why::Capacity) } else { hold }
    }

    // What happens to destinations.

    fn adopt(&mut self, plan: DestinationPlan, gate: GateState, backlog: bool, now: Timestamp) {
        if let Some(key) = self.key(plan.id) {
            // What is in flight keeps the gate that it left through.
            if let Some(lane) = self.lane_mut(key).filter(|lane| lane.leaving) {
                lane.come_back(plan, backlog);
            }
            return self.unblock(key, now);
        }
        let (id, lane) = (plan.id, Lane::new(plan, Gate::restore(gate), backlog));
        let key = match self.free.pop() {
            Some(key) => {
                self.lanes[key.index()] = Some(lane);
                key
            }
            None => {
                self.lanes.push(Some(lane));
                LaneKey::at(self.lanes.len() - 1)
            }
        };
        self.by_destination.insert(id, key);
        self.reschedule(key, now);
    }

    fn change(&mut self, plan: DestinationPlan, now: Timestamp) {
        let Some(key) = self.key(plan.id) else { return };
        let Some(lane) = self.lane_mut(key) else { return };
        assert!(lane.plan.tenant_id == plan.tenant_id, "a destination never changes hands");
        let before = std::mem::replace(&mut lane.plan, plan);
        if before.host != lane.plan.host {
            self.leave_host(key, &before.host, now);
        }
        self.unblock(key, now);
    }

    fn drop_lane(&mut self, destination_id: DestinationId, now: Timestamp, out: &mut Vec<Command>) {
        let Some(key) = self.key(destination_id) else { return };
        self.set_timer(key, None);
        let Some(lane) = self.lanes[key.index()].as_mut() else { return };
        let host = Arc::clone(&lane.plan.host);
        // Whatever it waited for, it does so no more; what is out keeps it here until it is back.
        (lane.leaving, lane.blocked) = (true, None);
        for track in Track::ALL {
            match std::mem::replace(&mut lane.standing[track as usize], Standing::Out) {
                Standing::Out => {}
                Standing::InTurns => self.turns.leave(lane.plan.tenant_id, track, key),
                Standing::ShortOfSlots => self.slots.leave(track as usize, key),
            }
        }
        self.leave_host(key, &host, now);
        self.free_if_gone(key, out);
    }

    fn handled(&mut self, destination_id: DestinationId, hand: Hand, now: Timestamp, out: &mut Vec<Command>) {
        let Some(key) = self.key(destination_id) else { return };
        let Some(lane) = self.lane_mut(key) else { return };
        match hand {
            Hand::Pause => lane.gate.pause(now),
            Hand::Resume => lane.gate.resume(&lane.plan.limits, now),
            Hand::Probe => lane.gate.force_probe(now),
            Hand::ClearThrottle { forget_learned } => {
                if forget_learned {
                    lane.gate.forget_learned();
                }
                lane.gate.clear_throttle(&lane.plan.limits, now);
            }
        }
        self.save_gate(key, out);
        self.unblock(key, now);
    }

    // What happens to deliveries.

    fn accepted(&mut self, deliveries: Vec<Delivery>, behind: &[DestinationId], now: Timestamp) {
        for destination_id in behind {
            if let Some(key) = self.key(*destination_id) {
                self.arrived(key, now);
            }
        }
        let mut touched = BTreeSet::new();
        for delivery in deliveries {
            if let Some(key) = self.key(delivery.destination_id) {
                self.arrived(key, now);
                self.put(key, delivery);
                touched.insert(key);
            }
        }
        self.reschedule_all(touched, now);
    }

    fn arrived(&mut self, key: LaneKey, now: Timestamp) {
        if let Some(lane) = self.lane_mut(key) {
            lane.gate.arrived(1, now);
            lane.unsaved = true;
        }
    }

    fn available(&mut self, deliveries: Vec<Delivery>, now: Timestamp) {
        let mut touched = BTreeSet::new();
        for delivery in deliveries {
            if let Some(key) = self.key(delivery.destination_id) {
                self.put(key, delivery);
                touched.insert(key);
            }
        }
        self.reschedule_all(touched, now);
    }

    fn reschedule_all(&mut self, keys: BTreeSet<LaneKey>, now: Timestamp) {
        for key in keys {
            self.reschedule(key, now);
        }
    }

    fn put(&mut self, key: LaneKey, delivery: Delivery) {
        let window_max = self.limits.window_max;
        if let Some(flight) = self.flights.get_mut(&delivery.id) {
            return flight.is_available(&delivery);
        }
        if let Some(lane) = self.lane_mut(key) {
            lane.window_mut(delivery.track()).put(delivery, window_max);
        }
    }

    fn refilled(&mut self, ticket: Ticket, mut deliveries: Vec<Delivery>, exhausted: bool, now: Timestamp) {
        let Some((key, track)) = self.refill_ended(ticket) else { return };
        deliveries.retain(|delivery| match self.flights.get_mut(&delivery.id) {
            Some(flight) => {
                flight.is_available(delivery);
                false
            }
            None => true,
        });
        if let Some(lane) = self.lane_mut(key) {
            lane.window_mut(track).refilled(ticket, deliveries, exhausted);
        }
        self.reschedule(key, now);
    }

    fn refill_failed(&mut self, ticket: Ticket, now: Timestamp) {
        let Some((key, track)) = self.refill_ended(ticket) else { return };
        // A lane on its way out reads no more, and must not leave a timer behind that nobody answers to.
        let Some(lane) = self.lane_mut(key).filter(|lane| !lane.leaving) else { return };
        lane.window_mut(track).refill_failed(ticket);
        self.rest(key, now);
    }

    /// Something of our own went wrong: not again at once, since trouble is not helped by being asked in a loop.
    fn rest(&mut self, key: LaneKey, now: Timestamp) {
        let until = now + RESTS_FOR;
        if let Some(lane) = self.lane_mut(key).filter(|lane| !lane.leaving) {
            lane.blocked = Some(Hold::until(Why::Capacity, until));
            self.hosts.leave_queue(key);
            self.set_timer(key, Some(until));
        }
    }

    fn refill_ended(&mut self, ticket: Ticket) -> Option<(LaneKey, Track)> {
        let (destination_id, track) = self.refills.remove(&ticket)?;
        Some((self.key(destination_id)?, track))
    }

    fn answered(
        &mut self,
        delivery_id: DeliveryId,
        outcome: &Outcome,
        now: Timestamp,
        dice: &mut dyn Dice,
        out: &mut Vec<Command>,
    ) {
        let Some(flight) = self.land(delivery_id, now) else { return };
        let Flight { lane: key, host, delivery, permit, withdrawn, again } = flight;
        let Some(lane) = self.lanes[key.index()].as_mut() else { return };
        if outcome.is_refusal() && self.company.refused(lane.plan.tenant_id, &host, key, now) {
            lane.gate.mark_in_company();
        }
        let charge = if permit.is_probe() { Charge::Probe } else { Charge::Attempt };
        let before = lane.gate.learned(&lane.plan.limits);
        lane.show_queue(now);
        let changes = lane.gate.settle(permit, outcome, &lane.plan.limits, now, dice.roll());
        lane.unsaved = true;
        let has_learned = lane.gate.learned(&lane.plan.limits) != before;
        let decision = lane.plan.policy.next(outcome, &delivery.progress, charge, now, dice.roll());
        let (ordering, destination_id) = (lane.plan.ordering, lane.plan.id);
        let next = delivery.after(outcome, decision, charge, now);
        if !withdrawn {
            self.forget_read(key, &delivery);
            let settlement = Settlement::new(next.clone(), Some(*outcome), decision, ordering, now);
            out.push(Command::Settle(settlement));
            match decision {
                Decision::RetryAt(_) | Decision::Requeue => self.put(key, next),
                Decision::Delivered | Decision::Dead(_) => {}
            }
        } else if let Some(again) = again {
            self.put(key, again);
        }
        if !changes.is_empty() {
            self.save_gate(key, out);
        } else if has_learned {
            self.save_soon(key, now);
        }
        out.extend(changes.into_iter().map(|change| Command::Announce { destination_id, change }));
        self.unblock(key, now);
        self.free_if_gone(key, out);
    }

    fn interrupted(&mut self, delivery_id: DeliveryId, now: Timestamp, out: &mut Vec<Command>) {
        let Some(flight) = self.land(delivery_id, now) else { return };
        let Flight { lane: key, delivery, permit, withdrawn, again, .. } = flight;
        if let Some(lane) = self.lane_mut(key) {
            lane.gate.release(permit);
            lane.unsaved = true;
        }
        if let Some(next) = if withdrawn { again } else { Some(delivery) } {
            self.put(key, next);
        }
        self.rest(key, now);
        self.free_if_gone(key, out);
    }

    /// No request was made for these. `settle` says what is written of them instead.
    fn unsent(&mut self, delivery_ids: &[DeliveryId], settle: Unsent, now: Timestamp, out: &mut Vec<Command>) {
        // The last one first: a place in the pace can be given back only while nobody has taken a later one.
        for delivery_id in delivery_ids.iter().rev() {
            self.take_back(*delivery_id, settle, now, out);
        }
    }

    /// Nothing was asked of the receiver: the lane goes on as if this one had not had its turn.
    fn take_back(&mut self, delivery_id: DeliveryId, settle: Unsent, now: Timestamp, out: &mut Vec<Command>) {
        let Some(flight) = self.land(delivery_id, now) else { return };
        let Flight { lane: key, delivery, permit, withdrawn, again, .. } = flight;
        let Some(lane) = self.lane_mut(key) else { return };
        lane.gate.hand_back(permit);
        let ordering = lane.plan.ordering;
        if !withdrawn {
            self.forget_read(key, &delivery);
            let settlement = settle(delivery, ordering, now);
            if let Decision::RetryAt(_) = settlement.decision {
                self.put(key, settlement.delivery.clone());
            }
            out.push(Command::Settle(settlement));
        } else if let Some(again) = again {
            self.put(key, again);
        }
        self.unblock(key, now);
        self.free_if_gone(key, out);
    }

    fn overdue(&mut self, deliveries: Vec<Delivery>, now: Timestamp, out: &mut Vec<Command>) {
        for delivery in deliveries {
            if self.flights.contains_key(&delivery.id) || !delivery.is_expired(now) {
                continue;
            }
            let Some(key) = self.key(delivery.destination_id) else { continue };
            self.take_out(key, &delivery);
            self.expire(key, delivery, now, out);
        }
    }

    fn expire(&mut self, key: LaneKey, delivery: Delivery, now: Timestamp, out: &mut Vec<Command>) {
        let ordering = self.lane(key).map_or(Ordering::Unordered, |lane| lane.plan.ordering);
        out.push(Command::Settle(Settlement::expired(delivery, ordering, now)));
    }

    fn withdraw(&mut self, delivery: &Delivery, now: Timestamp) {
        if let Some(flight) = self.flights.get_mut(&delivery.id) {
            flight.withdraw(delivery);
        }
        if let Some(key) = self.key(delivery.destination_id) {
            self.take_out(key, delivery);
            self.reschedule(key, now);
        }
    }

    /// Takes a delivery out of memory, wherever it is there: who names it may know an older place than we do.
    fn take_out(&mut self, key: LaneKey, delivery: &Delivery) {
        let Some(lane) = self.lane_mut(key) else { return };
        for track in Track::ALL {
            lane.window_mut(track).remove(delivery);
        }
    }

    /// A read that is under way may still find this delivery as it was.
    fn forget_read(&mut self, key: LaneKey, delivery: &Delivery) {
        if let Some(lane) = self.lane_mut(key) {
            lane.window_mut(delivery.track()).forget_read(delivery);
        }
    }

    fn land(&mut self, delivery_id: DeliveryId, now: Timestamp) -> Option<Flight> {
        let flight = self.flights.remove(&delivery_id)?;
        let track = flight.delivery.track() as usize;
        self.in_flight_by_track[track] -= 1;
        let tenant_id = self.lane(flight.lane)?.plan.tenant_id;
        self.slots.give_back(track, tenant_id);
        self.hosts.leave(&flight.host, tenant_id);
        self.offer_room(&flight.host, now);
        Some(flight)
    }

    fn set_timer(&mut self, key: LaneKey, at: Option<Timestamp>) {
        let Some(lane) = self.lanes[key.index()].as_mut() else { return };
        if lane.timer == at {
            return;
        }
        if let Some(previous) = std::mem::replace(&mut lane.timer, at) {
            self.timers.remove(&(previous, key));
        }
        if let Some(at) = at {
            self.timers.insert((at, key));
        }
    }

    /// A dropped lane goes with its last request, and leaves its gate to whoever comes next.
    fn free_if_gone(&mut self, key: LaneKey, out: &mut Vec<Command>) {
        if let Some(lane) = self.lane(key).filter(|lane| lane.leaving && lane.gate.in_flight() == 0) {
            let id = lane.plan.id;
            self.save_gate(key, out);
            self.by_destination.remove(&id);
            self.lanes[key.index()] = None;
            self.free.push(key);
        }
    }

    fn key(&self, destination_id: DestinationId) -> Option<LaneKey> {
        self.by_destination.get(&destination_id).copied()
    }

    fn lane(&self, key: LaneKey) -> Option<&Lane> {
        self.lanes[key.index()].as_ref()
    }

    fn lane_mut(&mut self, key: LaneKey) -> Option<&mut Lane> {
        self.lanes[key.index()].as_mut()
    }
}

#[cfg(test)]
mod tests;
