//! What a receiver meets when it comes back from an outage: with the gate, and with the same policy but no gate.
//!
//! Deliveries come evenly, before, during and after the outage. While it is down the receiver answers 503; otherwise also to
//! what exceeds its capacity. The gate is the real one, inside the real scheduler, with its defaults.

mod books;
mod gated;
mod plain;

use std::fmt;

use doorstep_core::retry::RetryPolicy;
use doorstep_core::time::{Millis, Timestamp};

use crate::rate::Rate;

pub(super) use books::{Books, Curve};

/// What is simulated.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) policy: RetryPolicy,
    pub(super) arrivals: Arrivals,
    pub(super) capacity: Rate,
    pub(super) outage: Millis,
    /// How long the time after the outage is watched.
    pub(super) after: Millis,
    pub(super) seed: u64,
}

/// Which deliveries there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrivals {
    /// They come evenly, all the time.
    Evenly(Rate),
    /// So many when the outage begins, and nothing after them.
    Once(u64),
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

/// Without a rate, the first of these that can be simulated.
const RATES: [Rate; 4] = [
    Rate { n: 10, per: Millis::from_secs(1) },
    Rate { n: 1, per: Millis::from_secs(1) },
    Rate { n: 1, per: Millis::from_secs(10) },
    Rate { n: 1, per: Millis::from_mins(1) },
];

/// So many deliveries, with nothing after them, are followed through the outage: a busy destination is probed all the
/// time, a quiet one only when one of its few deliveries is due.
const ALONE: [u64; 3] = [1, 5, 100];

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

/// The most frequent of the usual rates that can be simulated.
pub(super) fn usual_rate(outage: Millis, after: Millis) -> Rate {
    let lasts = outage + after + BEFORE_MAX;
    let fits = |rate: &&Rate| arrivals_within(**rate, lasts) <= DELIVERIES_MAX;
    RATES.iter().find(fits).copied().unwrap_or(RATES[RATES.len() - 1])
}

/// How a few deliveries fare behind the gate that are created when the outage begins.
pub(super) fn alone(story: &Story) -> Vec<(u64, Curve)> {
    // Nothing is left after the window.
    let after = (story.policy.window() - story.outage).min(LASTS_MAX) + BEFORE_MAX;
    let fare = |n| gated::run(&Story { arrivals: Arrivals::Once(n), after, ..story.clone() });
    ALONE.into_iter().map(|n| (n, fare(n))).collect()
}

fn arrivals_within(rate: Rate, span: Millis) -> u64 {
    let n = u128::from(span.0) * u128::from(rate.n) / u128::from(rate.per.0);
    u64::try_from(n).unwrap_or(u64::MAX)
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
        match self.arrivals {
            Arrivals::Evenly(rate) => arrivals_within(rate, self.lasts()),
            Arrivals::Once(n) => n,
        }
    }

    /// When delivery number `seq` is created.
    fn created_at(&self, seq: u64) -> Timestamp {
        match self.arrivals {
            Arrivals::Evenly(rate) => {
                let ms = u128::from(seq) * u128::from(rate.per.0) / u128::from(rate.n);
                Timestamp(i64::try_from(ms).unwrap_or(i64::MAX))
            }
            Arrivals::Once(n) if seq < n => Timestamp(0) + self.begins(),
            Arrivals::Once(_) => Timestamp::MAX,
        }
    }
}

impl fmt::Display for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Evenly(rate) => rate.fmt(f),
            Self::Once(n) => write!(f, "{n} at once"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(outage: Millis) -> Story {
        Story {
            policy: RetryPolicy::standard(),
            arrivals: Arrivals::Evenly("10/s".parse().unwrap()),
            capacity: "50/s".parse().unwrap(),
            outage,
            after: Millis::from_mins(30),
            seed: 1,
        }
    }

    #[test]
    fn everything_is_delivered_and_the_gate_spares_the_receiver() {
        // What gathers in 20 minutes, and until a probe finds out, takes as long again to drain.
        let story = Story { after: Millis::from_mins(60), ..story(Millis::from_mins(20)) };
        let recovery = run(&story).unwrap();
        let (gated, plain) = (&recovery.gated, &recovery.plain);
        assert_eq!((gated.dead, plain.dead), (0, 0));
        assert!(gated.delivered > 49_000, "{}", gated.delivered);
        assert!(gated.peak_after <= 20, "{} in one second, twice what comes", gated.peak_after);
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
    fn a_short_window_is_used_to_try_what_waits() {
        for seed in 0..40 {
            let outage = Millis::from_secs(45);
            let brief = Story { policy: RetryPolicy::brief(), seed, ..story(outage) };
            let (n, curve) = alone(&brief).pop().unwrap();
            assert_eq!(n, 100);
            assert!(curve.delivered >= 95, "{} delivered, {} dead, seed {seed}", curve.delivered, curve.dead);
            assert!(curve.peak_after <= 20, "{} in one second, seed {seed}", curve.peak_after);
        }
    }

    #[test]
    fn a_young_destination_drains_its_backlog_in_about_the_length_of_the_outage() {
        for (rate, outage) in [("5/s", 1), ("20/s", 1), ("20/s", 5)] {
            let outage = Millis::from_mins(outage);
            let young = Story { arrivals: Arrivals::Evenly(rate.parse().unwrap()), ..story(outage) };
            let gated = gated::run(&Story { capacity: "1000/s".parse().unwrap(), ..young });
            let after = gated.drained_after.unwrap();
            // A probe finds out that the receiver is back up to two minutes after it is.
            assert!(after <= outage.times(2) + Millis::from_mins(4), "{rate}, {outage}: drained after {after}");
            assert!(gated.peak_after <= 40, "{rate}, {outage}: {} in one second", gated.peak_after);
        }
    }

    #[test]
    fn a_few_deliveries_survive_an_outage_of_nearly_the_whole_window() {
        for seed in 0..40 {
            let story = Story { seed, ..story(Millis::from_hours(71)) };
            for (n, curve) in alone(&story) {
                assert_eq!((curve.delivered, curve.dead), (n, 0), "{n} deliveries, seed {seed}");
                let after = curve.drained_after.unwrap();
                assert!(
                    after < Millis::from_hours(1),
                    "{n} deliveries were gone {after} after the outage, seed {seed}"
                );
                // Ten failures in a row open the breaker; what comes then are probes.
                assert!(curve.attempts_max <= 11, "{} attempts were charged, seed {seed}", curve.attempts_max);
            }
        }
    }

    #[test]
    fn a_long_outage_is_simulated_at_a_rate_that_can_be() {
        let rate = |outage| usual_rate(outage, outage).to_string();
        assert_eq!(rate(Millis::from_hours(2)), "10/s");
        assert_eq!(rate(Millis::from_hours(71)), "1/10s");
        assert_eq!(rate(Millis::MAX), "1/m");
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
        let many = Story { arrivals: Arrivals::Evenly("1000/s".parse().unwrap()), ..story(Millis::from_hours(1)) };
        assert!(matches!(run(&many), Err(TooMuch::Deliveries(_))));
    }
}
