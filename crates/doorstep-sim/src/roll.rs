//! Small draws, for making up worlds.

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::time::Millis;

pub trait Roll: Dice {
    /// A number below `n`.
    fn below(&mut self, n: u64) -> u64 {
        self.roll().up_to(Millis(n.saturating_sub(1))).0
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        let at = self.below(from.len() as u64);
        from[usize::try_from(at).expect("an index")].clone()
    }
}

impl Roll for SeededDice {}
