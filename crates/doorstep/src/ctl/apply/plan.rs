//! What is done to each thing, in words.

use std::fmt;

use serde_json::{Map, Value, json};

use super::compare::{Change, is_secret};
use crate::ctl::table::tame;

pub(super) enum Deed {
    Create(Map<String, Value>),
    Change(Vec<Change>),
    Keep,
}

pub(super) struct Step<'a> {
    pub(super) kind: &'static str,
    pub(super) called: &'a str,
    pub(super) deed: &'a Deed,
    /// A new destination's signing secret, which is there this once.
    pub(super) secret: Option<&'a str>,
}

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, called) = (self.kind, tame(self.called));
        match self.deed {
            Deed::Keep => writeln!(f, "= {kind} {called}")?,
            Deed::Create(fields) => {
                writeln!(f, "+ {kind} {called}")?;
                for (field, value) in fields.iter().filter(|(field, _)| !matches!(field.as_str(), "name" | "tenant_id"))
                {
                    writeln!(f, "    {field}: {}", shown(field, value))?;
                }
            }
            Deed::Change(changes) => {
                writeln!(f, "~ {kind} {called}")?;
                for Change { field, before, after, .. } in changes {
                    writeln!(f, "    {field}: {} → {}", shown(field, before), shown(field, after))?;
                }
            }
        }
        match self.secret {
            Some(secret) => writeln!(f, "    signing secret, shown this once: {secret}"),
            None => Ok(()),
        }
    }
}

impl Step<'_> {
    pub(super) fn json(&self) -> Value {
        let (action, changes) = match self.deed {
            Deed::Keep => ("keep", Value::Null),
            Deed::Create(_) => ("create", Value::Null),
            Deed::Change(changes) => {
                let change = |change: &Change| {
                    let hide = |value: &Value| if is_secret(&change.field) { "***".into() } else { value.clone() };
                    (change.field.clone(), json!({"before": hide(&change.before), "after": hide(&change.after)}))
                };
                ("change", changes.iter().map(change).collect::<Map<_, _>>().into())
            }
        };
        json!({"action": action, "kind": self.kind, "name": self.called, "changes": changes, "secret": self.secret})
    }
}

fn shown(field: &str, value: &Value) -> String {
    match value {
        _ if is_secret(field) => "***".to_owned(),
        Value::String(text) => tame(text),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_never_shows_secrets() {
        let fields =
            json!({"name": "b", "url": "https://x", "headers": {"a": "hush"}, "secret": "hush", "tls": {"k": "hush"}});
        let create = Deed::Create(fields.as_object().unwrap().clone());
        let (before, after) = (json!({"a": "***"}), json!({"a": "hush"}));
        let change = Deed::Change(vec![Change { field: "headers".to_owned(), before, sent: after.clone(), after }]);
        for deed in [create, change] {
            let step = Step { kind: "destination", called: "Acme/b", deed: &deed, secret: None };
            assert!(!step.to_string().contains("hush") && !step.json().to_string().contains("hush"));
        }
    }

    #[test]
    fn a_change_says_from_what_to_what() {
        let change = Change { field: "concurrency".to_owned(), before: 10.into(), after: 20.into(), sent: 20.into() };
        let deed = Deed::Change(vec![change]);
        let step = Step { kind: "destination", called: "Acme/b", deed: &deed, secret: None };
        assert_eq!(step.to_string(), "~ destination Acme/b\n    concurrency: 10 → 20\n");
        let kept = Step { kind: "tenant", called: "Acme", deed: &Deed::Keep, secret: None };
        assert_eq!(kept.to_string(), "= tenant Acme\n");
    }
}
