//! A policy as it is given on the command line.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use doorstep_core::retry::{BUILT_IN, PolicySpec, Presets, RetryPolicy};

use crate::config;
use crate::failure::{Exit, Failure};

/// A policy, and where the operator's own ones are configured.
#[derive(Debug, clap::Args)]
pub(super) struct Given {
    /// A preset (standard, patient, brief, or one of the configuration), a JSON object as in the API, or @FILE with either
    #[arg(value_name = "NAME|JSON|@FILE", default_value = "standard")]
    policy: String,
    /// Configuration file with the policies of your own [env: DOORSTEP_CONFIG] [default: doorstep.toml here or in /etc/doorstep]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Given {
    /// The configuration is read only where a name is not one that comes with Doorstep, or a file is given.
    pub(super) fn read(&self) -> Result<RetryPolicy, Failure> {
        if self.config.is_none() && BUILT_IN.contains(&self.policy.as_str()) {
            return read(&self.policy, &Presets::default());
        }
        let is_name = !self.policy.starts_with(['@', '{', '"']);
        if self.config.is_none() && !is_name {
            return read(&self.policy, &Presets::default());
        }
        let args = config::Args::of_file(self.config.clone());
        read(&self.policy, &config::load_here(&args)?.config.policies)
    }
}

/// Reads a preset's name, a JSON object, or either from a file: `@policy.json`.
pub(super) fn read(given: &str, presets: &Presets) -> Result<RetryPolicy, Failure> {
    match given.strip_prefix('@') {
        None => parse(given, presets),
        Some(path) => {
            parse(&fs::read_to_string(path).with_context(|| format!("cannot read the policy in {path}"))?, presets)
        }
    }
}

fn parse(text: &str, presets: &Presets) -> Result<RetryPolicy, Failure> {
    let text = text.trim();
    let spec = if text.starts_with(['{', '"']) {
        serde_json::from_str(text).map_err(|fault| Failure::said(Exit::Usage, format!("not a policy: {fault}")))?
    } else {
        PolicySpec::Preset(text.to_owned())
    };
    presets.read(spec).map_err(|fault| Failure::new(Exit::Usage, fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_a_name_an_object_or_a_file_with_either() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "\n{\"strategy\": \"fixed\", \"base_ms\": 5000}\n").unwrap();
        let at = format!("@{}", file.path().display());
        for (given, max_attempts) in
            [("standard", 200), ("\"patient\"", 200), (r#"{"strategy":"fixed","max_attempts":3}"#, 3), (&at, 200)]
        {
            assert_eq!(read(given, &Presets::default()).unwrap().max_attempts(), max_attempts, "{given}");
        }
    }

    #[test]
    fn the_operators_own_policies_are_known_by_name() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[policies.weekend]\nstrategy = 'fixed'\nbase_ms = 60_000\nmax_attempts = 7\n").unwrap();
        let given = |policy: &str| Given { policy: policy.to_owned(), config: Some(file.path().to_owned()) };
        assert_eq!(given("weekend").read().unwrap().max_attempts(), 7);
        assert_eq!(given("standard").read().unwrap().max_attempts(), 200);
        let unknown = given("weekday").read().unwrap_err().to_string();
        assert!(unknown.contains("there is no preset \"weekday\"") && unknown.contains("\"weekend\""), "{unknown}");
    }

    #[test]
    fn what_is_no_policy_is_a_usage_mistake_with_the_reason() {
        for (given, told) in [
            ("standart", "there is no preset \"standart\""),
            ("{", "not a policy: "),
            (r#"{"strategy":"fixed","delay":1}"#, "unknown field `delay`"),
            (r#"{"strategy":"fixed","base_ms":1}"#, "base_ms must be between 10 and"),
        ] {
            let failure = read(given, &Presets::default()).unwrap_err();
            assert!(failure.to_string().contains(told), "{failure}");
            assert_eq!(failure.exit(), Exit::Usage);
        }
        assert_eq!(read("@/nowhere/policy.json", &Presets::default()).unwrap_err().exit(), Exit::Failed);
    }
}
