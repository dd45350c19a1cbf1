//! The judge of how well senders use what a receiver can take: receivers drawn at random, and an oracle to compare with.
//!
//! A [`Target`] is a receiver, a [`Site`] the same at work. [`judge`] runs every sender and the [`oracle`] against it under the
//! virtual clock, and [`report`] sums up many of them.

pub mod target;
pub mod site;
pub mod oracle;
pub mod report;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use doorstep_core::gate::GateLimits;
use doorstep_core::time::{Millis, Timestamp};

use crate::arena::{Arena, Feed, Sender};
use crate::senders::{Aimd, Delays, Doorstep, Naive};
use oracle::Plan;
use site::{Ledger, Shared, Site};
use target::{Backlog, Course, Limit, START, Target};

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
    [span(0, 2), span(2, 5), span(5, 10), span(10, minutes), span(5, minutes), span(5, 15), span(last, minutes)]
}

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
    /// Refused, failed or timed out for the load, as a share of all requests; random refusals are not the sender's fault.
    pub refused: f64,
    /// Seconds from each step of the limit until 90 % was reached again; infinite where it was not before the next step.
    pub after_down: Vec<f64>,
    pub after_up: Vec<f64>,
    /// The last ten minutes against minutes 5 to 15, each as a share of the oracle's.
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
        let figures = tally.figures(&verdict.target, who, minutes);
        let most = most_by_chance(&verdict.target, who, oracle, games);
        if let Some(most) = most.filter(|most| figures.accepted > *most) {
            let (name, accepted) = (who.name(), figures.accepted);
            verdict
                .above_oracle
                .push(format!("{name} had {accepted}, the oracle {oracle}, and by chance at most {most}"));
        }
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
    after_down: Vec<f64>,
    after_up: Vec<f64>,
}

impl Tally {
    fn new(target: &Target) -> Self {
        let ledger = Ledger { seconds: Vec::new(), accepted_by: vec![0; target.destinations] };
        Self { ledger, best_in: [0; SPANS], after_down: Vec::new(), after_up: Vec::new() }
    }

    fn figures(&self, target: &Target, who: Who, minutes: u64) -> Figures {
        let mut used = [None; SPANS];
        for ((used, best), span) in used.iter_mut().zip(self.best_in).zip(spans(minutes)) {
            *used = (best >= ORACLE_MIN).then(|| accepted(&self.ledger, span) as f64 / best as f64);
        }
        let all = self.ledger.between(0, seconds(minutes));
        let requests = all.accepted + all.refused + all.noise;
        let kept = used[LAST].zip(used[EARLY]).filter(|(_, early)| minutes >= KEPT_MINUTES_MIN && *early > 0.0);
        Figures {
            who,
            used,
            refused: all.refused as f64 / requests.max(1) as f64,
            after_down: self.after_down.clone(),
            after_up: self.after_up.clone(),
            kept: kept.map(|(last, early)| last / early),
            jain: (target.destinations > 1).then(|| jain(&self.ledger.accepted_by)),
            accepted: all.accepted,
        }
    }
}

/// One game of one sender against one receiver.
struct Run {
    ledger: Ledger,
    /// The receiver at the beginning of each span, and what was waiting for it.
    at_marks: Vec<(u64, Site, Vec<u64>)>,
}

impl Run {
    fn new(target: &Arc<Target>, who: Who, minutes: u64) -> Self {
        let shared = Shared::new(Site::new(target));
        let mut arena = arena_on(&shared, target, START);
        let feed = feed(target, START);
        match who {
            Who::Doorstep => {
                arena.add_fed(sender(who, target, 0), &vec![feed; target.destinations]);
            }
            // These know nothing of each other.
            Who::Aimd | Who::Naive => {
                for n in 0..target.destinations {
                    arena.add_fed(sender(who, target, n as u64), &[feed]);
                }
            }
        }
        let mut marks: Vec<u64> = spans(minutes).iter().map(|span| span.from).collect();
        marks.sort_unstable();
        marks.dedup();
        let mut at_marks = Vec::new();
        for mark in marks {
            // What happens at this very moment belongs to the span that begins.
            arena.run_until(at(mark) - Millis(1));
            let site = shared.0.borrow();
            if is_taken_over(target) {
                at_marks.push((mark, site.taken_over(), waiting(target, &site.ledger, at(mark))));
            }
        }
        arena.run_until(at(minutes));
        drop(arena);
        let ledger = shared.0.borrow().ledger.clone();
        Self { ledger, at_marks }
    }

    /// Adds this game to the tally.
    fn count(&self, tally: &mut Tally, target: &Arc<Target>, best: &Ledger, plan: Plan, minutes: u64) {
        let spans = spans(minutes);
        for (mark, site, waiting) in &self.at_marks {
            let furthest = spans.iter().filter(|span| span.from == *mark).map(|span| span.to).max().unwrap_or(*mark);
            let best = oracle::run(target, site.clone(), plan, waiting, at(*mark), at(furthest)).ledger;
            for (span, best_in) in spans.iter().zip(&mut tally.best_in).filter(|(span, _)| span.from == *mark) {
                *best_in += accepted(&best, *span);
            }
        }
        if !is_taken_over(target) {
            for (span, best_in) in spans.iter().zip(&mut tally.best_in) {
                *best_in += accepted(best, *span);
            }
        }
        let (downs, ups) = self.after_steps(target, best, minutes);
        tally.after_down.extend(downs);
        tally.after_up.extend(ups);
        tally.ledger.add(&self.ledger);
    }

