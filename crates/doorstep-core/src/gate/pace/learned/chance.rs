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
/// Fewer than so many on average are no chance where each refusal costs a wait: that would be a receiver that refuses one in six or more,
/// whatever it gets. Where it costs none, a receiver of which one part in three is broken must not be sent to ever more slowly.
const ADMITTED_MIN: u64 = 5;
/// Of the slower half, no more than so many times as many were admitted as of the faster half.
const AS_MANY: u64 = 4;

impl Stretches {
    pub(super) fn add(&mut self, admitted: u64, refused_at: Rate) {
        // More than that were stored by another version, or damaged.
        while self.last.len() >= COMPARED {
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
    pub(super) fn fastest_by_chance(&mut self, costs_a_wait: bool) -> Option<Rate> {
        let is_frequent = costs_a_wait && self.is_frequent();
        self.by_chance = self.last.len() == COMPARED && !is_frequent && self.is_irregular() && !self.depends_on_pace();
        self.by_chance.then(|| self.last.iter().map(|short| short.refused_at).max())?
    }

    fn is_frequent(&self) -> bool {
        admitted(&self.last) < ADMITTED_MIN * COMPARED as u64
    }

    fn is_irregular(&self) -> bool {
        let mut admitted: Vec<_> = self.last.iter().map(|short| short.admitted).collect();
        admitted.sort_unstable();
        let times = if self.by_chance { STILL_IRREGULAR } else { IRREGULAR };
        admitted[COMPARED - 2] >= admitted[1].max(1).saturating_mul(times)
    }

    fn depends_on_pace(&self) -> bool {
        let mut by_pace = self.last.clone();
        by_pace.sort_by_key(|short| short.refused_at);
        let (slower, faster) = by_pace.split_at(COMPARED / 2);
        admitted(slower) > admitted(faster).saturating_mul(AS_MANY)
    }
}

fn admitted(stretches: &[Short]) -> u64 {
    stretches.iter().fold(0, |sum, short| sum.saturating_add(short.admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many were admitted at each of these paces, per second.
    fn stretches(seen: [(u64, u64); COMPARED]) -> Stretches {
        let mut stretches = Stretches::default();
        for (admitted, per_second) in seen {
            stretches.add(admitted, Rate::per_second(per_second));
        }
        stretches
    }

    const IRREGULAR: [(u64, u64); COMPARED] =
        [(40, 100), (3, 90), (25, 80), (9, 70), (1, 60), (30, 50), (14, 40), (22, 30)];

    #[test]
    fn as_many_at_any_pace_and_irregular_is_chance() {
        assert_eq!(stretches(IRREGULAR).fastest_by_chance(true), Some(Rate::per_second(100)));
    }

    #[test]
    fn about_as_many_each_time_is_a_limit() {
        let window = [(100, 100), (103, 90), (98, 80), (100, 70), (1, 60), (101, 50), (100, 40), (99, 30)];
        assert_eq!(stretches(window).fastest_by_chance(true), None);
    }

    #[test]
    fn many_more_at_a_slower_pace_is_a_limit() {
        let bucket = [(10, 100), (12, 90), (14, 80), (17, 70), (30, 60), (60, 50), (120, 40), (400, 30)];
        assert_eq!(stretches(bucket).fastest_by_chance(true), None);
    }

    #[test]
    fn chance_once_found_is_believed_while_stretches_still_differ_twofold() {
        let mut seen = stretches(IRREGULAR);
        assert!(seen.fastest_by_chance(true).is_some());
        let twofold = [(30, 50), (44, 50), (20, 50), (35, 50), (48, 50), (18, 50), (25, 50), (40, 50)];
        for (admitted, per_second) in twofold {
            seen.add(admitted, Rate::per_second(per_second));
            assert!(seen.fastest_by_chance(true).is_some(), "{seen:?}");
        }
        assert_eq!(seen.fastest_by_chance(true), Some(Rate::per_second(50)));
        assert_eq!(stretches(twofold).fastest_by_chance(true), None, "not found to begin with");
    }

    #[test]
    fn no_more_are_kept_than_are_compared_whatever_was_stored() {
        let mut seen =
            Stretches { last: vec![Short { admitted: u64::MAX, refused_at: Rate::FASTEST }; 20], by_chance: false };
        seen.add(u64::MAX, Rate::FASTEST);
        assert_eq!(seen.last.len(), COMPARED);
        // Sums of such numbers do not overflow.
        assert_ne!(seen.fastest_by_chance(true), Some(Rate::SLOWEST));
    }

    #[test]
    fn a_late_admission_counts_for_the_last_stretch() {
        let mut seen = stretches([(100, 50); COMPARED]);
        for _ in 0..900 {
            seen.admitted_late();
        }
        assert_eq!(seen.last.last().map(|short| short.admitted), Some(1_000));
        assert_eq!(seen.last.len(), COMPARED);
    }
}
