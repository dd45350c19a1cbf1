//! Whose turn it is: who is called, who is asked, and who has to wait for what.

use std::sync::Arc;

use super::lane::{LaneKey, Standing};
use super::{Command, Flight, Scheduler, Ticket};
use crate::delivery::{Delivery, Track};
use crate::gate::{Admission, Hold, Permit, Why};
use crate::time::Timestamp;

/// Of this many turns in which both could go, one is a retry's.
const TURNS_PER_RETRY: u32 = 5;

impl Scheduler {
    pub(super) fn woken(&mut self, now: Timestamp) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.set_timer(key, None);
            self.unblock(key, now);
        }
    }

    /// Something has happened to the lane: it waits for nothing any more, and is looked at anew.
    pub(super) fn unblock(&mut self, key: LaneKey, now: Timestamp) {
        self.hosts.leave_queue(key);
        if let Some(lane) = self.lanes[key.index()].as_mut() {
            lane.blocked = None;
            for track in Track::ALL {
                if lane.stands(track) == Standing::ShortOfSlots {
                    lane.standing[track as usize] = Standing::Out;
                    self.slots.leave(track as usize, key);
                }
            }
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
            if due && lane.stands(track) == Standing::Out {
                lane.standing[track as usize] = Standing::InTurns;
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
            && let Some(track) = self.next_track()
            && let Some((tenant_id, key)) = self.turns.take(track)
        {
            if let Some(lane) = self.lane_mut(key) {
                lane.standing[track as usize] = Standing::Out;
            }
            if self.send_one(key, track, now, out) {
                self.turns.charge(tenant_id, track);
            }
            self.start_refills(out);
        }
    }

    /// First attempts before retries, but each keeps a share of the turns and of the slots (G15).
    fn next_track(&mut self) -> Option<Track> {
        match (self.is_open(Track::First), self.is_open(Track::Retry)) {
            (false, false) => None,
            (true, false) => Some(Track::First),
            (false, true) => Some(Track::Retry),
            (true, true) => {
                self.turn = (self.turn + 1) % TURNS_PER_RETRY;
                Some(if self.turn == 0 { Track::Retry } else { Track::First })
            }
        }
    }

    /// Whether a track has a slot and somebody whose turn it could be. If a lane that was short of slots may go on, its turn comes.
    fn is_open(&mut self, track: Track) -> bool {
        let free = self.free_slots(track);
        if free > 0
            && let Some((tenant_id, key)) = self.slots.call(track as usize, free)
        {
            if let Some(lane) = self.lane_mut(key) {
                lane.standing[track as usize] = Standing::InTurns;
            }
            self.turns.come_back(tenant_id, track, key);
        }
        free > 0 && !self.turns.is_empty(track)
    }

    fn free_slots(&self, track: Track) -> usize {
        let free = self.limits.in_flight_max.saturating_sub(self.flights.len());
        free.min(self.limits.track_max().saturating_sub(self.in_flight_by_track[track as usize]))
    }

    /// Sends the lane's next delivery of this track if its gate admits it. Whatever happens, the lane is left waiting
    /// for something: its next turn, a time, or an event.
    fn send_one(&mut self, key: LaneKey, track: Track, now: Timestamp, out: &mut Vec<Command>) -> bool {
        self.lanes_visited += 1;
        let Some(host) = self.lane(key).map(|lane| Arc::clone(&lane.plan.host)) else { return false };
        let Some(permit) = self.next_permit(key, track, now, out) else {
            // It may have been called because its host has room: the room goes to the next.
            self.offer_room(&host, now);
            return false;
        };
        let delivery = self.lane_mut(key).and_then(|lane| lane.window_mut(track).take_first());
        let delivery = delivery.expect("admitted a delivery that is not there");
        self.take_off(key, delivery, permit, out);
        self.reschedule(key, now);
        self.offer_room(&host, now);
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
        let free = self.free_slots(track);
        let lane = self.lanes[key.index()].as_mut()?;
        if lane.window(track).first_due().is_none_or(|due_at| due_at > now) {
            self.reschedule(key, now);
            return None;
        }
        let (tenant_id, in_flight) = (lane.plan.tenant_id, lane.gate.in_flight());
        let consent = lane.consent_hold();
        if consent.is_none() && !self.slots.allows(track as usize, tenant_id, in_flight, free) {
            lane.standing[track as usize] = Standing::ShortOfSlots;
            self.slots.wait(track as usize, tenant_id, self.turns.weight(tenant_id), in_flight, key);
            return None;
        }
        let hold = match consent {
            Some(hold) => hold,
            None if !self.hosts.allows(&lane.plan.host, tenant_id, in_flight) => {
                self.hosts.wait(&lane.plan.host, tenant_id, self.turns.weight(tenant_id), in_flight, key);
                Hold::for_event(Why::HostConcurrency)
            }
            None => {
                lane.show_queue(now);
                match lane.gate.admit(&lane.plan.limits, now) {
                    Admission::Go(permit) => return Some(permit),
                    Admission::Wait(hold) => hold,
                }
            }
        };
        lane.blocked = Some(hold);
        self.set_timer(key, hold.until);
        None
    }

    /// The lane wants nothing more of this host. It may have been called already: the next one is called then.
    pub(super) fn leave_host(&mut self, key: LaneKey, host: &Arc<str>, now: Timestamp) {
        self.hosts.leave_queue(key);
        self.offer_room(host, now);
    }

    /// Calls the next lane that waits for this host and may go on. One that does not use the room passes it on.
    pub(super) fn offer_room(&mut self, host: &Arc<str>, now: Timestamp) {
        while let Some(next) = self.hosts.call(host) {
            self.unblock(next, now);
            // One whose track has no slot has to wait: it must not keep others from the room.
            let comes = |track| self.lane(next).is_some_and(|lane| lane.stands(track) == Standing::InTurns);
            if Track::ALL.into_iter().any(|track| comes(track) && self.free_slots(track) > 0) {
                return;
            }
        }
    }

    fn take_off(&mut self, key: LaneKey, delivery: Delivery, permit: Permit, out: &mut Vec<Command>) {
        let Some(lane) = self.lanes[key.index()].as_ref() else { return };
        let (host, tenant_id, track) = (Arc::clone(&lane.plan.host), lane.plan.tenant_id, delivery.track() as usize);
        let weight = self.turns.weight(tenant_id);
        self.hosts.enter(&host, tenant_id, weight);
        self.slots.take(track, tenant_id, weight);
        self.in_flight_by_track[track] += 1;
        out.push(Command::Send { delivery: delivery.clone(), probe: permit.is_probe() });
        let flight = Flight { lane: key, host, delivery, permit, withdrawn: false, again: None };
        let previous = self.flights.insert(flight.delivery.id, flight);
        assert!(previous.is_none(), "sent a delivery that was already on its way");
    }
}
