//! Receivers that behave and receivers that do not.

use doorstep_core::dice::{Dice, SeededDice};
use doorstep_core::hints::Hints;
use doorstep_core::time::{Millis, Timestamp};

use crate::limiter::{Kind, Limiter};
use crate::roll::Roll;

#[derive(Clone, Debug)]
pub struct Receiver {
    manner: Manner,
    /// From then on it is healthy, whatever it was.
    healed: bool,
    dice: SeededDice,
}

#[derive(Clone, Debug)]
pub enum Manner {
    Healthy,
    Slow {
        most: Millis,
    },
    /// Takes the request and never answers.
    Hanging,
    /// Up and down in turns.
    Flapping {
        up: Millis,
        down: Millis,
        status: u16,
    },
    /// Refuses every connection for a while.
    DeadUntil(Timestamp),
    RateLimiting {
        limiter: Limiter,
        says_when: bool,
    },
    /// Admits, and says with each answer how much is left.
    Quota {
        capacity: u64,
        left: u64,
        window: Millis,
        resets_at: Timestamp,
    },
    Gone,
    /// Answers whatever comes to its mind.
    WrongCodes {
        codes: Vec<u16>,
    },
    /// Says 503 with a wish for when to come back.
    Unavailable {
        until: Timestamp,
        retry_after: Millis,
    },
}

/// What a receiver does with a request.
#[derive(Clone, Copy, Debug)]
pub enum Reply {
    Answer { after: Millis, status: u16, hints: Hints },
    Silence,
    Reset { after: Millis },
}

impl Receiver {
    pub fn new(manner: Manner, seed: u64) -> Self {
        Self { manner, healed: false, dice: SeededDice::new(seed) }
    }

    pub fn random(dice: &mut SeededDice, now: Timestamp) -> Self {
        let manner = match dice.below(11) {
            0 | 1 => Manner::Healthy,
            2 => Manner::Slow { most: Millis(dice.below(20_000)) },
            3 => Manner::Hanging,
            4 => Manner::Flapping {
                up: Millis::from_secs(1 + dice.below(120)),
                down: Millis::from_secs(1 + dice.below(300)),
                status: dice.pick(&[500, 502, 503, 504]),
            },
            5 => Manner::DeadUntil(now + Millis::from_mins(dice.below(300))),
            6 | 7 => {
                let kind = dice.pick(&Kind::ALL);
                let window = dice.pick(&[Millis::from_secs(1), Millis::from_secs(10), Millis::from_secs(60)]);
                let limiter = Limiter::new(kind, 1 + dice.below(10), window, now);
                Manner::RateLimiting { limiter, says_when: dice.one_in(2) }
            }
            8 => {
                let (capacity, window) = (1 + dice.below(5), Millis::from_secs(5 + dice.below(60)));
                Manner::Quota { capacity, left: capacity, window, resets_at: now + window }
            }
            9 if dice.one_in(2) => Manner::Gone,
            9 => Manner::Unavailable {
                until: now + Millis::from_mins(dice.below(60)),
                retry_after: Millis::from_secs(1 + dice.below(7_200)),
            },
            _ => {
                let all =
                    [200, 200, 204, 301, 302, 400, 401, 404, 404, 408, 409, 410, 425, 429, 500, 501, 503, 101, 599];
                Manner::WrongCodes { codes: (0..1 + dice.below(4)).map(|_| dice.pick(&all)).collect() }
            }
        };
        Self::new(manner, dice.roll().0)
    }

    /// It was never anything but healthy.
    pub fn is_always_well(&self) -> bool {
        matches!(self.manner, Manner::Healthy)
    }

    pub fn heal(&mut self) {
        self.healed = true;
    }

    pub fn receive(&mut self, now: Timestamp) -> Reply {
        let after = Millis(1 + self.dice.below(50));
        let answer = |status| Reply::Answer { after, status, hints: Hints::default() };
        if self.healed {
            return answer(200);
        }
        match &mut self.manner {
            Manner::Healthy => answer(200),
            Manner::Slow { most } => {
                Reply::Answer { after: self.dice.roll().up_to(*most), status: 200, hints: Hints::default() }
            }
            Manner::Hanging => Reply::Silence,
            Manner::Flapping { up, down, status } => {
                let phase = now.0.rem_euclid(i64::try_from(up.0 + down.0).unwrap_or(i64::MAX));
                answer(if phase < i64::try_from(up.0).unwrap_or(0) { 200 } else { *status })
            }
            Manner::DeadUntil(until) if now < *until => Reply::Reset { after },
            Manner::DeadUntil(_) => answer(200),
            Manner::RateLimiting { limiter, says_when } => match limiter.admit(now) {
                Ok(()) => answer(200),
                Err(wait) => {
                    let retry_after = says_when.then(|| Millis::from_secs(wait.0.div_ceil(1_000)));
                    Reply::Answer { after, status: 429, hints: Hints { retry_after, ..Hints::default() } }
                }
            },
            Manner::Quota { capacity, left, window, resets_at } => {
                if now >= *resets_at {
                    (*left, *resets_at) = (*capacity, now + *window);
                }
                let quota_resets_in = Some(resets_at.since(now));
                let hints = |left| Hints { quota_resets_in, quota_remaining: Some(left), ..Hints::default() };
                if *left == 0 {
                    return Reply::Answer { after, status: 429, hints: hints(0) };
                }
                *left -= 1;
                Reply::Answer { after, status: 200, hints: hints(*left) }
            }
            Manner::Gone => answer(410),
            Manner::WrongCodes { codes } => answer(self.dice.pick(codes)),
            Manner::Unavailable { until, retry_after } if now < *until => {
                let hints = Hints { retry_after: Some(*retry_after), ..Hints::default() };
                Reply::Answer { after, status: 503, hints }
            }
            Manner::Unavailable { .. } => answer(200),
        }
    }
}
