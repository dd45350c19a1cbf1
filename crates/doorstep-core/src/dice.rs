//! Chance, as an argument. A decision takes a drawn number, so both ends of every range can be tested exactly.

use crate::time::Millis;

/// A number drawn uniformly from `[0, 1)`, kept as a fraction of 2⁶⁴.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jitter(pub u64);

impl Jitter {
    /// The smallest draw: ranges yield their lower end.
    pub const LOWEST: Self = Self(0);
    /// The largest draw: ranges yield their upper end.
    pub const HIGHEST: Self = Self(u64::MAX);

    /// A span between zero and `most`, both included.
    pub fn up_to(self, most: Millis) -> Millis {
        let choices = u128::from(most.0) + 1;
        let drawn = (choices * u128::from(self.0)) >> 64;
        Millis(u64::try_from(drawn).unwrap_or(most.0))
    }

    /// A span between `least` and `most`, both included; `least` if the range is empty.
    pub fn between(self, least: Millis, most: Millis) -> Millis {
        least + self.up_to(most - least)
    }
}

/// Whoever owns the randomness hands out draws: a seeded generator in the simulator, the system's in production.
pub trait Dice {
    fn roll(&mut self) -> Jitter;
}

/// A small seeded generator (SplitMix64): the same seed gives the same rolls everywhere. Not for secrets.
#[derive(Clone, Debug)]
pub struct SeededDice(u64);

impl SeededDice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }
}

impl Dice for SeededDice {
    fn roll(&mut self) -> Jitter {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        Jitter(z ^ (z >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_range_can_be_drawn() {
        assert_eq!(Jitter::LOWEST.between(Millis(10), Millis(20)), Millis(10));
        assert_eq!(Jitter::HIGHEST.between(Millis(10), Millis(20)), Millis(20));
        assert_eq!(Jitter::HIGHEST.between(Millis(20), Millis(10)), Millis(20));
        assert_eq!(Jitter::HIGHEST.up_to(Millis::MAX), Millis::MAX);
    }

    #[test]
    fn seeded_rolls_are_spread_evenly() {
        let mut dice = SeededDice::new(7);
        let mut buckets = [0u32; 16];
        for _ in 0..160_000 {
            buckets[usize::try_from(dice.roll().0 >> 60).unwrap()] += 1;
        }
        assert!(buckets.iter().all(|n| (9_500..10_500).contains(n)), "{buckets:?}");
    }
}
