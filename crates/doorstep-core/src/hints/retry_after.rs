//! One value of `Retry-After`, in every form that receivers send.

use std::time::UNIX_EPOCH;

use crate::time::{Millis, Timestamp};

/// From here on a number of seconds is a Unix time: as a delay it would be 31 years.
const EPOCH_SECS_FROM: u64 = 1_000_000_000;
/// From here on a number is a Unix time in milliseconds: as a Unix time in seconds it would be the year 33658.
const EPOCH_MS_FROM: u64 = 1_000_000_000_000;

/// How long to wait from `clock` on: `value` is a number of seconds, a Unix time (in seconds or milliseconds) or an
/// HTTP-date. `None` for anything else, lists included, and for a moment before `clock`.
pub(super) fn wait(value: &str, clock: Timestamp) -> Option<Millis> {
    match Number::read(value) {
        Some(number) => wait_in_secs(number, clock),
        None => since(http_date(value)?, clock),
    }
}

/// The same for a number that is read already.
pub(super) fn wait_in_secs(n: Number, clock: Timestamp) -> Option<Millis> {
    if n.whole >= EPOCH_MS_FROM {
        until(n.as_millis(), clock)
    } else if n.whole >= EPOCH_SECS_FROM {
        until(n.as_seconds(), clock)
    } else {
        Some(n.as_seconds())
    }
}

/// The same for the headers that count in milliseconds. A Unix time in seconds cannot be told from a delay here.
pub(super) fn wait_in_ms(value: &str, clock: Timestamp) -> Option<Millis> {
    match Number::read(value)? {
        n if n.whole >= EPOCH_MS_FROM => until(n.as_millis(), clock),
        n => Some(n.as_millis()),
    }
}

/// All three forms of an HTTP-date.
pub(super) fn http_date(value: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(value).ok()?;
    let secs = date.duration_since(UNIX_EPOCH).ok()?.as_secs();
    Some(Timestamp::from_secs(i64::try_from(secs).ok()?))
}

/// A count of things: digits only. More than fits is the most that fits.
pub(super) fn digits(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    all_digits.then(|| text.parse().unwrap_or(u64::MAX))
}

fn until(epoch: Millis, clock: Timestamp) -> Option<Millis> {
    since(Timestamp(i64::try_from(epoch.0).unwrap_or(i64::MAX)), clock)
}

fn since(moment: Timestamp, clock: Timestamp) -> Option<Millis> {
    (clock <= moment).then(|| moment.since(clock))
}

/// A number without sign or exponent, kept to the thousandth, rounded up.
///
/// Up, because a wait may not be shorter than asked; to the millisecond and not to the second, because a receiver that
/// says `0.493` knows what it means, and nothing is gained by making it idle.
#[derive(Clone, Copy)]
pub(super) struct Number {
    whole: u64,
    thousandths: u64,
}

impl Number {
    pub(super) fn whole(whole: u64) -> Self {
        Self { whole, thousandths: 0 }
    }

    fn read(text: &str) -> Option<Self> {
        match text.split_once('.') {
            Some((whole, fraction)) => {
                digits(fraction)?;
                Some(Self { whole: digits(whole)?, thousandths: thousandths_up(fraction) })
            }
            None => digits(text).map(Self::whole),
        }
    }

    fn as_seconds(self) -> Millis {
        Millis::from_secs(self.whole) + Millis(self.thousandths)
    }

    fn as_millis(self) -> Millis {
        Millis(self.whole) + Millis(u64::from(self.thousandths > 0))
    }
}

