//! How the oracle sends to a receiver: the best of a few simple ways, found by rehearsing them.

use std::cmp::Reverse;
use std::sync::Arc;

use doorstep_core::time::Millis;

use super::oracle;
use super::site::Site;
use super::target::{Backlog, Course, Limit, START, Target};

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub(super) in_flight_max: usize,
    /// Microseconds from one request to the next.
    pub(super) interval: u64,
    /// After a throttle, whether a single request goes first.
    pub(super) probes: bool,
    pub(super) margin: Margin,
}

/// What the oracle expects of ways that vary, when it asks its copy of the limiter whether a request will be admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Margin {
    /// It expects this request early, and those before it late: by so many quarters of what a way can differ from the mean. With four
    /// no request is refused, with none every second one that is just in time.
    Quarters(u64),
    /// It does not ask, and takes refusals as they come. The best where order is lost on the way, and a refusal costs little.
    Blind,
    /// Its ways do not vary. Nobody has that: it tells how much is lost to ways that do.
    Exact,
}

const REHEARSAL: Millis = Millis::from_mins(5);
/// A limit that changes is rehearsed for longer: what is best for one rate need not be for another.
const LONG_REHEARSAL: Millis = Millis::from_hours(1);
/// A rehearsal that comes within so many per cent of ways that do not vary is good enough.
const GOOD_PERCENT: u64 = 99;
/// No limit that changes becomes more than so many times as fast.
const STEEPEST: u64 = 8;
/// So many are rehearsed again for longer.
const FINALISTS: usize = 3;
/// Enough to send without a pause.
const MANY: u64 = 1_000_000;

impl Plan {
    pub fn for_target(target: &Arc<Target>) -> Self {
        let in_flight_max = target.concurrency as usize * target.destinations;
        let greedy = Self { in_flight_max, interval: 0, probes: target.is_silent(), margin: Margin::Quarters(4) };
        match target.limit {
            Limit::Counted { capacity, window, .. } => {
                greedy.with_margin(target, window.0.saturating_mul(1_000) / capacity.max(1))
            }
            Limit::Queue { interval, .. } => greedy.with_margin(target, interval),
            Limit::AtOnce(n) => greedy.with_number(target, n, 1),
            // At the knee it takes twice as long.
            Limit::Overload { knee, .. } => greedy.with_number(target, knee, 2),
        }
    }

    /// Nobody has more of a limit that counts over time than this, whether they obey or not.
    pub(super) fn exact(self) -> Self {
        Self { margin: Margin::Exact, interval: 0, ..self }
    }

    /// For a limit that counts over time and admits a request each `interval`.
    fn with_margin(self, target: &Arc<Target>, interval: u64) -> Self {
        let (least, most) = target.ways.there;
        // With the full margin a request is late by half of what ways differ, once for each time that the limit is used up.
        let late = (most.0 - least.0) * 1_000 / 2;
        let fastest = if matches!(target.course, Course::Constant) { 1 } else { STEEPEST };
        if late * fastest * 100 <= target.memory().0.saturating_mul(1_000).max(interval) * (100 - GOOD_PERCENT) {
            return self;
        }
        // Chance costs the same whatever the plan, and hides the difference.
        let target = Arc::new(Target { noise_per_mille: 0, ..(**target).clone() });
        let careful = [4, 2, 1, 0].map(|quarters| Self { margin: Margin::Quarters(quarters), ..self });
        let blind = [150, 120, 100, 70, 40, 0].map(|percent| Self {
            margin: Margin::Blind,
            interval: interval.saturating_mul(percent) / 100,
            ..self
        });
        let lasts = if matches!(target.course, Course::Constant) { REHEARSAL } else { LONG_REHEARSAL };
        let enough = self.exact().rehearse(&target, lasts) * GOOD_PERCENT / 100;
        let mut best = (0, self);
        for plan in careful.into_iter().chain(blind) {
            let had = plan.rehearse(&target, lasts);
            if had > best.0 {
                best = (had, plan);
            }
            if had >= enough {
                break;
            }
        }
        best.1
    }

