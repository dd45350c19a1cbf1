//! Refusals that come by chance (G6): telling them from a limit, and going on in spite of them.
//!
//! A receiver of which one part in a hundred is broken refuses one request in a hundred, at any pace. To slow down would save no refusal.
//! What helps is to make more of the time between them: the pace with which most gets done ([`paces`]), and a burst after each wait
//! ([`bursts`]), because what is under way when the next refusal comes is not lost.

mod bursts;
mod paces;
mod stretches;

use serde::{Deserialize, Serialize};

use super::super::Rate;
use crate::time::Millis;
use bursts::Bursts;
use paces::Paces;
use stretches::Stretches;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Chance {
    stretches: Stretches,
    paces: Paces,
    bursts: Bursts,
}

/// A burst is worth it only where waits last at least one part in so many of the usual time between them.
const WAIT_SHARE: u64 = 3;

impl Chance {
    /// Whether refusals come by chance.
    pub(super) fn is_found(&self) -> bool {
        self.stretches.are_by_chance()
    }

    /// A request was admitted at this pace.
    pub(super) fn admitted(&mut self, pace: Rate) {
        self.paces.admitted(pace);
    }

    /// A request of a burst was admitted or refused. `position`: its place in the burst, from 1 on.
    pub(super) fn burst_answered(&mut self, position: u32, admitted: bool) {
        self.bursts.answered(position, admitted);
    }

    /// One more of the last stretch was admitted.
    pub(super) fn admitted_late(&mut self) {
        self.stretches.admitted_late();
    }

    /// A stretch ended with a refusal at this pace. Returns the pace to go on with, if refusals come by chance.
    pub(super) fn stretch_ended(&mut self, admitted: u64, refused_at: Rate, wait: Millis) -> Option<Rate> {
        self.stretches.add(admitted, refused_at);
        self.paces.refused(refused_at, wait);
        let is_free = wait == Millis::ZERO;
        let by_chance = self.stretches.judge(!is_free) || is_free && self.paces.slower_did_not_help();
        if by_chance { self.paces.best(refused_at) } else { None }
    }

    /// How many requests may leave at once after this wait.
    pub(super) fn next_burst(&mut self, wait: Millis, pace: Rate) -> u32 {
        let usual = pace.time_for(self.stretches.usual());
        if self.is_found() && wait.times(WAIT_SHARE) >= usual { self.bursts.next_size(self.paces.share()) } else { 0 }
    }
}
