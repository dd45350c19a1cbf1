//! Filters over payloads: a destination may ask for only those events whose JSON says what it cares about (I3).
//!
//! A filter is JSON itself: `{"data.amount": {"gte": 100}, "data.currency": ["EUR", "USD"]}`. The language is described
//! for its users in `docs/reference/filters.md`, whose examples are run as tests. It has no loops, no functions and no
//! regular expressions. What evaluating costs is counted in units ([`work`]), and a tenant's filters have a budget.

mod read;
mod rule;
mod search;
pub mod work;
mod written;

#[cfg(test)]
mod tests;

use std::cell::OnceCell;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use rule::Rule;
use work::{Evaluation, OverBudget};
use written::Written;

/// A filter, written without spaces, is at most so many bytes long.
pub const FILTER_BYTES_MAX: usize = 8 * 1024;

/// A filter makes at most so many tests, each one operator applied to one field.
pub const FILTER_TESTS_MAX: usize = 50;

/// `all`, `any` and `not` can stand within each other so many times.
pub const FILTER_NESTING_MAX: usize = 5;

/// `in` takes at most so many values.
pub const FILTER_LIST_MAX: usize = 100;

/// A path reaches at most so many levels into the payload.
pub const FILTER_PATH_MAX: usize = 16;

/// A condition on the payload of an event. It is written back as its author wrote it: no rewording, no reordering.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    written: Written,
    /// Bytes of `written` without spaces.
    bytes: usize,
    rule: Rule,
}

impl Filter {
    /// Reads a filter from its JSON text.
    pub fn parse(json: &str) -> Result<Self, FilterError> {
        let not_json = |error: serde_json::Error| Problem::NotJson { detail: error.to_string() };
        let written = serde_json::from_str(json).map_err(|error| not_json(error).at(""))?;
        Self::new(written)
    }

    /// Never true for a payload that is not JSON, whatever the filter says.
    pub fn matches(&self, payload: &Payload<'_>) -> bool {
        self.evaluate(payload, &mut Evaluation::new(u64::MAX)).unwrap_or(false)
    }

    /// The same within a budget of work, which the filters of one event share along with their searches.
    pub(crate) fn evaluate<'f>(
        &'f self,
        payload: &Payload<'_>,
        evaluation: &mut Evaluation<'f>,
    ) -> Result<bool, OverBudget> {
        if !payload.is_parsed() {
            evaluation.parse(payload.bytes.len())?;
        }
        payload.json().map_or(Ok(false), |root| self.rule.holds(root, evaluation))
    }

    fn new(written: Written) -> Result<Self, FilterError> {
        let (bytes, rule) = read::rule(&written)?;
        Ok(Self { written, bytes, rule })
    }
}

impl Serialize for Filter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Filter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(Written::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// The body of an event as filters see it: parsed when the first filter looks at it, and at most once.
#[derive(Debug)]
pub struct Payload<'a> {
    bytes: &'a [u8],
    json: OnceCell<Option<Value>>,
}

impl<'a> Payload<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, json: OnceCell::new() }
    }

    /// `None` if the bytes are not one JSON value, or one nested deeper than the parser goes (127 levels).
    fn json(&self) -> Option<&Value> {
        self.json.get_or_init(|| serde_json::from_slice(self.bytes).ok()).as_ref()
    }

    pub(crate) fn is_parsed(&self) -> bool {
        self.json.get().is_some()
    }
}

/// Why a filter is refused, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", if pointer.is_empty() { String::new() } else { format!("{pointer}: ") })]
pub struct FilterError {
    /// The faulty place within the filter, as a JSON Pointer; empty for the filter as a whole.
    pub pointer: String,
    pub problem: Problem,
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("the filter is not JSON: {detail}")]
    NotJson { detail: String },
    #[error("the filter is {bytes} bytes long, {FILTER_BYTES_MAX} are allowed")]
    TooLong { bytes: usize },
    #[error("the filter makes more than {FILTER_TESTS_MAX} tests: a list of values counts as one")]
    TooManyTests,
    #[error("`all`, `any` and `not` stand within each other more than {FILTER_NESTING_MAX} times")]
    TooDeep,
    #[error("the list has {values} values, {FILTER_LIST_MAX} are allowed")]
    ListTooLong { values: usize },
    #[error("a filter is an object of paths and tests, like {{\"data.amount\": {{\"gte\": 100}}}}")]
    NotAnObject,
    #[error("nothing is tested here: add a test, or leave this part out")]
    Empty,
    #[error("`{key}` is given twice: put both tests into one object, or into the list of an `all`")]
    Twice { key: String },
    #[error("`{operator}` takes a list of filters, like [{{\"data.currency\": \"EUR\"}}, {{\"data.urgent\": true}}]")]
    NotAListOfFilters { operator: &'static str },
    #[error("`{operator}` takes {takes}")]
    WrongOperand { operator: &'static str, takes: &'static str },
    #[error(
        "`{key}` is not an operator: use eq, ne, gt, gte, lt, lte, in, exists, prefix, suffix or contains; to reach \
         into an object, join the names with dots in one path"
    )]
    UnknownOperator { key: String },
    #[error("the path has an empty part: join names with single dots, or write a JSON Pointer like `/data/amount`")]
    EmptyPathPart,
    #[error("the path goes {levels} levels deep, {FILTER_PATH_MAX} are allowed")]
    PathTooDeep { levels: usize },
    #[error("in a JSON Pointer `~` is written `~0`, and a `/` within a name `~1`")]
    BadPointer,
}

impl Problem {
    fn at(self, pointer: &str) -> FilterError {
        FilterError { pointer: pointer.to_owned(), problem: self }
    }
}
