//! Patterns over event types.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{EventType, NameError, check_segment, check_segments};

/// A destination subscribes with at most so many patterns.
pub const PATTERNS_MAX: usize = 100;

/// A pattern for event types: a name in which `*` may stand in place of a segment.
///
/// As the last segment `*` matches one or more segments, elsewhere exactly one: `*` matches everything, `invoice.*` matches
/// `invoice.paid` and `invoice.line.added` but not `invoice`, and `*.paid` matches `invoice.paid` alone of these.
/// Matching takes time linear in the name and allocates nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TypePattern(Box<str>);

impl TypePattern {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn matches(&self, name: &EventType) -> bool {
        let mut wanted = self.0.split('.').peekable();
        let mut segments = name.segments();
        while let Some(want) = wanted.next() {
            match segments.next() {
                None => return false,
                Some(_) if want == "*" && wanted.peek().is_none() => return true,
                Some(segment) if want != "*" && want != segment => return false,
                Some(_) => {}
            }
        }
        segments.next().is_none()
    }
}

impl FromStr for TypePattern {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        check_segments(text, |nth, segment| match segment {
            "*" => Ok(()),
            _ if segment.contains('*') => Err(NameError::PartialStar { nth }),
            _ => check_segment(nth, segment),
        })?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<String> for TypePattern {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<TypePattern> for String {
    fn from(pattern: TypePattern) -> Self {
        pattern.0.into()
    }
}

impl fmt::Display for TypePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The patterns of one destination, at least one; an event type has to match any of them. By default `*` alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<String>", into = "Vec<TypePattern>")]
pub struct TypePatterns(Vec<TypePattern>);

impl TypePatterns {
    pub fn new(patterns: Vec<TypePattern>) -> Result<Self, PatternsError> {
        check_count(patterns.len())?;
        Ok(Self(patterns))
    }

    pub fn matches(&self, name: &EventType) -> bool {
        self.0.iter().any(|pattern| pattern.matches(name))
    }

    pub fn iter(&self) -> std::slice::Iter<'_, TypePattern> {
        self.0.iter()
    }
}

impl Default for TypePatterns {
    fn default() -> Self {
        Self(vec![TypePattern("*".into())])
    }
}

impl TryFrom<Vec<String>> for TypePatterns {
    type Error = PatternsError;

