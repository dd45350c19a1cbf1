//! One JSON Schema: read with bounds, and a payload compared with it.

use std::collections::BTreeMap;

use doorstep_core::event_type::{Misfit, pointer_step};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::steps::{self, LISTING, Metered, OutOfSteps, Part, WITH_NAMED_SCHEMAS, WITH_SCHEMAS};

/// Memory that one regular expression may take, and its automaton beside it.
const PATTERN_BYTES_MAX: usize = 256 * 1024;
/// So many rules may apply to a payload, each counted as often as it is referred to: what is referred to twice by what is
/// referred to twice, and so on, would take forever.
const RULES_MAX: usize = 50_000;
/// So deep may rules lie within each other, and refer to each other.
const DEPTH_MAX: usize = 100;
/// So many places of a payload are told of.
const MISFITS_MAX: usize = 20;
/// What is told of one place is at most this long.
const DETAIL_CHARS_MAX: usize = 300;
/// Comparing a payload with a schema takes at most so many steps, and so many for each byte of the payload: a step is a rule that is applied to a
/// value, or a part of a value that is read.
const STEPS_MAX: u64 = 1_000_000;
const STEPS_PER_BYTE_MAX: u64 = 16;
/// All faults are looked for in so many steps; if that is not enough, only the first one. The library gathers all of them before it tells one.
const STEPS_TO_LIST_MAX: u64 = 1_000_000;
/// What a runtime thread compares at once: payloads of so many bytes, in so many steps.
const INLINE_BYTES_MAX: usize = 16 * 1024;
const INLINE_STEPS_MAX: u64 = 20_000;

#[derive(Debug)]
pub(super) struct Schema(Validator<Metered>);

impl Schema {
    pub(super) fn new(schema: &Value) -> Result<Self, Misfit> {
        let mut weighing = Weighing { root: schema, known: BTreeMap::new(), open: Vec::new() };
        let Weight { rules, .. } = weighing.weigh(schema, 0)?;
        if rules > RULES_MAX {
            let detail = format!("{RULES_MAX} rules may apply to a payload, but these are {rules} or more");
            return Err(Misfit::new("", detail));
        }
        // Backtracking would let a payload take forever; this engine takes time linear in the text. Nothing is fetched from
        // anywhere: the library was built without that.
        let patterns = PatternOptions::regex().size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX);
        let options = jsonschema::options_for::<Metered>().with_pattern_options(patterns);
        let built = options.build(&steps::counted(schema, |to| weighing.place(to)));
        built.map(Self).map_err(|fault| {
            let hint = match fault.kind() {
                ValidationErrorKind::Format { format } if format == "regex" => {
                    ": it is no regular expression, needs too much memory, or looks ahead or back, which is not supported"
                }
                _ => "",
            };
            Misfit::new(fault.instance_path().to_string(), told(&fault) + hint)
        })
    }

    /// Where a payload does not fit, if that can be said without holding a runtime thread for long.
    pub(super) fn misfits_inline(&self, payload: &[u8]) -> Option<Vec<Misfit>> {
        if payload.len() > INLINE_BYTES_MAX {
            return None;
        }
        self.compare(payload, INLINE_STEPS_MAX).ok()
    }

    /// Where a payload does not fit. One that takes too many steps to compare is refused.
    pub(super) fn misfits(&self, payload: &[u8]) -> Vec<Misfit> {
        let steps_max = STEPS_MAX + STEPS_PER_BYTE_MAX * payload.len() as u64;
        self.compare(payload, steps_max).unwrap_or_else(|OutOfSteps| {
            let detail = format!(
                "comparing it with its schema takes more than {steps_max} steps: nest it less deeply, or make the schema simpler"
            );
            vec![Misfit::new("/payload", detail)]
        })
    }

    /// The steps that it takes to say whether a payload fits.
    #[cfg(test)]
    pub(super) fn steps(&self, payload: &Value) -> u64 {
        steps::within(u64::MAX, 1, || self.0.is_valid(Part(payload))).map_or(u64::MAX, |(_, steps)| steps)
    }

    fn compare(&self, payload: &[u8], steps_max: u64) -> Result<Vec<Misfit>, OutOfSteps> {
        let value: Value = match serde_json::from_slice(payload) {
            Ok(value) => value,
            Err(fault) => {
                let detail = format!("its type has a schema, but it cannot be read: {fault}");
                return Ok(vec![Misfit::new("/payload", detail)]);
            }
        };
        let (fits, _) = steps::within(steps_max, 1, || self.0.is_valid(Part(&value)))?;
        if fits {
            return Ok(Vec::new());
        }
        let misfit =
            |fault: ValidationError<'_>| Misfit::new(format!("/payload{}", fault.instance_path()), told(&fault));
        let listed = steps::within(STEPS_TO_LIST_MAX.min(steps_max), LISTING, || {
            self.0.iter_errors(Part(&value)).take(MISFITS_MAX).map(misfit).collect()
        });
        if let Ok((misfits, _)) = listed {
            return Ok(each_once(misfits));
        }
        let first = steps::within(steps_max, 1, || self.0.validate(Part(&value)).err().map(misfit));
        Ok(match first {
            Ok((first, _)) => first.into_iter().collect(),
            Err(OutOfSteps) => {
                let detail = "does not fit its schema; the schema has too many alternatives to say where";
                vec![Misfit::new("/payload", detail)]
            }
        })
    }
}

