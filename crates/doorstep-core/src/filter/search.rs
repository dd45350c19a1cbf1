//! What `contains` looks for: part of a text, or an element of an array.

use memchr::memmem::Finder;
use serde_json::Value;

use super::rule::Scalar;

/// Searching an array costs this many units for each element, and what is compared of it; an element takes at least as many bytes of the payload.
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
            Value::Array(elements) => elements.iter().map(|element| ELEMENT_UNITS + self.compared(element)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => 0,
        }
    }

    /// Bytes of an element that are compared at most.
    fn compared(&self, element: &Value) -> u64 {
        match (&self.operand, element) {
            (Scalar::Text(operand), Value::String(text)) => operand.len().min(text.len()) as u64,
            (Scalar::Text(_) | Scalar::Null | Scalar::Bool(_) | Scalar::Number(_), _) => 0,
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_search_costs_as_many_units_as_it_compares_bytes() {
        let long = "x".repeat(8_000);
        let needle = Needle::new(Scalar::Text(long.clone() + "y"));
        for (value, expected) in [
            (json!(long), 8_000),
            (json!([long, long, long]), 3 * 8_000),
            (json!(["x", long, 1, null, {}]), 8_000),
            (json!([]), 0),
            (json!(7), 0),
        ] {
            let (units, bytes) = (needle.units(&value), value.to_string().len() as u64);
            assert!((expected..=bytes).contains(&units), "{units} for {bytes} bytes, of which {expected} are compared");
        }
        let number = Needle::new(Scalar::Number(7.into()));
        assert_eq!(number.units(&json!([long, 7])), 2 * ELEMENT_UNITS);
    }
}
