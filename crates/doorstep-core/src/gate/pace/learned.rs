//! Finding out what a throttling receiver really admits (G6).
//!
//! Two facts bound the rate `R` that we do not know. What was admitted from the end of one throttle to the end of the
//! next, over that time, is at most `R`. The pace at which it refused is at least `R`. So after the first refusal we
//! start from the lower bound and grow; after the next one we know a ceiling, approach it ever more slowly, and stay
//! just below. Once in a while the ceiling is doubted, more and more seldom while it proves right.
//!
//! A third fact helps with receivers that do not say when to come back, where each refusal costs a long wait: if as many
//! were admitted in a short stretch as in a long one, they are counted per window, and people choose round windows.
//!
//! All of that holds for a limit over time. Refusals that come by chance teach nothing about the pace: see [`chance`]. Those that go with
//! the number at once teach that number instead: see [`number`]. A 503 between successes teaches as a refusal does.

mod chance;
mod ceiling;
mod changes;
mod done;
mod number;
mod stretch;

use serde::{Deserialize, Serialize};

use super::{GateLimits, LearnedReason, Rate};
use crate::time::{Millis, Timestamp};
use ceiling::Ceiling;
use chance::Chance;
use changes::Changes;
use done::Done;
use number::Number;
use stretch::Stretch;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Learned {
    rate: Option<Rate>,
    // What has its own size is on the heap: most destinations never refuse.
    ceiling: Option<Box<Ceiling>>,
    /// The end of the last throttle, or the first success, and the successes since.
    cycle_began_at: Option<Timestamp>,
    cycle_admitted: u64,
    last_stretch: Option<Box<Stretch>>,
    /// The one that was refused soonest: a burst shows most clearly what fits into a window.
    shortest_stretch: Option<Box<Stretch>>,
    /// A pace that held for a while when the ceiling was doubted: it admits at least this much.
    proven: Option<Rate>,
    /// Refusals in a row that came soon after the pace was resumed.
    early_refusals: u32,
    /// Set once it has refused.
    #[serde(default)]
    chance: Option<Box<Chance>>,
    #[serde(default)]
    done: Option<Box<Done>>,
    #[serde(default)]
    changes: Option<Box<Changes>>,
    /// The last refusal was of a burst after a wait, and says nothing about the pace.
    #[serde(default)]
    burst_refused: bool,
    /// At the last refusal, others at the same host were refused as well.
    #[serde(default)]
    in_company: bool,
    /// Counts the refusals that ended a stretch, so that an answer can be told from one to a request of an earlier stretch.
    #[serde(default)]
    refusals: u32,
    /// The last refusal, if nothing of its stretch was answered by then.
    #[serde(default)]
    unanswered: Option<Box<Unanswered>>,
    /// What was known before the receiver seemed overloaded. Set until it accepts again: it may turn out to be down.
    #[serde(default)]
    before_overload: Option<Box<Learned>>,
    /// When that was last taken for an outage.
    #[serde(default)]
    was_down_at: Option<Timestamp>,
    /// It was an overload that taught last.
    #[serde(default)]
    by_overload: bool,
    /// Set once something was answered: most destinations are idle.
    #[serde(default)]
    number: Option<Box<Number>>,
    /// A stretch has ended, and it is not decided yet how to go on.
    #[serde(default)]
    undecided: bool,
    /// Nothing of the last stretch was answered before it was refused.
    #[serde(default)]
    burst: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Unanswered {
    stretch: Stretch,
    until: Timestamp,
    /// So many refusals in a row.
    #[serde(default)]
    refusals: u32,
}

/// A request that was refused.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Others at the same host were refused lately as well.
    pub(super) in_company: bool,
    pub(super) pressed: bool,
    pub(super) n_in_flight: u32,
    /// Its place in a burst after a wait, from 1 on.
    pub(super) position: Option<u32>,
    /// The pace that was kept to, if it may have been slower than the learned one.
    pub(super) in_force: Option<Rate>,
}