fn thousandths_up(fraction: &str) -> u64 {
    let digit = |b: u8| u64::from(b.saturating_sub(b'0'));
    let kept = fraction.bytes().chain(*b"000").take(3).fold(0, |n, b| n * 10 + digit(b));
    let more = fraction.bytes().skip(3).any(|b| b != b'0');
    kept + u64::from(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the moment that RFC 9110 uses.
    const RFC: Timestamp = Timestamp(784_111_777_000);
    /// Half a minute before the epoch that clawhub sent.
    const LATER: Timestamp = Timestamp(1_771_404_510_000);
    /// From `RFC` to the end of time.
    const FOREVER: u64 = i64::MAX as u64 - 784_111_777_000;

    #[test]
    fn every_form_seen_in_the_wild_is_read_or_ignored_as_written_here() {
        for (value, clock, asked) in [
            ("0", RFC, Some(0)),
            ("120", RFC, Some(120_000)),
            ("007", RFC, Some(7_000)),
            // Shopify's REST API, and SDKs that print floats.
            ("2.0", RFC, Some(2_000)),
            // Sample in the Microsoft Graph documentation.
            ("2.128", RFC, Some(2_128)),
            // SpaceTraders.
            ("0.493", RFC, Some(493)),
            ("0.0001", RFC, Some(1)),
            ("0.9999", RFC, Some(1_000)),
            ("1.5", RFC, Some(1_500)),
            // A Unix time: clawhub's clients would have waited 56 years.
            ("1771404540", LATER, Some(30_000)),
            ("1771404540000", LATER, Some(30_000)),
            ("1771404540.25", LATER, Some(30_250)),
            ("1771404540000.5", LATER, Some(30_001)),
            // Past moments fall back to the schedule.
            ("1771404509", LATER, None),
            ("1771404509999", LATER, None),
            ("Sun, 06 Nov 1994 08:49:36 GMT", RFC, None),
            ("Wed, 21 Oct 2015 07:28:00 GMT", LATER, None),
            // This very moment is not past.
            ("1771404510", LATER, Some(0)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", RFC, Some(0)),
            // IMF-fixdate, RFC 850, asctime.
            ("Sun, 06 Nov 1994 08:50:37 GMT", RFC, Some(60_000)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", RFC, Some(60_000)),
            ("Sun Nov  6 08:50:37 1994", RFC, Some(60_000)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", RFC, Some(252_618_189_022_000)),
            // Negative: JavaScript's Date.parse takes these for years.
            ("-5", RFC, None),
            ("-3", RFC, None),
            ("-1.5", RFC, None),
            // Integers that overflow timers.
            ("4294967296", LATER, Some(2_523_562_786_000)),
            ("9223372036854775807", RFC, Some(FOREVER)),
            ("18446744073709551616", RFC, Some(FOREVER)),
            ("99999999999999999999999999999999", RFC, Some(FOREVER)),
            // Lists, other notations and words.
            ("30, 60", RFC, None),
            ("30,60", RFC, None),
            ("Sun, 06 Nov 1994 08:50:37 GMT, 60", RFC, None),
            ("+5", RFC, None),
            ("1e3", RFC, None),
            ("0x10", RFC, None),
            ("1_000", RFC, None),
            ("1.2.3", RFC, None),
            ("1.", RFC, None),
            (".5", RFC, None),
            (".", RFC, None),
            ("3 0", RFC, None),
            ("30s", RFC, None),
            ("\"30\"", RFC, None),
            ("NaN", RFC, None),
            ("Infinity", RFC, None),
            ("null", RFC, None),
            ("soon", RFC, None),
            ("1994-11-06T08:50:37Z", RFC, None),
            ("Sun, 06 Nov 1994 08:50:37 +0000", RFC, None),
            ("Sun, 06 Nov 1994 08:49:60 GMT", RFC, None),
            ("Mon, 06 Nov 1994 08:50:37 GMT", RFC, None),
            ("Thu, 30 Feb 2034 00:00:00 GMT", RFC, None),
        ] {
            assert_eq!(wait(value, clock), asked.map(Millis), "{value}");
        }
    }

    #[test]
    fn millisecond_headers_count_in_milliseconds() {
        for (value, asked) in [
            ("0", Some(0)),
            ("250", Some(250)),
            ("250.2", Some(251)),
            ("250.0", Some(250)),
            ("1000000000", Some(1_000_000_000)),
            ("1771404540000", Some(30_000)),
            ("1771404509999", None),
            ("-250", None),
            ("250ms", None),
            ("Sun, 06 Nov 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(wait_in_ms(value, LATER), asked.map(Millis), "{value}");
        }
    }

    #[test]
    fn a_clock_at_either_end_of_time_gives_an_answer() {
        for clock in [Timestamp(i64::MIN), Timestamp::MAX] {
            assert_eq!(wait("30", clock), Some(Millis::from_secs(30)));
        }
        let epoch = 1_771_404_540_000 + (1 << 63);
        assert_eq!(wait("1771404540", Timestamp(i64::MIN)), Some(Millis(epoch)));
        assert_eq!(wait("1771404540", Timestamp::MAX), None);
        assert_eq!(wait("18446744073709551615", Timestamp(i64::MIN)), Some(Millis::MAX));
        assert_eq!(wait("18446744073709551615", Timestamp::MAX), Some(Millis(0)));
    }
}
