//! `doorstep sign`: the headers that Doorstep would send, to try a receiver with.

use std::collections::BTreeSet;

use doorstep_core::signature::{Header, Message, Secret, Signer};
use doorstep_core::time::Timestamp;
use serde_json::{Map, Value};

use crate::ctl::{given, moment};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::secret_source::SIGNING;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// File that holds the signing secret (whsec_…, or whsk_… for Ed25519), or - for standard input [env: DOORSTEP_SIGNING_SECRET, DOORSTEP_SIGNING_SECRET_FILE]
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// Known only to be refused with a reason
    #[arg(long, hide = true, allow_hyphen_values = true)]
    secret: Option<String>,
    /// The event's ID
    #[arg(long, default_value = "evt_test")]
    id: String,
    /// When it is signed: a time, seconds since 1970, or how long ago; now unless given
    #[arg(long, value_name = "TIME", value_parser = moment::read)]
    timestamp: Option<Timestamp>,
    /// The exact body: text, @FILE, or - for standard input
    #[arg(long, value_name = "BODY", default_value = "{}")]
    body: String,
    /// A curl command that sends it there, instead of the headers
    #[arg(long, value_name = "URL", conflicts_with = "json")]
    curl: Option<String>,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let secret = SIGNING.read(args.secret.as_deref(), args.secret_file.as_deref())?;
    let secret =
        secret.ok_or_else(|| Failure::said(Exit::Usage, format!("no signing secret: {}", SIGNING.advice())))?;
    let secret: Secret = secret.parse().map_err(|fault| Failure::new(Exit::Usage, anyhow::Error::new(fault)))?;
    let body = given::bytes(&args.body)?;
    let message = Message { id: &args.id, at: args.timestamp.unwrap_or_else(moment::now), body: &body };
    let signer = Signer::new(vec![secret], BTreeSet::new()).map_err(|fault| Failure::new(Exit::Usage, fault))?;
    let headers = signer.sign(&message).map_err(|fault| Failure::new(Exit::Usage, fault))?;
    output::print(&match &args.curl {
        Some(url) => curl(url, &headers, &args.body),
        None if args.json => {
            let fields = headers.into_iter().map(|header| (header.name.to_owned(), Value::from(header.value)));
            format!("{}\n", Value::from(fields.collect::<Map<_, _>>()))
        }
        None => headers.iter().map(|header| format!("{}: {}\n", header.name, header.value)).collect(),
    })
}

/// The body goes as it was given: a file stays a file.
fn curl(url: &str, headers: &[Header], body: &str) -> String {
    let flags =
        headers.iter().map(|header| format!("  -H {} \\\n", quoted(&format!("{}: {}", header.name, header.value))));
    let flags: String = flags.collect();
    // curl takes @FILE and @- as we do, and a dash alone as text.
    let body = if body == "-" { "@-" } else { body };
    format!(
        "curl -X POST {} \\\n  -H 'content-type: application/json' \\\n{flags}  --data-binary {}\n",
        quoted(url),
        quoted(body)
    )
}

/// For a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_meant() {
        assert_eq!(quoted("it's"), r"'it'\''s'");
        let header = Header { name: "webhook-id", value: "evt_1".to_owned() };
        let expected = "curl -X POST 'http://x/' \\\n  -H 'content-type: application/json' \\\n  -H 'webhook-id: evt_1' \\\n  --data-binary '{}'\n";
        assert_eq!(curl("http://x/", &[header], "{}"), expected);
    }
}
