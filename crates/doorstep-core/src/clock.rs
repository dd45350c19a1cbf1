//! Schedule time and the wall clock (D0).
//!
//! Everything that is scheduled or kept carries *schedule time*: it starts at the wall clock, and from then on it passes as the
//! machine's monotonic clock does. It never goes back and never leaps, whatever the wall clock does. What the outside world sees
//! (times shown, signatures) is the wall clock; a [`Timeline`] translates between the two.

mod timeline;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::time::{Millis, Timestamp};

pub use timeline::{OFFSETS_MAX, Timeline};

/// While Doorstep does not run (stopped, or the machine suspended), schedule time moves on by at most this much: a longer pause
/// may as well be a wrong clock, and then nothing may expire or be purged because of it.
pub const PAUSE_MAX: Millis = Millis::from_hours(1);
/// Times shown differ from the wall clock by no more than this. Below it the two are not adjusted, so that what is shown twice is
/// the same twice.
pub const TOLERANCE: Millis = Millis(500);
/// From here on a step of the wall clock is worth a warning.
pub const STEP_MIN: Millis = Millis::from_secs(1);

/// What the machine's clocks show at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub wall: Timestamp,
    /// Time since the machine was started, suspended or not. It passes evenly and never goes back.
    pub up: Millis,
}

/// One moment, as both see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Schedule time: it never goes back and never leaps.
    pub at: Timestamp,
    /// The wall clock's, for whatever the outside world judges.
    pub wall: Timestamp,
}

/// What is kept of a clock, so that the next process goes on from there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockRecord {
    /// Schedule time when this was written.
    pub at: Timestamp,
    pub wall: Timestamp,
    pub up: Millis,
    /// Which start of the machine `up` counts from; `None` if the system does not say.
    pub boot: Option<String>,
    pub timeline: Timeline,
}

/// What a store knows of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptClock {
    pub record: Option<ClockRecord>,
    /// About the latest schedule time in the store. It may have been written after the record.
    pub newest: Option<Timestamp>,
}

/// What somebody should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChange {
    /// The wall clock was set while Doorstep ran. Schedules are not affected.
    Stepped { from: Timestamp, to: Timestamp },
    /// Doorstep did not run for `seemed`, of which only `counted` passed in schedule time.
    Paused { seemed: Millis, counted: Millis },
    /// The wall clock shows an earlier time than when Doorstep last ran.
    WentBack { from: Timestamp, to: Timestamp },
}

/// Schedule time, told what the machine's clocks show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clock {
    at: Timestamp,
    up: Millis,
    boot: Option<String>,
    timeline: Arc<Timeline>,
}

impl Clock {
    /// A clock without a past: schedule time is the wall clock's, or `newest` if the store knows a later one.
    pub fn new(reading: &Reading, boot: Option<String>, newest: Option<Timestamp>) -> Self {
        let at = newest.map_or(reading.wall, |newest| newest.max(reading.wall));
        Self { at, up: reading.up, boot, timeline: Arc::new(Timeline::new(at, reading.wall)) }
    }

    /// Goes on where another process left off. `newest` is the latest time in the store: it may have been written after the record.
    pub fn resume(
        record: ClockRecord,
        reading: &Reading,
        boot: Option<String>,
        newest: Option<Timestamp>,
    ) -> (Self, Option<ClockChange>) {
        let same_boot = boot.is_some() && boot == record.boot && record.up <= reading.up;
        let ClockRecord { at, wall, up, timeline, .. } = record;
        let seemed = if same_boot { reading.up - up } else { reading.wall.since(wall) };
        let mut clock = Self { at: at + seemed.min(PAUSE_MAX), up: reading.up, boot, timeline: Arc::new(timeline) };
        clock.at = newest.map_or(clock.at, |newest| newest.max(clock.at));
        if same_boot && seemed <= PAUSE_MAX {
            let change = clock.follow(reading.wall);
            return (clock, change);
        }
        let change = if seemed > PAUSE_MAX {
            Some(ClockChange::Paused { seemed, counted: PAUSE_MAX })
        } else {
            let back = wall.since(reading.wall) >= STEP_MIN;
            back.then_some(ClockChange::WentBack { from: wall, to: reading.wall })
        };
        clock.depart(reading.wall);
        (clock, change)
    }

    /// Moves on to what the machine's clocks show now.
    pub fn tell(&mut self, reading: &Reading) -> Option<ClockChange> {
        let passed = reading.up - self.up;
        self.up = reading.up;
        self.at = self.at + passed.min(PAUSE_MAX);
        if passed > PAUSE_MAX {
            self.depart(reading.wall);
            return Some(ClockChange::Paused { seemed: passed, counted: PAUSE_MAX });
        }
        self.follow(reading.wall)
    }

    /// Moves on if this reading changes nothing but the time, and says whether it does.
    pub fn pass(&mut self, reading: &Reading) -> bool {
        let passed = reading.up - self.up;
        let at = self.at + passed;
        let expected = passed <= PAUSE_MAX && is_near(self.timeline.shown(at), reading.wall);
        if expected {
            (self.at, self.up) = (at, reading.up);
        }
        expected
    }

    /// Schedule time at the last reading.
    pub fn now(&self) -> Timestamp {
        self.at
    }

    pub fn timeline(&self) -> &Arc<Timeline> {
        &self.timeline
    }

    pub fn record(&self, wall: Timestamp) -> ClockRecord {
        let Self { at, up, boot, timeline } = self.clone();
        ClockRecord { at, wall, up, boot, timeline: Timeline::clone(&timeline) }
    }

    /// The time that has passed is known, so the wall clock was set: what was noted under the old setting is shown by the new one.
    fn follow(&mut self, wall: Timestamp) -> Option<ClockChange> {
        let from = self.timeline.shown(self.at);
        if is_near(from, wall) {
            return None;
        }
        Arc::make_mut(&mut self.timeline).correct(self.at, wall);
        (distance(from, wall) >= STEP_MIN).then_some(ClockChange::Stepped { from, to: wall })
    }

    /// Nobody knows how much time has passed: what was noted before is shown as it was, and what follows by the wall clock.
    fn depart(&mut self, wall: Timestamp) {
        if !is_near(self.timeline.shown(self.at), wall) {
            Arc::make_mut(&mut self.timeline).depart(self.at, wall);
        }
    }
}

fn is_near(one: Timestamp, other: Timestamp) -> bool {
    distance(one, other) <= TOLERANCE
}

fn distance(one: Timestamp, other: Timestamp) -> Millis {
    one.since(other).max(other.since(one))
}

#[cfg(test)]
mod tests;
