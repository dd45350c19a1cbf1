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
    slower: Slower,
}

/// Whether a slower pace is in vain, where refusals cost no wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Slower {
    is_in_vain: bool,
    /// How often that turned out to be wrong, and for how many stretches it is not believed again.
    wrong: u32,
    rest: u32,
}

/// After the first mistake so many stretches pass, after each further one four times as many.
const REST_MIN: u32 = 8;
const MISTAKES_MAX: u32 = 5;

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
        let in_vain = is_free && self.slower.stretch_ended(self.slower_is_in_vain());
        let by_chance = self.stretches.judge(!is_free) || in_vain;
        if by_chance { self.paces.best(refused_at, in_vain) } else { None }
    }

    fn slower_is_in_vain(&self) -> Option<bool> {
        self.paces.slower_is_in_vain().map(|in_vain| in_vain && self.stretches.differ())
    }

    /// So much failed that it seemed down: perhaps because it was sent to faster.
    pub(super) fn tripped(&mut self) {
        self.slower.is_wrong();
    }

    /// How many requests may leave at once after this wait.
    pub(super) fn next_burst(&mut self, wait: Millis, pace: Rate) -> u32 {
        let usual = pace.time_for(self.stretches.usual());
        if self.is_found() && wait.times(WAIT_SHARE) >= usual { self.bursts.next_size(self.paces.share()) } else { 0 }
    }
}

impl Slower {
    fn stretch_ended(&mut self, in_vain: Option<bool>) -> bool {
        match in_vain {
            _ if self.rest > 0 => self.rest -= 1,
            Some(true) => self.is_in_vain = true,
            Some(false) => self.is_wrong(),
            None => {}
        }
        self.is_in_vain
    }

    fn is_wrong(&mut self) {
        if std::mem::take(&mut self.is_in_vain) {
            // Whatever was stored, the shift stays small.
            self.wrong = self.wrong.min(MISTAKES_MAX);
            self.rest = REST_MIN << (2 * self.wrong);
            self.wrong += 1;
        }
    }
}
