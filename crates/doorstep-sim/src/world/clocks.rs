//! True time, a wall clock that is set now and then, and the schedule time that the process makes of both.

use doorstep_core::clock::{Clock, ClockRecord, PAUSE_MAX, Reading};

use super::*;

/// The process looks at its clocks at least this often.
const LOOKS_EVERY: Millis = Millis::from_mins(30);
/// It writes down how far they have come this often.
const KEPT_EVERY: Millis = Millis::from_secs(10);
/// The wall clock is set by up to this much, either way.
const SET_BY_MAX: u64 = 3 * 86_400_000;

#[derive(Debug)]
pub(super) struct Clocks {
    schedule: Clock,
    /// True time when it was last told.
    told_at: Timestamp,
    /// How far the wall clock is off.
    wrong_by: i64,
    /// What the next process finds.
    record: ClockRecord,
    /// How often the machine was started before, and when it last was.
    boots: u32,
    booted_at: Timestamp,
    /// Whether anybody sets the wall clock while the process runs.
    restless: bool,
    /// Of its own: what else happens in a world does not depend on its clocks.
    dice: SeededDice,
}

impl Clocks {
    pub(super) fn new(now: Timestamp, seed: u64) -> Self {
        let mut dice = SeededDice::new(seed ^ 0xC10C);
        let schedule = Clock::new(&Reading { wall: now, up: Millis::ZERO }, Some("boot 0".to_owned()), None);
        let (record, restless) = (schedule.record(now), dice.one_in(3));
        Self { schedule, told_at: now, wrong_by: 0, record, boots: 0, booted_at: now, restless, dice }
    }

    /// What the process is told.
    pub(super) fn now(&self) -> Timestamp {
        self.schedule.now()
    }

    /// Time passes while the process runs. Schedule time passes with it, whatever the wall clock does meanwhile.
    pub(super) fn pass(&mut self, to: Timestamp) -> Verdict {
        while self.told_at < to {
            let step = to.since(self.told_at).min(LOOKS_EVERY);
            if self.restless && self.dice.one_in(40) {
                self.set_by_hand();
            }
            let before = self.schedule.now();
            self.told_at = self.told_at + step;
            let reading = self.reading();
            self.schedule.tell(&reading);
            if self.schedule.now() != before + step {
                return Err(format!("schedule time went from {before:?} to {:?} in {step}", self.schedule.now()));
            }
            self.is_shown_right()?;
            if self.record.at + KEPT_EVERY <= self.schedule.now() {
                self.record = self.schedule.record(self.reading().wall);
            }
        }
        Ok(())
    }

    /// A process stops in order, and writes how far its clock has come.
    pub(super) fn stop(&mut self) {
        self.record = self.schedule.record(self.reading().wall);
    }

    /// A process starts. `newest` is the latest time in the store.
    pub(super) fn start(&mut self, now: Timestamp, newest: Option<Timestamp>) -> Verdict {
        let elapsed = now.since(self.told_at) + self.schedule.now().since(self.record.at);
        let is_new_boot = self.dice.one_in(2);
        if is_new_boot {
            (self.boots, self.booted_at) = (self.boots + 1, now);
        }
        self.told_at = now;
        let (kept, boot) = (self.record.at, Some(format!("boot {}", self.boots)));
        (self.schedule, _) = Clock::resume(self.record.clone(), &self.reading(), boot, newest);
        let moved = self.schedule.now().since(kept);
        let too_far = if is_new_boot { PAUSE_MAX.max(elapsed) } else { elapsed };
        let back = self.schedule.now() < kept.max(newest.unwrap_or(kept));
        if back || moved > too_far || (!is_new_boot && moved != elapsed) {
            return Err(format!("after {elapsed}, a new process has moved on by {moved} (new boot: {is_new_boot})"));
        }
        // The first thing that a process writes.
        self.record = self.schedule.record(self.reading().wall);
        self.is_shown_right()
    }

    /// The wall clock is set while nobody looks.
    pub(super) fn set_by(&mut self, ms: i64) {
        self.wrong_by += ms;
    }

    fn set_by_hand(&mut self) {
        let most = self.dice.pick(&[400, 1_000, 7_200_000, SET_BY_MAX]);
        let by = i64::try_from(self.dice.below(2 * most + 1)).unwrap_or(0) - i64::try_from(most).unwrap_or(0);
        self.set_by(by);
    }

    fn reading(&self) -> Reading {
        Reading { wall: Timestamp(self.told_at.0 + self.wrong_by), up: self.told_at.since(self.booted_at) }
    }

    fn is_shown_right(&self) -> Verdict {
        let (shown, wall) = (self.schedule.timeline().shown(self.schedule.now()), self.reading().wall);
        if shown.since(wall).max(wall.since(shown)) > Millis::from_secs(1) {
            return Err(format!("the time is shown as {shown:?}, and the wall clock says {wall:?}"));
        }
        Ok(())
    }
}
