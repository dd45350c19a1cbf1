//! Which destinations an event goes to (I3): first by its type, then, where a destination asks for it, by its payload.
//!
//! An event type is a dotted name, `invoice.paid`. A destination subscribes with patterns: in `invoice.*` the star, being
//! last, stands for one segment or more; elsewhere, as in `*.paid`, for exactly one.

mod pattern;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use pattern::{PATTERNS_MAX, PatternsError, TypePattern, TypePatterns};

use crate::filter::work::{Evaluation, OverBudget};
use crate::filter::{Filter, Payload};

/// An event type, and a pattern for one, is at most so many bytes long.
pub const EVENT_TYPE_LEN_MAX: usize = 128;

/// An event type, and a pattern for one, has at most so many segments.
pub const EVENT_TYPE_SEGMENTS_MAX: usize = 10;

/// Which events a destination asks for: by default all of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    #[serde(default)]
    pub event_types: TypePatterns,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
}

impl Subscription {
    /// The payload is looked at only if the type fits and there is a filter; share it between destinations, and it is
    /// parsed at most once.
    pub fn matches(&self, event_type: &EventType, payload: &Payload<'_>) -> bool {
        self.evaluate(event_type, payload, &mut Evaluation::new(u64::MAX)).unwrap_or(false)
    }

    /// The same within a budget of work, which the destinations of one event share.
    pub fn evaluate<'f>(
        &'f self,
        event_type: &EventType,
        payload: &Payload<'_>,
        evaluation: &mut Evaluation<'f>,
    ) -> Result<bool, OverBudget> {
        evaluation.patterns(self.event_types.iter().len())?;
        match &self.filter {
            _ if !self.event_types.matches(event_type) => Ok(false),
            None => Ok(true),
            Some(filter) => filter.evaluate(payload, evaluation),
        }
    }
}

/// What kind of event happened: segments of letters, digits, `_` and `-`, with dots between them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventType(Arc<str>);

impl EventType {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn segments(&self) -> impl Iterator<Item = &str> {
        self.0.split('.')
    }
}

