//! `doorstep send`: one event to a running server.

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::client::{self, Client};
use crate::ctl::given;
use crate::failure::{Exit, Failure};
use crate::{output, runtime};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What happened, such as invoice.paid
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// Whose event it is; may be left out if there is only one tenant
    #[arg(long, value_name = "ID")]
    tenant: Option<String>,
    /// The payload: JSON, @FILE, or - for standard input. It is sent byte for byte
    #[arg(long, short, value_name = "DATA", default_value = "{}")]
    data: String,
    /// What the payload is, if not JSON
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Your own ID of the event: the same again makes no second delivery
    #[arg(long)]
    id: Option<String>,
    /// Events with the same key are delivered in order, to destinations that ask for it
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// The answer as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: client::Args,
}

#[derive(Serialize)]
struct Event<'a> {
    tenant_id: &'a str,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ordering_key: Option<&'a str>,
}

#[derive(Deserialize, Serialize)]
struct Accepted {
    id: String,
    deliveries: usize,
    duplicate: bool,
}

#[derive(Deserialize)]
struct Tenants {
    data: Vec<Tenant>,
}

#[derive(Deserialize)]
struct Tenant {
    id: String,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let client = Client::of(&args.server)?;
    let data = given::bytes(&args.data)?;
    runtime::run(1, async move {
        let tenant = match &args.tenant {
            Some(tenant) => tenant.clone(),
            None => only_tenant(&client).await?,
        };
        let body = body(&args, &tenant, &data)?;
        let accepted: Accepted = client.post_text("/v1/events", body).await?;
        output::print(&told(&accepted, args.json))
    })
}

pub(crate) async fn only_tenant(client: &Client) -> Result<String, Failure> {
    let mut tenants: Tenants = client.get("/v1/tenants?limit=2").await?;
    match (tenants.data.pop(), tenants.data.pop()) {
        (Some(only), None) => Ok(only.id),
        (None, _) => {
            Err(Failure::said(Exit::NotFound, "there is no tenant yet: make one with doorstep tenants create NAME"))
        }
        (Some(_), Some(_)) => {
            Err(Failure::said(Exit::Usage, "there are several tenants: say whose it is with --tenant"))
        }
    }
}

fn body(args: &Args, tenant: &str, data: &[u8]) -> Result<String, Failure> {
    let mut event = Event {
        tenant_id: tenant,
        r#type: &args.event_type,
        payload: None,
        payload_base64: None,
        content_type: args.content_type.as_deref(),
        id: args.id.as_deref(),
        ordering_key: args.ordering_key.as_deref(),
    };
    if args.content_type.is_some() {
        event.payload_base64 = Some(STANDARD.encode(data));
    } else {
        event.payload = Some(serde_json::from_slice(data).map_err(|fault| {
            let advice = "the payload is not JSON; if it is not meant to be, say what it is with --content-type";
            Failure::new(Exit::Usage, anyhow::Error::new(fault).context(advice))
        })?);
    }
    Ok(serde_json::to_string(&event).context("cannot write the event")?)
}

fn told(accepted: &Accepted, json: bool) -> String {
    if json {
        return format!("{}\n", serde_json::to_string(accepted).unwrap_or_default());
    }
    let Accepted { id, deliveries, duplicate } = accepted;
    match (duplicate, deliveries) {
        (true, _) => format!("{id}: accepted before; no second delivery is made\n"),
        (false, 0) => format!("{id}: accepted; no destination asks for this type\n"),
        (false, 1) => format!("{id}: accepted, 1 delivery\n"),
        (false, n) => format!("{id}: accepted, {n} deliveries\n"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(line: &[&str]) -> Args {
        Cli::parse_from([&["send"], line].concat()).args
    }

    #[test]
    fn json_goes_as_it_is_written() {
        let body = body(&args(&["a.b", "--id", "x1"]), "ten_1", br#"{ "n": 1.0 , "m":1e3}"#).unwrap();
        assert_eq!(body, r#"{"tenant_id":"ten_1","type":"a.b","payload":{ "n": 1.0 , "m":1e3},"id":"x1"}"#);
    }

    #[test]
    fn anything_else_goes_in_base64_with_its_type() {
        let body = body(&args(&["a.b", "--content-type", "text/plain"]), "ten_1", b"hello").unwrap();
        assert!(body.contains(r#""payload_base64":"aGVsbG8=","content_type":"text/plain""#), "{body}");
        let fault = super::body(&args(&["a.b"]), "ten_1", b"hello").unwrap_err();
        assert!(fault.to_string().contains("--content-type") && fault.exit() == Exit::Usage, "{fault}");
    }
}
