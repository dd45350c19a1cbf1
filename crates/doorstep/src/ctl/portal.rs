//! `doorstep portal`: a link that lets a tenant's people see and mend their own destinations.

use doorstep_core::time::Millis;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Common, Form, with};
use crate::failure::Failure;
use crate::{output, span};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose portal
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// How long the session lasts, an hour at most
    #[arg(long, value_name = "SPAN", value_parser = span::read)]
    expires_in: Option<Millis>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let body = json!({"tenant_id": args.tenant, "expires_in_ms": args.expires_in.map(|span| span.0)});
    with(&args.common, async |server| {
        let text = server.client.ask(Method::POST, &["portal-sessions"], &[], Some(&body)).await?;
        let session: Value = serde_json::from_str(&text).unwrap_or_default();
        output::print(&match server.form {
            Form::Json => format!("{}\n", text.trim_end()),
            Form::Quiet => format!("{}\n", session["id"].as_str().unwrap_or("-")),
            Form::People => format!("{}\n", server.client.link(session["url"].as_str().unwrap_or("/portal/"))?),
        })?;
        if server.form == Form::People {
            output::note("-- the link is good once, within five minutes\n");
        }
        Ok(())
    })
}
