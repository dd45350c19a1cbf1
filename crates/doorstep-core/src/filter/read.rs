//! From a filter as written to the rule it means; every refusal carries the place of the fault.

use std::collections::BTreeSet;

use super::rule::{Comparison, Path, Rule, Scalar, Test};
use super::search::Needle;
use super::written::Written;
use super::{
    FILTER_BYTES_MAX, FILTER_LIST_MAX, FILTER_NESTING_MAX, FILTER_PATH_MAX, FILTER_TESTS_MAX, FilterError, Problem,
};

/// How long the filter is, and what it means.
pub(super) fn rule(written: &Written) -> Result<(usize, Rule), FilterError> {
    let bytes = serde_json::to_string(written).map_or(usize::MAX, |text| text.len());
    if bytes > FILTER_BYTES_MAX {
        return Err(Problem::TooLong { bytes }.at(""));
    }
    Ok((bytes, Reader { tests: 0 }.group(written, "", 0)?))
}

struct Reader {
    tests: usize,
}

impl Reader {
    /// An object: all of its entries have to hold.
    fn group(&mut self, written: &Written, at: &str, nesting: usize) -> Result<Rule, FilterError> {
        if nesting > FILTER_NESTING_MAX {
            return Err(Problem::TooDeep.at(at));
        }
        let Written::Object(entries) = written else {
            return Err(Problem::NotAnObject.at(at));
        };
        let mut rules = Vec::new();
        for (key, value, at) in checked(entries, at)? {
            rules.push(match key {
                "all" => Rule::All(self.groups("all", value, &at, nesting + 1)?),
                "any" => Rule::Any(self.groups("any", value, &at, nesting + 1)?),
                "not" => Rule::Not(Box::new(self.group(value, &at, nesting + 1)?)),
                _ => Rule::Field { path: path(key, &at)?, tests: self.tests(value, &at)? },
            });
        }
        Ok(Rule::All(rules))
    }

    fn groups(
        &mut self,
        operator: &'static str,
        written: &Written,
        at: &str,
        nesting: usize,
    ) -> Result<Vec<Rule>, FilterError> {
        match written {
            Written::List(filters) if filters.is_empty() => Err(Problem::Empty.at(at)),
            Written::List(filters) => {
                let group = |(n, filter)| self.group(filter, &format!("{at}/{n}"), nesting);
                filters.iter().enumerate().map(group).collect()
            }
            Written::Null | Written::Bool(_) | Written::Number(_) | Written::Text(_) | Written::Object(_) => {
                Err(Problem::NotAListOfFilters { operator }.at(at))
            }
        }
    }

    /// What is said of one field: a value it equals, a list it is in, or an object of operators.
    fn tests(&mut self, written: &Written, at: &str) -> Result<Vec<Test>, FilterError> {
        match written {
            Written::Object(entries) => {
                checked(entries, at)?.into_iter().map(|(key, operand, at)| self.test(key, operand, &at)).collect()
            }
            Written::List(_) => Ok(vec![self.test("in", written, at)?]),
            Written::Null | Written::Bool(_) | Written::Number(_) | Written::Text(_) => {
                Ok(vec![self.test("eq", written, at)?])
            }
        }
    }

    fn test(&mut self, operator: &str, operand: &Written, at: &str) -> Result<Test, FilterError> {
        self.tests += 1;
        if self.tests > FILTER_TESTS_MAX {
            return Err(Problem::TooManyTests.at(at));
        }
        match operator {
            "eq" => scalar("eq", operand, at).map(Test::Equals),
            "ne" => scalar("ne", operand, at).map(Test::Differs),
            "gt" => ordered("gt", operand, at).map(|than| Test::Compares(Comparison::Greater, than)),
            "gte" => ordered("gte", operand, at).map(|than| Test::Compares(Comparison::GreaterOrEqual, than)),
            "lt" => ordered("lt", operand, at).map(|than| Test::Compares(Comparison::Less, than)),
            "lte" => ordered("lte", operand, at).map(|than| Test::Compares(Comparison::LessOrEqual, than)),
            "in" => list(operand, at).map(Test::In),
            "exists" => flag("exists", operand, at).map(Test::Exists),
            "prefix" => text("prefix", operand, at).map(Test::Prefix),
            "suffix" => text("suffix", operand, at).map(Test::Suffix),
            "contains" => scalar("contains", operand, at).map(|operand| Test::Contains(Needle::new(operand))),
            _ => Err(Problem::UnknownOperator { key: operator.to_owned() }.at(at)),
        }
    }
}

