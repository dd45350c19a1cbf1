//! `doorstep tenants`: whose events and destinations they are.

use clap::Subcommand;
use reqwest::Method;
use serde_json::{Map, Value};

use super::seen::Seen;
use super::show::Kind;
use super::sure::sure;
use super::{Common, given, list, with};
use crate::failure::Failure;

const PATH: &str = "tenants";
const KIND: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("NAME", "/name"),
        ("WEIGHT", "/weight"),
        ("CONTACT", "/contact_email"),
        ("CREATED", "/created_at"),
    ],
    within: None,
};

const USAGE: Kind = Kind {
    id: "/tenant_id",
    columns: &[
        ("TENANT", "/tenant_id"),
        ("QUEUED", "/queued_deliveries/used"),
        ("QUEUED MAX", "/queued_deliveries/limit"),
        ("BYTES", "/stored_bytes/used"),
        ("BYTES MAX", "/stored_bytes/limit"),
    ],
    within: None,
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All tenants, oldest first
    List {
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One tenant
    Get {
        #[arg(value_name = "TENANT")]
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Show how much of the store a tenant takes, and how much it may
    Usage {
        #[arg(value_name = "TENANT")]
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Make a tenant
    Create {
        /// Its name, for people
        name: String,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        common: Common,
    },
    /// Change a tenant; what is not given stays as it is
    Update {
        #[arg(value_name = "TENANT")]
        id: String,
        /// Its name, for people
        #[arg(long)]
        name: Option<String>,
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
    /// Erase the payloads of all its events so far, as far as they are encrypted, for ever
    ErasePayloads {
        #[arg(value_name = "TENANT")]
        id: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
#[group(skip)]
struct Settings {
    /// Whom to write to when something is wrong
    #[arg(long, value_name = "EMAIL")]
    contact_email: Option<String>,
    /// Its share of the turns, when all have something to send
    #[arg(long, value_name = "N")]
    weight: Option<u32>,
    /// More fields, as the API has them: JSON, @FILE, or - for standard input
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
}

impl Settings {
    fn body(self, name: Option<String>) -> Result<Value, Failure> {
        let mut fields: Map<String, Value> = given::fields(self.data.as_deref())?;
        let mut put =
            |field: &str, value: Option<Value>| value.and_then(|value| fields.insert(field.to_owned(), value));
        put("name", name.map(Value::from));
        put("contact_email", self.contact_email.map(Value::from));
        put("weight", self.weight.map(Value::from));
        Ok(fields.into())
    }
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { list, common } => with(&common, async |server| server.list(&KIND, PATH, [], &list).await),
        What::Get { id, common } => with(&common, async |server| server.get(&KIND, &[PATH, &id], &[]).await),
        What::Usage { id, common } => {
            with(&common, async |server| server.get(&USAGE, &[PATH, &id, "usage"], &[]).await)
        }
        What::Create { name, settings, common } => {
            let body = settings.body(Some(name))?;
            with(&common, async |server| server.send(&KIND, Method::POST, &[PATH], Some(&body)).await)
        }
        What::Update { id, name, settings, seen, common } => {
            let (body, which) = (settings.body(name)?, (Method::PATCH, &[PATH, &id][..]));
            with(&common, async |server| server.change(&KIND, which, &body, &seen).await)
        }
        What::ErasePayloads { id, yes, common } => {
            sure(yes, &format!("erasing the payloads of {id}"))?;
            with(&common, async |server| server.remove(&[PATH, &id, "payloads"], &id, "erased", None).await)
        }
    }
}
