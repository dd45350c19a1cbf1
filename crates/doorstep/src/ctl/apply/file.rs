//! The file that says what there should be.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure};

/// No file of this kind is longer.
const BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Wanted {
    pub(super) tenants: Vec<Thing>,
    pub(super) event_types: Vec<Thing>,
    pub(super) destinations: Vec<Thing>,
}

/// Something with a name, and with fields as the API has them, the name among them.
#[derive(Debug)]
pub(super) struct Thing {
    pub(super) name: String,
    /// The name of a destination's tenant.
    pub(super) tenant: Option<String>,
    pub(super) fields: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    tenants: Vec<Map<String, Value>>,
    #[serde(default)]
    event_types: Vec<Map<String, Value>>,
    #[serde(default)]
    destinations: Vec<Map<String, Value>>,
}

pub(super) fn read(path: &Path) -> Result<Wanted, Failure> {
    let shown = path.display();
    let size = fs::metadata(path).with_context(|| format!("cannot read {shown}"))?.len();
    if size > BYTES_MAX {
        return Err(Failure::said(Exit::ConfigInvalid, format!("{shown} is longer than {BYTES_MAX} bytes")));
    }
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {shown}"))?;
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    parse(ending, &text).map_err(|why| Failure::said(Exit::ConfigInvalid, format!("{shown}: {why}")))
}

fn parse(ending: &str, text: &str) -> Result<Wanted, String> {
    let written: Written = match ending {
        "json" => serde_json::from_str(text).map_err(|fault| fault.to_string()),
        "toml" => toml::from_str(text).map_err(|fault| fault.to_string()),
        _ => serde_saphyr::from_str(text).map_err(|fault| fault.to_string()),
    }?;
    let things =
        |list: Vec<Map<String, Value>>, kind| list.into_iter().map(move |fields| thing(kind, fields)).collect();
    let tenants: Result<Vec<_>, String> = things(written.tenants, "tenant");
    let event_types: Result<Vec<_>, String> = things(written.event_types, "event type");
    let destinations: Result<Vec<_>, String> = things(written.destinations, "destination");
    let wanted = Wanted { tenants: tenants?, event_types: event_types?, destinations: destinations? };
    once("tenant", &wanted.tenants)?;
    once("event type", &wanted.event_types)?;
    once("destination", &wanted.destinations)?;
    Ok(wanted)
}

fn thing(kind: &str, mut fields: Map<String, Value>) -> Result<Thing, String> {
    let Some(name) = fields.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err(format!("a {kind} has no name, which is what it is known by here"));
    };
    let tenant = match (kind, fields.remove("tenant")) {
        ("destination", Some(Value::String(tenant))) => Some(tenant),
        ("destination", _) => return Err(format!("destination {name} needs the name of its tenant: `tenant: Acme`")),
        (_, Some(_)) => return Err(format!("{kind} {name} has no tenant")),
        (_, None) => None,
    };
    Ok(Thing { name, tenant, fields })
}

fn once(kind: &str, things: &[Thing]) -> Result<(), String> {
    let mut seen = std::collections::BTreeSet::new();
    match things.iter().find(|thing| !seen.insert((&thing.tenant, &thing.name))) {
        Some(twice) => Err(format!("{kind} {} is there twice", twice.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn yaml_json_and_toml_say_the_same() {
        let yaml = "destinations:\n  - tenant: Acme\n    name: billing\n    concurrency: 2\n    status_overrides: {404: transient}\n";
        let json = r#"{"destinations":[{"tenant":"Acme","name":"billing","concurrency":2,"status_overrides":{"404":"transient"}}]}"#;
        let toml = "[[destinations]]\ntenant = 'Acme'\nname = 'billing'\nconcurrency = 2\nstatus_overrides = {404 = 'transient'}\n";
        let expected = json!({"name": "billing", "concurrency": 2, "status_overrides": {"404": "transient"}});
        for (ending, text) in [("yaml", yaml), ("json", json), ("toml", toml)] {
            let wanted = parse(ending, text).unwrap();
            assert_eq!(Value::from(wanted.destinations[0].fields.clone()), expected, "{ending}");
            assert_eq!(wanted.destinations[0].tenant.as_deref(), Some("Acme"));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (yaml, told) in [
            ("tenant: []", "unknown field `tenant`"),
            ("tenants: [{weight: 1}]", "has no name"),
            ("tenants: [{name: A}, {name: A}]", "tenant A is there twice"),
            ("destinations: [{name: A}]", "needs the name of its tenant"),
            ("tenants: [", ""),
        ] {
            let why = parse("yaml", yaml).unwrap_err();
            assert!(why.contains(told), "{yaml}: {why}");
        }
    }
}