impl FromStr for EventType {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_segments(text, check_segment)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for EventType {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<EventType> for String {
    fn from(name: EventType) -> Self {
        name.0.as_ref().to_owned()
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why a text is no event type, or no pattern for one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("an event type cannot be empty: name it like `invoice.paid`")]
    Empty,
    #[error("an event type is at most {EVENT_TYPE_LEN_MAX} bytes long, this one is {len}")]
    TooLong { len: usize },
    #[error("an event type has at most {EVENT_TYPE_SEGMENTS_MAX} segments, this one has {segments}")]
    TooManySegments { segments: usize },
    #[error("segment {nth} is empty: put one dot between segments, and none at either end")]
    EmptySegment { nth: usize },
    #[error("segment {nth} contains {found:?}: use letters, digits, `_` and `-`")]
    BadCharacter { nth: usize, found: char },
    #[error("`*` stands for whole segments only, as in `invoice.*` or `*.paid`, and segment {nth} has more beside it")]
    PartialStar { nth: usize },
}

/// The rules that names and patterns share; `check` judges one segment, given its number from 1.
fn check_segments(text: &str, check: impl Fn(usize, &str) -> Result<(), NameError>) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > EVENT_TYPE_LEN_MAX {
        return Err(NameError::TooLong { len: text.len() });
    }
    let segments = text.split('.').count();
    if segments > EVENT_TYPE_SEGMENTS_MAX {
        return Err(NameError::TooManySegments { segments });
    }
    text.split('.').enumerate().try_for_each(|(n, segment)| check(n + 1, segment))
}

fn check_segment(nth: usize, segment: &str) -> Result<(), NameError> {
    if segment.is_empty() {
        return Err(NameError::EmptySegment { nth });
    }
    let allowed = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match segment.chars().find(|c| !allowed(c)) {
        Some(found) => Err(NameError::BadCharacter { nth, found }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_type_is_a_dotted_name_within_its_limits() {
        let longest = "a".repeat(128);
        let deepest = ["a"; 10].join(".");
        for text in ["a", "invoice.paid", "Invoice_Line.added-2", "0.1.2", &longest, &deepest] {
            assert_eq!(text.parse::<EventType>().map(String::from), Ok(text.to_owned()));
        }
        let too_long = "a".repeat(129);
        let too_deep = ["a"; 11].join(".");
        for (text, expected) in [
            ("", NameError::Empty),
            (".", NameError::EmptySegment { nth: 1 }),
            ("invoice.", NameError::EmptySegment { nth: 2 }),
            ("invoice..paid", NameError::EmptySegment { nth: 2 }),
            ("invoice.pa id", NameError::BadCharacter { nth: 2, found: ' ' }),
            ("invoice.*", NameError::BadCharacter { nth: 2, found: '*' }),
            ("účet.paid", NameError::BadCharacter { nth: 1, found: 'ú' }),
            ("a\r\nx: y", NameError::BadCharacter { nth: 1, found: '\r' }),
            (&too_long, NameError::TooLong { len: 129 }),
            (&too_deep, NameError::TooManySegments { segments: 11 }),
        ] {
            assert_eq!(text.parse::<EventType>(), Err(expected), "{text:?}");
        }
    }

    fn subscription(json: &str) -> Subscription {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn an_event_has_to_fit_both_the_types_and_the_filter() {
        let paid = r#"{"event_types": ["invoice.*"], "filter": {"amount": {"gte": 100}}}"#;
        let filter_only = r#"{"filter": {"amount": {"gte": 100}}, "event_types": ["*"]}"#;
        for (json, name, payload, expected) in [
            ("{}", "invoice.paid", "not JSON", true),
            (r#"{"filter": null}"#, "invoice.paid", "not JSON", true),
            (r#"{"event_types": ["invoice.*"]}"#, "invoice.paid", "not JSON", true),
            (r#"{"event_types": ["invoice.*"]}"#, "order.paid", "{}", false),
            (r#"{"event_types": ["order.*", "*.paid"]}"#, "invoice.paid", "{}", true),
            (paid, "invoice.paid", r#"{"amount": 100}"#, true),
            (paid, "invoice.paid", r#"{"amount": 99}"#, false),
            (paid, "order.paid", r#"{"amount": 100}"#, false),
            (paid, "invoice.paid", "not JSON", false),
            (filter_only, "order.paid", r#"{"amount": 100}"#, true),
        ] {
            let matches = subscription(json).matches(&name.parse().unwrap(), &Payload::new(payload.as_bytes()));
            assert_eq!(matches, expected, "{json} on {name} {payload}");
        }
    }

    #[test]
    fn a_payload_stays_unparsed_while_no_destination_of_that_type_has_a_filter() {
        let payload = Payload::new(b"{}");
        let name: EventType = "invoice.paid".parse().unwrap();
        assert!(subscription("{}").matches(&name, &payload));
        assert!(!subscription(r#"{"event_types": ["order.*"], "filter": {"a": 1}}"#).matches(&name, &payload));
        assert!(!payload.is_parsed());
        assert!(!subscription(r#"{"filter": {"a": 1}}"#).matches(&name, &payload));
        assert!(payload.is_parsed());
    }

    #[test]
    fn a_subscription_is_written_back_as_it_was_read() {
        for json in
            [r#"{"event_types":["*"]}"#, r#"{"event_types":["invoice.*","order.paid"],"filter":{"z":1,"a":["x"]}}"#]
        {
            assert_eq!(serde_json::to_string(&subscription(json)).unwrap(), json);
        }
        assert_eq!(subscription("{}"), Subscription::default());
    }

    #[test]
    fn event_types_are_checked_when_read_from_json() {
        let name: EventType = serde_json::from_str(r#""invoice.paid""#).unwrap();
        assert_eq!(serde_json::to_string(&name).unwrap(), r#""invoice.paid""#);
        let refused = serde_json::from_str::<EventType>(r#""invoice.\n""#).unwrap_err().to_string();
        assert!(refused.starts_with(r"segment 2 contains '\n': use letters, digits, `_` and `-`"), "{refused}");
    }
}
