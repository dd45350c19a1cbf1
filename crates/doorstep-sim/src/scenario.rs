//! A small world to doubt in: who sends what to whom, and what goes wrong.

use std::sync::Arc;

use doorstep_core::delivery::{BehindDead, Ordering};
use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::gate::{GateLimits, Rate};
use doorstep_core::id::{DestinationId, TenantId};
use doorstep_core::retry::RetryPolicy;
use doorstep_core::scheduler::{DestinationPlan, Hand, SchedulerLimits};
use doorstep_core::time::{Millis, Timestamp};

use crate::receiver::Receiver;
use crate::roll::Roll;

#[derive(Clone, Debug)]
pub struct Scenario {
    pub start: Timestamp,
    pub limits: SchedulerLimits,
    pub tenants: Vec<(TenantId, u32)>,
    pub destinations: Vec<(DestinationPlan, Receiver)>,
    pub arrivals: Vec<Arrival>,
    pub faults: Faults,
    /// A person's hand on a gate, at a time.
    pub hands: Vec<(Timestamp, DestinationId, Hand)>,
    /// Destinations that are given up and taken back a while later, as between nodes.
    pub handovers: Vec<(Timestamp, DestinationId)>,
    /// Arrivals whose delivery a person ends, at a time, and whether the person thinks again and sends it after all.
    pub abandons: Vec<(Timestamp, usize, bool)>,
    /// Destinations that get another host, cap, rate or ordering, at a time.
    pub changes: Vec<(Timestamp, DestinationId)>,
    /// Tenants whose payloads are erased, at a time.
    pub erasures: Vec<(Timestamp, TenantId)>,
    /// When the process is told to stop: it finishes what is in flight, saves and starts again.
    pub stops: Vec<Timestamp>,
    /// Destinations that a person removes, at a time.
    pub removals: Vec<(Timestamp, DestinationId)>,
    /// Tenants that a person removes with all their destinations and payloads, at a time.
    pub farewells: Vec<(Timestamp, TenantId)>,
    /// Then every receiver is well, and a person lets go of everything that is held.
    pub heals_at: Timestamp,
}

/// One event, for one destination.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub at: Timestamp,
    pub destination: usize,
    pub key: Option<Arc<str>>,
    pub ttl: Option<Millis>,
    /// Until then its payload cannot be read.
    pub unreadable_until: Option<Timestamp>,
}

#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The process dies at these commands, counted over all its lives.
    pub crashes_at: Vec<u64>,
    /// Per cent of requests whose result never reaches the scheduler.
    pub lost_results: u64,
    /// Per cent of reads that fail.
    pub failed_reads: u64,
    /// Per cent of commits that fail and are tried again.
    pub failed_commits: u64,
    /// By how much the wall clock is set while the process is down after each crash.
    pub clock_jumps: Vec<i64>,
}

impl Scenario {
    /// Nothing goes wrong but the receivers, and there is room for all.
    pub fn is_calm(&self) -> bool {
        let faults = &self.faults;
        let faultless = faults.crashes_at.is_empty()
            && faults.lost_results == 0
            && faults.failed_reads == 0
            && faults.failed_commits == 0;
        let untouched = self.hands.is_empty()
            && self.handovers.is_empty()
            && self.abandons.is_empty()
            && self.changes.is_empty()
            && self.stops.is_empty()
            && self.removals.is_empty()
            && self.farewells.is_empty();
        faultless && untouched && self.limits.in_flight_max >= 64 && self.limits.per_host_max.is_none()
    }

