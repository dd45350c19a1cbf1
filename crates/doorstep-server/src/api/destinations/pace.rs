//! The pace of a destination: what a person has pinned, and what its receiver has taught.

use doorstep_core::defaults::Maxima;
use doorstep_core::gate::{AdvertisedQuota, LearnedPace, LearnedReason, Rate};
use doorstep_core::time::{Millis, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::shape;
use crate::when::When;

const PER_SECOND_MIN: f64 = 0.001;

/// Requests are spaced evenly at this pace, or at `rate_limit` if that is slower. Nothing is learned meanwhile, and what was learned
/// before is kept. Without it, the pace is learned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PinnedPace {
    #[schema(minimum = 0.001, maximum = 100_000, example = 5)]
    per_second: f64,
}

impl PinnedPace {
    pub(super) fn of(rate: Rate) -> Self {
        Self { per_second: rate.as_per_second() }
    }

    pub(super) fn read(self, maxima: &Maxima) -> Result<Rate, String> {
        read_per_second(self.per_second, maxima)
            .map_err(|wrong| format!("{wrong}; `pinned_pace: null` lets the pace be learned"))
    }
}

/// What the receiver has taught about how fast it may be sent to. While a pace is pinned it is kept, and not in force.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LearnedPaceView {
    /// The learned pace, in requests per second; at most `rate_limit`.
    per_second: f64,
    /// What the receiver seems to take, in requests per second: the pace approaches it and stays a little below. Null while that is not
    /// known; until then the pace grows with each success.
    #[schema(required)]
    estimate_per_second: Option<f64>,
    /// How many requests at once the receiver takes, where its refusals go with that and not with the pace: no more are sent, and
    /// `per_second` is only what they are spaced at. Null otherwise.
    #[schema(required)]
    at_once: Option<u32>,
    #[schema(value_type = shape::LearnedReasonName)]
    reason: LearnedReason,
    /// Since when there has been a learned pace; null if it was learned before this was noted.
    #[schema(required)]
    since: Option<When>,
    /// From then on, under load, it is tried whether the receiver takes more than the estimate, or more at once.
    #[schema(required)]
    next_probe_at: Option<When>,
}

impl LearnedPaceView {
    pub(super) fn of(learned: LearnedPace, now: Timestamp) -> Self {
        let LearnedPace { pace, estimate, at_once, reason, since, next_probe_at } = learned;
        Self {
            per_second: pace.as_per_second(),
            estimate_per_second: estimate.map(Rate::as_per_second),
            at_once,
            reason,
            since: since.map(When),
            // One that is overdue comes with the next load.
            next_probe_at: next_probe_at.map(|at| When(at.max(now))),
        }
    }
}

/// What a receiver says of its own quota.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AdvertisedQuotaView {
    /// Requests that it still admits, without those in flight.
    left: u64,
    /// When the quota is full again.
    resets_at: When,
}

impl AdvertisedQuotaView {
    pub(super) fn of(AdvertisedQuota { left, resets_at }: AdvertisedQuota) -> Self {
        Self { left, resets_at: When(resets_at) }
    }
}

pub(super) fn read_per_second(per_second: f64, maxima: &Maxima) -> Result<Rate, String> {
    let most = maxima.rate.as_per_second();
    if !(PER_SECOND_MIN..=most).contains(&per_second) {
        return Err(format!("must be between {PER_SECOND_MIN} and {most}, but is {per_second}"));
    }
    // In millionths of a request: the range above fits, and nothing is lost that could be measured. Rounded, or 4.1
    // would be shown as 4.099999.
    Ok(Rate::over((per_second * 1e6).round() as u64, Millis(1_000_000_000)))
}

#[cfg(test)]
mod tests {
    use doorstep_core::defaults::PER_SECOND_MAX;

    use super::*;

    #[test]
    fn a_rate_is_shown_as_it_was_given() {
        for per_second in [PER_SECOND_MIN, 0.29, 1.1, 4.1, 8.2, 1_000.7, PER_SECOND_MAX.into()] {
            let rate = read_per_second(per_second, &Maxima::default()).unwrap();
            assert_eq!(rate.as_per_second(), per_second);
            assert_eq!(PinnedPace::of(rate), PinnedPace { per_second });
        }
    }

    #[test]
    fn a_pinned_pace_out_of_bounds_is_refused_with_what_is_allowed() {
        let maxima = Maxima { rate: Rate::per_second(50), ..Maxima::default() };
        for per_second in [0.0, -1.0, 0.0009, 50.1, f64::NAN] {
            let wrong = PinnedPace { per_second }.read(&maxima).unwrap_err();
            assert!(wrong.starts_with("must be between 0.001 and 50, but is "), "{wrong}");
            assert!(wrong.contains("null"), "{wrong}");
        }
    }
}
