//! Counts the steps in which a payload is compared with a schema, and stops when there are too many.
//!
//! The library follows a schema wherever it leads. With references that lead back under several alternatives, listing the faults of a payload
//! takes twice as long for each level of nesting. So every part of a schema gets a keyword of ours that counts how often it is applied; when the
//! steps are used up, it unwinds out of the library, which keeps no state between calls.

use std::cell::Cell;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use doorstep_core::event_type::pointer_step;
use jsonschema::{Keyword, ValidationError};
use serde_json::{Map, Value, json};

/// In the order of names, this comes before the keywords that it counts.
pub(super) const COUNTED: &str = " doorstep-steps";

/// Gathering faults takes so many times as long as asking whether there are any.
const LISTING: u64 = 16;
/// Characters of a text that a pattern reads in one step.
const CHARS_PER_STEP: usize = 16;

/// Keywords whose value is a schema, or a list of them.
pub(super) const WITH_SCHEMAS: [&str; 16] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value has a schema for each name.
pub(super) const WITH_NAMED_SCHEMAS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];
/// Keywords that look at every element, property or character of a value.
const SCANS: [&str; 11] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "format",
    "items",
    "maxLength",
    "minLength",
    "pattern",
    "propertyNames",
    "unevaluatedProperties",
    "uniqueItems",
];

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The steps were used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfSteps;

/// Runs a comparison that may take so many steps, and says how many it took.
pub(super) fn within<T>(steps_max: u64, compare: impl FnOnce() -> T) -> Result<(T, u64), OutOfSteps> {
    let before = LEFT.replace(steps_max);
    let done = catch_unwind(AssertUnwindSafe(compare));
    let left = LEFT.replace(before);
    match done {
        Ok(done) => Ok((done, steps_max - left)),
        Err(unwound) if unwound.is::<OutOfSteps>() => Err(OutOfSteps),
        Err(panic) => resume_unwind(panic),
    }
}

/// The same schema, with every part of it counted. `target` finds what a reference leads to, as a JSON Pointer.
pub(super) fn counted(schema: &Value, target: impl Fn(&str) -> Option<String>) -> Value {
    let mut counted = schema.clone();
    let (mut parts, mut done) = (vec![String::new()], HashSet::new());
    while let Some(at) = parts.pop() {
        let Some(Value::Object(part)) = counted.pointer_mut(&at) else { continue };
        if !done.insert(at.clone()) {
            continue;
        }
        let (rules, scans) = weigh(part);
        for (key, member) in &*part {
            let below = format!("{at}/{}", pointer_step(key));
            match (key.as_str(), member) {
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => parts.extend(target(to)),
                (key, Value::Object(named)) if WITH_NAMED_SCHEMAS.contains(&key) => {
                    parts.extend(named.keys().map(|name| format!("{below}/{}", pointer_step(name))))
                }
                (key, Value::Array(items)) if WITH_SCHEMAS.contains(&key) => {
                    parts.extend((0..items.len()).map(|n| format!("{below}/{n}")));
                }
                (key, Value::Object(_)) if WITH_SCHEMAS.contains(&key) => parts.push(below),
                _ => {}
            }
        }
        part.insert(COUNTED.to_owned(), json!([rules, scans]));
    }
    counted
}

/// How many rules a part has of its own, and how many of them look at all of a value.
fn weigh(part: &Map<String, Value>) -> (usize, usize) {
    let (mut rules, mut scans) = (1, 0);
    for (key, member) in part {
        let key = key.as_str();
        rules += match member {
            Value::Array(items) if WITH_SCHEMAS.contains(&key) => items.len(),
            Value::Object(named) if WITH_NAMED_SCHEMAS.contains(&key) => named.len(),
            _ if WITH_SCHEMAS.contains(&key) => 1,
            _ => size(member),
        };
        scans += usize::from(SCANS.contains(&key));
        if let ("patternProperties", Value::Object(patterns)) = (key, member) {
            scans += patterns.len();
        }
    }
    (rules, scans)
}

/// The values in a value.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(size).sum::<usize>(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 1,
    }
}

/// The keyword. Every value fits it.
struct Counted {
    rules: u64,
    scans: u64,
}

/// Makes the keyword from what [`counted`] wrote.
pub(super) fn keyword<'a>(
    _part: &'a Map<String, Value>,
    weights: &'a Value,
    _at: jsonschema::paths::Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    let weight = |n: usize| weights.get(n).and_then(Value::as_u64).unwrap_or(1);
    Ok(Box::new(Counted { rules: weight(0), scans: weight(1) }))
}

impl Counted {
    fn count(&self, value: &Value, times: u64) {
        let size = match value {
            Value::String(text) => text.len() / CHARS_PER_STEP,
            Value::Array(items) => items.len(),
            Value::Object(members) => members.len(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        };
        let steps = self.rules.saturating_add(self.scans.saturating_mul(size as u64)).saturating_mul(times);
        match LEFT.get().checked_sub(steps) {
            Some(left) => LEFT.set(left),
            None => resume_unwind(Box::new(OutOfSteps)),
        }
    }
}

impl<'i> Keyword<'i> for Counted {
    fn validate(&self, value: &'i Value) -> Result<(), ValidationError<'i>> {
        self.count(value, 1);
        Ok(())
    }

    fn iter_errors(&self, value: &'i Value) -> Box<dyn Iterator<Item = ValidationError<'i>> + 'i> {
        self.count(value, LISTING);
        Box::new(std::iter::empty())
    }

    fn is_valid(&self, value: &'i Value) -> bool {
        self.count(value, 1);
        true
    }
}
