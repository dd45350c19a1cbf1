//! At which pace most gets done where refusals come by chance.
//!
//! What was admitted and refused lately is counted by pace. Perhaps there is a limit as well, above which more is refused: each place for
//! it is a guess, and so is that there is none. Each guess says what gets done at a pace, waits included, and counts for as much as it
//! fits what was seen.

use serde::{Deserialize, Serialize};

use super::super::super::Rate;
use crate::time::Millis;

/// The paces at which something was sent lately, the slowest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Paces {
    steps: Vec<Step>,
    /// How long a refusal makes us wait, on average.
    wait: Millis,
}

/// Paces that differ by less than a fifth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Step {
    number: u16,
    /// Thousandths of a request, since what is long ago counts for less.
    admitted: u64,
    refused: u64,
}

/// Of a limit somewhere, or of none: the shares that are refused below and above, and how well that fits.
struct Guess {
    /// The first step above the limit.
    limit: u16,
    below: f64,
    above: f64,
    fit: f64,
}

const ONE: u64 = 1_000;
/// Each refusal lets all counts shrink by one part in so many: that many refusals ago counts for about a third.
const MEMORY: u64 = 48;
/// A step with less than this is forgotten.
const FORGOTTEN: u64 = ONE / 10;
/// If more than this share is refused, it is no chance; where refusals cost no wait, more can be.
const SHARE_MAX: f64 = 0.3;
const SHARE_MAX_WITHOUT_WAIT: f64 = 0.5;
/// So many refusals, at the usual share, are taken for granted at each pace: few requests prove little.
const GRANTED: f64 = 0.3;
/// A limit is worth guessing if so many times as much is refused above it as below …
const STEEP: f64 = 1.5;
/// … and it has to fit better than no limit by this much: it has one number more to fit with.
const PENALTY: f64 = 1.5;
/// A refusal costs about so many requests beside the wait: those that could have been under way.
const COST: f64 = 20.0;
const COST_IF_SLOWER_IS_IN_VAIN: f64 = 2.0;
/// A pace is clearly slower than the fastest if it is so many steps below it. What was seen there counts with so many requests and refusals.
const CLEARLY_SLOWER: u16 = 3;
const SLOWER_SEEN_MIN: f64 = 10.0;
const SLOWER_REFUSED_MIN: f64 = 3.5;
const STEPS_TO_DOUBLE: u16 = 4;
/// A limit has to fit better than none by so much more to show that the pace does matter; so it does where more than this share is refused.
const REFUTED: f64 = 1.5;
const IN_VAIN_SHARE_MAX: f64 = 0.42;
/// The pace changes at once by no more than half or double.
const SLOWER_MAX: f64 = 0.5;
const FASTER_MAX: f64 = 2.0;

impl Paces {
    pub(super) fn admitted(&mut self, pace: Rate) {
        let step = self.step(pace);
        step.admitted = step.admitted.saturating_add(ONE);
    }

    pub(super) fn refused(&mut self, pace: Rate, wait: Millis) {
        for step in &mut self.steps {
            step.admitted -= step.admitted / MEMORY;
            step.refused -= step.refused / MEMORY;
        }
        self.steps.retain(|step| step.admitted.saturating_add(step.refused) >= FORGOTTEN);
        let is_first = self.steps.iter().all(|step| step.refused == 0);
        let step = self.step(pace);
        step.refused = step.refused.saturating_add(ONE);
        self.wait = if is_first { wait } else { Millis(self.wait.0 / 5 * 4 + wait.0 / 5) };
    }

    fn step(&mut self, pace: Rate) -> &mut Step {
        let number = step_of(pace);
        let place = self.steps.partition_point(|step| step.number < number);
        if self.steps.get(place).is_none_or(|step| step.number != number) {
            self.steps.insert(place, Step { number, admitted: 0, refused: 0 });
        }
        &mut self.steps[place]
    }

    /// Admitted and refused, at all paces.
    fn sums(&self) -> (f64, f64) {
        self.steps.iter().fold((0.0, 0.0), |sum, step| step.added_to(sum))
    }

