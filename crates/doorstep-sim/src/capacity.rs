//! The judge of how well senders use what a receiver can take: receivers drawn at random, and an oracle to compare with.
//!
//! A [`Target`] is a receiver, a [`Site`] the same at work. [`judge`] runs every sender and the [`oracle`] against it under the
//! virtual clock, and [`report`] sums up many of them.

pub mod target;
pub mod site;
pub mod oracle;
mod plan;
pub mod report;
mod run;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use doorstep_core::gate::GateLimits;
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::{Arena, Feed, Sender};
use crate::senders::{Aimd, Delays, Doorstep, Naive};
use oracle::Plan;
use run::Run;
use site::{Ledger, Shared, Site};
use target::{Backlog, Limit, START, Target};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Doorstep,
    Aimd,
    Naive,
}

impl Who {
    pub const ALL: [Self; 3] = [Self::Doorstep, Self::Aimd, Self::Naive];

    pub fn name(self) -> &'static str {
        match self {
            Self::Doorstep => "Doorstep",
            Self::Aimd => "AIMD",
            Self::Naive => "naive retry",
        }
    }
}

/// What is measured of each sender, in minutes from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
}

/// The spans of a run that lasts so many minutes, in the order of [`Figures::used`].
pub fn spans(minutes: u64) -> [Span; SPANS] {
    let span = |from: u64, to: u64| Span { from: from.min(minutes), to: to.min(minutes) };
    let last = minutes.saturating_sub(10);
    let learnt = LEARNS_FOR;
    [
        span(0, 2),
        span(2, learnt),
        span(learnt, 10),
        span(10, minutes),
        span(learnt, minutes),
        span(learnt, 15),
        span(last, minutes),
    ]
}

/// So many minutes a sender has to get to know the receiver.
const LEARNS_FOR: u64 = 5;
pub const SPANS: usize = 7;
/// Everything after the first five minutes.
pub const SETTLED: usize = 4;
const EARLY: usize = 5;
const LAST: usize = 6;
/// Shorter runs have no last ten minutes to compare with the early ones.
const KEPT_MINUTES_MIN: u64 = 25;

/// How one sender fared at one receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    pub who: Who,
    /// Goodput as a share of the oracle's, by span; absent where the oracle had next to nothing either.
    pub used: [Option<f64>; SPANS],
    /// By span, whether the receiver had asked in the first five minutes to be left alone for longer, so that the oracle waited as well.
    pub held: [bool; SPANS],
    /// By span, whether there is no share because the oracle had to wait for all of it, or nearly so.
    pub not_counted: [bool; SPANS],
    /// Goodput as a share of the oracle's that was there from the start, over everything: no hold excuses here.
    pub whole: Option<f64>,
    /// Refused, failed or timed out for the load, as a share of all requests; random refusals are not the sender's fault.
    pub refused: f64,
    /// Seconds from each step of the limit until 90 % was reached again; infinite where it was not before the next step.
    pub after_down: Vec<f64>,
    pub after_up: Vec<f64>,
    /// The last ten minutes against minutes 5 to 15, each as a share of the oracle's. The oracle is not held in either: a hold that is
    /// excused in the first of them and not in the last would look as if the sender got worse.
    pub kept: Option<f64>,
    /// How evenly the destinations of a shared host were served, by Jain's index.
    pub jain: Option<f64>,
    pub accepted: u64,
}

