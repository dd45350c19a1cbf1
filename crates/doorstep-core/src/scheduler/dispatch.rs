//! Whose turn it is: who is called, who is asked, and who has to wait for what.

use std::sync::Arc;

use super::lane::{Lane, LaneKey};
use super::{Command, Flight, Scheduler, SchedulerLimits, Ticket};
use crate::delivery::{Delivery, Track};
use crate::gate::{Admission, Hold, Permit, Why};
use crate::id::TenantId;
use crate::time::Timestamp;

/// Of this many turns in which both could go, one is a retry's.
const TURNS_PER_RETRY: u32 = 5;
/// One slot in this many is for destinations that have no request out.
const NEWCOMERS_SHARE: usize = 8;

impl Scheduler {
    pub(super) fn woken(&mut self, now: Timestamp) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.set_timer(key, None);
            self.unblock(key, now);
        }
    }

    pub(super) fn unblock(&mut self, key: LaneKey, now: Timestamp) {
        if let Some(lane) = self.lane_mut(key) {
            lane.blocked = None;
        }
        self.reschedule(key, now);
    }

    /// Finds out what a lane waits for: its turn, a read, or a time.
    pub(super) fn reschedule(&mut self, key: LaneKey, now: Timestamp) {
        self.lanes_visited += 1;
        let window_max = self.limits.window_max;
        let Some(lane) = self.lanes[key.index()].as_mut() else { return };
        if lane.blocked.is_some() || lane.leaving {
            return;
        }
        let (mut due, mut next_due) = (false, None);
        for track in Track::ALL {
            let window = lane.window_mut(track);
            if window.wants_refill(window_max) {
                window.refill_asked();
                self.refill_queue.push_back((key, track));
            }
            match window.first_due() {
                Some(due_at) if due_at <= now => due = true,
                Some(due_at) => next_due = Some(next_due.map_or(due_at, |next: Timestamp| next.min(due_at))),
                None => {}
            }
        }
        self.set_timer(key, next_due);
        if due {
            self.enter_turns(key, now);
        }
    }

    fn enter_turns(&mut self, key: LaneKey, now: Timestamp) {
        let Some(lane) = self.lanes[key.index()].as_mut() else { return };
        for track in Track::ALL {
            let due = lane.window(track).first_due().is_some_and(|due_at| due_at <= now);
            if due && !lane.in_turns[track as usize] {
                lane.in_turns[track as usize] = true;
                self.turns.enter(lane.plan.tenant_id, track, key);
            }
        }
    }

    pub(super) fn start_refills(&mut self, out: &mut Vec<Command>) {
        while !self.stopped
            && self.refills.len() < self.limits.refills_max
            && let Some((key, track)) = self.refill_queue.pop_front()
        {
            let (window_max, ticket) = (self.limits.window_max, Ticket(self.last_ticket.0 + 1));
            let Some(lane) = self.lane_mut(key).filter(|lane| !lane.leaving) else { continue };
            let destination_id = lane.plan.id;
            let Some((after, limit)) = lane.window_mut(track).start_refill(ticket, window_max) else { continue };
            self.last_ticket = ticket;
            self.refills.insert(ticket, (destination_id, track));
            out.push(Command::Refill { ticket, destination_id, track, after, limit });
        }
    }

    pub(super) fn dispatch(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        while !self.stopped
            && self.flights.len() < self.limits.in_flight_max
            && let Some(track) = self.next_track()
            && let Some((tenant_id, key)) = self.turns.take(track)
        {
            if let Some(lane) = self.lane_mut(key) {
                lane.in_turns[track as usize] = false;
            }
            if self.send_one(key, track, now, out) {
                self.turns.charge(tenant_id, track);
            }
            self.start_refills(out);
        }
    }

    /// First attempts before retries, but each keeps a share of the turns and of the slots (G15).
    fn next_track(&mut self) -> Option<Track> {
        let open_to =
            |track: Track| !self.turns.is_empty(track) && self.in_flight_by_track[track as usize] < self.track_max();
        match (open_to(Track::First), open_to(Track::Retry)) {
            (false, false) => None,
            (true, false) => Some(Track::First),
            (false, true) => Some(Track::Retry),
            (true, true) => {
                self.turn = (self.turn + 1) % TURNS_PER_RETRY;
                Some(if self.turn == 0 { Track::Retry } else { Track::First })
            }
        }
    }

    /// What is left to a track when the other has its share.
    fn track_max(&self) -> usize {
        let SchedulerLimits { in_flight_max, reserved_percent, .. } = self.limits;
        // More than half for each is more than there is.
        in_flight_max - in_flight_max * reserved_percent.min(50) / 100
    }

    /// Sends the lane's next delivery of this track if its gate admits it. Whatever happens, the lane is left waiting
    /// for something: its next turn, a time, or an event.
    fn send_one(&mut self, key: LaneKey, track: Track, now: Timestamp, out: &mut Vec<Command>) -> bool {
        self.lanes_visited += 1;
        let Some(permit) = self.next_permit(key, track, now, out) else {
            // It may have been called because its host has room: the room goes to the next.
            if let Some(lane) = self.lane(key) {
                let host = Arc::clone(&lane.plan.host);
                self.offer_room(&host, now);
            }
            return false;
        };
        let delivery = self.lane_mut(key).and_then(|lane| lane.window_mut(track).take_first());
        let delivery = delivery.expect("admitted a delivery that is not there");
        self.take_off(key, delivery, permit, out);
        self.reschedule(key, now);
        true
    }

    fn next_permit(&mut self, key: LaneKey, track: Track, now: Timestamp, out: &mut Vec<Command>) -> Option<Permit> {
        // A lane may rest since it was called.
        if self.lane(key)?.blocked.is_some() {
            return None;
        }
        self.expire_heads(key, track, now, out);
        self.admit(key, track, now)
    }

    fn expire_heads(&mut self, key: LaneKey, track: Track, now: Timestamp, out: &mut Vec<Command>) {
        while let Some(lane) = self.lane_mut(key)
            && let Some(delivery) = lane.window_mut(track).take_first_if(|first| first.is_expired(now))
        {
            self.expire(key, delivery, now, out);
        }
    }

    /// A permit for the lane's first delivery of this track, or the lane waits for what it lacks.
    fn admit(&mut self, key: LaneKey, track: Track, now: Timestamp) -> Option<Permit> {
        let shared = self.shared_hold(key, track);
        let lane = self.lanes[key.index()].as_mut()?;
        if lane.window(track).first_due().is_none_or(|due_at| due_at > now) {
            self.reschedule(key, now);
            return None;
        }
        let hold = match shared {
            Some(hold) => hold,
            None => match lane.gate.admit(&lane.plan.limits, now) {
                Admission::Go(permit) => return Some(permit),
                Admission::Wait(hold) => hold,
            },
        };
        lane.blocked = Some(hold);
        if hold.why == Why::HostConcurrency {
            self.hosts.queue(&lane.plan.host, key);
        }
        if hold.why == Why::Capacity && !std::mem::replace(&mut lane.short_of_slots, true) {
            self.short_of_slots.push_back(key);
        }
        self.set_timer(key, hold.until);
        None
    }

    /// What holds a lane though its own gate would not: its receiver's consent, its fair share of scarce slots, or its
    /// host's cap.
    fn shared_hold(&self, key: LaneKey, track: Track) -> Option<Hold> {
        let lane = self.lane(key)?;
        if let Some(hold) = lane.consent_hold() {
            return Some(hold);
        }
        let in_flight = usize::try_from(lane.gate.in_flight()).unwrap_or(usize::MAX);
        if in_flight > 0 && !self.has_room_beyond(in_flight, lane.plan.tenant_id, track) {
            return Some(Hold::for_event(Why::Capacity));
        }
        self.hosts.is_full(&lane.plan.host).then(|| Hold::for_event(Why::HostConcurrency))
    }

    /// Whether a lane that has `in_flight` requests out may have another. Destinations that hang cannot take all slots:
    /// once half are taken each lane keeps to its share, and the last ones are for lanes that have none.
    fn has_room_beyond(&self, in_flight: usize, tenant_id: TenantId, track: Track) -> bool {
        let in_flight_max = self.limits.in_flight_max;
        let shared = but_for_newcomers(in_flight_max);
        let scarce = self.flights.len() >= in_flight_max / 2;
        self.flights.len() < shared
            // A track that is full has no slots for newcomers either, however many the other one leaves.
            && self.in_flight_by_track[track as usize] < but_for_newcomers(self.track_max())
            && !(scarce && in_flight >= self.turns.share(shared, tenant_id))
    }

    /// A slot is free: the next lane that was held for the lack of one is called, if it is enough for it.
    pub(super) fn offer_slot(&mut self, now: Timestamp) {
        while let Some(key) = self.short_of_slots.pop_front() {
            // A lane that left meanwhile may have been followed by another with its key.
            let Some(lane) = self.lane(key).filter(|lane| lane.short_of_slots) else { continue };
            if lane.blocked == Some(Hold::for_event(Why::Capacity)) && !self.has_slot_for(lane) {
                // It stays in line, at the end: others may have less than their share.
                return self.short_of_slots.push_back(key);
            }
            let held = lane.blocked;
            if let Some(lane) = self.lane_mut(key) {
                lane.short_of_slots = false;
            }
            if held == Some(Hold::for_event(Why::Capacity)) {
                return self.unblock(key, now);
            }
        }
    }

    fn has_slot_for(&self, lane: &Lane) -> bool {
        let in_flight = usize::try_from(lane.gate.in_flight()).unwrap_or(usize::MAX);
        in_flight == 0 || Track::ALL.iter().any(|track| self.has_room_beyond(in_flight, lane.plan.tenant_id, *track))
    }

    /// The lane wants nothing more of this host. It may have been called already: the next one is called then.
    pub(super) fn leave_host(&mut self, key: LaneKey, host: &Arc<str>, now: Timestamp) {
        self.hosts.leave_queue(key);
        self.offer_room(host, now);
    }

    /// Calls the next lane that waits for this host. One that does not use the room passes it on.
    pub(super) fn offer_room(&mut self, host: &Arc<str>, now: Timestamp) {
        while let Some(next) = self.hosts.next_waiting(host) {
            self.unblock(next, now);
            if self.lane(next).is_some_and(Lane::is_in_turns) {
                return;
            }
        }
    }

    fn take_off(&mut self, key: LaneKey, delivery: Delivery, permit: Permit, out: &mut Vec<Command>) {
        let Some(lane) = self.lanes[key.index()].as_ref() else { return };
        if lane.gate.in_flight() == 1 {
            self.turns.lane_took_off(lane.plan.tenant_id);
        }
        let host = Arc::clone(&lane.plan.host);
        self.hosts.enter(&host);
        self.in_flight_by_track[delivery.track() as usize] += 1;
        out.push(Command::Send { delivery: delivery.clone(), probe: permit.is_probe() });
        let flight = Flight { lane: key, host, delivery, permit, withdrawn: false, again: None };
        let previous = self.flights.insert(flight.delivery.id, flight);
        assert!(previous.is_none(), "sent a delivery that was already on its way");
    }
}

fn but_for_newcomers(slots: usize) -> usize {
    slots - slots / NEWCOMERS_SHARE
}