/// What is found by several ways through a schema is told once.
fn each_once(misfits: Vec<Misfit>) -> Vec<Misfit> {
    let mut told: Vec<Misfit> = Vec::new();
    for misfit in misfits {
        if !told.contains(&misfit) {
            told.push(misfit);
        }
    }
    told
}

/// Without the value: whoever sent it has it, and it may be long, or nobody's business.
fn told(fault: &ValidationError<'_>) -> String {
    // The library would show the schema, with our keyword in it.
    if let ValidationErrorKind::Not { .. } = fault.kind() {
        return "fits a schema that `not` rules out".to_owned();
    }
    fault.masked().to_string().chars().take(DETAIL_CHARS_MAX).collect()
}

/// Counts rules before the library sees them.
struct Weighing<'a> {
    root: &'a Value,
    /// What is known of places that were referred to.
    known: BTreeMap<String, Weight>,
    /// References that are being followed. One that leads back into itself ends there: the library does the same.
    open: Vec<String>,
}

#[derive(Clone, Copy, Default)]
struct Weight {
    rules: usize,
    /// How deep they lie.
    height: usize,
}

impl Weight {
    fn add(&mut self, inside: Self) {
        self.rules = self.rules.saturating_add(inside.rules);
        self.height = self.height.max(inside.height + 1);
    }
}

impl Weighing<'_> {
    fn weigh(&mut self, part: &Value, depth: usize) -> Result<Weight, Misfit> {
        let mut weight = Weight { rules: 1, height: 0 };
        match part {
            Value::Object(members) => {
                for (key, member) in members {
                    let inside = match (key.as_str(), member) {
                        ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => self.referred(to, depth + 1),
                        // It would change what references mean.
                        ("$id", Value::String(_)) if depth > 0 => {
                            Err(Misfit::new("", "only the whole schema may have an `$id`, none of its parts"))
                        }
                        _ => self.weigh(member, depth + 1),
                    };
                    weight.add(inside.map_err(|fault| within(key, fault))?);
                }
            }
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    let inside = self.weigh(item, depth + 1);
                    weight.add(inside.map_err(|fault| within(&at.to_string(), fault))?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if depth + weight.height > DEPTH_MAX {
            let detail = format!("rules lie within each other, or refer to each other, over {DEPTH_MAX} deep");
            return Err(Misfit::new("", detail));
        }
        Ok(weight)
    }

    fn referred(&mut self, to: &str, depth: usize) -> Result<Weight, Misfit> {
        if let Some(known) = self.known.get(to) {
            return Ok(*known);
        }
        if self.open.iter().any(|open| open == to) {
            return Ok(Weight::default());
        }
        if self.place(to).is_some_and(|place| is_in_values(self.root, &place)) {
            let detail = format!("`{to}` leads into the values of `enum` or `const`, where no schema is");
            return Err(Misfit::new("", detail));
        }
        let Some(target) = self.target(to).cloned() else {
            let detail = format!("`{to}` is not found: refer to places within the schema, like `#/$defs/name`");
            return Err(Misfit::new("", detail));
        };
        if depth > DEPTH_MAX {
            return Err(Misfit::new("", format!("references lead over {DEPTH_MAX} deep")));
        }
        self.open.push(to.to_owned());
        // The fault lies there, not here; what it says has to do.
        let weight = self.weigh(&target, depth).map_err(|fault| Misfit::new("", fault.detail));
        self.open.pop();
        self.known.insert(to.to_owned(), weight.clone()?);
        weight
    }

    fn target(&self, to: &str) -> Option<&Value> {
        self.root.pointer(&self.place(to)?)
    }

    /// What a reference leads to, as a JSON Pointer.
    fn place(&self, to: &str) -> Option<String> {
        let fragment = percent_decode_str(to.strip_prefix('#')?).decode_utf8().ok()?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return Some(fragment.into_owned());
        }
        anchored(self.root, &fragment)
    }
}

/// Whether a place lies in values that payloads are compared with. What is under keywords that nobody knows is not looked at.
fn is_in_values(root: &Value, place: &str) -> bool {
    let mut steps = place.split('/').skip(1);
    let mut at = Some(root);
    while let Some(key) = steps.next() {
        let member = at.and_then(|part| part.get(key));
        at = match (key, member) {
            ("enum" | "const", _) => return true,
            (key, Some(Value::Object(named))) if WITH_NAMED_SCHEMAS.contains(&key) => {
                steps.next().and_then(|name| named.get(&name.replace("~1", "/").replace("~0", "~")))
            }
            (key, Some(Value::Array(items))) if WITH_SCHEMAS.contains(&key) => {
                steps.next().and_then(|n| items.get(n.parse::<usize>().ok()?))
            }
            (key, member) if WITH_SCHEMAS.contains(&key) => member,
            _ => return false,
        };
    }
    false
}

/// The place of the part that calls itself by this name.
fn anchored(part: &Value, name: &str) -> Option<String> {
    let below = |step: String, member: &Value| anchored(member, name).map(|rest| format!("/{step}{rest}"));
    match part {
        Value::Object(members) => {
            let is = |key: &str| members.get(key).and_then(Value::as_str) == Some(name);
            if is("$anchor") || is("$dynamicAnchor") {
                return Some(String::new());
            }
            members.iter().find_map(|(key, member)| below(pointer_step(key), member))
        }
        Value::Array(items) => items.iter().enumerate().find_map(|(n, item)| below(n.to_string(), item)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn within(key: &str, fault: Misfit) -> Misfit {
    Misfit { pointer: format!("/{}{}", pointer_step(key), fault.pointer), ..fault }
}