/// What was found out about one receiver.
#[derive(Clone, Debug)]
pub struct Verdict {
    pub target: Arc<Target>,
    pub figures: Vec<Figures>,
    /// What the oracle had in the whole run.
    pub oracle: u64,
    /// Senders that had more than the oracle by more than chance: then the oracle is wrong.
    pub above_oracle: Vec<String>,
    /// What each sender's receiver wrote down, and the oracle's last.
    pub ledgers: Vec<(&'static str, Ledger)>,
}

/// Runs every sender against a receiver.
pub fn judge(target: Target, minutes: u64) -> Verdict {
    let games = games(&target);
    let target = Arc::new(target);
    let plan = Plan::for_target(&target);
    let mut best = Tally::new(&target);
    let mut tallies: Vec<_> = Who::ALL.iter().map(|who| (*who, Tally::new(&target))).collect();
    for luck in 0..games {
        let target = Arc::new(Target { luck, ..(*target).clone() });
        let nothing = vec![0; target.destinations];
        let oracle = oracle::run(&target, Site::new(&target), plan, &nothing, START, at(minutes)).ledger;
        for (who, tally) in &mut tallies {
            let run = Run::new(&target, *who, minutes);
            run.count(tally, &target, &oracle, plan, minutes);
        }
        best.ledger.add(&oracle);
    }
    let oracle = best.ledger.between(0, seconds(minutes)).accepted;
    let mut verdict = Verdict { target, figures: Vec::new(), oracle, above_oracle: Vec::new(), ledgers: Vec::new() };
    for (who, tally) in tallies {
        let figures = tally.figures(&verdict.target, who, oracle, minutes);
        verdict.above_oracle.extend(above(&verdict.target, plan, &figures, &tally, (oracle, games, minutes)));
        verdict.figures.push(figures);
        verdict.ledgers.push((who.name(), tally.ledger));
    }
    verdict.ledgers.push(("oracle", best.ledger));
    verdict
}

/// How often a receiver is played, each time with other luck; the sums are compared. A random refusal costs a wait, and where
/// that can grow to hours a single game is a lottery.
fn games(target: &Target) -> u64 {
    match target.noise_per_mille {
        0 => 1,
        _ if target.is_silent() => 16,
        _ => 2,
    }
}

/// The receivers of these seeds, on all cores, in the order of their seeds. `progress` is told how many are done.
pub fn judge_all(targets: Vec<Target>, minutes: u64, progress: impl Fn(u64) + Sync) -> Vec<Verdict> {
    let next = AtomicU64::new(0);
    let verdicts = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let n = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap_or(usize::MAX);
                    let Some(target) = targets.get(n) else { return };
                    let verdict = judge(target.clone(), minutes);
                    let mut verdicts = verdicts.lock().expect("no worker panics while it holds the lock");
                    verdicts.push(verdict);
                    progress(verdicts.len() as u64);
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().expect("no worker panics while it holds the lock");
    verdicts.sort_by_key(|verdict| verdict.target.seed);
    verdicts
}

/// Where a sender had more than the oracle by more than chance: in the whole run, or after the oracle had taken over.
fn above(
    target: &Arc<Target>,
    plan: Plan,
    figures: &Figures,
    tally: &Tally,
    (oracle, games, minutes): (u64, u64, u64),
) -> Vec<String> {
    let settled = spans(minutes)[SETTLED];
    let here = (settled, accepted(&tally.ledger, settled), tally.best_in[SETTLED]);
    let mut above = Vec::new();
    for (span, had, oracle) in [(Span { from: 0, to: minutes }, figures.accepted, oracle), here] {
        let most = |oracle| most_by_chance(target, figures.who, oracle, games);
        // The limit binds who does not obey, and nothing else does: not the wait after a refusal, which makes the oracle careful.
        let limit = || {
            let nothing = vec![0; target.destinations];
            let exact = oracle::run(target, Site::new(target), plan.exact(), &nothing, START, at(minutes));
            most(accepted(&exact.ledger, span))
        };
        let is_above = |most: Option<u64>| most.filter(|most| had > *most);
        let obeys = figures.who != Who::Naive;
        if let Some(most) = is_above(most(oracle)).and_then(|most| if obeys { Some(most) } else { is_above(limit()) }) {
            let (name, Span { from, to }) = (figures.who.name(), span);
            above.push(format!(
                "{name} had {had} in minutes {from} to {to}, the oracle {oracle}, and by chance at most {most}"
            ));
        }
    }
    above
}

/// What a sender may have had at most if the oracle is the best; `None` where it does not bind this sender.
fn most_by_chance(target: &Target, who: Who, oracle: u64, games: u64) -> Option<u64> {
    let counted = matches!(target.limit, Limit::Counted { .. } | Limit::Queue { .. });
    let percent = match who {
        // It waits for no throttle window and keeps to no configured rate, so the oracle's obedience does not bind it. Only a limit does
        // that counts over less time than the configured rate would need to use it up.
        Who::Naive if target.noise_per_mille > 0 || !counted || target.memory() > Millis::from_mins(1) => return None,
        // Each random refusal costs a wait, and it is luck how much was on its way at that moment.
        _ if target.noise_per_mille > 0 => 115,
        // The best number in flight was found by trying.
        _ if !counted => 105,
        _ => 101,
    };
    // Requests that were on their way, or in one window more.
    Some(oracle * percent / 100 + (u64::from(target.concurrency) * target.destinations as u64 + 10) * games)
}

/// The games of one sender against one receiver, summed up.
struct Tally {
    ledger: Ledger,
    /// What the oracle had in each span.
    best_in: [u64; SPANS],
    held: [bool; SPANS],
    /// What it would have had if nothing had been asked of it: in the spans of [`Figures::kept`], and where `best_in` is next to
    /// nothing.
    free_in: [u64; SPANS],
    after_down: Vec<f64>,
    after_up: Vec<f64>,
}

impl Tally {
    fn new(target: &Target) -> Self {
        let ledger = Ledger { seconds: Vec::new(), accepted_by: vec![0; target.destinations] };
        let nothing = [0; SPANS];
        Self {
            ledger,
            best_in: nothing,
            held: [false; SPANS],
            free_in: nothing,
            after_down: Vec::new(),
            after_up: Vec::new(),
        }
    }

