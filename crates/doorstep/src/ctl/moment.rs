//! Points in time as people give and read them.

use doorstep_core::time::{Millis, Timestamp};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::span;

pub(crate) fn now() -> Timestamp {
    of(OffsetDateTime::now_utc())
}

/// Reads `2026-11-15T12:00:00Z`, seconds since 1970, or how long ago: `2h`.
pub(crate) fn read(text: &str) -> Result<Timestamp, String> {
    if let Ok(secs) = text.parse() {
        return Ok(Timestamp::from_secs(secs));
    }
    if let Some(at) = exact(text) {
        return Ok(at);
    }
    span::read(text).map(|ago| now() - ago).map_err(|_| {
        format!("`{text}` is not a time: write 2026-11-15T12:00:00Z, seconds since 1970, or how long ago, such as 2h")
    })
}

pub(super) fn exact(text: &str) -> Option<Timestamp> {
    OffsetDateTime::parse(text, &Rfc3339).ok().map(of)
}

/// `3m ago`, `in 20s`: the largest unit alone.
pub(super) fn relative(at: Timestamp, now: Timestamp) -> String {
    let coarse = |span: Millis| {
        let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
        units.iter().find(|(ms, _)| span.0 >= *ms).map(|(ms, unit)| format!("{}{unit}", span.0 / ms))
    };
    match (coarse(now.since(at)), coarse(at.since(now))) {
        (Some(ago), _) => format!("{ago} ago"),
        (None, Some(ahead)) => format!("in {ahead}"),
        (None, None) => "now".to_owned(),
    }
}

fn of(at: OffsetDateTime) -> Timestamp {
    Timestamp(i64::try_from(at.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_from_here() {
        let now = Timestamp::from_secs(1_000_000);
        for (secs, told) in
            [(1_000_000, "now"), (999_999, "1s ago"), (999_000, "16m ago"), (1_000_090, "in 1m"), (0, "11d ago")]
        {
            assert_eq!(relative(Timestamp::from_secs(secs), now), told);
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        assert_eq!(read("2026-11-15T12:00:00Z"), Ok(Timestamp(1_794_744_000_000)));
        assert_eq!(read("1794744000"), Ok(Timestamp(1_794_744_000_000)));
        assert!(now().since(read("2h").unwrap()).0.abs_diff(7_200_000) < 60_000);
        assert!(read("yesterday").unwrap_err().contains("`yesterday`"));
    }
}
