//! The time that decisions are told.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use doorstep_core::time::{Millis, Timestamp};

/// The wall clock as it was at the start, moved on by a clock that cannot jump.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started_at: Timestamp,
    started: Instant,
}

impl Clock {
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = Timestamp(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
        Self { started_at, started: Instant::now() }
    }

    pub fn now(&self) -> Timestamp {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.started_at + Millis(passed)
    }

    /// When this clock will show that time.
    pub fn instant(&self, at: Timestamp) -> Instant {
        self.started + std::time::Duration::from_millis(at.since(self.started_at).0)
    }
}
