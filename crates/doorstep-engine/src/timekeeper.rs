//! Writes down how far the clock has come, so that the next process goes on from there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use doorstep_core::store::Write;
use doorstep_core::time::{Millis, Timestamp};
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::run::Handle;
use crate::writer::{WriteFault, Writer};

/// The clock is looked at this often, so that a step is noticed although nothing happens.
pub const LOOKS_EVERY: Duration = Duration::from_secs(1);
/// While other things are written, the clock is written this often.
pub const KEPT_EVERY: Millis = Millis::from_secs(10);
/// It is written at least this often: far below the time that schedules may lose in a restart, and the disk of an idle server rests.
pub const KEPT_AT_LEAST_EVERY: Millis = Millis::from_mins(10);

/// After a failure it is tried again in this time.
const RETRIED_AFTER: Duration = Duration::from_secs(10);

/// Starts a task that keeps the clock. It ends with the run loop.
pub fn start(clock: Clock, writer: Writer, run: Handle) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut last = None;
        loop {
            let seen = Seen { at: clock.now(), changes: clock.changes(), writes: n_writes(&writer) };
            let mut nap = LOOKS_EVERY;
            if seen.is_due_after(last.as_ref()) {
                match keep(&clock, &writer).await {
                    Ok(()) => last = Some(Seen { writes: n_writes(&writer), ..seen }),
                    // The writer has logged why, and a store in trouble is not asked every second.
                    Err(_) => nap = RETRIED_AFTER,
                }
            }
            tokio::select! {
                () = run.ended() => return,
                () = tokio::time::sleep(nap) => {}
            }
        }
    })
}

/// Writes how far the clock has come.
pub async fn keep(clock: &Clock, writer: &Writer) -> Result<(), WriteFault> {
    writer.write(vec![Write::KeepClock(Box::new(clock.record()))]).await.map(drop)
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Timestamp,
    /// How often the timeline has changed.
    changes: u64,
    /// How much was written by anybody.
    writes: u64,
}

impl Seen {
    /// Whether it has to be written, `last` being what was written last.
    fn is_due_after(&self, last: Option<&Self>) -> bool {
        let Some(last) = last else { return true };
        let passed = self.at.since(last.at);
        self.changes != last.changes
            || (self.writes != last.writes && passed >= KEPT_EVERY)
            || passed >= KEPT_AT_LEAST_EVERY
    }
}

fn n_writes(writer: &Writer) -> u64 {
    writer.commits().writes.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_at_once_when_the_clock_was_set_and_seldom_otherwise() {
        let last = Seen { at: Timestamp(0), changes: 1, writes: 7 };
        for (seconds, changes, writes, due) in [
            (1, 1, 7, false),
            (1, 2, 7, true),
            (9, 1, 9, false),
            (10, 1, 9, true),
            (10, 1, 7, false),
            (599, 1, 7, false),
            (600, 1, 7, true),
        ] {
            let seen = Seen { at: Timestamp::from_secs(seconds), changes, writes };
            assert_eq!(seen.is_due_after(Some(&last)), due, "{seen:?}");
        }
        assert!(last.is_due_after(None), "the first look is written");
    }
}
