//! Points in time and spans between them, in whole milliseconds. All arithmetic saturates: a clock that lies
//! can make a wait wrong, never a panic.

mod rfc3339;

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since the Unix epoch, as every store keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    pub const MAX: Self = Self(i64::MAX);

    pub const fn from_secs(secs: i64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    /// Whole seconds since the epoch, rounded down, as signatures carry them.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// Whole days since the epoch, rounded down.
    pub const fn day(self) -> i64 {
        self.0.div_euclid(86_400_000)
    }

    /// How long it is from `earlier` until `self`; zero if `earlier` is the later one.
    pub fn since(self, earlier: Self) -> Millis {
        Millis(u64::try_from(i128::from(self.0) - i128::from(earlier.0)).unwrap_or(0))
    }
}

impl Add<Millis> for Timestamp {
    type Output = Self;

    fn add(self, span: Millis) -> Self {
        Self(self.0.saturating_add_unsigned(span.0))
    }
}

impl Sub<Millis> for Timestamp {
    type Output = Self;

    fn sub(self, span: Millis) -> Self {
        Self(self.0.saturating_sub_unsigned(span.0))
    }
}

/// A span of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Millis {
    pub const ZERO: Self = Self(0);
    pub const MAX: Self = Self(u64::MAX);

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000))
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins.saturating_mul(60))
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_mins(hours.saturating_mul(60))
    }

    pub const fn times(self, factor: u64) -> Self {
        Self(self.0.saturating_mul(factor))
    }

    /// `self · 2^n`, saturating.
    pub const fn doubled(self, n: u32) -> Self {
        if self.0 == 0 {
            return self;
        }
        if n > self.0.leading_zeros() { Self::MAX } else { Self(self.0 << n) }
    }
}

impl Add for Millis {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for Millis {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

/// For people: `250ms`, `30s`, `1m30s`, `6h`, `3d`.
impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1_000 {
            return write!(f, "{}ms", self.0);
        }
        let (secs, ms) = (self.0 / 1_000, self.0 % 1_000);
        if secs < 60 && ms > 0 {
            return write!(f, "{}.{}s", secs, format!("{ms:03}").trim_end_matches('0'));
        }
        let units = [(secs / 86_400, "d"), (secs / 3_600 % 24, "h"), (secs / 60 % 60, "m"), (secs % 60, "s")];
        for (n, unit) in units.iter().skip_while(|(n, _)| *n == 0).take(2) {
            if *n > 0 {
                write!(f, "{n}{unit}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Timestamp::MAX + Millis(1), Timestamp::MAX);
        assert_eq!(Timestamp(i64::MIN) - Millis::MAX, Timestamp(i64::MIN));
        assert_eq!(Timestamp::MAX.since(Timestamp(i64::MIN)), Millis(u64::MAX));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Millis::ZERO);
        assert_eq!(Millis(1).doubled(63), Millis(1 << 63));
        assert_eq!(Millis(1).doubled(64), Millis::MAX);
        assert_eq!(Millis(3).doubled(u32::MAX), Millis::MAX);
        assert_eq!(Millis(0).doubled(u32::MAX), Millis(0));
    }

    #[test]
    fn spans_read_like_people_say_them() {
        for (ms, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (1_500, "1.5s"),
            (30_000, "30s"),
            (90_000, "1m30s"),
            (21_600_000, "6h"),
            (259_200_000, "3d"),
            (3_600_500, "1h"),
        ] {
            assert_eq!(Millis(ms).to_string(), text);
        }
    }
}
