//! Rate limiters as receivers run them, of the three usual kinds.

use std::collections::VecDeque;

use doorstep_core::time::{Millis, Timestamp};

#[derive(Clone, Debug)]
pub struct Limiter {
    kind: Kind,
    capacity: u64,
    window: Millis,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// So many per window, counted anew at each full window of the clock.
    FixedWindow,
    /// So many in any stretch as long as a window.
    SlidingWindow,
    /// A bucket as large as one window's worth, filled evenly.
    TokenBucket,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::FixedWindow, Self::SlidingWindow, Self::TokenBucket];

    pub fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed window",
            Self::SlidingWindow => "sliding window",
            Self::TokenBucket => "token bucket",
        }
    }
}

#[derive(Clone, Debug)]
enum State {
    Fixed {
        window_index: i64,
        used: u64,
    },
    Sliding {
        admitted: VecDeque<Timestamp>,
    },
    /// Tokens in units of one window's millisecond: a whole token is `window` of them.
    Bucket {
        filled: u64,
        filled_at: Timestamp,
    },
}

impl Limiter {
    pub fn new(kind: Kind, capacity: u64, window: Millis, now: Timestamp) -> Self {
        let state = match kind {
            Kind::FixedWindow => State::Fixed { window_index: i64::MIN, used: 0 },
            Kind::SlidingWindow => State::Sliding { admitted: VecDeque::new() },
            Kind::TokenBucket => State::Bucket { filled: capacity * window.0, filled_at: now },
        };
        Self { kind, capacity, window, state }
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Admits a request, or says how long until it would.
    pub fn admit(&mut self, now: Timestamp) -> Result<(), Millis> {
        let (capacity, window) = (self.capacity, self.window);
        match &mut self.state {
            State::Fixed { window_index, used } => {
                let width = i64::try_from(window.0).expect("a window of less than an age");
                let index = now.0.div_euclid(width);
                if index != *window_index {
                    (*window_index, *used) = (index, 0);
                }
                if *used >= capacity {
                    return Err(Timestamp((index + 1) * width).since(now));
                }
                *used += 1;
                Ok(())
            }
            State::Sliding { admitted } => {
                while admitted.front().is_some_and(|first| *first + window <= now) {
                    admitted.pop_front();
                }
                if admitted.len() as u64 >= capacity {
                    return Err((admitted[0] + window).since(now));
                }
                admitted.push_back(now);
                Ok(())
            }
            State::Bucket { filled, filled_at } => {
                let gained = now.since(*filled_at).0.saturating_mul(capacity);
                *filled = filled.saturating_add(gained).min(capacity * window.0);
                *filled_at = now;
                if *filled < window.0 {
                    return Err(Millis((window.0 - *filled).div_ceil(capacity)));
                }
                *filled -= window.0;
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_admits_its_capacity_and_tells_the_truth_about_the_wait() {
        for kind in Kind::ALL {
            let start = Timestamp(60_000_000);
            let mut limiter = Limiter::new(kind, 10, Millis::from_secs(60), start);
            for _ in 0..10 {
                assert_eq!(limiter.admit(start), Ok(()), "{kind:?}");
            }
            let wait = limiter.admit(start).unwrap_err();
            assert!(limiter.admit(start + wait - Millis(1)).is_err(), "{kind:?}");
            assert_eq!(limiter.admit(start + wait), Ok(()), "{kind:?}");
        }
    }
}
