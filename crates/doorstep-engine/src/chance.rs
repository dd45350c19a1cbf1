//! Randomness for decisions and names. Not for secrets.

use std::sync::atomic::{AtomicU64, Ordering};

use doorstep_core::dice::{Dice, Jitter, SeededDice};
use doorstep_core::time::Timestamp;

/// Dice with a seed from the operating system.
pub fn dice() -> Result<SeededDice, getrandom::Error> {
    getrandom::u64().map(SeededDice::new)
}

/// Makes names of things: 48 bits of time, so that they sort by age, and 74 bits of chance (UUID version 7).
#[derive(Debug)]
pub struct Ids {
    state: AtomicU64,
}

impl Ids {
    pub fn new() -> Result<Self, getrandom::Error> {
        Ok(Self { state: AtomicU64::new(getrandom::u64()?) })
    }

    pub fn next(&self, now: Timestamp) -> u128 {
        let time = u128::from(now.0.max(0).unsigned_abs() & 0xFFFF_FFFF_FFFF);
        let (high, low) = (u128::from(self.draw() & 0xFFF), u128::from(self.draw() >> 2));
        time << 80 | 7 << 76 | high << 64 | 2 << 62 | low
    }

    fn draw(&self) -> u64 {
        // Every caller gets a state of its own, and the dice make a draw of it.
        let state = self.state.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        let Jitter(drawn) = SeededDice::new(state).roll();
        drawn
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_all_different_and_sort_by_age() {
        let ids = Ids::new().unwrap();
        let of = |ms| (0..1_000).map(|_| ids.next(Timestamp(ms))).collect::<BTreeSet<u128>>();
        let (older, newer) = (of(1_700_000_000_000), of(1_700_000_000_001));
        assert_eq!((older.len(), newer.len()), (1_000, 1_000));
        assert!(older.last() < newer.first());
    }
}
