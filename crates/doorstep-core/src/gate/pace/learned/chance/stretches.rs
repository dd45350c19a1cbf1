//! Telling refusals that come by chance from those that the pace brings about.
//!
//! A limit refuses after about as many requests each time, and after more of them at a slower pace. Chance does neither: now three are
//! admitted, now forty, at any pace.

use serde::{Deserialize, Serialize};

use super::super::super::Rate;

/// The last stretches, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Stretches {
    last: Vec<Short>,
    /// Whether they were found to end by chance.
    by_chance: bool,
    /// Grows with each stretch that looks like chance, and shrinks with each that does not.
    evidence: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Short {
    admitted: u64,
    refused_at: Rate,
}

/// How the last stretches are compared. Fewer find chance sooner, more find it where it shows only on the whole.
struct Sample {
    n: usize,
    /// So many of the longest and of the shortest are left out …
    left_out: usize,
    /// … and of the others the longest has at least so many times as many requests as the shortest.
    irregular: u64,
    /// Of the slower half, at most so many times as many were admitted as of the faster half.
    as_many: u64,
}

const SAMPLES: [Sample; 3] = [
    Sample { n: 6, left_out: 1, irregular: 3, as_many: 4 },
    Sample { n: 16, left_out: 3, irregular: 2, as_many: 3 },
    Sample { n: KEPT, left_out: 5, irregular: 2, as_many: 2 },
];
const KEPT: usize = 24;
const FEW: usize = 8;
/// Once chance was found, so many times is irregular enough.
const STILL_IRREGULAR: u64 = 2;
/// With this much evidence, chance is believed although the last stretches do not look like it.
const EVIDENCE: u32 = 4;
const EVIDENCE_MAX: u32 = 12;
/// Fewer than so many on average are no chance where each refusal costs a wait: that would be a receiver that refuses one in six or more,
/// whatever it gets. Where it costs none, a receiver of which one part in three is broken must not be sent to ever more slowly.
const ADMITTED_MIN: u64 = 5;
/// More than so many on average, and what refusals cost is not worth the risk of taking a limit for chance.
const ADMITTED_MAX: u64 = 5_000;

impl Stretches {
    pub(super) fn are_by_chance(&self) -> bool {
        self.by_chance
    }