    fn figures(&self, target: &Target, who: Who, oracle: u64, minutes: u64) -> Figures {
        let mut used = [None; SPANS];
        for ((used, best), span) in used.iter_mut().zip(self.best_in).zip(spans(minutes)) {
            *used = (best >= ORACLE_MIN).then(|| accepted(&self.ledger, span) as f64 / best as f64);
        }
        let all = self.ledger.between(0, seconds(minutes));
        let requests = all.accepted + all.refused + all.noise;
        let kept_of = |n: usize| {
            let free = self.free_in[n];
            (free >= ORACLE_MIN).then(|| accepted(&self.ledger, spans(minutes)[n]) as f64 / free as f64)
        };
        let kept = kept_of(LAST).zip(kept_of(EARLY)).filter(|(_, early)| minutes >= KEPT_MINUTES_MIN && *early > 0.0);
        Figures {
            who,
            used,
            held: self.held,
            not_counted: std::array::from_fn(|n| used[n].is_none() && self.free_in[n] >= ORACLE_MIN),
            whole: (oracle >= ORACLE_MIN).then(|| all.accepted as f64 / oracle as f64),
            refused: all.refused as f64 / requests.max(1) as f64,
            after_down: self.after_down.clone(),
            after_up: self.after_up.clone(),
            kept: kept.map(|(last, early)| last / early),
            jain: (target.destinations > 1).then(|| jain(&self.ledger.accepted_by)),
            accepted: all.accepted,
        }
    }
}

/// A share of less than this many says nothing.
const ORACLE_MIN: u64 = 5;

fn accepted(ledger: &Ledger, span: Span) -> u64 {
    ledger.between(seconds(span.from), seconds(span.to)).accepted
}

fn jain(served: &[u64]) -> f64 {
    let (sum, squares) =
        served.iter().fold((0.0, 0.0), |(sum, squares), n| (sum + *n as f64, squares + (*n as f64) * (*n as f64)));
    if squares == 0.0 { 1.0 } else { sum * sum / (served.len() as f64 * squares) }
}

fn at(minutes: u64) -> Timestamp {
    START + Millis::from_mins(minutes)
}

fn seconds(minutes: u64) -> usize {
    usize::try_from(minutes * 60).unwrap_or(usize::MAX)
}

fn whole_seconds(at: Millis) -> usize {
    usize::try_from(at.0.div_ceil(1_000)).unwrap_or(usize::MAX)
}

/// An arena with this site as its receiver.
fn arena_on<'a>(site: &Shared, target: &Target, now: Timestamp) -> Arena<'a> {
    Arena::new(now, Box::new(site.clone()), target.seed ^ (target.luck << 48) ^ 0xA2E4).with_ways(target.ways)
}

/// A destination's deliveries from then on.
fn feed(target: &Target, from: Timestamp) -> (Timestamp, Feed) {
    match target.backlog {
        // Each that is delivered is followed by another one; so many are enough to keep every slot busy.
        Backlog::Endless => (from, Feed::at_once(100 + 2 * u64::from(target.concurrency))),
        Backlog::Arrivals { batch, every } => {
            let passed = from.since(START).0.div_ceil(every.0);
            (START + every.times(passed), Feed { batch, every: Some(every), left: u64::MAX })
        }
    }
}

fn sender(who: Who, target: &Target, n: u64) -> Box<dyn Sender> {
    let endless = matches!(target.backlog, Backlog::Endless);
    let seed = (target.seed * 16 + n) ^ (target.luck << 48);
    let cap = target.concurrency as usize;
    match who {
        Who::Doorstep => {
            let limits = GateLimits { concurrency: target.concurrency, ..GateLimits::default() };
            Box::new(Doorstep::with_destinations(target.destinations, limits, endless, seed, START))
        }
        Who::Aimd => Box::new(Aimd::new(cap, endless)),
        Who::Naive => {
            let delays = Delays::Exponential { base: Millis::from_secs(30), cap: Millis::from_hours(1), jitter: true };
            Box::new(Naive::new(delays, cap, endless, seed))
        }
    }
}
