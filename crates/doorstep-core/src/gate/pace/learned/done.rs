//! What got done lately, waits included (G6): to send more slowly than that cannot get more done.

use serde::{Deserialize, Serialize};

use super::super::Rate;
use crate::time::Millis;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Done {
    /// The last stretches with the waits that followed them, the oldest first.
    last: Vec<(u64, Millis)>,
    /// The most that got done over so many of them, in millionths of a request per second; it fades.
    most: u64,
}

/// So many stretches are taken together: one alone may have been luck.
const TOGETHER: usize = 3;
/// Each stretch lets the most fade by one part in so many: the receiver may admit less by now.
const FADES: u64 = 10;

impl Done {
    /// A stretch ended, and so much was admitted in it. `cycle`: how long it lasted, with the wait. Returns what got done lately.
    pub(super) fn stretch_ended(&mut self, admitted: u64, cycle: Millis) -> Rate {
        while self.last.len() >= TOGETHER {
            self.last.remove(0);
        }
        self.last.push((admitted, cycle));
        self.most -= self.most / FADES;
        if self.last.len() == TOGETHER {
            let (admitted, lasted) = self.last.iter().fold((0u64, Millis::ZERO), |(admitted, lasted), (n, cycle)| {
                (admitted.saturating_add(*n), lasted + *cycle)
            });
            self.most = self.most.max(Rate::over(admitted.max(1), lasted).into());
        }
        Rate::from(self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_got_done_over_three_stretches_counts_and_fades() {
        let mut done = Done::default();
        let minute = Millis::from_mins(1);
        assert_eq!([30, 90].map(|admitted| done.stretch_ended(admitted, minute)), [Rate::SLOWEST; 2], "too few");
        assert_eq!(done.stretch_ended(60, minute), Rate::per_second(1));
        // One that got little done does not count alone, but the most is forgotten in the end.
        assert_eq!(done.stretch_ended(0, minute), Rate::from(900_000));
        let later = (0..40).map(|_| done.stretch_ended(6, minute)).last().unwrap();
        assert_eq!(later, Rate::from(100_000));
    }

    #[test]
    fn no_more_is_kept_than_is_taken_together_whatever_was_stored() {
        let mut done = Done { last: vec![(u64::MAX, Millis(u64::MAX)); 10], most: u64::MAX };
        assert!(done.stretch_ended(u64::MAX, Millis(u64::MAX)) <= Rate::FASTEST);
        assert_eq!(done.last.len(), TOGETHER);
    }
}