/// With no ceiling known, the pace doubles in about this time: `ln 2 / 10 s` more per success …
const GROWTH_PER_SUCCESS: u64 = 69_315;
/// … but a slow one grows by no more than this per success, or it would overshoot before it hears of it.
const GROWTH_PERCENT_MAX: u64 = 40;
/// We stay at this share of the ceiling, in per cent: the rest is room for uneven arrival.
const BELOW_CEILING_PERCENT: u64 = 97;
/// After a refusal the pace falls to this share of what was refused: further if it was refused soon.
const DECREASE_EARLY_PERCENT: u64 = 70;
const DECREASE_LATE_PERCENT: u64 = 92;
/// A refusal within this time of resuming is an early one; after so many in a row the ceiling itself comes down.
const EARLY: Millis = Millis::from_mins(3);
const EARLY_IN_ROW: u32 = 4;
const EARLY_DECREASE_PERCENT: u64 = 85;

/// Where refusals come by chance, the pace may grow to this share of what seems best, in per cent.
const CHANCE_RAISE_PERCENT: u64 = 115;

/// Where refusals seemed to come by chance until the breaker tripped, the pace falls to this share, in per cent, and its ceiling is trusted
/// for this long.
const DECREASE_TRIPPED_PERCENT: u64 = 60;
const TRUST_TRIPPED: Millis = Millis::from_mins(10);

/// Where the number at once stands in for the pace, a stretch is long enough if it lasts so many times as long as the wait after it.
const LONG_STRETCH: u64 = 20;

/// The first overload teaches no slower pace than this, per second.
const OVERLOADED_MIN: u64 = 1;

/// A receiver that trips again within this time, having accepted some in between, is overloaded and not down.
const DOWN_AGAIN: Millis = Millis::from_mins(30);

/// Before the first refusal, what was admitted counts for about this long.
const RECENT: Millis = Millis::from_mins(1);

impl Learned {
    /// Requests are spaced evenly at this.
    pub(super) fn rate(&self) -> Option<Rate> {
        self.number.as_ref().and_then(|number| number.spacing()).or(self.rate)
    }

    pub(super) fn refuses_by_chance(&self) -> bool {
        self.chance.as_ref().is_some_and(|chance| chance.is_found())
    }

    /// How many requests may leave at once after the wait that begins now.
    pub(super) fn next_burst(&mut self, wait: Millis) -> u32 {
        let is_paced = self.at_once().is_none();
        match (self.rate.filter(|_| is_paced), &mut self.chance) {
            (Some(rate), Some(chance)) => chance.next_burst(wait, rate),
            _ => 0,
        }
    }

    pub(super) fn answered(&mut self, took: Millis) {
        self.number.get_or_insert_default().answered(took);
    }

    pub(super) fn at_once(&self) -> Option<u32> {
        self.number.as_ref().and_then(|number| number.limit())
    }

    // What is shown of it.

    /// What the receiver seems to admit.
    pub(super) fn estimate(&self) -> Option<Rate> {
        self.ceiling.as_ref().filter(|_| self.at_once().is_none()).map(|ceiling| ceiling.rate)
    }

    pub(super) fn next_probe_at(&self) -> Option<Timestamp> {
        let of_number = self.number.as_ref().and_then(|number| number.next_probe_at());
        of_number.or_else(|| self.ceiling.as_ref().map(|ceiling| ceiling.doubted_at))
    }

    pub(super) fn reason(&self) -> LearnedReason {
        if self.by_overload { LearnedReason::Overloaded } else { LearnedReason::Refused }
    }

    /// A cycle has begun by then, and a ceiling is trusted from then at most.
    pub(super) fn notice_clock(&mut self, goes_on_at: Timestamp) {
        if let Some(number) = &mut self.number {
            number.notice_clock(goes_on_at + ceiling::TRUST_MAX.times(ceiling::TRUST_GROWTH_SLOW));
        }
        self.cycle_began_at = self.cycle_began_at.map(|began_at| began_at.min(goes_on_at));
        self.was_down_at = self.was_down_at.map(|at| at.min(goes_on_at));
        if let Some(ceiling) = &mut self.ceiling {
            ceiling.doubted_at = ceiling.doubted_at.min(goes_on_at + ceiling.trust);
        }
    }

    pub(super) fn refusals(&self) -> u32 {
        self.refusals
    }

