//! Until when a request may take. Time during which this process was stopped does not count.

use std::pin::pin;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

/// If a timer fires late, what has arrived in time may still lie in the socket. The task that reads the connection has this long
/// to hand it over.
const GRACE: Duration = Duration::from_millis(50);

/// A timer that fires this late was kept waiting, and so was the task that reads the connection.
const LATE_MIN: Duration = Duration::from_millis(10);

/// A timer that fires this late shows that the process was stopped or its machine stalled. Tasks that only wait for their
/// turn are not that late.
pub(super) const ASLEEP_MIN: Duration = Duration::from_secs(1);

/// The end of a request's time.
#[derive(Debug)]
pub(super) struct Deadline {
    started: Instant,
    time: Duration,
    at: Instant,
    restarted: bool,
}

impl Deadline {
    pub(super) fn new(started: Instant, time: Duration) -> Self {
        Self { started, time, at: started + time, restarted: false }
    }

    /// What comes of `work`, or `None` if it takes longer than the request may, or than `phase`.
    ///
    /// If the process was stopped beyond that, the time begins anew, once: nobody knows how much of it had passed when the
    /// process was stopped.
    pub(super) async fn wait<F: Future>(&mut self, phase: Option<Duration>, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        let (mut at, mut grace) = (self.end_of(phase), Some(GRACE));
        loop {
            if let Ok(done) = timeout_at(at, work.as_mut()).await {
                return Some(done);
            }
            at = match at.elapsed() {
                _ if self.restart_if_late(at) => self.end_of(phase),
                late if late >= LATE_MIN => Instant::now() + grace.take()?,
                _ => return None,
            };
        }
    }

    /// How much of the time is left.
    pub(super) fn left(&mut self) -> Duration {
        self.restart_if_late(self.at);
        self.at.saturating_duration_since(Instant::now())
    }

    /// Since the request began, as timers count it: without the time that the machine was suspended.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the process was stopped beyond the end of the request's time, or of a phase.
    pub(super) fn was_asleep(&self) -> bool {
        self.restarted || is_late(self.at)
    }

    fn end_of(&self, phase: Option<Duration>) -> Instant {
        phase.map_or(self.at, |phase| self.at.min(Instant::now() + phase))
    }

    fn restart_if_late(&mut self, at: Instant) -> bool {
        let restarts = !self.restarted && is_late(at);
        if restarts {
            (self.at, self.restarted) = (Instant::now() + self.time, true);
        }
        restarts
    }
}

fn is_late(at: Instant) -> bool {
    at.elapsed() >= ASLEEP_MIN
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{advance, sleep};

    use super::*;

    const TIME: Duration = Duration::from_secs(15);
    const PHASE: Duration = Duration::from_secs(5);

    /// How long a wait in vain takes, if the process is stopped for so long each time when it has waited for a second.
    async fn waits(deadline: &mut Deadline, phase: Option<Duration>, stops: &[Duration]) -> Duration {
        let (started, stops) = (Instant::now(), stops.to_vec());
        let work = async {
            for stopped in stops {
                sleep(Duration::from_secs(1)).await;
                advance(stopped).await;
            }
            pending::<()>().await;
        };
        assert_eq!(deadline.wait(phase, work).await, None);
        started.elapsed()
    }

    #[track_caller]
    fn about(waited: Duration, expected: Duration) {
        let more = waited.checked_sub(expected);
        assert!(more.is_some_and(|more| more < LATE_MIN), "{waited:?} instead of {expected:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_with_its_phase_or_with_the_whole() {
        let mut deadline = Deadline::new(Instant::now(), TIME);
        about(waits(&mut deadline, Some(PHASE), &[]).await, PHASE);
        about(waits(&mut deadline, Some(PHASE), &[]).await, PHASE);
        waits(&mut deadline, None, &[]).await;
        about(deadline.elapsed(), TIME);
        about(waits(&mut deadline, Some(PHASE), &[]).await, Duration::ZERO);
        assert!(!deadline.was_asleep());
    }

    #[tokio::test(start_paused = true)]
    async fn time_begins_anew_after_a_stop_and_only_once() {
        let second = Duration::from_secs(1);
        for stopped in [TIME, Duration::from_secs(86_400)] {
            let mut deadline = Deadline::new(Instant::now(), TIME);
            about(waits(&mut deadline, None, &[stopped]).await, second + stopped + TIME);
            assert!(deadline.was_asleep());

            let mut deadline = Deadline::new(Instant::now(), TIME);
            about(waits(&mut deadline, None, &[stopped, stopped]).await, 2 * (second + stopped) + GRACE);
        }
        let mut deadline = Deadline::new(Instant::now(), TIME);
        about(waits(&mut deadline, None, &[TIME / 2]).await, TIME);
        assert!(!deadline.was_asleep(), "a stop that ends in time is not noticed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_in_one_phase_leaves_the_whole_time_for_the_next() {
        let mut deadline = Deadline::new(Instant::now(), TIME);
        about(waits(&mut deadline, Some(PHASE), &[PHASE * 2]).await, Duration::from_secs(1) + PHASE * 3);
        waits(&mut deadline, None, &[]).await;
        about(deadline.elapsed(), Duration::from_secs(1) + PHASE * 2 + TIME);

        // It was over in time, and nothing of the whole was left.
        let mut deadline = Deadline::new(Instant::now(), TIME);
        assert_eq!(deadline.wait(Some(PHASE), advance(TIME * 2)).await, Some(()));
        assert_eq!(deadline.left(), TIME);
        assert!(deadline.was_asleep());
    }

    /// The process is stopped for so long across the end, and what came in time is handed over this long after it.
    async fn handed_over(stopped: Duration, after: Duration) -> bool {
        let mut deadline = Deadline::new(Instant::now(), TIME);
        let work = async {
            sleep(TIME - Duration::from_millis(1)).await;
            advance(stopped).await;
            sleep(after).await;
        };
        deadline.wait(None, work).await.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_handed_over_late_has_come_in_time_if_the_timer_was_late_too() {
        assert!(handed_over(2 * LATE_MIN, GRACE / 2).await);
        assert!(!handed_over(2 * LATE_MIN, 2 * GRACE).await);
        assert!(!handed_over(Duration::ZERO, GRACE / 2).await);
    }
}
