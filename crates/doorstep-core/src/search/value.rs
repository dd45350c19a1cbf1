//! What can be asked for, one by one.

use std::fmt::{self, Display};
use std::str::FromStr;
use std::sync::Arc;

use crate::retry::DeadReason;
use crate::route::{TypePattern, TypePatterns};
use crate::similar::none_of;
use crate::store::DeliveryStatus;
use crate::time::Timestamp;

/// An ordering key has at most so many characters.
pub const ORDERING_KEY_CHARS_MAX: usize = 256;

/// Which of the four states of a delivery are asked for: at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statuses(u8);

impl Statuses {
    pub const QUEUED: Self = Self(1);
    pub const RETRY_SCHEDULED: Self = Self(2);
    pub const DELIVERED: Self = Self(4);
    pub const DEAD: Self = Self(8);
    pub const ANY: Self = Self(15);

    /// The last one is short for two.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("queued", Self::QUEUED),
        ("retry_scheduled", Self::RETRY_SCHEDULED),
        ("delivered", Self::DELIVERED),
        ("dead", Self::DEAD),
        ("failed", Self::RETRY_SCHEDULED.or(Self::DEAD)),
    ];

    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether one of these is asked for too.
    pub const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub fn of(status: DeliveryStatus) -> Self {
        match status {
            DeliveryStatus::Queued => Self::QUEUED,
            DeliveryStatus::RetryScheduled => Self::RETRY_SCHEDULED,
            DeliveryStatus::Delivered => Self::DELIVERED,
            DeliveryStatus::Dead(_) => Self::DEAD,
        }
    }
}

impl Default for Statuses {
    fn default() -> Self {
        Self::ANY
    }
}

/// Who is on their way the scheduler knows, and no store: it changes with every answer, and no page of it would hold.
const IN_FLIGHT: &str = "in_flight";
const NOT_IN_FLIGHT: &str = "`in_flight` cannot be asked for, since what is on its way is not written down: ask for \
     `queued,retry_scheduled`, which lists it under the state it was in before, and shows it as `in_flight`";

/// States with commas between them.
impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one = |name: &str| {
            if name == IN_FLIGHT {
                return Err(NOT_IN_FLIGHT.to_owned());
            }
            let known = Self::NAMES.iter().find(|(known, _)| *known == name).map(|(_, statuses)| *statuses);
            known.ok_or_else(|| none_of(name, &Self::NAMES.map(|(known, _)| known)))
        };
        text.split(',').map(str::trim).map(one).try_fold(Self(0), |sum, next| Ok(sum.or(next?)))
    }
}

impl Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = &Self::NAMES[..4];
        let asked: Vec<&str> = states.iter().filter(|(_, one)| self.meets(*one)).map(|(name, _)| *name).collect();
        f.write_str(&asked.join(","))
    }
}

/// Status codes of answers, from one to another: `503`, or `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Codes {
    pub from: u16,
    /// Itself included.
    pub to: u16,
}

impl Codes {
    pub const fn one(code: u16) -> Self {
        Self { from: code, to: code }
    }

    pub const fn class(first_digit: u16) -> Self {
        Self { from: first_digit * 100, to: first_digit * 100 + 99 }
    }

    pub const fn contain(self, code: u16) -> bool {
        self.from <= code && code <= self.to
    }
}

impl FromStr for Codes {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let number = |digits: &str, n: usize| {
            let is_number = digits.len() == n && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number)
        };
        let codes = match text.strip_suffix("xx") {
            Some(class) => number(class, 1).map(Self::class),
            None => number(text, 3).map(Self::one),
        };
        let known = codes.filter(|codes| (100..=599).contains(&codes.from));
        known.ok_or("is a status code, such as 503, or a class of them, such as 5xx")
    }
}

/// One code, or a whole class: what is read is never anything else.
impl Display for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.from == self.to { write!(f, "{}", self.from) } else { write!(f, "{}xx", self.from / 100) }
    }
}

/// Patterns with commas between them.
pub fn read_types(text: &str) -> Result<TypePatterns, String> {
    let one = |text: &str| text.parse::<TypePattern>().map_err(|fault| format!("`{}`: {fault}", shortened(text)));
    let patterns = text.split(',').map(str::trim).map(one).collect::<Result<_, _>>()?;
    TypePatterns::new(patterns).map_err(|fault| fault.to_string())
}

pub(super) fn types(types: &TypePatterns) -> String {
    types.iter().map(TypePattern::as_str).collect::<Vec<_>>().join(",")
}

pub(super) fn reason(text: &str) -> Result<DeadReason, String> {
    let known = DeadReason::ALL.into_iter().find(|reason| reason.name() == text);
    known.ok_or_else(|| none_of(text, &DeadReason::ALL.map(DeadReason::name)))
}

/// A point in time.
pub fn read_time(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("{:?} is not a time: write it like 2026-11-15T12:00:00Z", shortened(text));
    Timestamp::from_rfc3339(text).ok_or_else(wrong)
}

pub(super) fn ordering_key(text: &str) -> Result<Arc<str>, String> {
    let chars = text.chars().count();
    if !(1..=ORDERING_KEY_CHARS_MAX).contains(&chars) {
        return Err(format!("an ordering key has 1 to {ORDERING_KEY_CHARS_MAX} characters, but this has {chars}"));
    }
    match text.chars().find(|c| c.is_control()) {
        Some(found) => Err(format!("an ordering key has no control characters, but this has {found:?}")),
        None => Ok(text.into()),
    }
}

pub(super) fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<Option<T>, String> {
    text.parse().map(Some).map_err(|fault: T::Err| fault.to_string())
}

/// How much of a wrong value an error repeats.
const SHOWN_MAX: usize = 64;

fn shortened(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}