    /// The share that is refused, at whatever pace.
    pub(super) fn share(&self) -> f64 {
        let (admitted, refused) = self.sums();
        refused / (admitted + refused).max(1.0)
    }

    /// Whether about as much is refused at a clearly slower pace: then the pace is not what brings refusals about. `None`: not enough was
    /// seen to tell.
    pub(super) fn slower_is_in_vain(&self) -> Option<bool> {
        let fastest = self.steps.last()?.number;
        let slower = self.steps.iter().filter(|step| step.number.saturating_add(CLEARLY_SLOWER) <= fastest);
        let (admitted, refused) = slower.fold((0.0, 0.0), |sum, step| step.added_to(sum));
        if admitted + refused < SLOWER_SEEN_MIN || refused < SLOWER_REFUSED_MIN {
            return None;
        }
        let guesses = self.guesses();
        // The first guess is that there is no limit.
        let (none, limits) = guesses.split_first()?;
        let limit = limits.iter().map(|guess| guess.fit).fold(f64::MIN, f64::max);
        if limit <= none.fit {
            Some(true)
        } else if limit > none.fit + REFUTED || self.share() > IN_VAIN_SHARE_MAX {
            Some(false)
        } else {
            None
        }
    }

    /// The pace to go on with after a refusal at this one, unless too much is refused for chance.
    pub(super) fn best(&self, refused_at: Rate, in_vain: bool) -> Option<Rate> {
        let share = self.share();
        let share_max = if self.wait == Millis::ZERO { SHARE_MAX_WITHOUT_WAIT } else { SHARE_MAX };
        if share <= 0.0 || share > share_max {
            return None;
        }
        let guesses = self.guesses();
        let here = step_of(refused_at);
        let cost = if in_vain { COST_IF_SLOWER_IS_IN_VAIN } else { COST };
        let wait = self.wait.0 as f64 / 1e3 + cost / middle_of(here);
        let fastest = if in_vain { here.saturating_add(STEPS_TO_DOUBLE) } else { 0 };
        let fastest = fastest.max(self.steps.last()?.number.saturating_add(1));
        let candidates = self.steps.iter().map(|step| step.number).chain([fastest]);
        // Of equals, the faster one.
        let best = candidates.max_by(|a, b| {
            let done = |step: &u16| expected(&guesses, *step, wait);
            done(a).total_cmp(&done(b)).then(a.cmp(b))
        })?;
        if best == here {
            return Some(refused_at);
        }
        let refused_at = refused_at.as_per_second();
        let pace = middle_of(best).clamp(refused_at * SLOWER_MAX, refused_at * FASTER_MAX);
        Some(Rate::from_micros((pace * 1e6) as u64))
    }

    fn guesses(&self) -> Vec<Guess> {
        let (admitted, refused) = self.sums();
        let usual = refused / (admitted + refused).max(1.0);
        // The share that is refused, and the logarithm of how likely that is.
        let part = |admitted: f64, refused: f64| {
            let share = (refused + GRANTED) / (admitted + refused + GRANTED / usual);
            (share, refused * share.ln() + admitted * (1.0 - share).ln())
        };
        let (share, fit) = part(admitted, refused);
        let mut guesses = vec![Guess { limit: u16::MAX, below: share, above: share, fit }];
        let mut slower = (0.0, 0.0);
        for step in &self.steps {
            if slower != (0.0, 0.0) {
                let (below, below_fit) = part(slower.0, slower.1);
                let (above, above_fit) = part(admitted - slower.0, refused - slower.1);
                if above > below * STEEP {
                    guesses.push(Guess { limit: step.number, below, above, fit: below_fit + above_fit - PENALTY });
                }
            }
            slower = step.added_to(slower);
        }
        guesses
    }
}

impl Step {
    /// Admitted and refused, with these.
    fn added_to(&self, (admitted, refused): (f64, f64)) -> (f64, f64) {
        (admitted + requests(self.admitted), refused + requests(self.refused))
    }
}

