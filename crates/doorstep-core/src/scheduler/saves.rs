//! When gates are saved: at once where a change is worth telling, soon where only what was learned has changed, and the
//! rest at the end. An answer alone is not worth a write.

use super::lane::{Lane, LaneKey};
use super::{Command, Scheduler};
use crate::time::{Millis, Timestamp};

/// What a gate has learned is saved this long after it began to change, at the latest.
pub(super) const LEARNED_SAVED_AFTER: Millis = Millis::from_secs(30);

/// Gates that are saved in one go: what was learned, and at the end.
pub(super) const SAVED_AT_ONCE: usize = 1_024;

impl Scheduler {
    pub(super) fn save_gate(&mut self, key: LaneKey, out: &mut Vec<Command>) {
        if let Some(lane) = self.lane_mut(key) {
            lane.unsaved = false;
            let state = Box::new(lane.gate.state().clone());
            out.push(Command::SaveGate { destination_id: lane.plan.id, state });
        }
    }

    /// The gate has learned something: it is saved in a while, with what it learns until then.
    pub(super) fn save_soon(&mut self, key: LaneKey, now: Timestamp) {
        if let Some(lane) = self.lane_mut(key).filter(|lane| !lane.saved_soon) {
            lane.saved_soon = true;
            self.saves.insert((now + LEARNED_SAVED_AFTER, key));
        }
    }

    pub(super) fn save_due(&mut self, now: Timestamp, out: &mut Vec<Command>) {
        for _ in 0..SAVED_AT_ONCE {
            let Some((_, key)) = self.saves.first().copied().filter(|(at, _)| *at <= now) else { return };
            self.saves.pop_first();
            // It may have been saved meanwhile, or be gone.
            let is_owed = |lane: &mut Lane| std::mem::take(&mut lane.saved_soon) && lane.unsaved;
            if self.lane_mut(key).is_some_and(is_owed) {
                self.save_gate(key, out);
            }
        }
    }

    /// What gates have learned since they were last saved is worth keeping, but not worth a write for each answer.
    pub(super) fn stop(&mut self, out: &mut Vec<Command>) {
        self.stopped = true;
        if !self.flights.is_empty() {
            return;
        }
        let mut n_saved = 0;
        while n_saved < SAVED_AT_ONCE && self.saved_to < self.lanes.len() {
            let key = LaneKey::at(self.saved_to);
            if self.lane(key).is_some_and(|lane| lane.unsaved) {
                self.save_gate(key, out);
                n_saved += 1;
            }
            self.saved_to += 1;
        }
    }
}
