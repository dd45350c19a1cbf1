//! `doorstep keys`: what programs are let in with.

use clap::Subcommand;
use doorstep_core::time::Timestamp;
use reqwest::Method;
use serde_json::json;

use super::show::Kind;
use super::sure::sure;
use super::{Common, Form, list, many, moment, with};
use crate::failure::Failure;
use crate::{output, rotate_master, span};

const PATH: &str = "keys";
const KIND: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("NAME", "/name"),
        ("SCOPES", "/scopes"),
        ("TENANT", "/tenant_id"),
        ("USED", "/last_used_at"),
        ("EXPIRES", "/expires_at"),
        ("REVOKED", "/revoked_at"),
    ],
    within: None,
};
/// A new key is there this once, so that is what `--quiet` prints.
const NEW: Kind = Kind { id: "/key", ..KIND };

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All keys but their secret part
    List {
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
    /// Make a key, which is shown this once; with --quiet it is printed alone
    Create(Create),
    /// Seal all stored secrets with another master key; the server must not be running
    RotateMaster(rotate_master::Args),
    /// Make keys good for nothing, at once
    Revoke {
        #[arg(value_name = "KEY_ID", required = true)]
        ids: Vec<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
struct Create {
    /// What it is for
    name: String,
    /// What it is good for: ingest, read, operate, admin
    #[arg(long, value_delimiter = ',', required = true)]
    scopes: Vec<String>,
    /// Only for this tenant's things
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only from these addresses: 10.0.0.0/8,192.0.2.7/32
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    source_cidrs: Vec<String>,
    /// Refused from then on: a time, or a span from now such as 90d
    #[arg(long, value_name = "TIME", value_parser = end)]
    expires: Option<Timestamp>,
    #[command(flatten)]
    common: Common,
}

fn end(text: &str) -> Result<Timestamp, String> {
    span::read(text).map(|ahead| moment::now() + ahead).or_else(|_| moment::read(text))
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { list, common } => with(&common, async |server| server.list(&KIND, PATH, [], &list).await),
        What::Create(args) => create(&args),
        What::RotateMaster(args) => rotate_master::run(&args),
        What::Revoke { ids, yes, common } => {
            sure(yes, &format!("revoking {}", ids.join(", ")))?;
            with(&common, async |server| {
                many::each(&ids, async |id| server.remove(&[PATH, id], id, "revoked").await).await
            })
        }
    }
}

fn create(args: &Create) -> Result<(), Failure> {
    let body = json!({
        "name": args.name,
        "scopes": args.scopes,
        "tenant_id": args.tenant,
        "source_cidrs": args.source_cidrs,
        "expires_at": args.expires.map(Timestamp::to_rfc3339),
    });
    with(&args.common, async |server| {
        server.send(&NEW, Method::POST, &[PATH], Some(&body)).await?;
        if server.form == Form::People {
            output::note("-- keep the key: it is shown this once\n");
        }
        Ok(())
    })
}