    /// `refusals`: what [`Learned::refusals`] was when the request left.
    pub(super) fn succeeded(
        &mut self,
        refusals: u32,
        (pressed, n_in_flight, position): (bool, u32, Option<u32>),
        limits: &GateLimits,
        now: Timestamp,
    ) {
        if self.refusals.wrapping_sub(refusals) <= 1 {
            self.burst_answered(position, true);
        }
        match self.refusals.wrapping_sub(refusals) {
            0 => self.number.get_or_insert_default().admitted(n_in_flight),
            1 => {
                self.number.get_or_insert_default().admitted_late(n_in_flight);
                return self.admitted_late();
            }
            // The receiver answers so slowly that it refused others before.
            late if self
                .unanswered
                .as_ref()
                .is_some_and(|unanswered| late <= unanswered.refusals.saturating_add(1)) =>
            {
                return self.admitted_late();
            }
            // What was learned from that stretch has been replaced since.
            _ => return,
        }
        self.before_overload = None;
        self.keep_recent(now);
        self.cycle_began_at.get_or_insert(now);
        self.cycle_admitted = self.cycle_admitted.saturating_add(1);
        if let Some(limit) = self.at_once() {
            let trust = self.trust();
            let is_bound = n_in_flight >= limit.min(limits.concurrency);
            if self.number.get_or_insert_default().probes(is_bound, limits.concurrency, trust, now) {
                // At the configured number there is nothing left to learn.
                (self.rate, self.ceiling) = (None, None);
            }
            return;
        }
        let Some(rate) = self.rate.filter(|_| pressed && position.is_none()) else { return };
        if let Some(chance) = &mut self.chance {
            chance.admitted(rate);
        }
        let grown = match &mut self.ceiling {
            None => rate.plus(GROWTH_PER_SUCCESS.min(rate.0 * GROWTH_PERCENT_MAX / 100)),
            Some(ceiling) => {
                if ceiling.doubt(rate, now) {
                    self.proven = Some(rate);
                }
                ceiling.approached_from(rate)
            }
        };
        // At the configured rate there is nothing left to learn.
        self.rate = (grown < limits.rate).then_some(grown);
        if self.rate.is_none() {
            self.ceiling = None;
        }
    }

    /// Before the first refusal there may be weeks in which there was little to send: they say nothing about what it admits.
    fn keep_recent(&mut self, now: Timestamp) {
        let Some(began_at) = self.cycle_began_at.filter(|_| self.rate.is_none()) else { return };
        let lasted = now.since(began_at);
        if lasted >= RECENT.times(2) {
            let kept = u128::from(self.cycle_admitted) * u128::from(RECENT.0) / u128::from(lasted.0);
            self.cycle_admitted = u64::try_from(kept).unwrap_or(u64::MAX);
            self.cycle_began_at = Some(now - RECENT);
        }
    }

    /// It belongs to the stretch that the refusal ended.
    fn admitted_late(&mut self) {
        if let Some(unanswered) = self.unanswered.take() {
            let Unanswered { mut stretch, until, .. } = *unanswered;
            stretch.admitted = 1;
            return self.conclude(stretch, until);
        }
        let in_trial = self.at_once().is_some();
        let Some(stretch) = &mut self.last_stretch else { return };
        stretch.admitted = stretch.admitted.saturating_add(1);
        if in_trial {
            return;
        }
        if let Some(chance) = self.chance.as_mut().filter(|_| !self.burst_refused) {
            chance.admitted_late();
        }
        if let Some(shortest) = self.shortest_stretch.as_mut().filter(|shortest| shortest.lasted == stretch.lasted) {
            shortest.admitted = stretch.admitted;
        }
        if self.ceiling.is_none() {
            self.rate = self.rate.map(|rate| rate.max(stretch.first_pace()));
        }
    }

    /// It seems overloaded, and is left alone until then, if it says so.
    pub(super) fn overloaded(&mut self, refused: Refused, now: Timestamp, until: Timestamp) {
        if self.rate.is_none() && self.cycle_admitted == 0 {
            return;
        }
        let is_first = self.rate.is_none();
        if self.before_overload.is_none() {
            self.before_overload = Some(Box::new(self.clone()));
        }
        self.refused(refused, now, until);
        self.by_overload = true;
        if is_first {
            // What it got until now may have been little because there was little to send.
            self.rate = self.rate.map(|rate| rate.max(Rate::per_second(OVERLOADED_MIN)));
        }
    }

