//! What a receiver meets when it comes back: ten senders, an outage of five minutes, and everything that gathered.

use std::cell::RefCell;

use doorstep_core::gate::GateLimits;
use doorstep_core::outcome::Outcome;
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::{Arena, Sender};
use crate::senders::{Delays, Doorstep, Naive};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    Fixed,
    Exponential,
    FullJitter,
    Doorstep,
}

impl Strategy {
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Exponential, Self::FullJitter, Self::Doorstep];

    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed delay, 30 s",
            Self::Exponential => "exponential from 30 s, no jitter",
            Self::FullJitter => "exponential from 30 s, full jitter, no ramp",
            Self::Doorstep => "Doorstep",
        }
    }
}

/// What arrived in each second from the start.
#[derive(Clone, Debug)]
pub struct Storm {
    pub per_second: Vec<u64>,
    pub accepted: u64,
}

pub const SENDERS: u64 = 10;
pub const DELIVERIES_EACH: u64 = 5_000;
/// Each sender has a new delivery this often: 100 a second together.
pub const EVERY: Millis = Millis(100);
pub const OUTAGE_BEGINS: Millis = Millis::from_secs(120);
pub const OUTAGE_ENDS: Millis = Millis::from_secs(420);
const LASTS: Millis = Millis::from_hours(3);
const START: Timestamp = Timestamp(1_700_000_000_000);

pub fn run(strategy: Strategy, seed: u64) -> Storm {
    let storm =
        RefCell::new(Storm { per_second: vec![0; usize::try_from(LASTS.0 / 1_000 + 1).unwrap_or(0)], accepted: 0 });
    let receiver = |now: Timestamp| {
        let mut storm = storm.borrow_mut();
        let at = now.since(START);
        storm.per_second[usize::try_from(at.0 / 1_000).unwrap_or(0)] += 1;
        if (OUTAGE_BEGINS..OUTAGE_ENDS).contains(&at) {
            return Outcome::Failed { status: 503, wait: None };
        }
        storm.accepted += 1;
        Outcome::Accepted { quota: None }
    };
    let mut arena = Arena::new(START, Box::new(receiver), seed);
    for n in 0..SENDERS {
        arena.add(sender(strategy, seed * SENDERS + n), DELIVERIES_EACH, Some(EVERY));
    }
    arena.run_until(START + LASTS);
    drop(arena);
    storm.into_inner()
}

fn sender(strategy: Strategy, seed: u64) -> Box<dyn Sender> {
    let limits = GateLimits::default();
    let concurrency = limits.concurrency as usize;
    let (base, cap) = (Millis::from_secs(30), Millis::from_hours(1));
    let delays = match strategy {
        Strategy::Doorstep => return Box::new(Doorstep::new(limits, false, seed, START)),
        Strategy::Fixed => Delays::Fixed(base),
        Strategy::Exponential => Delays::Exponential { base, cap, jitter: false },
        Strategy::FullJitter => Delays::Exponential { base, cap, jitter: true },
    };
    Box::new(Naive::new(delays, concurrency, false, seed))
}

impl Storm {
    /// The average per second while all was well.
    pub fn before(&self) -> f64 {
        let seconds = second(OUTAGE_BEGINS);
        let sum: u64 = self.per_second[10..seconds].iter().sum();
        sum as f64 / (seconds - 10) as f64
    }

    /// The fullest second after the outage.
    pub fn peak_after(&self) -> u64 {
        self.per_second[second(OUTAGE_ENDS)..].iter().copied().max().unwrap_or(0)
    }

    /// Requests made in vain.
    pub fn during(&self) -> u64 {
        self.per_second[second(OUTAGE_BEGINS)..second(OUTAGE_ENDS)].iter().sum()
    }

    /// How long after the outage the last request came.
    pub fn drained_after(&self) -> Millis {
        let last = self.per_second.iter().rposition(|n| *n > 0).unwrap_or(0);
        Millis::from_secs(last as u64) - OUTAGE_ENDS
    }
}

fn second(at: Millis) -> usize {
    usize::try_from(at.0 / 1_000).unwrap_or(0)
}