/// What gets done at a step, per second, by all guesses. `wait`: what a refusal costs, in seconds.
fn expected(guesses: &[Guess], step: u16, wait: f64) -> f64 {
    let best_fit = guesses.iter().map(|guess| guess.fit).fold(f64::MIN, f64::max);
    let weighed = guesses.iter().map(|guess| {
        let refused = if step < guess.limit { guess.below } else { guess.above };
        let done = (1.0 - refused) / (1.0 / middle_of(step) + refused * wait);
        let weight = (guess.fit - best_fit).exp();
        (done * weight, weight)
    });
    let (sum, weights) = weighed.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    sum / weights
}

fn requests(thousandths: u64) -> f64 {
    thousandths as f64 / ONE as f64
}

/// Four steps to each doubling.
fn step_of(pace: Rate) -> u16 {
    let micros = u64::from(pace).max(4);
    let doublings = micros.ilog2();
    let quarter = (micros >> (doublings - 2)) & 3;
    u16::try_from(u64::from(doublings) * 4 + quarter).unwrap_or(u16::MAX)
}

/// The pace in the middle of a step, per second.
fn middle_of(step: u16) -> f64 {
    let doublings = (u64::from(step) / 4).min(62);
    (1u64 << doublings) as f64 * (1.125 + f64::from(step % 4) / 4.0) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Millis = Millis::from_secs(1);

    /// Stretches at these paces, each with so many admitted.
    fn paces(stretches: &[(u64, u64)], wait: Millis) -> Paces {
        let mut paces = Paces::default();
        for (per_second, admitted) in stretches {
            for _ in 0..*admitted {
                paces.admitted(Rate::per_second(*per_second));
            }
            paces.refused(Rate::per_second(*per_second), wait);
        }
        paces
    }

    #[test]
    fn steps_are_a_fifth_apart_and_hold_their_middle() {
        for micros in [278, 1_000, 123_456, 99_999_999, 1_000_000_000_000] {
            let rate = Rate::from(micros);
            let middle = middle_of(step_of(rate));
            assert!((0.88..1.14).contains(&(middle / rate.as_per_second())), "{rate:?}: {middle}");
        }
    }

    #[test]
    fn where_all_paces_are_refused_alike_the_pace_rises() {
        let seen = paces(&[(10, 20), (8, 19), (5, 21), (4, 20)], SECOND);
        let best = seen.best(Rate::per_second(4), false).unwrap();
        assert_eq!(best.as_per_second(), 8.0, "twice as fast, and no more at once");
        let best = seen.best(Rate::per_second(10), false).unwrap();
        assert!(best.as_per_second() > 10.0, "{best:?}");
    }

    #[test]
    fn a_pace_above_a_limit_is_left() {
        let seen = paces(&[(10, 20), (20, 1), (10, 25), (20, 0), (10, 18), (20, 1), (10, 22), (20, 1)], SECOND);
        let best = seen.best(Rate::per_second(20), false).unwrap();
        assert!((9.0..=12.0).contains(&best.as_per_second()), "{best:?}");
    }

    #[test]
    fn what_is_refused_too_often_is_no_chance() {
        assert_eq!(paces(&[(10, 2), (8, 1), (5, 2)], SECOND).best(Rate::per_second(5), false), None);
        assert_eq!(Paces::default().best(Rate::per_second(5), false), None);
        let broken = paces(&[(10, 2), (8, 1), (5, 2)], Millis::ZERO);
        assert!(
            broken.best(Rate::per_second(5), false) >= Some(Rate::per_second(5)),
            "one in three is broken, and that costs no wait"
        );
    }

    #[test]
    fn what_is_long_ago_is_forgotten_and_no_count_overflows() {
        let mut seen = paces(&[(1_000, 50)], SECOND);
        for _ in 0..MEMORY * 20 {
            seen.refused(Rate::per_second(1), Millis(u64::MAX));
        }
        assert_eq!(seen.steps.len(), 1, "{seen:?}");
        seen.steps[0].admitted = u64::MAX;
        seen.admitted(Rate::per_second(1));
        assert!(seen.best(Rate::per_second(1), false).is_some());
    }
}
