//! How long things took, in little space: every value is kept to within 2 %.

use std::time::Duration;

/// Each doubling is cut into so many parts.
const PARTS: u64 = 64;

/// Counts of microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    n: u64,
}

impl Histogram {
    pub(super) fn add(&mut self, took: Duration) {
        let at = place(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.n += 1;
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.n += other.n;
    }

    /// In milliseconds: this share took at most so long. Nothing if there is nothing.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let wanted = ((self.n as f64 * share).ceil() as u64).max(1);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= wanted {
                return upper(at) as f64 / 1_000.0;
            }
        }
        0.0
    }
}

/// Values below `PARTS` have a place of their own; from there each doubling has `PARTS / 2`.
fn place(value: u64) -> usize {
    let doublings = value.checked_ilog2().unwrap_or(0).saturating_sub(PARTS.ilog2() - 1);
    usize::try_from(u64::from(doublings) * (PARTS / 2) + (value >> doublings)).unwrap_or(usize::MAX)
}

/// The highest value of a place.
fn upper(at: usize) -> u64 {
    let (at, half) = (at as u64, PARTS / 2);
    let doublings = (at / half).saturating_sub(1);
    let first = (at - doublings * half) << doublings;
    first + (1 << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_kept_to_within_a_few_hundredths() {
        let mut last = 0;
        for value in (0..10_000).chain((1..60).map(|n| (1 << n) - 1)).chain((1..60).map(|n| (1 << n) + 1)) {
            let upper = upper(place(value));
            assert!(value <= upper && upper - value <= value / 32, "{value} is kept as {upper}");
            last = last.max(place(value));
        }
        assert!(last < 4_096, "{last} places");
    }

    #[test]
    fn quantiles_are_those_of_what_was_added() {
        let mut histogram = Histogram::default();
        for ms in 1..=100 {
            histogram.add(Duration::from_millis(ms));
        }
        for (share, expected) in [(0.0, 1.0), (0.5, 50.0), (0.99, 99.0), (1.0, 100.0)] {
            let found = histogram.quantile(share);
            assert!((found / expected - 1.0).abs() < 0.04, "{share}: {found} instead of {expected}");
        }
        assert_eq!(Histogram::default().quantile(0.5), 0.0);
    }
}