    fn try_from(texts: Vec<String>) -> Result<Self, PatternsError> {
        check_count(texts.len())?;
        let pattern = |(index, text): (usize, String)| text.parse().map_err(|fault| PatternsError::At { index, fault });
        texts.into_iter().enumerate().map(pattern).collect::<Result<_, _>>().map(Self)
    }
}

impl From<TypePatterns> for Vec<TypePattern> {
    fn from(patterns: TypePatterns) -> Self {
        patterns.0
    }
}

impl<'a> IntoIterator for &'a TypePatterns {
    type Item = &'a TypePattern;
    type IntoIter = std::slice::Iter<'a, TypePattern>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Why a list of patterns is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternsError {
    // An empty list could mean everything or nothing: a guess would send too much or too little.
    #[error("the list of event types is empty: leave it out, or give `[\"*\"]`, to receive all of them")]
    Empty,
    #[error("{given} patterns are given, {PATTERNS_MAX} are allowed: a `*` covers several event types at once")]
    TooMany { given: usize },
    #[error("/{index}: {fault}")]
    At { index: usize, fault: NameError },
}

impl PatternsError {
    /// Where in the list the fault is, as a JSON Pointer.
    pub fn pointer(&self) -> String {
        match self {
            Self::Empty | Self::TooMany { .. } => String::new(),
            Self::At { index, fault: _ } => format!("/{index}"),
        }
    }
}

fn check_count(given: usize) -> Result<(), PatternsError> {
    match given {
        0 => Err(PatternsError::Empty),
        1..=PATTERNS_MAX => Ok(()),
        _ => Err(PatternsError::TooMany { given }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        pattern.parse::<TypePattern>().unwrap().matches(&name.parse().unwrap())
    }

    #[test]
    fn a_star_stands_for_one_segment_and_at_the_end_for_one_or_more() {
        for (pattern, name, expected) in [
            ("*", "invoice", true),
            ("*", "invoice.line.added", true),
            ("invoice.paid", "invoice.paid", true),
            ("invoice.paid", "invoice.Paid", false),
            ("invoice.paid", "invoice", false),
            ("invoice.paid", "invoice.paid.late", false),
            ("invoice.*", "invoice.paid", true),
            ("invoice.*", "invoice.line.added", true),
            ("invoice.*", "invoice", false),
            ("invoice.*", "invoices.paid", false),
            ("*.paid", "invoice.paid", true),
            ("*.paid", "paid", false),
            ("*.paid", "invoice.line.paid", false),
            ("invoice.*.added", "invoice.line.added", true),
            ("invoice.*.added", "invoice.added", false),
            ("invoice.*.added", "invoice.line.item.added", false),
            ("*.*", "invoice", false),
            ("*.*", "invoice.paid", true),
            ("*.*", "invoice.line.added", true),
            ("*.line.*", "invoice.line.added.late", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn a_faulty_pattern_is_refused_with_its_place() {
        let read = |json: &str| serde_json::from_str::<TypePatterns>(json).map_err(|error| error.to_string());
        assert_eq!(read(r#"["invoice.*", "*"]"#).unwrap().iter().count(), 2);
        for (json, expected) in [
            (r#"["a", "inv*"]"#, "/1: `*` stands for whole segments only"),
            (r#"["a.**"]"#, "/0: `*` stands for whole segments only"),
            (r#"["a..b"]"#, "/0: segment 2 is empty"),
            (r#"["a.b!"]"#, "/0: segment 2 contains '!'"),
            ("[]", "the list of event types is empty"),
        ] {
            let refused = read(json).unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
        let many = vec!["a".to_owned(); PATTERNS_MAX + 1];
        assert_eq!(TypePatterns::try_from(many), Err(PatternsError::TooMany { given: 101 }));
        let fault = NameError::EmptySegment { nth: 1 };
        assert_eq!(PatternsError::At { index: 3, fault }.pointer(), "/3");
    }

    #[test]
    fn without_a_list_every_type_is_received() {
        assert_eq!(serde_json::to_string(&TypePatterns::default()).unwrap(), r#"["*"]"#);
        assert!(TypePatterns::default().matches(&"anything.at.all".parse().unwrap()));
    }

    /// The rule said another way: a trailing star takes all that is left, every other segment takes its own.
    fn by_the_book(pattern: &[&str], name: &[&str]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            (["*"], [_, ..]) => true,
            ([want, pattern @ ..], [segment, name @ ..]) => {
                (*want == "*" || want == segment) && by_the_book(pattern, name)
            }
            ([], [_, ..]) | ([_, ..], []) => false,
        }
    }

    proptest! {
        #[test]
        fn patterns_match_by_the_book(
            pattern in prop::collection::vec(prop_oneof!["a", "b", Just("*".to_owned())], 1..6),
            name in prop::collection::vec("[ab]", 1..6),
        ) {
            let expected = by_the_book(
                &pattern.iter().map(String::as_str).collect::<Vec<_>>(),
                &name.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            prop_assert_eq!(matches(&pattern.join("."), &name.join(".")), expected);
        }

        #[test]
        fn whatever_reads_as_a_pattern_is_written_the_same_and_nothing_panics(text in prop_oneof![".*", "[a-z*.]{0,20}"]) {
            if let Ok(pattern) = text.parse::<TypePattern>() {
                let json = serde_json::to_string(&pattern).unwrap();
                prop_assert_eq!(&serde_json::from_str::<TypePattern>(&json).unwrap(), &pattern);
                prop_assert_eq!(String::from(pattern), text);
            }
        }
    }
}
