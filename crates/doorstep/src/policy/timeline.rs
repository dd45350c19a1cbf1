//! One delivery that is created just when its receiver goes down: the policy alone, without a gate.

use doorstep_core::dice::Jitter;
use doorstep_core::outcome::Outcome;
use doorstep_core::retry::{Charge, DeadReason, Decision, Progress, RetryPolicy};
use doorstep_core::time::{Millis, Timestamp};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Life {
    /// When each attempt is made, from the start; the last one decides.
    pub(super) attempts: Vec<Millis>,
    pub(super) end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Delivered,
    Dead(DeadReason),
}

impl Life {
    pub(super) fn ended_at(&self) -> Millis {
        self.attempts.last().copied().unwrap_or_default()
    }
}

/// Every attempt before the end of the outage fails, the first one after it succeeds.
pub(super) fn live(policy: &RetryPolicy, outage: Millis, mut draw: impl FnMut() -> Jitter) -> Life {
    const START: Timestamp = Timestamp(0);
    let mut progress =
        Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: policy.give_up_at(START, None) };
    let (mut now, mut attempts) = (START, Vec::new());
    loop {
        attempts.push(now.since(START));
        if now.since(START) >= outage {
            return Life { attempts, end: End::Delivered };
        }
        let failed = Outcome::Failed { status: 503, wait: None };
        match policy.next(&failed, &progress, Charge::Attempt, now, draw()) {
            Decision::RetryAt(at) => {
                (progress.attempts, progress.last_delay) = (progress.attempts + 1, at.since(now));
                now = at;
            }
            Decision::Dead(reason) => return Life { attempts, end: End::Dead(reason) },
            // A failure is neither of these.
            Decision::Delivered | Decision::Requeue => return Life { attempts, end: End::Delivered },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::schedule;

    #[test]
    fn attempts_come_when_the_schedule_says_until_the_attempts_or_the_window_end() {
        let policy = RetryPolicy::standard();
        let rows = schedule::rows(&policy);
        let shortest = live(&policy, Millis::MAX, || Jitter::LOWEST);
        assert_eq!(shortest.attempts, rows.iter().map(|row| row.since_first.least).collect::<Vec<_>>());
        assert_eq!(shortest.end, End::Dead(DeadReason::Exhausted));
        let longest = live(&policy, Millis::MAX, || Jitter::HIGHEST);
        let within = rows.iter().map(|row| row.since_first.most).take_while(|at| *at < policy.window());
        let last = policy.window() - Millis::from_secs(1);
        assert_eq!(longest.attempts, within.chain([last]).collect::<Vec<_>>(), "the last wait is cut");
        assert_eq!(longest.end, End::Dead(DeadReason::Expired));
    }

    #[test]
    fn the_first_attempt_after_the_outage_delivers() {
        let life = live(&RetryPolicy::standard(), Millis::from_secs(100), || Jitter::HIGHEST);
        // 30 s, 60 s and 120 s.
        assert_eq!(life.attempts, [0, 30_000, 90_000, 210_000].map(Millis));
        assert_eq!(life.end, End::Delivered);
        assert_eq!(live(&RetryPolicy::standard(), Millis::ZERO, || Jitter::LOWEST).attempts, [Millis::ZERO]);
    }

    #[test]
    fn an_outage_longer_than_the_window_is_not_survived() {
        let life = live(&RetryPolicy::brief(), Millis::from_mins(5), || Jitter::HIGHEST);
        assert_eq!(life.end, End::Dead(DeadReason::Expired));
        assert!(life.ended_at() < Millis::from_mins(1));
    }
}
