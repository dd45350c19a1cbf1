//! What a filter asks once it is understood, and whether a payload fits.

use std::cmp::Ordering;

use serde_json::{Number, Value};

use super::search::Needle;
use super::work::{Evaluation, OverBudget};

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
    pub(super) fn holds<'f>(&'f self, root: &Value, evaluation: &mut Evaluation<'f>) -> Result<bool, OverBudget> {
        match self {
            Self::All(rules) => all(rules, |rule| rule.holds(root, evaluation)),
            Self::Any(rules) => Ok(!all(rules, |rule| Ok(!rule.holds(root, evaluation)?))?),
            Self::Not(rule) => Ok(!rule.holds(root, evaluation)?),
            Self::Field { path, tests } => {
                let found = path.find(root);
                all(tests, |test| test.holds(path, found, evaluation))
            }
        }
    }

    /// Every test, with the path that it is applied to.
    pub(super) fn each_test<'f>(&'f self, visit: &mut impl FnMut(&'f Path, &'f Test)) {
        match self {
            Self::All(rules) | Self::Any(rules) => rules.iter().for_each(|rule| rule.each_test(visit)),
            Self::Not(rule) => rule.each_test(visit),
            Self::Field { path, tests } => tests.iter().for_each(|test| visit(path, test)),
        }
    }
}

/// Stops at the first that does not hold.
fn all<'f, T>(items: &'f [T], mut holds: impl FnMut(&'f T) -> Result<bool, OverBudget>) -> Result<bool, OverBudget> {
    for item in items {
        if !holds(item)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names of fields and numbers of array elements, from the outermost on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    Contains(Needle),
}

impl Test {
    /// A field that is missing, or of another type than the operand, fails every test but `ne` and `exists: false`.
    fn holds<'f>(
        &'f self,
        path: &'f Path,
        found: Option<&Value>,
        evaluation: &mut Evaluation<'f>,
    ) -> Result<bool, OverBudget> {
        evaluation.test(self.operand_bytes())?;
        let text = || found.and_then(Value::as_str);
        Ok(match self {
            Self::Equals(operand) => found.is_some_and(|value| operand.equals(value)),
            Self::Differs(operand) => !found.is_some_and(|value| operand.equals(value)),
            Self::Compares(comparison, operand) => {
                found.and_then(|value| operand.order_of(value)).is_some_and(|order| comparison.allows(order))
            }
            Self::In(operands) => found.is_some_and(|value| operands.iter().any(|operand| operand.equals(value))),
            Self::Exists(expected) => found.is_some() == *expected,
            Self::Prefix(prefix) => text().is_some_and(|text| text.starts_with(prefix)),
            Self::Suffix(suffix) => text().is_some_and(|text| text.ends_with(suffix)),
            Self::Contains(needle) => match found {
                Some(value) => evaluation.search(path, needle, value)?,
                None => false,
            },
        })
    }

    /// How much of the filter this test compares with the field at most. A search is counted by what it searches instead.
    fn operand_bytes(&self) -> usize {
        match self {
            Self::Equals(operand) | Self::Differs(operand) | Self::Compares(_, operand) => operand.bytes(),
            Self::In(operands) => operands.iter().map(Scalar::bytes).sum(),
            Self::Prefix(text) | Self::Suffix(text) => text.len(),
            Self::Exists(_) | Self::Contains(_) => 0,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
}

impl Scalar {
    /// At most as many as it takes in the filter.
    fn bytes(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) => 1,
            Self::Text(text) => 1 + text.len(),
        }
    }

    pub(super) fn equals(&self, value: &Value) -> bool {
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