    pub fn random(seed: u64) -> Self {
        let mut dice = SeededDice::new(seed);
        let dice = &mut dice;
        let start = Timestamp(1_700_000_000_000 + i64::try_from(dice.below(86_400_000)).unwrap_or(0));
        let lasts = Millis::from_mins(1 + dice.below(120));
        let tenants: Vec<_> = (1..=1 + dice.below(4)).map(|n| (TenantId(n.into()), tenant_weight(dice))).collect();
        let n_destinations = 1 + dice.below(9);
        let mut destinations: Vec<_> = (1..=n_destinations)
            .map(|n| (plan(n, dice.pick(&tenants).0, dice), Receiver::random(dice, start)))
            .collect();
        let n_arrivals = if dice.one_in(8) { 200 + dice.below(800) } else { 20 + dice.below(180) };
        let mut arrivals: Vec<Arrival> = (0..n_arrivals).map(|_| arrival(&destinations, start, lasts, dice)).collect();
        arrivals.sort_by_key(|arrival| arrival.at);
        let hand = |dice: &mut SeededDice| {
            let hands =
                [Hand::Pause, Hand::Resume, Hand::Resume, Hand::Probe, Hand::ClearThrottle { forget_learned: false }];
            (start + dice.roll().up_to(lasts), dice.pick(&destinations).0.id, dice.pick(&hands))
        };
        let mut hands = if dice.one_in(3) {
            (0..dice.below(8)).map(|_| hand(dice)).collect()
        } else {
            Vec::<(Timestamp, DestinationId, Hand)>::new()
        };
        let sometimes = |dice: &mut SeededDice| if dice.one_in(4) { dice.below(5) } else { 0 };
        let handovers = (0..sometimes(dice)).map(|_| (start + dice.roll().up_to(lasts), dice.pick(&destinations).0.id));
        let handovers = handovers.collect();
        let abandon = |dice: &mut SeededDice| {
            (start + dice.roll().up_to(lasts), usize::try_from(dice.below(n_arrivals)).unwrap_or(0), dice.one_in(2))
        };
        let abandons = (0..sometimes(dice)).map(|_| abandon(dice)).collect();
        let changes = (0..sometimes(dice)).map(|_| (start + dice.roll().up_to(lasts), dice.pick(&destinations).0.id));
        let changes = changes.collect();
        let limits = scheduler_limits(dice);
        let faults = faults(n_arrivals, dice);
        let heals_at = start + lasts + Millis::from_mins(dice.below(300));
        let erasures = erasures(&tenants, start, lasts, dice);
        let n_stops = if dice.one_in(4) { 1 + dice.below(3) } else { 0 };
        let stops = (0..n_stops).map(|_| moment(start, lasts, dice)).collect();
        let n_removals = if dice.one_in(6) { 1 + dice.below(2) } else { 0 };
        let removals = (0..n_removals).map(|_| (moment(start, lasts, dice), dice.pick(&destinations).0.id)).collect();
        let n_farewells = u64::from(dice.one_in(10));
        let farewells = (0..n_farewells).map(|_| (moment(start, lasts, dice), dice.pick(&tenants).0)).collect();
        damage(&mut arrivals, lasts, dice);
        steer(&mut destinations, &mut hands, dice);
        Self {
            start,
            farewells,
            handovers,
            abandons,
            changes,
            limits,
            arrivals,
            faults,
            hands,
            heals_at,
            erasures,
            stops,
            removals,
            tenants,
            destinations,
        }
    }
}

/// Half of the time in the burst at the start, when there is a backlog.
fn moment(start: Timestamp, lasts: Millis, dice: &mut SeededDice) -> Timestamp {
    let within = if dice.one_in(2) { Millis(200) } else { lasts };
    start + dice.roll().up_to(within)
}

/// In some worlds there are a few payloads that cannot be read for a while, or never again.
fn damage(arrivals: &mut [Arrival], lasts: Millis, dice: &mut SeededDice) {
    let n_damaged = if dice.one_in(5) { 1 + dice.below(5) } else { 0 };
    for _ in 0..n_damaged {
        let (index, forever) = (dice.below(arrivals.len() as u64), dice.one_in(3));
        let Some(arrival) = usize::try_from(index).ok().and_then(|index| arrivals.get_mut(index)) else { continue };
        let until = if forever { Timestamp::MAX } else { arrival.at + dice.roll().up_to(lasts) };
        arrival.unreadable_until = Some(until);
    }
}

/// In some worlds people pin the pace of a destination, and whoever clears throttles has the learned pace forgotten too.
fn steer(
    destinations: &mut [(DestinationPlan, Receiver)],
    hands: &mut [(Timestamp, DestinationId, Hand)],
    dice: &mut SeededDice,
) {
    for (plan, _) in destinations {
        if dice.one_in(8) {
            Arc::make_mut(&mut plan.limits).pinned = Some(Rate::per_second(dice.pick(&[1, 5, 50])));
        }
    }
    for (_, _, hand) in hands {
        if let Hand::ClearThrottle { forget_learned } = hand {
            *forget_learned = dice.one_in(2);
        }
    }
}

