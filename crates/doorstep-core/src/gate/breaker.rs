//! The circuit breaker: a destination that mostly fails is left alone, then tested with a single probe (G8).
//!
//! In code the circuit is `flowing` or `tripped`; the API calls it closed and open. Tripped with its cool-down over
//! is half-open: the next request is the probe.

use serde::{Deserialize, Serialize};

use super::{GateChange, GateLimits, Hold, Permit, Why};
use crate::dice::Jitter;
use crate::time::{Millis, Timestamp};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breaker {
    /// Set while tripped: when the next probe may go.
    probe_at: Option<Timestamp>,
    /// Trips since it last flowed for a while: each doubles the cool-down.
    trips: u32,
    flowing_since: Timestamp,
    failures_in_row: u32,
    recent: Rolling,
    /// Counts every change between flowing and tripped, so that late answers to earlier requests do not count.
    generation: u32,
}

/// A cool-down is stretched by up to this share of itself, so that destinations do not probe in step.
const COOL_DOWN_STRETCH_SHARE: u64 = 5;

impl Breaker {
    pub fn is_tripped(&self) -> bool {
        self.probe_at.is_some()
    }

    pub fn probe_at(&self) -> Option<Timestamp> {
        self.probe_at
    }

    pub fn trips(&self) -> u32 {
        self.trips
    }

    pub(super) fn generation(&self) -> u32 {
        self.generation
    }

    /// A clock that was set back must not keep a destination shut for longer than any cool-down.
    pub(super) fn notice_clock(&mut self, limits: &GateLimits, now: Timestamp) {
        let longest = limits.breaker.cool_down_max.times(2);
        self.probe_at = self.probe_at.map(|probe_at| probe_at.min(now + longest));
        self.flowing_since = self.flowing_since.min(now);
    }

    pub(super) fn hold(&self, probe_in_flight: bool, now: Timestamp) -> Option<Hold> {
        let probe_at = self.probe_at?;
        if now < probe_at {
            return Some(Hold::until(Why::Breaker, probe_at));
        }
        probe_in_flight.then(|| Hold::for_event(Why::Breaker))
    }

    /// A living receiver answered. Closes the circuit if this was the probe.
    pub(super) fn answered(&mut self, permit: &Permit, limits: &GateLimits, now: Timestamp) -> Option<GateChange> {
        if permit.breaker_generation != self.generation {
            return None;
        }
        if permit.probe {
            self.flow(now);
            return Some(GateChange::Recovered);
        }
        self.failures_in_row = 0;
        self.recent.count(false, now);
        self.forgive(limits, now);
        None
    }

    /// A transient failure. Opens the circuit if it is one too many, or if this was the probe.
    pub(super) fn failed(
        &mut self,
        permit: &Permit,
        limits: &GateLimits,
        now: Timestamp,
        jitter: Jitter,
    ) -> Option<GateChange> {
        if permit.breaker_generation != self.generation {
            return None;
        }
        self.failures_in_row = self.failures_in_row.saturating_add(1);
        self.recent.count(true, now);
        self.forgive(limits, now);
        let trips = permit.probe
            || self.failures_in_row >= limits.breaker.failures_in_row
            || self.recent.fails_too_much(limits);
        trips.then(|| self.trip(limits, now, jitter))
    }

    fn trip(&mut self, limits: &GateLimits, now: Timestamp, jitter: Jitter) -> GateChange {
        let cool_down = limits.breaker.cool_down.doubled(self.trips).min(limits.breaker.cool_down_max);
        let until = now + cool_down + jitter.up_to(Millis(cool_down.0 / COOL_DOWN_STRETCH_SHARE));
        self.trips = self.trips.saturating_add(1);
        self.probe_at = Some(until);
        self.generation = self.generation.wrapping_add(1);
        GateChange::Tripped { until, trips: self.trips }
    }

    fn flow(&mut self, now: Timestamp) {
        self.probe_at = None;
        self.flowing_since = now;
        self.failures_in_row = 0;
        self.recent = Rolling::default();
        self.generation = self.generation.wrapping_add(1);
    }

    /// A destination that flaps keeps its long cool-downs; one that has flowed for the longest of them starts anew.
    fn forgive(&mut self, limits: &GateLimits, now: Timestamp) {
        if !self.is_tripped() && now.since(self.flowing_since) > limits.breaker.cool_down_max {
            self.trips = 0;
        }
    }

    pub(super) fn probe_now(&mut self, now: Timestamp) {
        if let Some(probe_at) = &mut self.probe_at {
            *probe_at = now.min(*probe_at);
        }
    }
}

/// Requests and failures of the last minute, in slices that are forgotten as they age.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Rolling {
    slices: [Slice; SLICES],
    newest: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Slice {
    requests: u32,
    failures: u32,
}

const SLICES: usize = 6;
const SLICE_MS: i64 = 10_000;

impl Rolling {
    fn count(&mut self, failed: bool, now: Timestamp) {
        self.advance(now.0.div_euclid(SLICE_MS));
        let slice = &mut self.slices[index(self.newest)];
        slice.requests = slice.requests.saturating_add(1);
        slice.failures = slice.failures.saturating_add(u32::from(failed));
    }

    fn advance(&mut self, current: i64) {
        // A step back within the minute is counted as now; a longer one means that the clock was set.
        let steps = current.saturating_sub(self.newest);
        if !(-SLICES_I64..=SLICES_I64).contains(&steps) {
            *self = Self { newest: current, ..Self::default() };
        }
        for _ in 0..steps.max(0) {
            if self.newest == current {
                break;
            }
            self.newest += 1;
            self.slices[index(self.newest)] = Slice::default();
        }
    }

    fn fails_too_much(&self, limits: &GateLimits) -> bool {
        let requests: u64 = self.slices.iter().map(|s| u64::from(s.requests)).sum();
        let failures: u64 = self.slices.iter().map(|s| u64::from(s.failures)).sum();
        requests >= u64::from(limits.breaker.requests_min)
            && failures * 100 >= requests * u64::from(limits.breaker.failure_percent)
    }
}

const SLICES_I64: i64 = 6;

fn index(slice: i64) -> usize {
    usize::try_from(slice.rem_euclid(SLICES_I64)).unwrap_or(0)
}