    pub(super) fn add(&mut self, admitted: u64, refused_at: Rate) {
        // More than that were stored by another version, or damaged.
        while self.last.len() >= KEPT {
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

    /// How many are usually admitted in a stretch.
    pub(super) fn usual(&self) -> u64 {
        admitted(&self.last) / (self.last.len() as u64).max(1)
    }

    /// Decides whether refusals come by chance.
    pub(super) fn judge(&mut self, costs_a_wait: bool) -> bool {
        let looks_like_it = SAMPLES.iter().any(|sample| self.looks_like_chance(sample, costs_a_wait));
        self.evidence = if looks_like_it {
            self.evidence.saturating_add(1).min(EVIDENCE_MAX)
        } else {
            self.evidence.saturating_sub(1)
        };
        self.by_chance = looks_like_it || self.by_chance && self.evidence >= EVIDENCE;
        self.by_chance
    }

    /// Whether the last few were clearly not of one length, as those of a limit are.
    pub(super) fn differ(&self) -> bool {
        let last = &self.last[self.last.len().saturating_sub(FEW)..];
        let mut admitted: Vec<_> = last.iter().map(|short| short.admitted).collect();
        admitted.sort_unstable();
        // The shortest and the longest are left out.
        let [_, shortest, .., longest, _] = admitted[..] else { return false };
        longest >= shortest.max(1).saturating_mul(STILL_IRREGULAR)
    }

    fn looks_like_chance(&self, sample: &Sample, costs_a_wait: bool) -> bool {
        let Some(older) = self.last.len().checked_sub(sample.n) else { return false };
        let last = &self.last[older..];
        let is_frequent = costs_a_wait && admitted(last) < ADMITTED_MIN * sample.n as u64;
        let is_rare = admitted(last) > ADMITTED_MAX * sample.n as u64;
        !is_frequent && !is_rare && self.is_irregular(last, sample) && !depends_on_pace(last, sample.as_many)
    }

    fn is_irregular(&self, last: &[Short], sample: &Sample) -> bool {
        let mut admitted: Vec<_> = last.iter().map(|short| short.admitted).collect();
        admitted.sort_unstable();
        let times = if self.by_chance { STILL_IRREGULAR } else { sample.irregular };
        let (shortest, longest) = (admitted[sample.left_out], admitted[sample.n - 1 - sample.left_out]);
        longest >= shortest.max(1).saturating_mul(times) && drops(last, times) > sample.left_out
    }
}

/// How many stretches were so many times as short as one before them. A pace that comes ever closer to a limit has ever longer ones.
fn drops(last: &[Short], times: u64) -> usize {
    let mut longest = 0;
    let is_drop = |short: &&Short| {
        longest = short.admitted.max(longest);
        longest >= short.admitted.max(1).saturating_mul(times)
    };
    last.iter().filter(is_drop).count()
}

fn depends_on_pace(last: &[Short], as_many: u64) -> bool {
    let mut by_pace = last.to_vec();
    by_pace.sort_by_key(|short| short.refused_at);
    let (slower, faster) = by_pace.split_at(last.len() / 2);
    admitted(slower) > admitted(faster).saturating_mul(as_many)
}

fn admitted(stretches: &[Short]) -> u64 {
    stretches.iter().fold(0, |sum, short| sum.saturating_add(short.admitted))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many were admitted at each of these paces, per second.
    fn stretches(seen: &[(u64, u64)]) -> Stretches {
        let mut stretches = Stretches::default();
        for (admitted, per_second) in seen {
            stretches.add(*admitted, Rate::per_second(*per_second));
        }
        stretches
    }

    const IRREGULAR: [(u64, u64); 6] = [(40, 100), (3, 90), (25, 80), (9, 70), (1, 60), (30, 50)];

    #[test]
    fn as_many_at_any_pace_and_irregular_is_chance() {
        assert!(stretches(&IRREGULAR).judge(true));
        assert!(!stretches(&IRREGULAR[1..]).judge(true), "too few to tell");
    }

    #[test]
    fn about_as_many_each_time_is_a_limit() {
        let window = [(100, 100), (103, 90), (98, 80), (1, 60), (101, 50), (99, 30)];
        assert!(!stretches(&window).judge(true));
    }

    #[test]
    fn many_more_at_a_slower_pace_is_a_limit() {
        let bucket = [(10, 100), (12, 90), (14, 80), (60, 50), (120, 40), (400, 30)];
        assert!(!stretches(&bucket).judge(true));
    }

    #[test]
    fn one_in_three_is_chance_only_where_it_costs_no_wait() {
        let broken = [(6, 100), (1, 90), (3, 80), (2, 70), (0, 60), (4, 50)];
        assert!(!stretches(&broken).judge(true));
        assert!(stretches(&broken).judge(false));
    }

    #[test]
    fn chance_once_found_is_believed_while_stretches_still_differ_twofold() {
        let twofold = [(30, 50), (44, 50), (20, 50), (35, 50), (48, 50), (18, 50), (25, 50), (40, 50)];
        assert!(!stretches(&twofold).judge(true), "not found to begin with");
        let mut seen = Stretches::default();
        for (admitted, per_second) in IRREGULAR.repeat(2) {
            seen.add(admitted, Rate::per_second(per_second));
            seen.judge(true);
        }
        for (admitted, per_second) in twofold {
            seen.add(admitted, Rate::per_second(per_second));
            assert!(seen.judge(true), "{seen:?}");
        }
    }

    #[test]
    fn chance_is_given_up_after_some_stretches_that_end_regularly() {
        let mut seen = stretches(&IRREGULAR);
        let mut judged = Vec::new();
        for _ in 0..KEPT {
            judged.push(seen.judge(true));
            seen.add(20, Rate::per_second(50));
        }
        assert!(judged[0] && !judged[KEPT - 1], "{judged:?}");
        assert_eq!(
            judged.iter().filter(|was| **was).count(),
            judged.iter().position(|was| !was).unwrap(),
            "and not again"
        );
    }

    #[test]
    fn a_few_stretches_differ_or_are_of_one_length() {
        for (admitted, differ) in [
            (&[4, 4, 4, 7, 4, 4][..], false),
            (&[1, 3, 0, 2, 6, 1], true),
            (&[40, 3, 25, 9], true),
            (&[40, 3, 25], false),
            (&[0, 0, 0, 0, 0, 9], false),
            (&[50, 1, 90, 4, 4, 4, 4, 4, 4, 4, 4], false),
        ] {
            let seen: Vec<_> = admitted.iter().map(|admitted| (*admitted, 10)).collect();
            assert_eq!(stretches(&seen).differ(), differ, "{admitted:?}");
        }
    }

    #[test]
    fn no_more_are_kept_than_are_compared_whatever_was_stored() {
        let last = vec![Short { admitted: u64::MAX, refused_at: Rate::FASTEST }; 100];
        let mut seen = Stretches { last, ..Stretches::default() };
        seen.add(u64::MAX, Rate::FASTEST);
        assert_eq!(seen.last.len(), KEPT);
        // Sums of such numbers do not overflow.
        assert!(!seen.judge(true));
    }

    #[test]
    fn a_late_admission_counts_for_the_last_stretch() {
        let mut seen = stretches(&[(100, 50); 8]);
        for _ in 0..900 {
            seen.admitted_late();
        }
        assert_eq!(seen.last.last().map(|short| short.admitted), Some(1_000));
        assert_eq!(seen.usual(), 212);
    }
}
