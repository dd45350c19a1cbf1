//! How many new deliveries a destination gets over time, whether or not they can be sent.

use serde::{Deserialize, Serialize};

use super::Rate;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Arrivals {
    /// The average, in millionths of a delivery per second. It starts at zero: what it has not seen it does not claim.
    average: u64,
    slice_began_at: Timestamp,
    n_in_slice: u64,
}

/// Slices of this length, each counting for an eighth: the average reaches back about 80 s.
const SLICE: Millis = Millis::from_secs(10);
const SLICE_SHARE: u64 = 8;
/// After so many slices nothing is left of what was before them.
const SLICES_MAX: u64 = 64;

impl Arrivals {
    pub(super) fn arrived(&mut self, n: u64, now: Timestamp) {
        self.advance(now);
        self.n_in_slice = self.n_in_slice.saturating_add(n);
    }

    pub(super) fn rate(&mut self, now: Timestamp) -> Rate {
        self.advance(now);
        Rate::from_micros(self.average)
    }

    fn advance(&mut self, now: Timestamp) {
        let elapsed = now.since(self.slice_began_at);
        if elapsed < SLICE {
            return;
        }
        let slice = if self.n_in_slice == 0 { 0 } else { Rate::over(self.n_in_slice, elapsed).0 };
        for _ in 0..(elapsed.0 / SLICE.0).min(SLICES_MAX) {
            self.average = self.average - self.average / SLICE_SHARE + slice / SLICE_SHARE;
        }
        (self.slice_began_at, self.n_in_slice) = (now, 0);
    }

    pub(super) fn notice_clock(&mut self, now: Timestamp) {
        self.slice_began_at = self.slice_began_at.min(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Timestamp = Timestamp(1_700_000_000_000);

    #[test]
    fn the_average_follows_a_steady_rate_and_forgets_it() {
        let mut arrivals = Arrivals::default();
        for n in 0..6_000 {
            arrivals.arrived(2, T0 + Millis(n * 100));
        }
        let end = T0 + Millis::from_mins(10);
        let rate = arrivals.rate(end).as_per_second();
        assert!((19.5..20.1).contains(&rate), "{rate}");
        let later = arrivals.rate(end + Millis::from_mins(5)).as_per_second();
        assert!(later < 0.6, "{later}");
    }

    #[test]
    fn one_batch_is_no_rate() {
        let mut arrivals = Arrivals::default();
        arrivals.arrived(1_000, T0);
        assert!(arrivals.rate(T0).as_per_second() < 0.1, "nothing is known yet");
        let rate = arrivals.rate(T0 + Millis::from_secs(10)).as_per_second();
        assert!((12.0..13.0).contains(&rate), "1 000 in 80 s: {rate}");
    }
}
