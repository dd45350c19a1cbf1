//! A destination's gate and its windows of deliveries.

use super::DestinationPlan;
use super::window::Window;
use crate::delivery::Track;
use crate::gate::{Gate, Hold, Queue, Why};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Lane {
    pub plan: DestinationPlan,
    pub gate: Gate,
    windows: [Window; 2],
    /// Set while nothing of this lane may go; it is in no turn then.
    pub blocked: Option<Hold>,
    pub timer: Option<Timestamp>,
    pub standing: [Standing; 2],
    /// The gate has learned something that no change told of, and that is not saved.
    pub unsaved: bool,
    /// There is a time by which that is saved.
    pub saved_soon: bool,
    /// Dropped, and only waits for what is in flight.
    pub leaving: bool,
}

/// Where a lane is with its next delivery of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing is due, or the whole lane is blocked.
    Out,
    InTurns,
    /// Its tenant holds its share of the slots.
    ShortOfSlots,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LaneKey(u32);

impl LaneKey {
    pub(super) fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("fewer than four thousand million destinations"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

impl Lane {
    pub(super) fn new(plan: DestinationPlan, gate: Gate, backlog: bool) -> Self {
        Self {
            plan,
            gate,
            windows: [Window::new(backlog), Window::new(backlog)],
            blocked: None,
            timer: None,
            standing: [Standing::Out; 2],
            unsaved: false,
            saved_soon: false,
            leaving: false,
        }
    }

    pub(super) fn stands(&self, track: Track) -> Standing {
        self.standing[track as usize]
    }

    /// Ours again before its last request had come to its end.
    pub(super) fn come_back(&mut self, plan: DestinationPlan, backlog: bool) {
        self.plan = plan;
        self.windows = [Window::new(backlog), Window::new(backlog)];
        self.leaving = false;
    }

    /// What of its own holds it, and nothing that it shares with others.
    pub(super) fn own_hold(&self, now: Timestamp) -> Option<Hold> {
        self.consent_hold().or_else(|| self.gate.hold(&self.plan.limits, now))
    }

    pub(super) fn consent_hold(&self) -> Option<Hold> {
        self.plan.awaits_consent.then(|| Hold::for_event(Why::Consent))
    }

    /// Shows the gate what waits, if that matters to it.
    pub(super) fn show_queue(&mut self, now: Timestamp) {
        if !self.gate.wants_to_see() {
            return;
        }
        for window in &self.windows {
            if let Some(first) = window.first().filter(|first| first.due_at <= now && !first.is_expired(now)) {
                let (due_at, give_up_at) = (first.due_at, first.progress.give_up_at);
                self.gate.sees(Queue { n: window.len(), due_at, give_up_at }, &self.plan.limits, now);
            }
        }
    }

    pub(super) fn window(&self, track: Track) -> &Window {
        &self.windows[track as usize]
    }

    pub(super) fn window_mut(&mut self, track: Track) -> &mut Window {
        &mut self.windows[track as usize]
    }
}
