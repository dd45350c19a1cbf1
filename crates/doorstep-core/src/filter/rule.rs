//! What a filter asks once it is understood, and whether a payload fits.

use std::cmp::Ordering;

use serde_json::{Number, Value};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Rule {
    All(Vec<Rule>),
    Any(Vec<Rule>),
    Not(Box<Rule>),
    /// All of the tests hold for what the path leads to.
    Field {
        path: Path,
        tests: Vec<Test>,
    },
}

impl Rule {
    pub(super) fn holds(&self, root: &Value) -> bool {
        match self {
            Self::All(rules) => rules.iter().all(|rule| rule.holds(root)),
            Self::Any(rules) => rules.iter().any(|rule| rule.holds(root)),
            Self::Not(rule) => !rule.holds(root),
            Self::Field { path, tests } => {
                let found = path.find(root);
                tests.iter().all(|test| test.holds(found))
            }
        }
    }
}

/// Names of fields and numbers of array elements, from the outermost on.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path(pub(super) Vec<String>);

impl Path {
    fn find<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        self.0.iter().try_fold(root, |value, part| match value {
            Value::Object(fields) => fields.get(part),
            Value::Array(elements) => elements.get(element_number(part)?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        })
    }
}

/// Digits alone, and no leading zero: each element has one name.
fn element_number(part: &str) -> Option<usize> {
    let digits = part.bytes().all(|byte| byte.is_ascii_digit());
    if digits && (part == "0" || !part.starts_with('0')) { part.parse().ok() } else { None }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Test {
    Equals(Scalar),
    Differs(Scalar),
    Compares(Comparison, Scalar),
    In(Vec<Scalar>),
    Exists(bool),
    Prefix(String),
    Suffix(String),
    Contains(Scalar),
}

impl Test {
    /// A field that is missing, or of another type than the operand, fails every test but `ne` and `exists: false`.
    fn holds(&self, found: Option<&Value>) -> bool {
        let text = || found.and_then(Value::as_str);
        match self {
            Self::Equals(operand) => found.is_some_and(|value| operand.equals(value)),
            Self::Differs(operand) => !found.is_some_and(|value| operand.equals(value)),
            Self::Compares(comparison, operand) => {
                found.and_then(|value| operand.order_of(value)).is_some_and(|order| comparison.allows(order))
            }
            Self::In(operands) => found.is_some_and(|value| operands.iter().any(|operand| operand.equals(value))),
            Self::Exists(expected) => found.is_some() == *expected,
            Self::Prefix(prefix) => text().is_some_and(|text| text.starts_with(prefix)),
            Self::Suffix(suffix) => text().is_some_and(|text| text.ends_with(suffix)),
            Self::Contains(operand) => found.is_some_and(|value| operand.is_within(value)),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

impl Comparison {
    fn allows(self, order: Ordering) -> bool {
        match self {
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
        }
    }
}

/// A value that a field is compared with.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
}

impl Scalar {
    fn equals(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Null, Value::Null) => true,
            (Self::Bool(operand), Value::Bool(value)) => operand == value,
            (Self::Number(_), Value::Number(_)) | (Self::Text(_), Value::String(_)) => {
                self.order_of(value) == Some(Ordering::Equal)
            }
            (Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_), _) => false,
        }
    }

    /// How the value stands to this operand; numbers and texts have an order, each among themselves.
    fn order_of(&self, value: &Value) -> Option<Ordering> {
        match (self, value) {
            (Self::Number(operand), Value::Number(value)) => order_of_numbers(value, operand),
            (Self::Text(operand), Value::String(value)) => Some(value.as_str().cmp(operand)),
            (Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_), _) => None,
        }
    }

    /// Part of a text, or an element of an array.
    fn is_within(&self, value: &Value) -> bool {
        match (self, value) {
            (Self::Text(operand), Value::String(text)) => text.contains(operand),
            (_, Value::Array(elements)) => elements.iter().any(|element| self.equals(element)),
            (_, Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => false,
        }
    }
}

/// Compares by value, without rounding: 9007199254740993 is not 9007199254740992, and 1 is 1.0.
fn order_of_numbers(a: &Number, b: &Number) -> Option<Ordering> {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => Some(a.cmp(&b)),
        (Some(a), None) => order_of_integer_and_float(a, b.as_f64()?),
        (None, Some(b)) => order_of_integer_and_float(b, a.as_f64()?).map(Ordering::reverse),
        (None, None) => a.as_f64()?.partial_cmp(&b.as_f64()?),
    }
}

fn integer(number: &Number) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

fn order_of_integer_and_float(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // Truncated, every double is a whole number; those beyond an i128 saturate and stay beyond any 64-bit integer.
    let whole = float.trunc() as i128;
    Some(integer.cmp(&whole).then(if float.fract() > 0.0 {
        Ordering::Less
    } else if float.fract() < 0.0 {
        Ordering::Greater
    } else {
        Ordering::Equal
    }))
}
