//! What `contains` looks for: part of a text, or an element of an array.

use memchr::memmem::Finder;
use serde_json::Value;

use super::rule::Scalar;

/// Searching an array costs this many units for each element; an element takes at least as many bytes of the payload.
const ELEMENT_UNITS: u64 = 2;

/// An operand of `contains`, ready to be searched for. The searcher is built once, when the filter is read.
#[derive(Clone, Debug)]
pub(super) struct Needle {
    pub(super) operand: Scalar,
    finder: Option<Box<Finder<'static>>>,
}

impl Needle {
    pub(super) fn new(operand: Scalar) -> Self {
        let finder = match &operand {
            Scalar::Text(text) => Some(Box::new(Finder::new(text).into_owned())),
            Scalar::Null | Scalar::Bool(_) | Scalar::Number(_) => None,
        };
        Self { operand, finder }
    }

    /// What [`Self::is_within`] costs for this value.
    pub(super) fn units(&self, value: &Value) -> u64 {
        match value {
            Value::String(text) if self.finder.is_some() => text.len() as u64,
            Value::Array(elements) => elements.len() as u64 * ELEMENT_UNITS,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => 0,
        }
    }

    pub(super) fn is_within(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.finder.as_ref().is_some_and(|finder| finder.find(text.as_bytes()).is_some()),
            Value::Array(elements) => elements.iter().any(|element| self.operand.equals(element)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
        }
    }
}

impl PartialEq for Needle {
    fn eq(&self, other: &Self) -> bool {
        self.operand == other.operand
    }
}
