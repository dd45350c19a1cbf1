//! Policies by name: those that come with Doorstep, and the operator's own.

use std::collections::BTreeMap;
use std::str::FromStr;

use thiserror::Error;

use super::{CustomPolicy, PolicyFault, PolicySpec, RetryPolicy};

/// The operator's presets; those that come with Doorstep are always there beside them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Presets(BTreeMap<String, (CustomPolicy, RetryPolicy)>);

/// The names that come with Doorstep. They mean the same everywhere, so nobody redefines them.
pub const BUILT_IN: [&str; 3] = ["standard", "patient", "brief"];

/// An operator has at most this many presets.
pub const PRESETS_MAX: usize = 100;
/// A preset's name has at most this many characters.
pub const PRESET_NAME_MAX: usize = 64;

/// What is wrong with the operator's presets, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PresetsFault {
    #[error("not an object that names policies, such as {{\"weekend\": {{\"strategy\": \"fixed\"}}}}: {0}")]
    NotAnObject(String),
    #[error("{0} policies are too many: at most {PRESETS_MAX}")]
    TooMany(usize),
    #[error("\"{0}\" is not a policy's name: use 1 to {PRESET_NAME_MAX} lower-case letters, digits, _ and -")]
    BadName(String),
    #[error("\"{0}\" comes with Doorstep: choose another name, and make that one the default with default_policy")]
    BuiltIn(String),
    #[error("policy \"{name}\": {fault}")]
    BadPolicy { name: String, fault: String },
}

impl Presets {
    pub fn get(&self, name: &str) -> Option<RetryPolicy> {
        RetryPolicy::built_in(name).or_else(|| self.0.get(name).map(|(_, policy)| policy.clone()))
    }

    /// Every name, those that come with Doorstep first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        BUILT_IN.into_iter().chain(self.0.keys().map(String::as_str))
    }

    /// What a policy means here.
    pub fn read(&self, spec: PolicySpec) -> Result<RetryPolicy, PolicyFault> {
        match spec {
            PolicySpec::Preset(name) => self.get(&name).ok_or_else(|| PolicyFault::unknown(name, self.names())),
            PolicySpec::Custom(custom) => custom.build(),
        }
    }
}

/// Reads a JSON object of policies by name.
impl FromStr for Presets {
    type Err = PresetsFault;

    fn from_str(text: &str) -> Result<Self, PresetsFault> {
        let given: BTreeMap<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|fault| PresetsFault::NotAnObject(fault.to_string()))?;
        if given.len() > PRESETS_MAX {
            return Err(PresetsFault::TooMany(given.len()));
        }
        let mut presets = BTreeMap::new();
        for (name, value) in given {
            let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
            if name.is_empty() || name.len() > PRESET_NAME_MAX || !name.bytes().all(plain) {
                return Err(PresetsFault::BadName(name));
            }
            if BUILT_IN.contains(&name.as_str()) {
                return Err(PresetsFault::BuiltIn(name));
            }
            let custom = CustomPolicy::deserialize_value(value);
            let read =
                custom.and_then(|custom| Ok((custom.clone(), custom.build().map_err(|fault| fault.to_string())?)));
            match read {
                Ok(read) => drop(presets.insert(name, read)),
                Err(fault) => return Err(PresetsFault::BadPolicy { name, fault }),
            }
        }
        Ok(Self(presets))
    }
}

impl CustomPolicy {
    fn deserialize_value(value: serde_json::Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|fault| fault.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Millis;

    #[test]
    fn an_operators_presets_stand_beside_those_that_come_with_doorstep() {
        let presets: Presets = r#"{"weekend": {"strategy": "fixed", "base_ms": 60000}}"#.parse().unwrap();
        assert_eq!(presets.names().collect::<Vec<_>>(), ["standard", "patient", "brief", "weekend"]);
        assert_eq!(presets.get("brief").unwrap().window(), Millis::from_mins(1));
        assert_eq!(presets.get("weekend").unwrap().window(), Millis::from_hours(72));
        let unknown = presets.read(PolicySpec::Preset("weekday".to_owned())).unwrap_err().to_string();
        assert!(unknown.contains("\"weekday\"") && unknown.contains("\"brief\", \"weekend\""), "{unknown}");
    }

    #[test]
    fn a_preset_that_cannot_be_is_refused_by_name() {
        for (text, told) in [
            ("[]", "not an object that names policies"),
            (r#"{"Weekend": {"strategy": "fixed"}}"#, "\"Weekend\" is not a policy's name"),
            (r#"{"": {"strategy": "fixed"}}"#, "\"\" is not a policy's name"),
            (r#"{"standard": {"strategy": "fixed"}}"#, "\"standard\" comes with Doorstep"),
            (r#"{"a": {"strategy": "fixed", "base_ms": 1}}"#, "policy \"a\": base_ms must be between 10 and"),
            (r#"{"a": {"strategy": "fixed", "delay": 1}}"#, "policy \"a\": unknown field `delay`"),
            (r#"{"a": "brief"}"#, "policy \"a\": invalid type"),
        ] {
            let fault = text.parse::<Presets>().unwrap_err().to_string();
            assert!(fault.contains(told), "{fault}");
        }
        let many: serde_json::Map<_, _> =
            (0..=PRESETS_MAX).map(|n| (format!("p{n}"), serde_json::json!({"strategy": "fixed"}))).collect();
        let many = serde_json::Value::Object(many).to_string();
        assert_eq!(many.parse::<Presets>(), Err(PresetsFault::TooMany(101)));
    }
}
