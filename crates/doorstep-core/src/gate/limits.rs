//! What a destination's gate is told to keep to. Every default is the specification's.

use serde::{Deserialize, Serialize};

use super::Rate;
use crate::time::Millis;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateLimits {
    /// At most this many requests at once (G9). At least 1.
    pub concurrency: u32,
    /// At most this many requests over time (G10) …
    pub rate: Rate,
    /// … with this many at once after a silence. At least 1.
    pub burst: u32,
    /// A person's own pace for it: requests are spaced evenly at this rate, or at the configured one if that is slower, and nothing is
    /// learned meanwhile.
    #[serde(default)]
    pub pinned: Option<Rate>,
    /// A receiver's own wish to wait is honoured up to this much (G5).
    pub wait_max: Millis,
    /// How long a receiver is left alone that refuses and does not say for how long, by the count of throttles in a row
    /// (G4). The last one repeats. At least one.
    #[serde(default = "throttle_waits")]
    pub throttle_waits: Vec<Millis>,
    pub breaker: BreakerLimits,
    pub suspension: SuspensionLimits,
}

/// When the breaker trips and how long it stays so (G8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BreakerLimits {
    /// Over the rolling minute, fewer requests than this prove nothing.
    pub requests_min: u32,
    /// This share of transient failures, in per cent, trips it.
    pub failure_percent: u32,
    /// So does this many in a row.
    pub failures_in_row: u32,
    /// The first cool-down; each further one doubles …
    pub cool_down: Millis,
    /// … up to this.
    pub cool_down_max: Millis,
}

/// When permanent answers suspend a destination (G11).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuspensionLimits {
    pub permanent_in_row: u32,
    pub gone_in_row: u32,
}

/// A tripped destination is probed at least this often within the window of its deliveries: otherwise a receiver could be back, and its
/// deliveries die before anybody has looked.
const PROBES_PER_WINDOW: u64 = 4;
/// However short the window: a probe is not a load.
const COOL_DOWN_MIN: Millis = Millis::from_secs(1);

impl GateLimits {
    /// The same, for deliveries that give up after `window`.
    pub fn for_window(mut self, window: Millis) -> Self {
        let breaker = &mut self.breaker;
        breaker.cool_down_max = breaker.cool_down_max.min(Millis(window.0 / PROBES_PER_WINDOW).max(COOL_DOWN_MIN));
        breaker.cool_down = breaker.cool_down.min(breaker.cool_down_max);
        self
    }
}

/// 1 min, 5 min, 15 min, 1 h, 6 h.
fn throttle_waits() -> Vec<Millis> {
    [1, 5, 15, 60, 360].map(Millis::from_mins).to_vec()
}

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            concurrency: 10,
            rate: Rate::per_second(1_000),
            burst: 100,
            pinned: None,
            wait_max: Millis::from_hours(24),
            throttle_waits: throttle_waits(),
            breaker: BreakerLimits::default(),
            suspension: SuspensionLimits::default(),
        }
    }
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self {
            requests_min: 10,
            failure_percent: 50,
            failures_in_row: 10,
            cool_down: Millis::from_secs(30),
            cool_down_max: Millis::from_mins(10),
        }
    }
}

impl Default for SuspensionLimits {
    fn default() -> Self {
        Self { permanent_in_row: 100, gone_in_row: 3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_window_is_probed_several_times_and_a_long_one_as_usual() {
        let cool_downs = |window| {
            let breaker = GateLimits::default().for_window(window).breaker;
            (breaker.cool_down, breaker.cool_down_max)
        };
        assert_eq!(cool_downs(Millis::from_hours(72)), (Millis::from_secs(30), Millis::from_mins(10)));
        assert_eq!(cool_downs(Millis::from_secs(60)), (Millis::from_secs(15), Millis::from_secs(15)));
        assert_eq!(cool_downs(Millis::from_mins(4)), (Millis::from_secs(30), Millis::from_mins(1)));
        assert_eq!(cool_downs(Millis::ZERO), (COOL_DOWN_MIN, COOL_DOWN_MIN));
    }
}
