//! A destination's gate and its windows of deliveries.

use super::DestinationPlan;
use super::window::Window;
use crate::delivery::Track;
use crate::gate::{Gate, Hold, Why};
use crate::time::Timestamp;

#[derive(Debug)]
pub(super) struct Lane {
    pub plan: DestinationPlan,
    pub gate: Gate,
    windows: [Window; 2],
    /// Set while nothing of this lane may go; it is in no turn then.
    pub blocked: Option<Hold>,
    pub timer: Option<Timestamp>,
    pub in_turns: [bool; 2],
    /// The gate has learned something that no change told of, and that is not saved.
    pub unsaved: bool,
    /// In the scheduler's list of those.
    pub short_of_slots: bool,
    /// Dropped, and only waits for what is in flight.
    pub leaving: bool,
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
            in_turns: [false; 2],
            unsaved: false,
            short_of_slots: false,
            leaving: false,
        }
    }

    pub(super) fn is_in_turns(&self) -> bool {
        self.in_turns.contains(&true)
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

    pub(super) fn window(&self, track: Track) -> &Window {
        &self.windows[track as usize]
    }

    pub(super) fn window_mut(&mut self, track: Track) -> &mut Window {
        &mut self.windows[track as usize]
    }
}
