//! One game of one sender against one receiver, and the oracle that it is compared with.
//!
//! What is left of a long window, or of what has arrived, depends on who was there before. There the oracle takes over the receiver
//! from the sender at the beginning of each span. It also takes over what the receiver has asked for in the first five minutes: who
//! does not know a receiver is refused at least once, and if that refusal asks for an hour, nobody who obeys has that hour. What a
//! sender brings upon itself later is not taken over, and neither is anything in the first minutes: there, the sender pays.

use std::sync::Arc;

use doorstep_core::time::{Millis, Timestamp};

use super::oracle::{self, Plan, Takeover};
use super::site::{Ledger, Shared, Site};
use super::target::{Backlog, Course, START, Target};
use super::{
    EARLY, LAST, LEARNS_FOR, ORACLE_MIN, SPANS, Tally, Who, accepted, arena_on, at, feed, seconds, sender, spans,
    whole_seconds,
};
use crate::senders::Obedience;

pub(super) struct Run {
    pub ledger: Ledger,
    /// What the oracle takes over, by the minute at which a span begins. Where there is nothing, the oracle that was there from the
    /// start is as good.
    at_marks: Vec<(u64, Takeover)>,
    /// How long the receiver asked to be left alone in the first five minutes, if that lasts for longer.
    held_until: Timestamp,
}

impl Run {
    pub(super) fn new(target: &Arc<Target>, who: Who, minutes: u64) -> Self {
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
        let mut bound_by = vec![Obedience::default(); target.destinations];
        for mark in marks {
            // What happens at this very moment belongs to the span that begins.
            arena.run_until(at(mark) - Millis(1));
            if mark == LEARNS_FOR {
                bound_by = arena.obedience();
            } else {
                release(&mut bound_by, at(mark));
            }
            // At the start nobody was there before.
            if mark > 0 && matters_who_was_there(target) || is_held(&bound_by, at(mark)) {
                let site = shared.0.borrow();
                let waiting = waiting(target, &site.ledger, at(mark));
                at_marks.push((mark, Takeover { site: site.taken_over(), waiting, obedience: bound_by.clone() }));
            }
        }
        let held_until =
            at_marks.iter().find(|(mark, _)| *mark == LEARNS_FOR).map(|(_, takeover)| takeover.held_until());
        arena.run_until(at(minutes));
        drop(arena);
        let ledger = shared.0.borrow().ledger.clone();
        Self { ledger, at_marks, held_until: held_until.unwrap_or(START) }
    }

    /// Adds this game to the tally. `best`: what the oracle had that was there from the start.
    pub(super) fn count(&self, tally: &mut Tally, target: &Arc<Target>, best: &Ledger, plan: Plan, minutes: u64) {
        let spans = spans(minutes);
        let mut from_start = [true; SPANS];
        for (mark, takeover) in &self.at_marks {
            let here: Vec<_> = (0..spans.len()).filter(|n| spans[*n].from == *mark).collect();
            let furthest = here.iter().map(|n| spans[*n].to).max().unwrap_or(*mark);
            let run = |takeover, to| oracle::take_over(target, takeover, plan, at(*mark), at(to)).ledger;
            let taken = run(takeover.clone(), furthest);
            let held = is_held(&takeover.obedience, at(*mark));
            let nothing = here.iter().any(|n| accepted(&taken, spans[*n]) < ORACLE_MIN);
            // Whether a sender gets worse with time is compared without holds; why there is nothing, in every span.
            let needed = here.iter().filter(|n| nothing || [EARLY, LAST].contains(n)).map(|n| spans[*n].to).max();
            let released;
            let free = match (held, matters_who_was_there(target)) {
                (false, _) => &taken,
                (true, false) => best,
                (true, true) => {
                    released = run(takeover.clone().released(), needed.unwrap_or(*mark));
                    &released
                }
            };
            for n in here {
                from_start[n] = false;
                tally.best_in[n] += accepted(&taken, spans[n]);
                tally.free_in[n] += accepted(free, spans[n]);
                tally.held[n] |= held;
            }
        }
        for n in (0..spans.len()).filter(|n| from_start[*n]) {
            tally.best_in[n] += accepted(best, spans[n]);
            tally.free_in[n] += accepted(best, spans[n]);
        }
        let (downs, ups) = self.after_steps(target, best, minutes);
        tally.after_down.extend(downs);
        tally.after_up.extend(ups);
        tally.ledger.add(&self.ledger);
    }

