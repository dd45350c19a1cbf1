//! Times as receivers and people read them.

use super::Timestamp;

/// The years that RFC 3339 can write.
const EARLIEST: i64 = -62_167_219_200_000;
const LATEST: i64 = 253_402_300_799_999;
const DAY: i64 = 86_400_000;

impl Timestamp {
    /// `2026-11-15T12:00:00.123Z`. What lies outside the years 0 to 9999 is written as their end.
    pub fn to_rfc3339(self) -> String {
        let at = self.0.clamp(EARLIEST, LATEST);
        let (year, month, day) = date(at.div_euclid(DAY));
        let ms = at.rem_euclid(DAY);
        let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1_000)
    }

    /// Reads `2026-11-15T12:00:00Z` and every other form that RFC 3339 has. What is finer than a millisecond is cut off, a leap
    /// second is the beginning of the next minute, and what an offset moves out of the years 0 to 9999 is their end.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let (day, text) = read_date(text)?;
        let text = text.strip_prefix(['T', 't'])?;
        let ((hour, minute), text) = read_clock(text)?;
        let (second, text) = read_number(text.strip_prefix(':')?, 2)?;
        let (ms, text) = read_fraction(text)?;
        let offset = read_offset(text)?;
        let of_day = (hour * 60 + minute - offset) * 60_000 + second * 1_000 + ms;
        (second <= 60).then_some(Self((day * DAY + of_day).clamp(EARLIEST, LATEST)))
    }
}

/// Days since 1970-01-01, and what stands behind the date.
fn read_date(text: &str) -> Option<(i64, &str)> {
    let (year, text) = read_number(text, 4)?;
    let (month, text) = read_number(text.strip_prefix('-')?, 2)?;
    let (day, text) = read_number(text.strip_prefix('-')?, 2)?;
    let days = days(year, month, day);
    // A day that there is not, is another one.
    ((1..=12).contains(&month) && date(days) == (year, month, day)).then_some((days, text))
}

fn read_clock(text: &str) -> Option<((i64, i64), &str)> {
    let (hour, text) = read_number(text, 2)?;
    let (minute, text) = read_number(text.strip_prefix(':')?, 2)?;
    (hour < 24 && minute < 60).then_some(((hour, minute), text))
}

/// Milliseconds: none are as many as no fraction.
fn read_fraction(text: &str) -> Option<(i64, &str)> {
    let Some(text) = text.strip_prefix('.') else { return Some((0, text)) };
    let (digits, text) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let places = digits.bytes().zip([100, 10, 1]).map(|(digit, worth)| i64::from(digit - b'0') * worth);
    (!digits.is_empty()).then(|| (places.sum(), text))
}

/// Minutes ahead of UTC.
fn read_offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let ((hour, minute), text) = read_clock(&text[1..])?;
    text.is_empty().then_some(sign * (hour * 60 + minute))
}

fn read_number(text: &str, digits: usize) -> Option<(i64, &str)> {
    let (number, rest) = text.split_at_checked(digits)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| number.parse().ok()).flatten().map(|number| (number, rest))
}

/// The other way round than [`date`].
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// The date so many days after 1970-01-01. Years begin in March, so that the leap day comes last, and 400 of them have
/// 146 097 days.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn times_are_read_in_every_form_that_there_is() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-11-15T12:00:00.123Z", 1_794_744_000_123),
            ("2026-11-15t12:00:00.1239z", 1_794_744_000_123),
            ("2026-11-15T13:30:00.1+01:30", 1_794_744_000_100),
            ("2026-11-14T23:00:00-13:00", 1_794_744_000_000),
            ("2000-02-29T00:00:00Z", 951_782_400_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000),
            ("0000-01-01T00:00:00+01:00", EARLIEST),
            ("9999-12-31T23:59:59-01:00", LATEST),
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), Some(Timestamp(ms)), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_not_taken_for_one() {
        for text in [
            "",
            "2026-11-15",
            "2026-11-15T12:00Z",
            "2026-11-15T12:00:00",
            "2026-11-15 12:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-02-29T00:00:00Z",
            "2026-04-31T00:00:00Z",
            "2026-04-00T00:00:00Z",
            "2026-04-01T24:00:00Z",
            "2026-04-01T00:60:00Z",
            "2026-04-01T00:00:61Z",
            "2026-04-01T00:00:00.Z",
            "2026-04-01T00:00:00Zx",
            "2026-04-01T00:00:00+1:00",
            "2026-04-01T00:00:00+24:00",
            "2026-04-01T00:00:00 01:00",
            "+026-04-01T00:00:00Z",
            "2026-04-01T00:00:00é",
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(ms in EARLIEST..=LATEST) {
            prop_assert_eq!(Timestamp::from_rfc3339(&Timestamp(ms).to_rfc3339()), Some(Timestamp(ms)));
        }

        #[test]
        fn no_text_panics(text in prop_oneof!["\\PC*", "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.+Zé-]{0,16}"]) {
            let _ = Timestamp::from_rfc3339(&text);
        }
    }

    #[test]
    fn times_are_written_with_milliseconds() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_794_744_000_123, "2026-11-15T12:00:00.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (4_107_542_399_000, "2100-02-28T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (i64::MIN, "0000-01-01T00:00:00.000Z"),
            (i64::MAX, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(ms).to_rfc3339(), text);
        }
    }
}