fn erasures(
    tenants: &[(TenantId, u32)],
    start: Timestamp,
    lasts: Millis,
    dice: &mut SeededDice,
) -> Vec<(Timestamp, TenantId)> {
    let n = if dice.one_in(3) { 1 + dice.below(3) } else { 0 };
    (0..n).map(|_| (moment(start, lasts, dice), dice.pick(tenants).0)).collect()
}

fn tenant_weight(dice: &mut SeededDice) -> u32 {
    u32::try_from(1 + dice.below(4)).unwrap_or(1)
}

/// Small bounds, so that they are met.
fn scheduler_limits(dice: &mut SeededDice) -> SchedulerLimits {
    SchedulerLimits {
        in_flight_max: dice.pick(&[1, 2, 4, 16, 64, 1_000]),
        window_max: dice.pick(&[1, 2, 3, 8, 64]),
        refills_max: dice.pick(&[1, 2, 64]),
        reserved_percent: dice.pick(&[0, 20, 50]),
        per_host_max: dice.pick(&[None, None, Some(1), Some(3)]),
    }
}

fn plan(n: u64, tenant_id: TenantId, dice: &mut SeededDice) -> DestinationPlan {
    let limits = random_limits(dice);
    let policy = match dice.below(4) {
        0 | 1 => RetryPolicy::standard(),
        2 => RetryPolicy::brief(),
        _ => RetryPolicy::patient(),
    };
    let ordering = random_ordering(dice);
    DestinationPlan {
        id: DestinationId(n.into()),
        tenant_id,
        host: random_host(dice),
        limits: Arc::new(limits),
        policy: Arc::new(policy),
        ordering,
        awaits_consent: false,
    }
}

pub fn random_limits(dice: &mut SeededDice) -> GateLimits {
    let mut limits = GateLimits { concurrency: dice.pick(&[1, 2, 5, 10]), ..GateLimits::default() };
    if dice.one_in(4) {
        limits.rate = Rate::per_second(dice.pick(&[1, 5, 50]));
        limits.burst = dice.pick(&[1, 5]);
    }
    limits
}

pub fn random_ordering(dice: &mut SeededDice) -> Ordering {
    match dice.below(4) {
        0 => Ordering::ByKey { behind_dead: BehindDead::Skip },
        1 => Ordering::ByKey { behind_dead: BehindDead::Hold },
        _ => Ordering::Unordered,
    }
}

pub fn random_host(dice: &mut SeededDice) -> Arc<str> {
    dice.pick(&["one.example", "two.example", "three.example"]).into()
}

fn arrival(
    destinations: &[(DestinationPlan, Receiver)],
    start: Timestamp,
    lasts: Millis,
    dice: &mut SeededDice,
) -> Arrival {
    let destination = usize::try_from(dice.below(destinations.len() as u64)).unwrap_or(0);
    let ordered = destinations[destination].0.ordering != Ordering::Unordered;
    // Half of them come in one burst at the start.
    let at = if dice.one_in(2) { start + Millis(dice.below(100)) } else { start + dice.roll().up_to(lasts) };
    let key = (ordered && !dice.one_in(5)).then(|| dice.pick(&["a", "b", "c"]).into());
    let ttl = dice.one_in(10).then(|| Millis::from_secs(1 + dice.below(600)));
    Arrival { at, destination, key, ttl, unreadable_until: None }
}

fn faults(n_arrivals: u64, dice: &mut SeededDice) -> Faults {
    if dice.one_in(3) {
        return Faults::default();
    }
    let crashes = dice.below(4);
    let jumps = dice.one_in(3);
    let jump = |dice: &mut SeededDice| i64::try_from(dice.below(14_400_000)).unwrap_or(0) - 7_200_000;
    Faults {
        crashes_at: (0..crashes).map(|_| 1 + dice.below(n_arrivals * 6)).collect(),
        lost_results: dice.pick(&[0, 0, 1, 10]),
        failed_reads: dice.pick(&[0, 0, 5, 30]),
        failed_commits: dice.pick(&[0, 0, 5, 30]),
        clock_jumps: if jumps { (0..crashes).map(|_| jump(dice)).collect() } else { Vec::new() },
    }
}
