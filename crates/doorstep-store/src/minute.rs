//! The minutes in which activity is counted.

use doorstep_core::time::Timestamp;

const MINUTE: i64 = 60_000;

/// The beginning of the minute that `at` is in.
pub(crate) fn minute_of(at: Timestamp) -> Timestamp {
    Timestamp(at.0.saturating_sub(at.0.rem_euclid(MINUTE)))
}
