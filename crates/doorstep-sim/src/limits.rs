//! How close a sender gets to what a receiver admits, and how often it is refused on the way (G6).

use std::cell::Cell;

use doorstep_core::gate::{GateLimits, Rate};
use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::{Arena, Sender};
use crate::limiter::{Kind, Limiter};
use crate::senders::{Delays, Doorstep, Naive};

/// A receiver's limit.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub capacity: u64,
    pub window: Millis,
    pub kind: Kind,
    /// Whether its refusals say when to come back.
    pub says_when: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum Who {
    Doorstep,
    Naive,
}

/// What a receiver saw in the hour after the first five minutes.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Admitted requests as a share of what the limit allows.
    pub used: f64,
    /// Refusals as a share of all requests.
    pub refused: f64,
}

impl Measured {
    /// What G6 asks for: at least 90 % of the limit, at most 5 % refused.
    pub fn is_good(&self) -> bool {
        self.used >= 0.9 && self.refused <= 0.05
    }
}

pub const SIZES: [(u64, Millis); 6] = [
    (10, Millis::from_secs(60)),
    (100, Millis::from_secs(60)),
    (1_000, Millis::from_secs(60)),
    (10, Millis::from_secs(1)),
    (100, Millis::from_secs(1)),
    (1_000, Millis::from_secs(1)),
];

const WARM_UP: Millis = Millis::from_mins(5);
const MEASURED: Millis = Millis::from_hours(1);
const START: Timestamp = Timestamp(1_700_000_012_345);

/// Runs a sender with an endless backlog against a limit.
pub fn measure(limit: Limit, who: Who, seed: u64) -> Measured {
    let (admitted, refused) = (Cell::new(0u64), Cell::new(0u64));
    let mut limiter = Limiter::new(limit.kind, limit.capacity, limit.window, START);
    let begin = START + WARM_UP;
    let receiver = |now: Timestamp| {
        let counts = u64::from(now >= begin);
        match limiter.admit(now) {
            Ok(()) => {
                admitted.set(admitted.get() + counts);
                Outcome::Accepted { quota: None }
            }
            Err(wait) => {
                refused.set(refused.get() + counts);
                // In whole seconds, rounded up, as the header has it.
                let wait = limit.says_when.then(|| Millis::from_secs(wait.0.div_ceil(1_000)));
                Outcome::Throttled { wait }
            }
        }
    };
    let mut arena = Arena::new(START, Box::new(receiver), seed);
    arena.add(sender(who, seed), 100, None);
    arena.run_until(begin + MEASURED);
    drop(arena);
    let all = admitted.get() + refused.get();
    Measured {
        used: ratio(admitted.get() * limit.window.0, limit.capacity * MEASURED.0),
        refused: ratio(refused.get(), all.max(1)),
    }
}

fn sender(who: Who, seed: u64) -> Box<dyn Sender> {
    let concurrency = 50;
    match who {
        Who::Doorstep => {
            let limits = GateLimits { concurrency, rate: Rate::per_second(5_000), ..GateLimits::default() };
            Box::new(Doorstep::new(limits, true, seed, START))
        }
        Who::Naive => {
            let delays = Delays::Exponential { base: Millis::from_secs(30), cap: Millis::from_hours(1), jitter: true };
            Box::new(Naive::new(delays, concurrency as usize, true, seed))
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}