    /// It seems down, and what it answered last no sign of overload. One that accepts some and falls over again and again is
    /// overloaded after all.
    pub(super) fn tripped(&mut self, now: Timestamp) {
        if let Some(chance) = &mut self.chance {
            chance.tripped();
        }
        let Some(before) = self.before_overload.take() else { return };
        if self.was_down_at.is_none_or(|at| now.since(at) >= DOWN_AGAIN) {
            // What is still under way belongs to no stretch that is known.
            let refusals = self.refusals.wrapping_add(2);
            *self = Self { refusals, was_down_at: Some(now), ..*before };
            self.number.get_or_insert_default().tripped();
        } else if self.refuses_by_chance()
            && let Some(rate) = self.rate
        {
            // So many in a row are no chance.
            self.number.get_or_insert_default().tripped();
            self.chance = None;
            self.ceiling = Some(Box::new(Ceiling::after(None, rate, TRUST_TRIPPED, now)));
            self.rate = Some(rate.percent(DECREASE_TRIPPED_PERCENT));
        }
    }

    fn burst_answered(&mut self, position: Option<u32>, admitted: bool) {
        if let (Some(position), Some(chance)) = (position, &mut self.chance) {
            chance.burst_answered(position, admitted);
        }
    }

    /// It refused, and is left alone until then.
    pub(super) fn refused(&mut self, refused: Refused, now: Timestamp, until: Timestamp) {
        let Refused { in_company, pressed, n_in_flight, position, in_force } = refused;
        self.in_company = in_company;
        self.burst_refused = position.is_some();
        self.burst_answered(position, false);
        self.by_overload = false;
        self.undecided = true;
        self.number.get_or_insert_default().refused(n_in_flight);
        self.refusals = self.refusals.wrapping_add(1);
        self.keep_recent(now);
        let began_at = self.cycle_began_at.unwrap_or(now);
        let (admitted, lasted) = (self.cycle_admitted, now.since(began_at));
        let mut stretch = Stretch { admitted, lasted, cycle: until.since(began_at), refused_at: Rate::FASTEST };
        stretch.refused_at = match self.rate {
            None => Rate::over(admitted, lasted),
            Some(rate) if pressed => in_force.map_or(rate, |in_force| in_force.min(rate)),
            // Without a queue behind it the pace was not what we really sent.
            Some(rate) => stretch.at_least().max(rate.percent(50)),
        };
        if self.at_once().is_some() {
            // What it admitted says nothing about a pace that was not kept.
            (self.last_stretch, self.unanswered) = (Some(Box::new(stretch)), None);
        } else if self.rate.is_some() && admitted == 0 {
            // Perhaps it admits nothing at all now, which says nothing about how much it admits when it does.
            let before = self.unanswered.take().map_or(0, |before| {
                stretch.lasted = stretch.lasted + before.stretch.cycle;
                stretch.cycle = stretch.cycle + before.stretch.cycle;
                before.refusals
            });
            self.unanswered = Some(Box::new(Unanswered { stretch, until, refusals: before.saturating_add(1) }));
        } else {
            self.conclude(stretch, until);
        }
    }

    /// Another request of the stretch that ended was refused.
    pub(super) fn refused_too(&mut self, refusals: u32, n_in_flight: u32, position: Option<u32>) {
        if self.refusals.wrapping_sub(refusals) == 1 {
            self.burst_answered(position, false);
            self.number.get_or_insert_default().refused_too(n_in_flight);
        }
    }

    /// Sending goes on after a refusal, with the pace or with a number at once.
    pub(super) fn decide(&mut self, now: Timestamp) {
        if self.unanswered.is_some() || !std::mem::take(&mut self.undecided) {
            return;
        }
        let (Some(rate), Some(stretch), trust) = (self.rate, self.last_stretch.as_deref().copied(), self.trust())
        else {
            return;
        };
        let number = self.number.get_or_insert_default();
        if number.limit().is_none() {
            if self.burst_refused {
                return;
            }
            let burst = self.burst && self.ceiling.is_none();
            return number.tries(stretch.admitted, burst, trust, now);
        }
        let done = stretch.at_least();
        let is_cheap = stretch.lasted > stretch.waited().times(LONG_STRETCH);
        let better = done >= rate.percent(200) || done >= rate && is_cheap;
        number.judged(stretch.admitted, better, trust, now);
        if !better {
            self.rate = Some(rate.max(done));
        }
    }

