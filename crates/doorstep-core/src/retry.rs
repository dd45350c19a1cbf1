//! What follows from an outcome: delivered, tried again at a time, or dead (D7, D8, B1–B4).

mod spec;
mod presets;

use serde::{Deserialize, Serialize};

use crate::dice::Jitter;
use crate::outcome::Outcome;
use crate::time::{Millis, Timestamp};

pub use presets::{BUILT_IN, PRESET_NAME_MAX, PRESETS_MAX, Presets, PresetsFault};
pub use spec::{
    ATTEMPTS_MAX, CustomPolicy, DELAY_MAX, DELAY_MIN, DELAYS_MAX, PolicyFault, PolicySpec, StrategyName, WINDOW_MAX,
};

/// How a destination's deliveries are retried: delays between attempts, and a budget of time and attempts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PolicySpec", into = "PolicySpec")]
pub struct RetryPolicy {
    strategy: Strategy,
    jitter: JitterKind,
    floor: Millis,
    max_attempts: u32,
    window: Millis,
    /// The operator's, and the same for every policy: it is no part of how a policy is written.
    ambiguous_max: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Strategy {
    Exponential {
        base: Millis,
        cap: Millis,
    },
    Fixed {
        delay: Millis,
    },
    /// The last delay repeats until the window ends.
    Schedule {
        delays: Vec<Millis>,
    },
}

/// How chance spreads a delay (B2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JitterKind {
    Full,
    Equal,
    Decorrelated,
    None,
}

/// What follows from an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Delivered,
    /// Tried again then, and one attempt of the budget is spent.
    RetryAt(Timestamp),
    /// Goes back to its place in the queue and pays nothing: its destination's gate says when.
    Requeue,
    Dead(DeadReason),
}

/// Why a delivery ended without success.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Its attempts are used up.
    Exhausted,
    /// Its window closed.
    Expired,
    /// The receiver gave a final no.
    Rejected,
    /// A person decided so, or erased what was to be sent.
    Abandoned,
}

impl DeadReason {
    pub const ALL: [Self; 4] = [Self::Exhausted, Self::Expired, Self::Rejected, Self::Abandoned];

    /// As it is written everywhere.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Expired => "expired",
            Self::Rejected => "rejected",
            Self::Abandoned => "abandoned",
        }
    }
}

/// What a delivery has been through so far: all that a retry needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Attempts spent from the budget; throttled ones and failed probes are free.
    pub attempts: u32,
    /// How many of those had an ambiguous answer.
    pub ambiguous: u32,
    /// The delay before the latest attempt, which decorrelated jitter grows from.
    pub last_delay: Millis,
    /// Fixed when the delivery is created.
    pub give_up_at: Timestamp,
}

/// Whether a failed request is charged to its delivery's budget (D7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// It costs an attempt.
    Attempt,
    /// It tested an open breaker. The delivery lent itself for that, so its failure costs nothing.
    Probe,
}

/// A delivery with this many ambiguous answers is rejected (D4), unless the operator sets another limit.
pub const AMBIGUOUS_MAX: u32 = 5;

/// The last attempt comes this long before the window ends, so that it is sent before it expires.
const LAST_CALL: Millis = Millis::from_secs(1);

/// A wait that a receiver asked for is stretched by up to this share of itself …
const STRETCH_SHARE: u64 = 10;
/// … but by no more than this.
const STRETCH_MAX: Millis = Millis::from_mins(1);

/// A wait that a receiver asked for, spread upwards only: it is never shortened.
pub(crate) fn stretched(asked: Millis, jitter: Jitter) -> Millis {
    asked + jitter.up_to(Millis(asked.0 / STRETCH_SHARE).min(STRETCH_MAX))
}

impl Strategy {
    /// The shortest delay that it names.
    fn shortest(&self) -> Millis {
        match self {
            Self::Exponential { base, .. } => *base,
            Self::Fixed { delay } => *delay,
            Self::Schedule { delays } => delays.iter().copied().min().unwrap_or(Millis::ZERO),
        }
    }
}

