//! `doorstep keys`: what programs are let in with.

use clap::Subcommand;
use doorstep_core::time::{Millis, Timestamp};
use reqwest::Method;
use serde_json::{Map, json};

use super::seen::Seen;
use super::show::Kind;
use super::sure::sure;
use super::{Common, Form, Session, list, many, moment, with};
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
    /// One key but its secret part
    Get {
        #[arg(value_name = "KEY_ID")]
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Change a key's name, end or ranges; what is not given stays as it is, and scopes and tenant always do
    Update(Update),
    /// Give a key a new secret, which is shown this once; with --quiet it is printed alone
    Rotate {
        #[arg(value_name = "KEY_ID")]
        id: String,
        /// How long the old one works beside it, such as 24h; it is refused at once unless given
        #[arg(long, value_name = "SPAN", value_parser = span::read)]
        overlap: Option<Millis>,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
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

#[derive(clap::Args)]
struct Update {
    #[arg(value_name = "KEY_ID")]
    id: String,
    /// What it is for
    #[arg(long)]
    name: Option<String>,
    /// Only from these addresses: 10.0.0.0/8,192.0.2.7/32; empty for anywhere
    #[arg(long, value_name = "CIDRS", value_delimiter = ',')]
    source_cidrs: Option<Vec<String>>,
    /// Refused from then on: a time, a span from now such as 90d, or never
    #[arg(long, value_name = "TIME", value_parser = new_end)]
    expires: Option<NewEnd>,
    #[command(flatten)]
    seen: Seen,
    #[command(flatten)]
    common: Common,
}

/// `None`: it never ends.
#[derive(Clone, Copy)]
struct NewEnd(Option<Timestamp>);

fn new_end(text: &str) -> Result<NewEnd, String> {
    if text == "never" { Ok(NewEnd(None)) } else { end(text).map(|at| NewEnd(Some(at))) }
}

fn end(text: &str) -> Result<Timestamp, String> {
    span::read(text).map(|ahead| moment::now() + ahead).or_else(|_| moment::read(text))
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { list, common } => with(&common, async |server| server.list(&KIND, PATH, [], &list).await),
        What::Create(args) => create(&args),
        What::Get { id, common } => with(&common, async |server| server.get(&KIND, &[PATH, &id], &[]).await),
        What::Update(args) => update(&args),
        What::Rotate { id, overlap, seen, common } => {
            let body = json!({ "overlap_ms": overlap.map(|overlap| overlap.0) });
            let which = (Method::POST, &[PATH, &id, "rotate"][..]);
            with(&common, async |server| {
                server.change(&NEW, which, &body, &seen).await?;
                server.note_new_key();
                Ok(())
            })
        }
        What::RotateMaster(args) => rotate_master::run(&args),
        What::Revoke { ids, yes, common } => {
            sure(yes, &format!("revoking {}", ids.join(", ")))?;
            with(&common, async |server| {
                many::each(&ids, server.form, async |id| server.remove(&[PATH, id], id, "revoked", None).await).await
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
        server.note_new_key();
        Ok(())
    })
}

fn update(args: &Update) -> Result<(), Failure> {
    let mut fields = Map::new();
    if let Some(name) = &args.name {
        fields.insert("name".to_owned(), name.as_str().into());
    }
    if let Some(cidrs) = &args.source_cidrs {
        let cidrs: Vec<&str> = cidrs.iter().map(String::as_str).filter(|cidr| !cidr.is_empty()).collect();
        fields.insert("source_cidrs".to_owned(), cidrs.into());
    }
    if let Some(NewEnd(at)) = args.expires {
        fields.insert("expires_at".to_owned(), at.map(Timestamp::to_rfc3339).into());
    }
    let (body, which) = (fields.into(), (Method::PATCH, &[PATH, &args.id][..]));
    with(&args.common, async |server| server.change(&KIND, which, &body, &args.seen).await)
}

impl Session {
    fn note_new_key(&self) {
        if self.form == Form::People {
            output::note("-- keep the key: it is shown this once\n");
        }
    }
}
