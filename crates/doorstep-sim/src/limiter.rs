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

    /// The limit changes now. What was used of it stays used.
    pub fn change(&mut self, capacity: u64, window: Millis, now: Timestamp) {
        if let State::Bucket { filled, filled_at } = &mut self.state {
            let gained = now.since(*filled_at).0.saturating_mul(self.capacity);
            let old = filled.saturating_add(gained).min(self.capacity * self.window.0);
            // Tokens are counted in parts of a window, and the window is another now.
            let new = u128::from(old) * u128::from(window.0) / u128::from(self.window.0.max(1));
            (*filled, *filled_at) = (u64::try_from(new).unwrap_or(u64::MAX), now);
        }
        (self.capacity, self.window) = (capacity, window);
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
                // More than the capacity are in the window if it has just been lowered.
                if let Some(over) = (admitted.len() as u64).checked_sub(capacity) {
                    let last_to_go = admitted[usize::try_from(over).unwrap_or(usize::MAX)];
                    return Err((last_to_go + window).since(now));
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

impl Limiter {
    /// How many more would be admitted now, and how long until something is given back: all of a fixed window, or of the others as much
    /// as is missing, but the first one at once if there is nothing left.
    pub fn left(&self, now: Timestamp) -> (u64, Millis) {
        let (capacity, window) = (self.capacity, self.window);
        match &self.state {
            State::Fixed { window_index, used } => {
                let width = i64::try_from(window.0).expect("a window of less than an age");
                let index = now.0.div_euclid(width);
                let used = if index == *window_index { *used } else { 0 };
                (capacity.saturating_sub(used), Timestamp((index + 1) * width).since(now))
            }
            State::Sliding { admitted } => {
                let gone = admitted.partition_point(|arrived| *arrived + window <= now);
                let left = capacity.saturating_sub((admitted.len() - gone) as u64);
                let (oldest, newest) = (admitted.get(gone), admitted.back());
                let next = if left == 0 { oldest } else { newest };
                (left, next.map_or(Millis::ZERO, |arrived| (*arrived + window).since(now)))
            }
            State::Bucket { filled, filled_at } => {
                let gained = now.since(*filled_at).0.saturating_mul(capacity);
                let filled = filled.saturating_add(gained).min(capacity * window.0);
                let wanted = if filled < window.0 { window.0 } else { capacity * window.0 };
                (filled / window.0, Millis((wanted - filled).div_ceil(capacity)))
            }
        }
    }

    /// Of a sliding window with this capacity: whether a request is admitted that arrives at `at`, when so many more arrive
    /// before it, or how long until then. Looks without counting. `None`: it is of another kind.
    pub fn sliding_room(&self, at: Timestamp, in_air: usize, capacity: u64) -> Option<Result<(), Millis>> {
        let State::Sliding { admitted } = &self.state else { return None };
        let gone = admitted.partition_point(|arrived| *arrived + self.window <= at);
        let there = (admitted.len() - gone + in_air) as u64;
        let Some(over) = there.checked_sub(capacity) else { return Some(Ok(())) };
        let last_to_go = gone.saturating_add(usize::try_from(over).unwrap_or(usize::MAX));
        // Those that are still on their way will be counted for a whole window.
        Some(Err(admitted.get(last_to_go).map_or(self.window, |arrived| (*arrived + self.window).since(at))))
    }
}

/// A leaky bucket that is a queue: requests are let through at even intervals, and refused when too many wait.
#[derive(Clone, Debug)]
pub struct Queue {
    /// Microseconds from one request to the next.
    interval: u64,
    /// So many may wait.
    depth: u64,
    /// Microseconds since the epoch: when the next request is let through.
    free_at: i64,
}

/// Nobody waits in a queue for longer, in microseconds, or the request would time out at the sender's end.
const QUEUED_MAX: u64 = 5_000_000;

impl Queue {
    pub fn new(interval_micros: u64, depth: u64) -> Self {
        Self { interval: interval_micros.max(1), depth, free_at: i64::MIN }
    }

    pub fn change(&mut self, interval_micros: u64) {
        self.interval = interval_micros.max(1);
    }

    /// Says how long an admitted request waits in the queue, or how long until there is room for one.
    pub fn admit(&mut self, now: Timestamp) -> Result<Millis, Millis> {
        let now = now.0.saturating_mul(1_000);
        let goes_at = self.free_at.max(now);
        let waits = goes_at.abs_diff(now);
        let longest = (self.depth * self.interval).min(QUEUED_MAX);
        if waits > longest {
            return Err(Millis((waits - longest).div_ceil(1_000)));
        }
        self.free_at = goes_at.saturating_add_unsigned(self.interval);
        Ok(Millis(waits.div_ceil(1_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_lowered_counts_what_was_used_before() {
        for kind in Kind::ALL {
            let start = Timestamp(60_000_000);
            let mut limiter = Limiter::new(kind, 10, Millis::from_secs(10), start);
            for _ in 0..8 {
                assert_eq!(limiter.admit(start), Ok(()), "{kind:?}");
            }
            // Half as many per second: a bucket keeps its size and fills more slowly.
            let bucket = kind == Kind::TokenBucket;
            let (capacity, window) = if bucket { (10, Millis::from_secs(20)) } else { (5, Millis::from_secs(10)) };
            limiter.change(capacity, window, start);
            if bucket {
                assert_eq!((limiter.admit(start), limiter.admit(start)), (Ok(()), Ok(())));
            }
            let wait = limiter.admit(start).unwrap_err();
            assert!(limiter.admit(start + wait - Millis(1)).is_err(), "{kind:?}");
            assert_eq!(limiter.admit(start + wait), Ok(()), "{kind:?}");
        }
    }

    #[test]
    fn a_queue_lets_requests_through_evenly_and_refuses_when_it_is_full() {
        let start = Timestamp(60_000_000);
        let mut queue = Queue::new(100_000, 3);
        let waits: Vec<_> = (0..5).map(|_| queue.admit(start)).collect();
        assert_eq!(waits, [Ok(Millis(0)), Ok(Millis(100)), Ok(Millis(200)), Ok(Millis(300)), Err(Millis(100))]);
        assert!(queue.admit(start + Millis(99)).is_err());
        assert_eq!(queue.admit(start + Millis(100)), Ok(Millis(300)));
    }

    #[test]
    fn a_look_at_a_sliding_window_tells_the_same_as_a_request() {
        let start = Timestamp(60_000_000);
        let mut limiter = Limiter::new(Kind::SlidingWindow, 10, Millis::from_secs(1), start);
        for ms in (0..5_000).step_by(37) {
            let now = start + Millis(ms);
            // Two more than there are, as if they were on their way.
            let mut with_two = limiter.clone();
            let two = (with_two.admit(now), with_two.admit(now));
            if two == (Ok(()), Ok(())) {
                assert_eq!(limiter.sliding_room(now, 2, 10), Some(with_two.admit(now)), "{ms} ms");
            }
            assert_eq!(limiter.sliding_room(now, 0, 10), Some(limiter.clone().admit(now)), "{ms} ms");
            let _ = limiter.admit(now);
        }
        assert_eq!(Limiter::new(Kind::TokenBucket, 1, Millis(1), start).sliding_room(start, 0, 1), None);
    }

    #[test]
    fn what_is_left_can_be_used_and_more_comes_when_it_says() {
        for kind in Kind::ALL {
            let start = Timestamp(60_000_000);
            let mut limiter = Limiter::new(kind, 10, Millis::from_secs(60), start);
            for n in 0..10 {
                assert_eq!(limiter.left(start).0, 10 - n, "{kind:?}");
                assert_eq!(limiter.admit(start), Ok(()), "{kind:?}");
            }
            let (left, resets_in) = limiter.left(start);
            assert_eq!((left, Err(resets_in)), (0, limiter.admit(start)), "{kind:?}");
            assert_eq!(limiter.admit(start + resets_in), Ok(()), "{kind:?}");
        }
    }

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
