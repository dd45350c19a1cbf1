//! Counts the steps in which a payload is compared with a schema, and stops when there are too many.
//!
//! The library follows a schema wherever it leads. With references that lead back under several alternatives, listing the faults of a payload
//! takes twice as long for each level of nesting. So every part of a schema gets a rule of ours that counts how often the part is applied; when the
//! steps are used up, it unwinds out of the library, which keeps no state between calls.
//!
//! That rule has to be asked before the others, since the library stops at the first one that fails. It asks keywords that it does not know last, and `enum`
//! before all that take long. So ours is an `enum` with a single value, and payloads are shown to the library as [`Metered`], where every value equals that one.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use doorstep_core::event_type::pointer_step;
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, unique};
use serde_json::{Map, Number, Value, json};

/// The value of our rule is an object with this name, and the weights of the part.
pub(super) const COUNTED: &str = " doorstep-steps";
const ENUM: &str = "enum";

/// Gathering faults takes so many times as long as asking whether there are any.
pub(super) const LISTING: u64 = 16;
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
const SCANS: [&str; 12] = [
    "additionalItems",
    "additionalProperties",
    "contains",
    "format",
    "items",
    "maxLength",
    "minLength",
    "pattern",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    /// How many steps each of them takes.
    static TIMES: Cell<u64> = const { Cell::new(1) };
}

/// The steps were used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfSteps;

/// Runs a comparison that may take so many steps, and says how many it took. Each counts so many `times`.
pub(super) fn within<T>(steps_max: u64, times: u64, compare: impl FnOnce() -> T) -> Result<(T, u64), OutOfSteps> {
    let before = (LEFT.replace(steps_max), TIMES.replace(times));
    let done = catch_unwind(AssertUnwindSafe(compare));
    let left = LEFT.replace(before.0);
    TIMES.set(before.1);
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
        count_first(part, json!({ COUNTED: [rules, scans] }));
    }
    counted
}

/// Gives a part our rule. The place of an `enum` that it has is taken, so that goes to the end of its `allOf`, where no reference leads.
fn count_first(part: &mut Map<String, Value>, weights: Value) {
    let theirs = match part.get_mut(ENUM) {
        // What is no list is a fault, and is told where it stands.
        Some(theirs) if !theirs.is_array() => return,
        theirs => theirs.map(Value::take),
    };
    part.insert(ENUM.to_owned(), Value::Array(vec![weights]));
    let Some(theirs) = theirs else { return };
    if let Value::Array(others) = part.entry("allOf").or_insert_with(|| json!([])) {
        others.push(json!({ ENUM: theirs }));
    }
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

/// A part of a schema is applied to this value.
fn count(value: &Value, weights: &Value) {
    let weight = |n: usize| weights.get(n).and_then(Value::as_u64).unwrap_or(1);
    let size = match value {
        Value::String(text) => text.len() / CHARS_PER_STEP,
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    let steps = weight(0).saturating_add(weight(1).saturating_mul(size as u64)).saturating_mul(TIMES.get());
    match LEFT.get().checked_sub(steps) {
        Some(left) => LEFT.set(left),
        None => resume_unwind(Box::new(OutOfSteps)),
    }
}

/// Payloads as they are, except that each value equals that of our rule, and is counted when it is asked.
pub(super) struct Metered;

/// A value of a payload.
#[derive(Clone, Copy)]
pub(super) struct Part<'a>(pub(super) &'a Value);

impl Json for Metered {
    type Node<'a> = Part<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        SerdeJson::prepare_key(key)
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, f: impl FnOnce(Part<'_>) -> T) -> T {
        SerdeJson::with_string_node(buffer, string, |value| f(Part(value)))
    }
}

impl<'a> Node<'a, Metered> for Part<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    fn equals_value(&self, expected: &Value) -> bool {
        match expected.get(COUNTED) {
            Some(weights) => {
                count(self.0, weights);
                true
            }
            None => Node::<SerdeJson>::equals_value(&self.0, expected),
        }
    }

    fn as_object(&self) -> Option<Members<'a>> {
        Node::<SerdeJson>::as_object(&self.0).map(Members)
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        Node::<SerdeJson>::as_array(&self.0).map(Elements)
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        Node::<SerdeJson>::as_string(&self.0)
    }

    fn as_number(&self) -> Option<&'a Number> {
        Node::<SerdeJson>::as_number(&self.0)
    }

    fn as_boolean(&self) -> Option<bool> {
        Node::<SerdeJson>::as_boolean(&self.0)
    }

    fn is_null(&self) -> bool {
        Node::<SerdeJson>::is_null(&self.0)
    }

    fn json_type(&self) -> JsonType {
        Node::<SerdeJson>::json_type(&self.0)
    }

    fn string_length(&self) -> Option<u64> {
        Node::<SerdeJson>::string_length(&self.0)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Node::<SerdeJson>::to_value(&self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Node::<SerdeJson>::identity(&self.0)
    }
}

pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Part<'a>;
    type MemberName = &'a str;
    type MembersIter = iter::Map<serde_json::map::Iter<'a>, fn((&'a String, &'a Value)) -> (&'a str, Part<'a>)>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Part<'a>> {
        self.0.get(key).map(Part)
    }

    fn members(&self) -> Self::MembersIter {
        self.0.iter().map(|(name, value)| (name.as_str(), Part(value)))
    }
}

pub(super) struct Elements<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = Part<'a>;
    type ElementsIter = iter::Map<std::slice::Iter<'a, Value>, fn(&'a Value) -> Part<'a>>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        self.0.iter().map(Part)
    }

    fn is_unique(&self) -> bool {
        unique::is_unique(self.0)
    }
}
