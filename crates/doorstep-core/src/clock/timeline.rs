//! Which wall-clock time a schedule time is shown as.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// So many stretches are told apart; beyond, the two oldest become one. A stretch begins only after a long pause or a start with
/// another clock, so this is more than retention keeps anything of.
pub const OFFSETS_MAX: usize = 64;

/// How far the wall clock was from schedule time, stretch by stretch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<Stretch>", into = "Vec<Stretch>")]
pub struct Timeline {
    /// Never empty, in order of time. Whatever lies before the first one belongs to it.
    stretches: Vec<Stretch>,
}

/// From this schedule time on, the wall clock is ahead by `offset_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stretch {
    from: Timestamp,
    offset_ms: i64,
}

impl Stretch {
    fn new(from: Timestamp, wall: Timestamp) -> Self {
        Self { from, offset_ms: wall.0.saturating_sub(from.0) }
    }

    fn shown(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_add(self.offset_ms))
    }

    fn kept(&self, wall: Timestamp) -> Timestamp {
        Timestamp(wall.0.saturating_sub(self.offset_ms))
    }
}

impl Timeline {
    /// One stretch, in which this schedule time is shown as that wall-clock time.
    pub fn new(at: Timestamp, wall: Timestamp) -> Self {
        Self { stretches: vec![Stretch { from: Timestamp(i64::MIN), ..Stretch::new(at, wall) }] }
    }

    /// The wall-clock time of something that is kept.
    pub fn shown(&self, at: Timestamp) -> Timestamp {
        self.stretches[self.index(at)].shown(at)
    }

    /// The schedule time of a wall-clock time that somebody gave. Times that several stretches show belong to the newest of them;
    /// what falls between two is the beginning of the later.
    pub fn kept(&self, wall: Timestamp) -> Timestamp {
        let mut end = Timestamp::MAX;
        for (n, stretch) in self.stretches.iter().enumerate().rev() {
            let at = stretch.kept(wall);
            if n == 0 || stretch.from <= at {
                return at.min(end);
            }
            end = stretch.from;
        }
        unreachable!("a timeline has a first stretch")
    }

    /// From here on the wall clock shows `wall`.
    pub(super) fn depart(&mut self, at: Timestamp, wall: Timestamp) {
        let new = Stretch::new(at, wall);
        self.stretches.retain(|stretch| stretch.from < at);
        self.stretches.push(new);
        if self.stretches.len() > OFFSETS_MAX {
            self.stretches.remove(0);
        }
    }

    /// The last stretch was shown wrong: now is `wall`.
    pub(super) fn correct(&mut self, at: Timestamp, wall: Timestamp) {
        if let Some(last) = self.stretches.last_mut() {
            last.offset_ms = Stretch::new(at, wall).offset_ms;
        }
    }

    fn index(&self, at: Timestamp) -> usize {
        // Nearly always it is now.
        if self.stretches.last().is_some_and(|last| last.from <= at) {
            return self.stretches.len() - 1;
        }
        self.stretches.partition_point(|stretch| stretch.from <= at).saturating_sub(1)
    }
}

/// Schedule time is the wall clock's.
impl Default for Timeline {
    fn default() -> Self {
        Self::new(Timestamp::default(), Timestamp::default())
    }
}

impl From<Timeline> for Vec<Stretch> {
    fn from(timeline: Timeline) -> Self {
        timeline.stretches
    }
}

impl TryFrom<Vec<Stretch>> for Timeline {
    type Error = &'static str;

    fn try_from(stretches: Vec<Stretch>) -> Result<Self, Self::Error> {
        if stretches.is_empty() || !stretches.is_sorted_by(|one, next| one.from < next.from) {
            return Err("a timeline has at least one stretch, and they are in order");
        }
        Ok(Self { stretches })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn timeline(stretches: &[(i64, i64)]) -> Timeline {
        let stretch = |(from, offset_ms): &(i64, i64)| Stretch { from: Timestamp(*from), offset_ms: *offset_ms };
        Timeline::try_from(stretches.iter().map(stretch).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn each_stretch_is_shown_by_its_own_clock() {
        // Two hours of which nothing is known, then a clock that was set back by three.
        let line = timeline(&[(0, 0), (10 * HOUR, 2 * HOUR), (20 * HOUR, -HOUR)]);
        for (at, shown) in [(-5, -5), (9, 9), (10, 12), (19, 21), (20, 19), (500, 499)] {
            assert_eq!(line.shown(Timestamp(at * HOUR)), Timestamp(shown * HOUR), "{at}");
        }
        for (wall, at) in [
            (-5, -5),
            (9, 9),
            // Nothing happened between 10 and 12.
            (11, 10),
            (12, 10),
            (13, 11),
            // From 19 on both show it; the newest counts.
            (18, 16),
            (19, 20),
            (25, 26),
        ] {
            assert_eq!(line.kept(Timestamp(wall * HOUR)), Timestamp(at * HOUR), "{wall}");
        }
    }

    #[test]
    fn the_oldest_stretches_become_one() {
        let mut line = Timeline::default();
        for n in 1..=OFFSETS_MAX as i64 {
            line.depart(Timestamp(n * HOUR), Timestamp(n * 2 * HOUR));
        }
        assert_eq!(line.stretches.len(), OFFSETS_MAX);
        assert_eq!(line.shown(Timestamp(0)), Timestamp(HOUR), "the first is shown as the second was");
        assert_eq!(line.shown(Timestamp(5 * HOUR)), Timestamp(10 * HOUR));
    }

    #[test]
    fn what_is_not_a_timeline_is_not_read_as_one() {
        assert!(serde_json::from_str::<Timeline>("[]").is_err());
        let wrong = r#"[{"from":5,"offset_ms":0},{"from":5,"offset_ms":1}]"#;
        assert!(serde_json::from_str::<Timeline>(wrong).is_err());
        let line = timeline(&[(0, 0), (5, -7)]);
        assert_eq!(serde_json::from_str::<Timeline>(&serde_json::to_string(&line).unwrap()).unwrap(), line);
    }

    #[test]
    fn no_time_is_too_far_away() {
        for (at, wall) in [(i64::MIN, i64::MAX), (i64::MAX, i64::MIN), (0, i64::MIN)] {
            let line = Timeline::new(Timestamp(at), Timestamp(wall));
            for t in [i64::MIN, 0, i64::MAX] {
                let _ = (line.shown(Timestamp(t)), line.kept(Timestamp(t)));
            }
        }
    }
}
