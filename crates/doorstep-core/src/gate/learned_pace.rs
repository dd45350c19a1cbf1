//! The learned pace of a destination, as people see it.

use serde::{Deserialize, Serialize};

use super::Rate;
use crate::time::Timestamp;

/// What a receiver has taught about how fast it may be sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnedPace {
    /// What is kept to, unless a person has pinned another pace.
    pub pace: Rate,
    /// What the receiver seems to take: the pace approaches it and stays a little below. `None` while it is not known.
    pub estimate: Option<Rate>,
    /// How many requests at once the receiver takes, where it refuses by that. The pace is then only what they are spaced at.
    pub at_once: Option<u32>,
    pub reason: LearnedReason,
    /// Since when there has been a learned pace. `None`: it was stored by a version that did not note it.
    pub since: Option<Timestamp>,
    /// From then on, the next success under load raises the estimate or the number at once. `None` without either: the pace grows with each success.
    pub next_probe_at: Option<Timestamp>,
}

/// What the receiver did that taught it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LearnedReason {
    /// It answered 429.
    Refused,
    /// It answered 503 to some of what it got.
    Overloaded,
}