    /// How long it took after each step of the limit until goodput was at 90 % of the oracle's. A step does not count if the receiver
    /// has asked before it to be left alone, and the sender had no chance to see it.
    fn after_steps(&self, target: &Target, best: &Ledger, minutes: u64) -> (Vec<f64>, Vec<f64>) {
        let (mut downs, mut ups) = (Vec::new(), Vec::new());
        let (Course::Steps(steps), Backlog::Endless) = (&target.course, target.backlog) else { return (downs, ups) };
        let mut before = 1.0;
        for (n, (step_at, factor)) in steps.iter().enumerate() {
            let end = steps.get(n + 1).map_or(seconds(minutes), |(next_at, _)| whole_seconds(*next_at));
            let (begin, down) = (whole_seconds(*step_at), *factor < before);
            before = *factor;
            let lasts = end.min(seconds(minutes)).saturating_sub(begin);
            if lasts < if down { DOWN_LASTS_MIN } else { UP_LASTS_MIN } || START + *step_at < self.held_until {
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
/// Whether what is left of a long window, or of what has arrived, depends on the sender that was there before.
fn matters_who_was_there(target: &Target) -> bool {
    target.memory() > FORGETS || matches!(target.backlog, Backlog::Arrivals { .. })
}

/// Whether a destination has to be left alone for so long that it matters.
fn is_held(bound_by: &[Obedience], now: Timestamp) -> bool {
    bound_by.iter().any(|obedience| obedience.held_until > now + FORGETS)
}

/// Whoever was free to send since then has begun anew.
fn release(bound_by: &mut [Obedience], now: Timestamp) {
    for obedience in bound_by.iter_mut().filter(|obedience| obedience.held_until <= now) {
        *obedience = Obedience::default();
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

#[cfg(test)]
mod tests {
    use super::super::site::Second;
    use super::super::target::{Limit, Says};
    use super::super::{Figures, SETTLED, Verdict, judge};
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
            let run = Run { ledger: ledger(accepted), at_marks: Vec::new(), held_until: START };
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

    fn figures(verdict: &Verdict, who: Who) -> &Figures {
        verdict.figures.iter().find(|figures| figures.who == who).unwrap()
    }

    #[test]
    fn who_was_told_at_first_to_wait_for_an_hour_is_not_judged_for_that_hour_but_for_the_minutes_before() {
        let target = Target { says: Says::Always(3_600), ..Target::named().swap_remove(6) };
        let verdict = judge(target, 30);
        for who in [Who::Doorstep, Who::Aimd] {
            let figures = figures(&verdict, who);
            assert_eq!((figures.used[SETTLED], figures.kept), (None, None), "{who:?}");
            assert!(figures.held[SETTLED] && figures.not_counted[SETTLED], "{figures:?}");
            assert!(figures.used[0].unwrap() < 0.5, "{figures:?}");
            assert_eq!((figures.used[1], figures.held[1]), (Some(0.0), false), "{who:?}");
            assert!(figures.whole.unwrap() < 0.05, "{figures:?}");
        }
        let naive = figures(&verdict, Who::Naive);
        assert!(!naive.held[SETTLED] && naive.used[SETTLED].is_some(), "it did not wait: {naive:?}");
    }

    #[test]
    fn who_is_told_later_to_wait_for_an_hour_pays_for_it() {
        // More than anybody sends, until a sixth minute from which on it is less.
        let kind = crate::limiter::Kind::SlidingWindow;
        let target = Target {
            limit: Limit::Counted { kind, capacity: 1_000, window: Millis::from_secs(1) },
            course: Course::Steps(vec![(Millis::from_mins(6), 0.2)]),
            says: Says::Always(3_600),
            ..Target::named().swap_remove(6)
        };
        let verdict = judge(target, 30);
        for who in [Who::Doorstep, Who::Aimd] {
            let figures = figures(&verdict, who);
            assert_eq!((figures.held, figures.not_counted), ([false; SPANS], [false; SPANS]), "{who:?}");
            assert!(figures.used[1].unwrap() > 0.3, "{figures:?}");
            assert!(figures.used[SETTLED].unwrap() < 0.2, "{figures:?}");
            assert_eq!(figures.used[3], Some(0.0), "minutes 10 to 30 of {who:?}");
            assert!(figures.after_down.iter().all(|took| took.is_infinite()), "{figures:?}");
        }
    }

    #[test]
    fn a_step_that_came_while_the_sender_was_told_to_wait_does_not_count() {
        let course = Course::Steps(vec![(Millis::from_secs(600), 0.25), (Millis::from_secs(1_200), 1.0)]);
        let target = Target { course, ..Target::named().swap_remove(5) };
        let best = ledger(|s| if (600..1_200).contains(&s) { 5 } else { 20 });
        let after = |held_until| {
            let run = Run { ledger: best.clone(), at_marks: Vec::new(), held_until };
            run.after_steps(&target, &best, 60)
        };
        assert_eq!(after(at(10)), (vec![0.0], vec![0.0]));
        assert_eq!(after(at(10) + Millis(1)), (vec![], vec![0.0]));
    }
}
