//! `doorstep verify`: whether a request was signed with this secret, and if not, why.

mod guess;
mod layout;

use doorstep_core::signature::{Secret, TOLERANCE_DEFAULT, VerifyError, VerifyingKey, verify};
use doorstep_core::time::{Millis, Timestamp};
use serde_json::json;

use crate::ctl::{given, moment};
use crate::failure::{Exit, Failure};
use crate::secret_source::SIGNING;
use crate::{output, span};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// File that holds what the receiver verifies with (whsec_…, or whpk_… for Ed25519), or - for standard input [env: DOORSTEP_SIGNING_SECRET, DOORSTEP_SIGNING_SECRET_FILE]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// Known only to be refused with a reason
    #[arg(long, hide = true, allow_hyphen_values = true)]
    secret: Option<String>,
    /// The request's headers, one `name: value` per line or a JSON object: text, @FILE, or - for standard input
    #[arg(long, value_name = "HEADERS")]
    headers: String,
    /// The request's exact body: text, @FILE, or - for standard input
    #[arg(long, value_name = "BODY")]
    body: String,
    /// How far the receiver's clock may be off
    #[arg(long, value_name = "SPAN", value_parser = span::read, default_value_t = TOLERANCE_DEFAULT)]
    tolerance: Millis,
    /// The receiver's time: a time, seconds since 1970, or how long ago
    #[arg(long, value_name = "TIME", value_parser = moment::read)]
    now: Option<Timestamp>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// A request as its receiver saw it.
struct Request {
    /// Names in lower case.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn verify(&self, body: &[u8], key: &VerifyingKey, now: Timestamp, tolerance: Millis) -> Result<(), VerifyError> {
        let header = |name: &'static str| {
            self.headers.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_bytes())
        };
        verify(header, body, std::slice::from_ref(key), now, tolerance)
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let secret = SIGNING.read(args.secret.as_deref(), args.secret_file.as_deref())?;
    let secret =
        secret.ok_or_else(|| Failure::said(Exit::Usage, format!("no signing secret: {}", SIGNING.advice())))?;
    let headers = headers(&String::from_utf8_lossy(&given::bytes(&args.headers)?));
    let request = Request { headers, body: given::bytes(&args.body)? };
    let refused = judge(&request, &secret, args.now.unwrap_or_else(moment::now), args.tolerance).err();
    if args.json {
        output::print(&format!("{}\n", json!({"ok": refused.is_none(), "reason": refused})))?;
    } else if refused.is_none() {
        output::print("ok: the signature fits\n")?;
    }
    refused.map_or(Ok(()), |why| Err(Failure::said(Exit::Failed, why)))
}

/// Why it fails, and what would make it fit.
fn judge(request: &Request, secret: &str, now: Timestamp, tolerance: Millis) -> Result<(), String> {
    let key = match key(secret) {
        Ok(key) => key,
        Err(fault) => {
            return Err(guess::secret(request, secret).map_or(fault.clone(), |hint| format!("{fault}\n{hint}")));
        }
    };
    let Err(fault) = request.verify(&request.body, &key, now, tolerance) else { return Ok(()) };
    let hint = match &fault {
        VerifyError::TooOld { .. } | VerifyError::TooNew { .. } => {
            Some(match guess::timeless(request, &request.body, &key) {
                true => "the signature itself fits: only the time is wrong".to_owned(),
                false => guess::body(request, &key).unwrap_or_else(|| "the signature does not fit either".to_owned()),
            })
        }
        VerifyError::NoMatch { .. } => guess::body(request, &key).or_else(|| guess::secret(request, secret)),
        VerifyError::Missing { .. }
        | VerifyError::NotText { .. }
        | VerifyError::Malformed { .. }
        | VerifyError::Id(_)
        | VerifyError::TimestampNotWhole { .. }
        | VerifyError::TooManyTokens
        | VerifyError::MalformedToken { .. }
        | VerifyError::NoKnownVersion
        | VerifyError::NoKeyFor { .. } => None,
    };
    Err(hint.map_or_else(|| fault.to_string(), |hint| format!("{fault}\n{hint}")))
}

/// The sender's half is as good as the receiver's.
fn key(secret: &str) -> Result<VerifyingKey, String> {
    if let Ok(secret) = secret.parse::<Secret>() {
        return Ok(secret.verifying_key());
    }
    secret.parse().map_err(|fault: doorstep_core::signature::SecretError| fault.to_string())
}

/// Reads what people have at hand: a JSON object, lines of a request, or what `curl -v` showed of it.
fn headers(text: &str) -> Vec<(String, String)> {
    if let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(text) {
        let value = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(values) => {
                values.first().and_then(|first| first.as_str()).unwrap_or("").to_owned()
            }
            other => other.to_string(),
        };
        return fields.iter().map(|(name, given)| (name.to_ascii_lowercase(), value(given))).collect();
    }
    let lines = text.lines().filter_map(|line| line.trim_start_matches(['>', '<', ' ']).split_once(':'));
    lines.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned())).collect()
}

#[cfg(test)]
mod tests;
