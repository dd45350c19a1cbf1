//! What is given on the command line: text, `@FILE`, or `-` for standard input.

use std::fs::{self, File};
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use serde_json::{Map, Value};

use crate::failure::{Exit, Failure};

/// A file with a secret is no longer than this.
const SECRET_BYTES_MAX: u64 = 64 * 1024;

pub(crate) fn bytes(given: &str) -> Result<Vec<u8>, Failure> {
    if given == "-" {
        return standard_input(u64::MAX);
    }
    match given.strip_prefix('@') {
        Some(path) => Ok(fs::read(path).with_context(|| format!("cannot read {path}"))?),
        None => Ok(given.as_bytes().to_vec()),
    }
}

/// Standard input can be read for one thing alone: whoever came second would take it for empty.
fn standard_input(max: u64) -> Result<Vec<u8>, Failure> {
    static IS_READ: AtomicBool = AtomicBool::new(false);
    if IS_READ.swap(true, Ordering::SeqCst) {
        return Err(Failure::said(
            Exit::Usage,
            "only one thing can come from standard input (-): give the other in a file",
        ));
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().take(max).read_to_end(&mut bytes).context("cannot read standard input")?;
    Ok(bytes)
}

/// A secret from a file, or `-` for standard input: on the command line, the list of processes would have it.
pub(crate) fn secret(file: &str) -> Result<String, Failure> {
    if file == "-" { text_of(standard_input(SECRET_BYTES_MAX + 1)?, "standard input") } else { secret_in(file) }
}

/// The same from a file, whatever its name.
pub(crate) fn secret_in(path: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(|| format!("cannot read {path}"))?;
    file.take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {path}"))?;
    text_of(bytes, path)
}

fn text_of(secret: Vec<u8>, from: &str) -> Result<String, Failure> {
    if secret.len() as u64 > SECRET_BYTES_MAX {
        return Err(Failure::said(
            Exit::Usage,
            format!("{from} holds more than {SECRET_BYTES_MAX} bytes, which is no secret"),
        ));
    }
    // The error would repeat what was read.
    let text =
        String::from_utf8(secret).map_err(|_| Failure::said(Exit::Usage, format!("{from} is not UTF-8 text")))?;
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
