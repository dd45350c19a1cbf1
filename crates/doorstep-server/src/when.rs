//! Times as RFC 3339, by the wall clock.
//!
//! What is kept has schedule time, and people see and give the wall clock's: [`When`] is translated where it is written and where it
//! is read, by the timeline of the request that it belongs to. [`Given`] is somebody else's time and stays as it came.

use std::sync::Arc;

use doorstep_core::clock::Timeline;
use doorstep_core::search::read_time;
use doorstep_core::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use utoipa::ToSchema;

tokio::task_local! {
    static TIMELINE: Arc<Timeline>;
}

/// Answers a request: until then, times are shown and read by this timeline.
pub(crate) async fn by<T>(timeline: Arc<Timeline>, answered: impl Future<Output = T>) -> T {
    TIMELINE.scope(timeline, answered).await
}

/// The same for what is written at once.
pub(crate) fn now_by<T>(timeline: Arc<Timeline>, written: impl FnOnce() -> T) -> T {
    TIMELINE.sync_scope(timeline, written)
}

/// The timeline of the request that is answered here. Outside of one, schedule time is shown as it is.
pub(crate) fn timeline() -> Arc<Timeline> {
    TIMELINE.try_with(Arc::clone).unwrap_or_default()
}

/// The schedule time of what somebody gave by the wall clock.
pub(crate) fn kept(wall: Timestamp) -> Timestamp {
    timeline().kept(wall)
}

/// How far the wall clock is ahead of schedule time, in milliseconds.
pub(crate) fn offset(at: Timestamp) -> i64 {
    timeline().shown(at).0.saturating_sub(at.0)
}

// It holds schedule time.
/// A time in the API: `2026-11-15T12:00:00.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, format = DateTime, example = "2026-11-15T12:00:00.123Z")]
pub(crate) struct When(pub(crate) Timestamp);

impl When {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        read_time(text).map(kept).map(Self)
    }
}

// By somebody else's clock, or by the wall clock for good. The API makes no difference.
/// A time in the API: `2026-11-15T12:00:00.123Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(as = When, value_type = String, format = DateTime, example = "2026-11-15T12:00:00.123Z")]
pub(crate) struct Given(pub(crate) Timestamp);

impl Given {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        read_time(text).map(Self)
    }
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.to_rfc3339())
    }
}

impl Serialize for Given {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&timeline().shown(self.0).to_rfc3339())
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
    fn times_are_shown_and_read_by_the_wall_clock_and_others_times_are_left_alone() {
        let (at, wall) = (Timestamp(1_794_744_000_000), Timestamp(1_794_747_600_123));
        let ahead = Arc::new(Timeline::new(at, wall));
        now_by(Arc::clone(&ahead), || {
            let text = "2026-11-15T13:00:00.123Z";
            assert_eq!(serde_json::to_value(When(at)).unwrap(), text);
            assert_eq!(serde_json::from_value::<When>(text.into()).unwrap(), When(at));
            assert_eq!((kept(wall), offset(at)), (at, 3_600_123));
            assert_eq!(serde_json::to_value(Given(wall)).unwrap(), text);
            assert_eq!(serde_json::from_value::<Given>(text.into()).unwrap(), Given(wall));
        });
        assert_eq!(When(at).to_string(), "2026-11-15T12:00:00.000Z", "outside of a request");
    }

    #[tokio::test]
    async fn a_request_that_goes_on_in_another_task_keeps_its_timeline() {
        let (at, wall) = (Timestamp(0), Timestamp(3_600_000));
        let shown = by(Arc::new(Timeline::new(at, wall)), async move {
            tokio::spawn(by(timeline(), async move { When(at).to_string() })).await.unwrap()
        });
        assert_eq!(shown.await, "1970-01-01T01:00:00.000Z");
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
