//! How fast a tenant's producers may send (G12): a bucket of tokens that fills at a rate and holds a burst. Each event costs
//! one.

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

/// What a tenant may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IngestRate {
    /// At least 1.
    pub per_second: u32,
    /// At once, after a pause; at least 1.
    pub burst: u32,
}

/// A thousandth of a token: at `n` a second, `n` of them come in a millisecond.
const TOKEN: u64 = 1_000;

/// What is left of a tenant's burst. Full at first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    left: u64,
    at: Timestamp,
}

impl Bucket {
    pub fn full(rate: IngestRate, now: Timestamp) -> Self {
        Self { left: capacity(rate), at: now }
    }

    /// Takes one token, or says how long it is until there is one.
    pub fn take(&mut self, rate: IngestRate, now: Timestamp) -> Result<(), Millis> {
        self.fill(rate, now);
        if self.left >= TOKEN {
            self.left -= TOKEN;
            return Ok(());
        }
        Err(Millis((TOKEN - self.left).div_ceil(u64::from(rate.per_second.max(1)))))
    }

    /// Whole tokens that are there.
    pub fn left(&self) -> u64 {
        self.left / TOKEN
    }

    /// How long it takes until it is full again.
    pub fn full_in(&self, rate: IngestRate) -> Millis {
        Millis(capacity(rate).saturating_sub(self.left).div_ceil(u64::from(rate.per_second.max(1))))
    }

    /// Whether nothing of it is missing by now.
    pub fn is_full(&self, rate: IngestRate, now: Timestamp) -> bool {
        let mut then = *self;
        then.fill(rate, now);
        then.left == capacity(rate)
    }

    /// A clock that was set back gives nothing, and takes nothing away.
    fn fill(&mut self, rate: IngestRate, now: Timestamp) {
        let came = now.since(self.at).0.saturating_mul(u64::from(rate.per_second.max(1)));
        self.left = self.left.saturating_add(came).min(capacity(rate));
        self.at = now;
    }
}

fn capacity(rate: IngestRate) -> u64 {
    u64::from(rate.burst.max(1)) * TOKEN
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_burst_is_spent_and_comes_back_at_the_rate() {
        let rate = IngestRate { per_second: 2, burst: 3 };
        let mut bucket = Bucket::full(rate, Timestamp(0));
        for _ in 0..3 {
            assert_eq!(bucket.take(rate, Timestamp(0)), Ok(()));
        }
        assert_eq!((bucket.left(), bucket.full_in(rate)), (0, Millis(1_500)));
        assert_eq!(bucket.take(rate, Timestamp(0)), Err(Millis(500)));
        assert_eq!(bucket.take(rate, Timestamp(499)), Err(Millis(1)));
        assert_eq!(bucket.take(rate, Timestamp(500)), Ok(()));
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nobody_up_for_long() {
        let rate = IngestRate { per_second: 1, burst: 1 };
        let mut bucket = Bucket::full(rate, Timestamp(1_000_000));
        assert_eq!(bucket.take(rate, Timestamp(1_000_000)), Ok(()));
        assert_eq!(bucket.take(rate, Timestamp(0)), Err(Millis(1_000)));
        assert_eq!(bucket.take(rate, Timestamp(1_000)), Ok(()));
    }

    proptest! {
        /// Over any stretch of time, however it is asked.
        #[test]
        fn never_more_than_the_burst_and_what_came_meanwhile(
            per_second in 1u32..2_000,
            burst in 1u32..50,
            steps in prop::collection::vec((0u64..700, 1u32..40), 1..60),
        ) {
            let rate = IngestRate { per_second, burst };
            let mut now = Timestamp(1_700_000_000_000);
            let mut bucket = Bucket::full(rate, now);
            let mut taken: Vec<(Timestamp, u64)> = Vec::new();
            for (later, asked) in steps {
                now = now + Millis(later);
                let n = (0..asked).filter(|_| bucket.take(rate, now).is_ok()).count() as u64;
                taken.push((now, n));
                let mut sum = 0;
                for (at, n) in taken.iter().rev() {
                    sum += n;
                    let most = u64::from(burst) * 1_000 + now.since(*at).0 * u64::from(per_second);
                    prop_assert!(sum * 1_000 <= most, "{sum} since {at:?}, by {now:?}");
                }
            }
        }

        /// Whoever waits as long as told is let in.
        #[test]
        fn the_wait_that_is_told_is_enough_and_no_longer_than_needed(per_second in 1u32..2_000, burst in 1u32..9, spent in 0u64..99) {
            let rate = IngestRate { per_second, burst };
            let mut bucket = Bucket::full(rate, Timestamp(0));
            let now = Timestamp(0) + Millis(spent);
            let wait = loop {
                if let Err(wait) = bucket.take(rate, now) {
                    break wait;
                }
            };
            let mut early = bucket;
            prop_assert!(wait == Millis(1) || early.take(rate, now + (wait - Millis(1))).is_err());
            prop_assert!(bucket.take(rate, now + wait).is_ok());
        }
    }
}
