//! A policy as it is given on the command line.

use std::fs;

use anyhow::Context;
use doorstep_core::retry::{PolicySpec, RetryPolicy};

use crate::failure::{Exit, Failure};

/// Reads a preset's name, a JSON object, or either from a file: `@policy.json`.
pub(super) fn read(given: &str) -> Result<RetryPolicy, Failure> {
    match given.strip_prefix('@') {
        None => parse(given),
        Some(path) => parse(&fs::read_to_string(path).with_context(|| format!("cannot read the policy in {path}"))?),
    }
}

fn parse(text: &str) -> Result<RetryPolicy, Failure> {
    let text = text.trim();
    let spec = if text.starts_with(['{', '"']) {
        serde_json::from_str(text).map_err(|fault| Failure::said(Exit::Usage, format!("not a policy: {fault}")))?
    } else {
        PolicySpec::Preset(text.to_owned())
    };
    RetryPolicy::try_from(spec).map_err(|fault| Failure::new(Exit::Usage, fault))
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
            assert_eq!(read(given).unwrap().max_attempts(), max_attempts, "{given}");
        }
    }

    #[test]
    fn what_is_no_policy_is_a_usage_mistake_with_the_reason() {
        for (given, told) in [
            ("standart", "there is no preset \"standart\""),
            ("{", "not a policy: "),
            (r#"{"strategy":"fixed","delay":1}"#, "unknown field `delay`"),
            (r#"{"strategy":"fixed","base_ms":1}"#, "base_ms must be between 10 and"),
        ] {
            let failure = read(given).unwrap_err();
            assert!(failure.to_string().contains(told), "{failure}");
            assert_eq!(failure.exit(), Exit::Usage);
        }
        assert_eq!(read("@/nowhere/policy.json").unwrap_err().exit(), Exit::Failed);
    }
}