    /// For a receiver that can take so many at once, each of them so many times slower then than it takes alone.
    fn with_number(self, target: &Arc<Target>, known: u64, slower: u64) -> Self {
        let greedy = Self { margin: Margin::Blind, ..self };
        let most = self.in_flight_max;
        // A little and a lot more than the receiver can take at once: requests are also on their way.
        let around = [50, 75, 100, 110, 125, 150, 200, 250, 300, 400, 600, 1_000].map(|percent| known * percent / 100);
        let below = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map(|percent| most as u64 * percent / 100);
        let mut numbers: Vec<_> =
            around.into_iter().chain(below).map(|n| usize::try_from(n).unwrap_or(most).clamp(1, most)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let fixed = numbers.into_iter().map(|in_flight_max| Self { in_flight_max, ..greedy });
        // Requests that come evenly find room more often, if the way is long.
        let busy_micros = (target.service.0.0 + target.service.1.0) * 1_000 / 2 * slower;
        let paced = (3..=20).map(|n| Self { interval: busy_micros * 20 / (known * n), ..greedy });
        let mut plans: Vec<_> = fixed.chain(paced).map(|plan| (plan.rehearse(target, REHEARSAL), plan)).collect();
        plans.sort_by_key(|(had, _)| Reverse(*had));
        // It may have been luck that nothing was refused, or that a receiver which gets slower and slower did not fall over: the first few are
        // rehearsed again for longer, and the best of those that leave nothing to luck.
        let leaves_no_luck = |plan: &Self| match target.limit {
            Limit::AtOnce(_) => plan.in_flight_max as u64 <= known,
            _ => plan.interval == 0,
        };
        let safe = plans.iter().position(|(_, plan)| leaves_no_luck(plan));
        let safe = safe.filter(|place| *place >= FINALISTS).map(|place| plans[place]);
        plans.truncate(FINALISTS);
        plans.extend(safe);
        for (had, plan) in &mut plans {
            *had = plan.rehearse(target, LONG_REHEARSAL);
        }
        plans.into_iter().max_by_key(|(had, _)| *had).map_or(greedy, |(_, plan)| plan)
    }

    /// How much the oracle has with this plan: of what arrives, and where something arrives also of a backlog, for that is what it may
    /// take over.
    fn rehearse(self, target: &Arc<Target>, lasts: Millis) -> u64 {
        let waiting: &[u64] = if matches!(target.backlog, Backlog::Endless) { &[0] } else { &[0, MANY] };
        let had = waiting.iter().map(|waiting| {
            let waiting = vec![*waiting; target.destinations];
            let site = oracle::run(target, Site::new(target), self, &waiting, START, START + lasts);
            site.ledger.between(0, usize::MAX).accepted
        });
        had.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::super::site::Second;
    use super::super::target::Says;
    use super::*;
    use crate::arena::Ways;
    use crate::limiter::Kind;

    /// One each 100 ms and nothing saved up, and ways of 75 to 125 ms.
    fn strict(status: u16, says: Says) -> Arc<Target> {
        let limit = Limit::Counted { kind: Kind::TokenBucket, capacity: 1, window: Millis(100) };
        let way = (Millis(75), Millis(125));
        let ways = Ways { there: way, back: way };
        Arc::new(Target { limit, ways, status, says, ..Target::named().swap_remove(3) })
    }

    fn an_hour(target: &Arc<Target>, plan: Plan) -> Second {
        let site = oracle::run(target, Site::new(target), plan, &[0], START, START + Millis::from_hours(1));
        site.ledger.between(0, 3_600)
    }

    #[test]
    fn the_oracle_keeps_a_margin_where_a_refusal_is_dear() {
        let target = strict(429, Says::Nothing);
        let plan = Plan::for_target(&target);
        let (best, exact) = (an_hour(&target, plan), an_hour(&target, plan.exact()));
        assert_eq!((plan.margin, best.refused), (Margin::Quarters(4), 0));
        assert!((35_990..=36_001).contains(&exact.accepted), "all that the limit admits: {exact:?}");
        // A request may arrive 25 ms before or after the mean: the next one is sent for the mean of that later.
        assert!((28_000..=29_600).contains(&best.accepted), "{best:?}");
        let hasty = an_hour(&target, Plan { margin: Margin::Quarters(0), ..plan });
        assert!(hasty.refused > 0 && hasty.accepted < best.accepted / 2, "{hasty:?}");
    }

    #[test]
    fn the_oracle_keeps_no_margin_where_a_refusal_costs_nothing() {
        // A 503 that says nothing obliges to nothing.
        let target = strict(503, Says::Nothing);
        let plan = Plan::for_target(&target);
        let best = an_hour(&target, plan);
        assert_eq!(plan.margin, Margin::Blind);
        // Ten in flight come 50 times a second, in no order: the next one is there 20 ms after the limit has room, on average.
        assert!((29_500..=31_500).contains(&best.accepted) && best.refused > 0, "{best:?}");
        let careful = an_hour(&target, Plan { margin: Margin::Quarters(4), interval: 0, ..plan });
        assert!(careful.accepted < best.accepted && careful.refused == 0, "{careful:?}");
    }
}