/// The entries of an object, each with its place; there is at least one, and none is given twice.
fn checked<'w>(entries: &'w [(String, Written)], at: &str) -> Result<Vec<(&'w str, &'w Written, String)>, FilterError> {
    if entries.is_empty() {
        return Err(Problem::Empty.at(at));
    }
    let mut seen = BTreeSet::new();
    let entry = |(key, value): &'w (String, Written)| {
        let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
        if seen.insert(key) { Ok((key.as_str(), value, at)) } else { Err(Problem::Twice { key: key.clone() }.at(&at)) }
    };
    entries.iter().map(entry).collect()
}

/// `data.amount`, or as a JSON Pointer `/data/amount`, which also reaches names that contain dots.
fn path(key: &str, at: &str) -> Result<Path, FilterError> {
    let parts: Vec<String> = match key.strip_prefix('/') {
        Some(pointer) => pointer.split('/').map(|part| unescape(part, at)).collect::<Result<_, _>>()?,
        None if key.split('.').any(str::is_empty) => return Err(Problem::EmptyPathPart.at(at)),
        None => key.split('.').map(str::to_owned).collect(),
    };
    match parts.len() {
        levels if levels > FILTER_PATH_MAX => Err(Problem::PathTooDeep { levels }.at(at)),
        _ => Ok(Path(parts)),
    }
}

fn unescape(part: &str, at: &str) -> Result<String, FilterError> {
    let escapes = part.split('~').skip(1);
    if escapes.into_iter().all(|rest| rest.starts_with(['0', '1'])) {
        // In this order: `~01` means `~1`.
        Ok(part.replace("~1", "/").replace("~0", "~"))
    } else {
        Err(Problem::BadPointer.at(at))
    }
}

fn scalar(operator: &'static str, written: &Written, at: &str) -> Result<Scalar, FilterError> {
    match written {
        Written::Null => Ok(Scalar::Null),
        Written::Bool(value) => Ok(Scalar::Bool(*value)),
        Written::Number(value) => Ok(Scalar::Number(value.clone())),
        Written::Text(value) => Ok(Scalar::Text(value.clone())),
        Written::List(_) | Written::Object(_) => {
            Err(Problem::WrongOperand { operator, takes: "a string, a number, true, false or null" }.at(at))
        }
    }
}

fn ordered(operator: &'static str, written: &Written, at: &str) -> Result<Scalar, FilterError> {
    match scalar(operator, written, at) {
        Ok(value @ (Scalar::Number(_) | Scalar::Text(_))) => Ok(value),
        Ok(Scalar::Null | Scalar::Bool(_)) | Err(_) => {
            Err(Problem::WrongOperand { operator, takes: "a number or a string" }.at(at))
        }
    }
}

fn list(written: &Written, at: &str) -> Result<Vec<Scalar>, FilterError> {
    match written {
        Written::List(values) if values.is_empty() => Err(Problem::Empty.at(at)),
        Written::List(values) if values.len() > FILTER_LIST_MAX => {
            Err(Problem::ListTooLong { values: values.len() }.at(at))
        }
        Written::List(values) => {
            let value = |(n, value)| scalar("in", value, at).map_err(|_| not_a_list_of_scalars(&format!("{at}/{n}")));
            values.iter().enumerate().map(value).collect()
        }
        Written::Null | Written::Bool(_) | Written::Number(_) | Written::Text(_) | Written::Object(_) => {
            Err(not_a_list_of_scalars(at))
        }
    }
}

fn not_a_list_of_scalars(at: &str) -> FilterError {
    Problem::WrongOperand { operator: "in", takes: "a list of strings, numbers, true, false and null" }.at(at)
}

fn flag(operator: &'static str, written: &Written, at: &str) -> Result<bool, FilterError> {
    match written {
        Written::Bool(value) => Ok(*value),
        Written::Null | Written::Number(_) | Written::Text(_) | Written::List(_) | Written::Object(_) => {
            Err(Problem::WrongOperand { operator, takes: "true or false" }.at(at))
        }
    }
}

fn text(operator: &'static str, written: &Written, at: &str) -> Result<String, FilterError> {
    match written {
        Written::Text(value) => Ok(value.clone()),
        Written::Null | Written::Bool(_) | Written::Number(_) | Written::List(_) | Written::Object(_) => {
            Err(Problem::WrongOperand { operator, takes: "a string" }.at(at))
        }
    }
}
