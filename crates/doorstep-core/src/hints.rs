//! What a receiver's answer asks of us about time: when to come back, and how much of its quota is left.
//!
//! Receivers send these headers in many shapes, and some send nonsense. Whatever cannot be read is as if it had
//! not been sent: the schedule decides then.

mod rate_limit;
mod retry_after;

use crate::time::{Millis, Timestamp};

/// Only so many header lines of an answer are looked at; the sender refuses answers with more.
pub const HEADERS_MAX: usize = 100;

/// A longer value is no hint. It is ignored whole, not cut: a number with its end cut off asks for less.
pub const VALUE_BYTES_MAX: usize = 1_024;

/// What a receiver's answer asks of us about time, read from its headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// `Retry-After` (or its millisecond cousins): wait at least this long. Never over the cap.
    ///
    /// Where several lines ask, the longest wait counts: no line is then waited for less than it asked.
    pub retry_after: Option<Millis>,
    /// The receiver says that its quota is spent, or when it resets (`RateLimit`, `X-RateLimit-Reset`, ...): how long
    /// until then. Never over the cap.
    ///
    /// Of several policies the spent one with the latest reset governs; if none is spent, the one with the least left.
    pub quota_resets_in: Option<Millis>,
    /// `RateLimit`'s remaining count, where one was given (the smallest of several policies).
    pub quota_remaining: Option<u64>,
}

impl Hints {
    /// Reads the headers of an answer that arrived at `now`. No bytes make this fail.
    ///
    /// A moment in time is taken relative to the answer's own `Date` where it has one: both were read from the
    /// receiver's clock, so what is wrong with that clock cancels out. A moment already past is no hint.
    pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>, now: Timestamp, cap: Millis) -> Self {
        let lines = Lines::gather(headers);
        let clock = lines.of(Field::Date).find_map(retry_after::http_date).unwrap_or(now);
        let quotas = rate_limit::quotas(&lines, clock);
        Self {
            retry_after: longest_wait(&lines, clock).map(|wait| wait.min(cap)),
            quota_resets_in: rate_limit::governing_reset(&quotas).map(|wait| wait.min(cap)),
            quota_remaining: rate_limit::least_remaining(&quotas),
        }
    }
}

fn longest_wait(lines: &Lines<'_>, clock: Timestamp) -> Option<Millis> {
    let seconds = lines.of(Field::RetryAfter).filter_map(|value| retry_after::wait(value, clock));
    let millis = lines.of(Field::RetryAfterMs).filter_map(|value| retry_after::wait_in_ms(value, clock));
    seconds.chain(millis).max()
}

/// The header lines that matter here, in the order they came.
struct Lines<'a>(Vec<(Field, &'a str)>);

impl<'a> Lines<'a> {
    fn gather(headers: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Self {
        let readable = |(name, value)| Some((Field::named(name)?, readable(value)?));
        Self(headers.into_iter().take(HEADERS_MAX).filter_map(readable).collect())
    }

    fn of(&self, wanted: Field) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(field, _)| *field == wanted).map(|(_, value)| *value)
    }
}

fn readable(value: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(value).ok()?.trim_ascii();
    (text.is_ascii() && !text.is_empty() && value.len() <= VALUE_BYTES_MAX).then_some(text)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Date,
    RetryAfter,
    RetryAfterMs,
    RateLimit,
    RateLimitPolicy,
    QuotaRemaining,
    QuotaReset,
}

const FIELDS: [(&str, Field); 15] = [
    ("date", Field::Date),
    ("retry-after", Field::RetryAfter),
    ("retry-after-ms", Field::RetryAfterMs),
    ("x-ms-retry-after-ms", Field::RetryAfterMs),
    ("ratelimit", Field::RateLimit),
    ("ratelimit-policy", Field::RateLimitPolicy),
    ("ratelimit-remaining", Field::QuotaRemaining),
    ("rate-limit-remaining", Field::QuotaRemaining),
    ("x-ratelimit-remaining", Field::QuotaRemaining),
    ("x-rate-limit-remaining", Field::QuotaRemaining),
    ("ratelimit-reset", Field::QuotaReset),
    ("rate-limit-reset", Field::QuotaReset),
    ("x-ratelimit-reset", Field::QuotaReset),
    ("x-rate-limit-reset", Field::QuotaReset),
    ("x-ratelimit-reset-after", Field::QuotaReset),
];

impl Field {
    fn named(name: &str) -> Option<Self> {
        FIELDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, field)| *field)
    }
}

#[cfg(test)]
mod tests;
