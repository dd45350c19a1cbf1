//! What a receiver meets when it comes back from an outage: with the gate, and with the same policy but no gate.
//!
//! Deliveries come evenly, before, during and after the outage. While it is down the receiver answers 503; otherwise also to
//! what exceeds its capacity. The gate is the real one, inside the real scheduler, with its defaults.

mod books;
mod gated;
mod plain;

use doorstep_core::retry::RetryPolicy;
use doorstep_core::time::{Millis, Timestamp};

use crate::rate::Rate;

pub(super) use books::{Books, Curve};

/// What is simulated.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) policy: RetryPolicy,
    pub(super) arrivals: Rate,
    pub(super) capacity: Rate,
    pub(super) outage: Millis,
    /// How long the time after the outage is watched.
    pub(super) after: Millis,
    pub(super) seed: u64,
}

/// The load with the gate and without it.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    pub(super) gated: Curve,
    pub(super) plain: Curve,
}

/// All was well for this long, or for a tenth of the outage if that is shorter.
const BEFORE_MAX: Millis = Millis::from_mins(5);
/// No story is longer than this …
const LASTS_MAX: Millis = Millis::from_hours(24 * 7);
/// … has more deliveries than this …
const DELIVERIES_MAX: u64 = 500_000;
/// … or more requests.
const REQUESTS_MAX: u64 = 20_000_000;

/// An answer takes this long.
const ANSWERS_AFTER: Millis = Millis(20);

/// A story that would take too long to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TooMuch {
    #[error("more than {LASTS_MAX} in all cannot be simulated: shorten --outage or --for")]
    Long,
    #[error(
        "{0} deliveries are too many to simulate, at most {DELIVERIES_MAX}: lower --rate, or shorten --outage or --for"
    )]
    Deliveries(u64),
    #[error(
        "the plain retries would make more than {REQUESTS_MAX} requests: lower --rate, shorten --outage or --for, or \
         choose a policy with longer waits"
    )]
    Requests,
}

pub(super) fn run(story: &Story) -> Result<Recovery, TooMuch> {
    if story.lasts() > LASTS_MAX {
        return Err(TooMuch::Long);
    }
    if story.deliveries() > DELIVERIES_MAX {
        return Err(TooMuch::Deliveries(story.deliveries()));
    }
    Ok(Recovery { gated: gated::run(story), plain: plain::run(story).ok_or(TooMuch::Requests)? })
}

impl Story {
    /// When the outage begins.
    pub(super) fn begins(&self) -> Millis {
        Millis(self.outage.0 / 10).min(BEFORE_MAX)
    }

    pub(super) fn ends(&self) -> Millis {
        self.begins() + self.outage
    }

    pub(super) fn lasts(&self) -> Millis {
        self.ends() + self.after
    }

    fn deliveries(&self) -> u64 {
        let n = u128::from(self.lasts().0) * u128::from(self.arrivals.n) / u128::from(self.arrivals.per.0);
        u64::try_from(n).unwrap_or(u64::MAX)
    }

    /// When delivery number `seq` is created.
    fn created_at(&self, seq: u64) -> Timestamp {
        let ms = u128::from(seq) * u128::from(self.arrivals.per.0) / u128::from(self.arrivals.n);
        Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(outage: Millis) -> Story {
        Story {
            policy: RetryPolicy::standard(),
            arrivals: "10/s".parse().unwrap(),
            capacity: "50/s".parse().unwrap(),
            outage,
            after: Millis::from_mins(30),
            seed: 1,
        }
    }

    #[test]
    fn everything_is_delivered_and_the_gate_spares_the_receiver() {
        let recovery = run(&story(Millis::from_mins(20))).unwrap();
        let (gated, plain) = (&recovery.gated, &recovery.plain);
        assert_eq!((gated.dead, plain.dead), (0, 0));
        assert!(gated.delivered > 31_000, "{}", gated.delivered);
        assert!(gated.in_vain * 100 < plain.in_vain, "{} {}", gated.in_vain, plain.in_vain);
        assert!(gated.drained_after.is_some());
    }

    #[test]
    fn the_curves_hold_every_request() {
        let recovery = run(&story(Millis::from_mins(5))).unwrap();
        for curve in [&recovery.gated, &recovery.plain] {
            let sum: u64 = curve.per_second.iter().map(|n| u64::from(*n)).sum();
            let answered = curve.in_vain + curve.refused + curve.delivered;
            // The last few are still on their way when the story ends.
            assert!((0..=10).contains(&(sum - answered)), "{sum} requests, {answered} answers");
        }
    }

    #[test]
    fn what_runs_out_of_time_dies_behind_the_gate_too() {
        let brief = Story { policy: RetryPolicy::brief(), ..story(Millis::from_mins(10)) };
        let recovery = run(&brief).unwrap();
        // Ten minutes of them, but for the last one; behind the gate also those that die before the next probe.
        assert!((5_000..6_100).contains(&recovery.plain.dead), "{}", recovery.plain.dead);
        assert!((5_000..12_100).contains(&recovery.gated.dead), "{}", recovery.gated.dead);
    }

    #[test]
    fn the_same_seed_tells_the_same_story() {
        let (one, other) = (run(&story(Millis::from_mins(5))).unwrap(), run(&story(Millis::from_mins(5))).unwrap());
        assert_eq!(one.gated.per_second, other.gated.per_second);
        assert_eq!(one.plain.per_second, other.plain.per_second);
    }

    #[test]
    fn a_story_that_is_too_long_is_refused_with_the_remedy() {
        assert_eq!(run(&story(Millis::from_hours(200))).unwrap_err(), TooMuch::Long);
        let many = Story { arrivals: "1000/s".parse().unwrap(), ..story(Millis::from_hours(1)) };
        assert!(matches!(run(&many), Err(TooMuch::Deliveries(_))));
    }
}
