//! `doorstep portal`: a link that lets a tenant's people see and mend their own destinations, and the end of all that were
//! followed.

use doorstep_core::time::Millis;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Common, Form, with};
use crate::failure::Failure;
use crate::{output, span};

const PATH: &str = "portal-sessions";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Whose portal
    #[arg(value_name = "TENANT")]
    tenant: String,
    /// How long the session lasts, an hour at most
    #[arg(long, value_name = "SPAN", value_parser = span::read)]
    expires_in: Option<Millis>,
    /// Instead: end all of this tenant's sessions, at once
    #[arg(long, conflicts_with = "expires_in")]
    end_all: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    if args.end_all {
        let query = [("tenant_id", args.tenant.clone())];
        return with(&args.common, async |server| {
            server.client.ask(Method::DELETE, &[PATH], &query, None).await?;
            server.tell_done(&args.tenant, "ended")
        });
    }
    let body = json!({"tenant_id": args.tenant, "expires_in_ms": args.expires_in.map(|span| span.0)});
    with(&args.common, async |server| {
        let text = server.client.ask(Method::POST, &[PATH], &[], Some(&body)).await?;
        let session: Value = serde_json::from_str(&text).unwrap_or_default();
        output::print(&match server.form {
            Form::Json => format!("{}\n", text.trim_end()),
            // It is there this once, so that is what `--quiet` prints.
            Form::Quiet | Form::People => {
                format!("{}\n", server.client.link(session["url"].as_str().unwrap_or("/portal/"))?)
            }
        })?;
        if server.form == Form::People {
            output::note("-- the link is good once, within five minutes\n");
        }
        Ok(())
    })
}
