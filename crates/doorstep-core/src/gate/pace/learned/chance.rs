//! Telling refusals that come by chance from those that the pace brings about.
//!
//! A limit refuses after about as many requests each time, and after more of them at a slower pace. Chance does neither: now three are
//! admitted, now forty, at any pace. To slow down would cost goodput then, and save no refusal.

use serde::{Deserialize, Serialize};

use super::super::Rate;

/// The last stretches, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stretches {
    last: Vec<Short>,
    /// Whether they were found to end by chance.
    by_chance: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Short {
    admitted: u64,
    refused_at: Rate,
}

/// So many are compared: fewer could look irregular, or regular, by chance.
const COMPARED: usize = 8;
/// The longest and the shortest are left out, and of the others the longest has at least so many times as many requests as the shortest …
const IRREGULAR: u64 = 3;
/// … or so many times, once they were found to end by chance.
const STILL_IRREGULAR: u64 = 2;
/// Of the slower half, no more than so many times as many were admitted as of the faster half.
const AS_MANY: u64 = 2;

impl Stretches {
    pub(super) fn add(&mut self, admitted: u64, refused_at: Rate) {
        if self.last.len() == COMPARED {
            self.last.remove(0);
        }
        self.last.push(Short { admitted, refused_at });
    }

    /// One more of the last stretch was admitted.
    pub(super) fn admitted_late(&mut self) {
        if let Some(last) = self.last.last_mut() {
            last.admitted = last.admitted.saturating_add(1);
        }
    }

    /// The fastest pace at which it refused lately, if it refuses by chance.
    pub(super) fn fastest_by_chance(&mut self) -> Option<Rate> {
        self.by_chance = self.last.len() == COMPARED && self.is_irregular() && !self.depends_on_pace();
        self.by_chance.then(|| self.last.iter().map(|short| short.refused_at).max())?
    }

    fn is_irregular(&self) -> bool {
        let mut admitted: Vec<_> = self.last.iter().map(|short| short.admitted).collect();
        admitted.sort_unstable();
        let times = if self.by_chance { STILL_IRREGULAR } else { IRREGULAR };
        admitted[COMPARED - 2] >= admitted[1].max(1) * times
    }

    fn depends_on_pace(&self) -> bool {
        let mut by_pace = self.last.clone();
        by_pace.sort_by_key(|short| short.refused_at);
        let (slower, faster) = by_pace.split_at(COMPARED / 2);
        let admitted = |half: &[Short]| half.iter().map(|short| short.admitted).sum::<u64>();
        admitted(slower) > admitted(faster) * AS_MANY
    }
}
