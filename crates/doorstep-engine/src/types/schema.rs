//! One JSON Schema: read with bounds, and a payload compared with it.

use std::collections::BTreeMap;

use doorstep_core::event_type::{Misfit, pointer_step};
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

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

#[derive(Debug)]
pub(super) struct Schema(Validator);

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
        let built = jsonschema::options().with_pattern_options(patterns).build(schema);
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

    /// Where a payload does not fit.
    pub(super) fn misfits(&self, payload: &[u8]) -> Vec<Misfit> {
        let value: Value = match serde_json::from_slice(payload) {
            Ok(value) => value,
            Err(fault) => {
                return vec![Misfit::new("/payload", format!("its type has a schema, but it cannot be read: {fault}"))];
            }
        };
        if self.0.is_valid(&value) {
            return Vec::new();
        }
        let misfit =
            |fault: ValidationError<'_>| Misfit::new(format!("/payload{}", fault.instance_path()), told(&fault));
        self.0.iter_errors(&value).take(MISFITS_MAX).map(misfit).collect()
    }
}

/// Without the value: whoever sent it has it, and it may be long, or nobody's business.
fn told(fault: &ValidationError<'_>) -> String {
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
        let fragment = to.strip_prefix('#').filter(|fragment| !fragment.contains('%'))?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.root.pointer(fragment);
        }
        anchored(self.root, fragment)
    }
}

/// The part that calls itself by this name.
fn anchored<'a>(part: &'a Value, name: &str) -> Option<&'a Value> {
    match part {
        Value::Object(members) => {
            let is = |key: &str| members.get(key).and_then(Value::as_str) == Some(name);
            if is("$anchor") || is("$dynamicAnchor") {
                return Some(part);
            }
            members.values().find_map(|member| anchored(member, name))
        }
        Value::Array(items) => items.iter().find_map(|item| anchored(item, name)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn within(key: &str, fault: Misfit) -> Misfit {
    Misfit { pointer: format!("/{}{}", pointer_step(key), fault.pointer), ..fault }
}