impl RetryPolicy {
    /// What follows from the outcome of the request after `progress.attempts` paid ones.
    pub fn next(
        &self,
        outcome: &Outcome,
        progress: &Progress,
        charge: Charge,
        now: Timestamp,
        jitter: Jitter,
    ) -> Decision {
        match outcome {
            Outcome::Accepted { .. } => Decision::Delivered,
            Outcome::Rejected { .. } | Outcome::Gone => Decision::Dead(DeadReason::Rejected),
            Outcome::Throttled { .. } if progress.give_up_at <= now => Decision::Dead(DeadReason::Expired),
            Outcome::Throttled { .. } => Decision::Requeue,
            Outcome::Ambiguous { .. } | Outcome::Blocked
                if progress.ambiguous.saturating_add(1) >= self.ambiguous_max =>
            {
                Decision::Dead(DeadReason::Rejected)
            }
            // A wait that the receiver asks for is a lower bound on every answer that is tried again.
            Outcome::Ambiguous { wait, .. } => self.retry(*wait, progress, charge, now, jitter),
            // Its whole destination waits for that long: the gate sees to it, and a person can end it (G7).
            Outcome::Failed { wait: Some(_), .. } if outcome.is_maintenance() => {
                self.retry(None, progress, charge, now, jitter)
            }
            Outcome::Failed { wait, .. } => self.retry(*wait, progress, charge, now, jitter),
            Outcome::Blocked | Outcome::TimedOut | Outcome::Unreachable => {
                self.retry(None, progress, charge, now, jitter)
            }
        }
    }

    /// `asked`: what the receiver asks to be waited for, which is a lower bound.
    fn retry(
        &self,
        asked: Option<Millis>,
        progress: &Progress,
        charge: Charge,
        now: Timestamp,
        jitter: Jitter,
    ) -> Decision {
        let retry = progress.attempts.saturating_add(1);
        let exhausted = retry >= self.max_attempts;
        if charge == Charge::Attempt && exhausted {
            return Decision::Dead(DeadReason::Exhausted);
        }
        let spread = asked.map_or(Millis::ZERO, |asked| stretched(asked, jitter));
        let retry_at = now + self.delay(retry, progress.last_delay, jitter).max(spread);
        // A delay that reaches past the window is cut, so that the window is used to its end. No delay is cut below the
        // floor or below what was asked for: the last attempt is the last.
        let earliest = now + asked.unwrap_or_default().max(self.floor);
        let last_at = progress.give_up_at - LAST_CALL.min(self.floor);
        let retry_at = if earliest <= last_at { retry_at.min(last_at) } else { retry_at };
        if retry_at < progress.give_up_at { Decision::RetryAt(retry_at) } else { Decision::Dead(DeadReason::Expired) }
    }

    /// The delay before retry number `n` (from 1), when the delay before that was `previous`.
    pub fn delay(&self, n: u32, previous: Millis, jitter: Jitter) -> Millis {
        let full = self.full_delay(n);
        let spread = match self.jitter {
            JitterKind::None => full,
            JitterKind::Full => jitter.between(self.floor.min(full), full),
            JitterKind::Equal => Millis(full.0 - full.0 / 2) + jitter.up_to(Millis(full.0 / 2)),
            JitterKind::Decorrelated => {
                let base = self.full_delay(1);
                jitter.between(base, previous.max(base).times(3)).min(self.longest_delay())
            }
        };
        spread.max(self.floor)
    }

    /// The delay before retry number `n` (from 1), with no chance in it.
    fn full_delay(&self, n: u32) -> Millis {
        match &self.strategy {
            Strategy::Exponential { base, cap } => base.doubled(n.saturating_sub(1)).min(*cap),
            Strategy::Fixed { delay } => *delay,
            Strategy::Schedule { delays } => {
                let at = usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX).min(delays.len() - 1);
                delays[at]
            }
        }
    }

    fn longest_delay(&self) -> Millis {
        match &self.strategy {
            Strategy::Exponential { cap, .. } => *cap,
            Strategy::Fixed { delay } => *delay,
            Strategy::Schedule { delays } => delays.iter().copied().max().unwrap_or(Millis::ZERO),
        }
    }

    /// When a delivery created now gives up: after its own time to live if it has one, else after the window.
    pub fn give_up_at(&self, created_at: Timestamp, ttl: Option<Millis>) -> Timestamp {
        created_at + ttl.unwrap_or(self.window)
    }

    pub fn window(&self) -> Millis {
        self.window
    }

    pub fn max_attempts(&self) -> u32 {
        self.max_attempts
    }

    pub fn floor(&self) -> Millis {
        self.floor
    }

    /// The same, with this limit of ambiguous answers instead of [`AMBIGUOUS_MAX`].
    #[must_use]
    pub fn with_ambiguous_max(self, ambiguous_max: u32) -> Self {
        Self { ambiguous_max, ..self }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::standard()
    }
}

#[cfg(test)]
mod tests;
