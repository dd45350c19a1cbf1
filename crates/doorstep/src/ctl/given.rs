//! What is given on the command line: text, `@FILE`, or `-` for standard input.

use std::fs;
use std::io::Read;

use anyhow::Context;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure};

pub(crate) fn bytes(given: &str) -> Result<Vec<u8>, Failure> {
    if given == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("cannot read standard input")?;
        return Ok(bytes);
    }
    match given.strip_prefix('@') {
        Some(path) => Ok(fs::read(path).with_context(|| format!("cannot read {path}"))?),
        None => Ok(given.as_bytes().to_vec()),
    }
}

/// A secret from a file, or `-` for standard input: on the command line, the list of processes would have it.
pub(super) fn secret(file: &str) -> Result<String, Failure> {
    let given = if file == "-" { file.to_owned() } else { format!("@{file}") };
    let text = String::from_utf8(bytes(&given)?).with_context(|| format!("{file} is not UTF-8"))?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}

pub(super) fn json(flag: &str, given: &str) -> Result<Value, Failure> {
    serde_json::from_slice(&bytes(given)?).map_err(|fault| {
        let reason = anyhow::Error::new(fault).context(format!("what {flag} gives is not JSON"));
        Failure::new(Exit::Usage, reason)
    })
}

/// The fields that `--data` gives, if any, to which flags add theirs.
pub(super) fn fields(data: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let Some(given) = data else { return Ok(Map::new()) };
    match json("--data", given)? {
        Value::Object(fields) => Ok(fields),
        other => Err(Failure::said(Exit::Usage, format!("--data needs a JSON object, but got {other}"))),
    }
}

/// A word is a name, and anything that looks like JSON is JSON.
pub(super) fn name_or_json(flag: &str, given: &str) -> Result<Value, Failure> {
    let text = String::from_utf8(bytes(given)?).context("not UTF-8")?;
    let text = text.trim();
    if text.starts_with(['{', '[', '"']) { json(flag, text) } else { Ok(text.into()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_objects_and_files_are_told_apart() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "{\"strategy\": \"fixed\"}\n").unwrap();
        let at = format!("@{}", file.path().display());
        for (given, value) in
            [("patient", json!("patient")), ("{\"a\":1}", json!({"a": 1})), (&at, json!({"strategy": "fixed"}))]
        {
            assert_eq!(name_or_json("--policy", given).unwrap(), value);
        }
        assert_eq!(fields(Some("[1]")).unwrap_err().exit(), Exit::Usage);
        assert!(json("--filter", "{").unwrap_err().to_string().contains("--filter"));
    }
}