    /// How long it took after each step of the limit until goodput was at 90 % of the oracle's.
    fn after_steps(&self, target: &Target, best: &Ledger, minutes: u64) -> (Vec<f64>, Vec<f64>) {
        let (mut downs, mut ups) = (Vec::new(), Vec::new());
        let (Course::Steps(steps), Backlog::Endless) = (&target.course, target.backlog) else { return (downs, ups) };
        let mut before = 1.0;
        for (n, (step_at, factor)) in steps.iter().enumerate() {
            let end = steps.get(n + 1).map_or(seconds(minutes), |(next_at, _)| whole_seconds(*next_at));
            let (begin, down) = (whole_seconds(*step_at), *factor < before);
            before = *factor;
            let lasts = end.min(seconds(minutes)).saturating_sub(begin);
            if lasts < if down { DOWN_LASTS_MIN } else { UP_LASTS_MIN } {
                continue;
            }
            let per_second = best.between(begin, end).accepted as f64 / lasts as f64;
            let window = 10.max(2 * whole_seconds(target.memory())).max((20.0 / per_second).ceil() as usize);
            if window * 2 > lasts {
                continue;
            }
            let wanted = 0.9 * per_second * window as f64;
            let back = (begin..end - window).find(|&s| self.ledger.between(s, s + window).accepted as f64 >= wanted);
            let took = back.map_or(f64::INFINITY, |back| (back - begin) as f64);
            if down { downs.push(took) } else { ups.push(took) }
        }
        (downs, ups)
    }
}

/// A step that lasts less than the time in which it should be found proves nothing.
const DOWN_LASTS_MIN: usize = 120;
const UP_LASTS_MIN: usize = 300;
/// A limit that forgets within this time is the same for whoever comes later, whatever was sent before.
const FORGETS: Millis = Millis::from_secs(10);
/// A share of less than this many says nothing.
const ORACLE_MIN: u64 = 5;

/// Whether the oracle has to take over from the sender at the beginning of each span: what is left of a long window, or of what
/// has arrived, depends on who was there before.
fn is_taken_over(target: &Target) -> bool {
    target.memory() > FORGETS || matches!(target.backlog, Backlog::Arrivals { .. })
}

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

/// What has arrived for each destination before then and was not accepted.
fn waiting(target: &Target, ledger: &Ledger, now: Timestamp) -> Vec<u64> {
    let arrived = match target.backlog {
        Backlog::Endless => 0,
        Backlog::Arrivals { batch, every } => batch * now.since(START).0.div_ceil(every.0),
    };
    ledger.accepted_by.iter().map(|accepted| arrived.saturating_sub(*accepted)).collect()
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

#[cfg(test)]
mod tests {
    use super::site::Second;
    use super::*;

    fn ledger(accepted: impl Fn(u64) -> u64) -> Ledger {
        let second = |s| Second { accepted: accepted(s), ..Second::default() };
        Ledger { seconds: (0..3_600).map(second).collect(), accepted_by: vec![0] }
    }

    #[test]
    fn the_time_after_a_step_is_counted_until_goodput_is_back_at_90_percent() {
        // From 20/s to 5/s after ten minutes, and back after twenty.
        let dip = Target::named().swap_remove(5);
        let target = Target {
            course: Course::Steps(vec![(Millis::from_secs(600), 0.25), (Millis::from_secs(1_200), 1.0)]),
            ..dip
        };
        let best = ledger(|s| if (600..1_200).contains(&s) { 5 } else { 20 });
        let after = |accepted: &dyn Fn(u64) -> u64| {
            let run = Run { ledger: ledger(accepted), at_marks: Vec::new() };
            run.after_steps(&target, &best, 60)
        };
        let slow = |s| match s {
            600..645 => 0,
            645..1_200 => 5,
            1_200..1_500 => 17,
            _ => 18,
        };
        // Nine good seconds of ten are 90 %; 17 of 20 are less.
        assert_eq!(after(&slow), (vec![44.0], vec![300.0]));
        let lost = |s| if s < 600 { 20 } else { 4 };
        assert_eq!(after(&lost), (vec![f64::INFINITY], vec![f64::INFINITY]));
    }

    #[test]
    fn a_quota_that_is_used_up_is_not_held_against_whoever_used_it() {
        let kind = crate::limiter::Kind::FixedWindow;
        let limit = Limit::Counted { kind, capacity: 300, window: Millis::from_hours(24) };
        let target = Target { limit, ..Target::named().swap_remove(2) };
        let verdict = judge(target, 6);
        let naive = verdict.figures.iter().find(|figures| figures.who == Who::Naive).unwrap();
        assert_eq!((naive.accepted, verdict.oracle), (300, 300));
        assert_eq!((naive.used[0], naive.used[1]), (Some(1.0), None));
    }

    #[test]
    fn what_has_arrived_and_waits_is_there_for_the_oracle_that_takes_over() {
        let backlog = Backlog::Arrivals { batch: 60, every: Millis::from_mins(4) };
        let target = Target { backlog, ..Target::named().swap_remove(6) };
        let waiting_at = |minutes| {
            let accepted = Ledger { seconds: Vec::new(), accepted_by: vec![25] };
            waiting(&target, &accepted, at(minutes))
        };
        assert_eq!((waiting_at(2), waiting_at(5)), (vec![35], vec![95]));
        let target = Arc::new(target);
        let plan = Plan::for_target(&target);
        let site = oracle::run(&target, Site::new(&target), plan, &[35], at(2), at(3));
        assert_eq!(site.ledger.between(seconds(2), seconds(3)).accepted, 35);
    }
}