    /// How long what the last stretch showed is trusted.
    fn trust(&self) -> Millis {
        self.last_stretch.as_ref().map_or(ceiling::TRUST_MAX, |stretch| self.trust_after(**stretch))
    }

    /// How long a ceiling that this stretch shows is trusted.
    fn trust_after(&self, stretch: Stretch) -> Millis {
        let changes = self.changes.as_ref().map_or(0, |changes| changes.seen());
        ceiling::trust(stretch.waited(), changes, self.in_company)
    }

    fn conclude(&mut self, stretch: Stretch, until: Timestamp) {
        self.unanswered = None;
        self.burst = stretch.admitted == 0;
        self.rate = Some(match self.rate {
            None => stretch.first_pace(),
            Some(_) => {
                let done = self.done.get_or_insert_default().stretch_ended(stretch.admitted, stretch.cycle);
                self.below_new_ceiling(stretch, done, until)
            }
        });
        self.last_stretch = Some(Box::new(stretch));
        let is_shortest = self.shortest_stretch.as_ref().is_none_or(|shortest| stretch.lasted <= shortest.lasted);
        if stretch.admitted > 0 && is_shortest {
            self.shortest_stretch = Some(Box::new(stretch));
        }
    }

    /// `done`: what got done lately, waits included.
    fn below_new_ceiling(&mut self, stretch: Stretch, done: Rate, until: Timestamp) -> Rate {
        if self.burst_refused
            && let Some(rate) = self.rate
        {
            return rate;
        }
        self.changes.get_or_insert_default().stretch_ended(stretch.admitted, stretch.lasted, stretch.waited());
        let trust = self.trust_after(stretch);
        let chance = self.chance.get_or_insert_default();
        if let Some(pace) = chance.stretch_ended(stretch.admitted, stretch.refused_at, stretch.waited()) {
            let ceiling = pace.percent(CHANCE_RAISE_PERCENT);
            self.ceiling = Some(Box::new(Ceiling::after(None, ceiling, trust, until)));
            return pace;
        }
        if let Some(restored) = self.ceiling.as_ref().and_then(|ceiling| ceiling.restored(trust, until)) {
            self.ceiling = Some(Box::new(restored));
            return restored.rate.percent(BELOW_CEILING_PERCENT).min(stretch.refused_at);
        }
        self.proven = self.proven.filter(|proven| *proven <= stretch.refused_at);
        let done = done.max(stretch.at_least());
        let at_least = self.proven.map_or(done, |proven| proven.max(done));
        let others = [&self.last_stretch, &self.shortest_stretch];
        let per_window = others.into_iter().flatten().find_map(|other| stretch.limit_per_window(**other));
        // A guess that contradicts what we know is none.
        let per_window = per_window.filter(|limit| *limit >= at_least.percent(90));
        let early = stretch.lasted < EARLY;
        self.early_refusals = if early { self.early_refusals.saturating_add(1) } else { 0 };
        let ceiling = match per_window {
            Some(limit) => limit.max(done).min(stretch.refused_at),
            // What was refused so soon, again and again, is well above what it admits.
            None if self.early_refusals >= EARLY_IN_ROW => {
                stretch.refused_at.percent(EARLY_DECREASE_PERCENT).max(stretch.at_least())
            }
            None => stretch.refused_at.max(done),
        };
        let trust = if per_window.is_some() { ceiling::TRUST_GUESSED.min(trust) } else { trust };
        let before = self.ceiling.take().map(|ceiling| *ceiling);
        self.ceiling = Some(Box::new(Ceiling::after(before, ceiling, trust, until)));
        let share = match per_window {
            Some(_) => BELOW_CEILING_PERCENT,
            None if early => DECREASE_EARLY_PERCENT,
            None => DECREASE_LATE_PERCENT,
        };
        ceiling.percent(share).max(done).min(ceiling.percent(BELOW_CEILING_PERCENT))
    }

    pub(super) fn resumes_at(&mut self, until: Timestamp) {
        (self.cycle_began_at, self.cycle_admitted) = (Some(until), 0);
    }
}
