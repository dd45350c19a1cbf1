//! A person's pause, and our own quarantine of a destination that only ever says no (G11, G14).

use serde::{Deserialize, Serialize};

use super::{GateChange, GateLimits, Hold, Why};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    paused: bool,
    suspended: Option<SuspensionReason>,
    permanent_in_row: u32,
    gone_in_row: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SuspensionReason {
    /// It answered 410 again and again: it wants no more.
    Gone,
    /// Every answer was a permanent no.
    OnlyRejections,
}

impl Suspension {
    pub(super) fn hold(&self) -> Option<Hold> {
        match (self.paused, self.suspended) {
            (true, _) => Some(Hold::for_event(Why::Pause)),
            (false, Some(_)) => Some(Hold::for_event(Why::Suspension)),
            (false, None) => None,
        }
    }

    pub fn is_paused(&self) -> bool {
        self.paused
    }

    pub fn reason(&self) -> Option<SuspensionReason> {
        self.suspended
    }

    pub(super) fn pause(&mut self) {
        self.paused = true;
    }

    /// Whether there was anything to resume.
    pub(super) fn resume(&mut self) -> bool {
        let held = self.hold().is_some();
        if held {
            *self = Self::default();
        }
        held
    }

    /// Any answer that is not a permanent no ends the row. Silence (a timeout, a lost connection) is no answer.
    pub(super) fn answered(&mut self) {
        (self.permanent_in_row, self.gone_in_row) = (0, 0);
    }

    pub(super) fn refused_for_good(&mut self, gone: bool, limits: &GateLimits) -> Option<GateChange> {
        self.permanent_in_row = self.permanent_in_row.saturating_add(1);
        self.gone_in_row = if gone { self.gone_in_row.saturating_add(1) } else { 0 };
        let reason = if self.gone_in_row >= limits.suspension.gone_in_row {
            SuspensionReason::Gone
        } else if self.permanent_in_row >= limits.suspension.permanent_in_row {
            SuspensionReason::OnlyRejections
        } else {
            return None;
        };
        if self.suspended.is_some() {
            return None;
        }
        self.suspended = Some(reason);
        Some(GateChange::Suspended(reason))
    }
}
