//! A share of all requests, as people write it: `30%`.

use std::str::FromStr;

use doorstep_core::dice::Jitter;

/// Parts of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share(u32);

const WHOLE: u32 = 1_000_000;

impl Share {
    pub(crate) const ALL: Self = Self(WHOLE);

    /// Whether a draw falls into this share: as many of many draws as the share says.
    pub(crate) fn hits(self, draw: Jitter) -> bool {
        (u128::from(draw.0) * u128::from(WHOLE)) >> 64 < u128::from(self.0)
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
        let percent =
            percent.ok_or_else(|| format!("`{text}` is not a share: write 0% to 100%, such as 30% or 0.5%"))?;
        Ok(Self((percent * f64::from(WHOLE) / 100.0).round() as u32))
    }
}

#[cfg(test)]
mod tests {
    use doorstep_core::dice::{Dice, SeededDice};

    use super::*;

    #[test]
    fn a_share_of_many_draws_is_hit() {
        for (text, expected) in [("0%", 0), ("0.5%", 500), ("30%", 30_000), ("100%", 100_000)] {
            let share: Share = text.parse().unwrap();
            let mut dice = SeededDice::new(3);
            let hits = (0..100_000).filter(|_| share.hits(dice.roll())).count();
            assert!(hits.abs_diff(expected) < 500, "{text}: {hits}");
        }
        assert!(!"0%".parse::<Share>().unwrap().hits(Jitter::LOWEST));
        assert!(Share::ALL.hits(Jitter::HIGHEST));
    }

    #[test]
    fn what_is_no_share_is_refused() {
        for text in ["", "30", "0.3", "-1%", "101%", "NaN%", "a%"] {
            assert!(text.parse::<Share>().unwrap_err().contains("such as 30%"), "{text}");
        }
    }
}
