//! How the oracle sends to a receiver: the best of a few simple ways, found by rehearsing them.

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

    /// For a limit that counts over time and admits a request each `interval`.
    fn with_margin(self, target: &Arc<Target>, interval: u64) -> Self {
        let (least, most) = target.ways.there;
        if least == most {
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
        let enough = Self { margin: Margin::Exact, ..self }.rehearse(&target) * GOOD_PERCENT / 100;
        let mut best = (0, self);
        for plan in careful.into_iter().chain(blind) {
            let had = plan.rehearse(&target);
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
        let most = self.in_flight_max;
        // A little and a lot more than the receiver can take at once: requests are also on their way.
        let around = [50, 75, 100, 110, 125, 150, 200, 250, 300, 400, 600, 1_000].map(|percent| known * percent / 100);
        let below = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100].map(|percent| most as u64 * percent / 100);
        let mut numbers: Vec<_> =
            around.into_iter().chain(below).map(|n| usize::try_from(n).unwrap_or(most).clamp(1, most)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let fixed = numbers.into_iter().map(|in_flight_max| Self { in_flight_max, ..self });
        // Requests that come evenly find room more often, if the way is long.
        let busy_micros = (target.service.0.0 + target.service.1.0) * 1_000 / 2 * slower;
        let paced = (3..=20).map(|n| Self { interval: busy_micros * 20 / (known * n), ..self });
        fixed.chain(paced).max_by_key(|plan| plan.rehearse(target)).unwrap_or(self)
    }

    /// How much the oracle has with this plan: of what arrives, and where something arrives also of a backlog, for that is what it may
    /// take over.
    fn rehearse(self, target: &Arc<Target>) -> u64 {
        let waiting: &[u64] = if matches!(target.backlog, Backlog::Endless) { &[0] } else { &[0, MANY] };
        let lasts = if matches!(target.course, Course::Constant) { REHEARSAL } else { LONG_REHEARSAL };
        let had = waiting.iter().map(|waiting| {
            let waiting = vec![*waiting; target.destinations];
            let site = oracle::run(target, Site::new(target), self, &waiting, START, START + lasts);
            site.ledger.between(0, usize::MAX).accepted
        });
        had.sum()
    }
}
