//! Times as RFC 3339.

use doorstep_core::search::read_time;
use doorstep_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

/// A time in the API: `2026-11-15T12:00:00.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-15T12:00:00.123Z")]
pub(crate) struct When(pub(crate) Timestamp);

impl When {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        read_time(text).map(Self)
    }
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.to_rfc3339())
    }
}

impl Serialize for When {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_with_milliseconds_and_read_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_794_744_000_123, "2026-11-15T12:00:00.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(When(Timestamp(ms)).to_string(), text);
            assert_eq!(When::parse(text).unwrap().0, Timestamp(ms));
        }
        assert_eq!(When::parse("2026-11-15T13:00:00+01:00").unwrap().0, Timestamp(1_794_744_000_000));
    }

    #[test]
    fn no_time_is_too_far_away_to_be_written() {
        for ms in [i64::MIN, i64::MAX] {
            let text = When(Timestamp(ms)).to_string();
            assert!(When::parse(&text).is_ok(), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_refused_with_an_example() {
        for wrong in ["", "yesterday", "2026-13-01T00:00:00Z", "2026-11-15", &"9".repeat(100)] {
            assert!(When::parse(wrong).unwrap_err().contains("write it like"), "{wrong}");
        }
    }
}
