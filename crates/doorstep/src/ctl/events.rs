//! `doorstep events`: what happened.

use clap::Subcommand;
use doorstep_core::search::EventFilter;

use super::show::Kind;
use super::{Common, list, with};
use crate::failure::Failure;
use crate::send;

const PATH: &str = "events";
const KIND: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("TYPE", "/type"),
        ("TENANT", "/tenant_id"),
        ("BYTES", "/payload_bytes"),
        ("DELIVERIES", "/deliveries"),
        ("ACCEPTED", "/accepted_at"),
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
    /// Events, newest first
    List {
        /// Only this tenant's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Only of this type, or of types like invoice.*; several with commas
        #[arg(long = "type", value_name = "TYPE")]
        types: Vec<String>,
        /// Only with this ordering key
        #[arg(long, value_name = "KEY")]
        ordering_key: Option<String>,
        #[command(flatten)]
        created: list::Created,
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One event, with its payload
    Get {
        #[arg(value_name = "EVENT")]
        id: String,
        /// Whose it is; needed for an ID of your own that several tenants have
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Send an event: the same as doorstep send
    Send(send::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { tenant, types, ordering_key, created, list, common } => {
            let flags = [("type", list::joined(&types)), ("tenant_id", tenant), ("ordering_key", ordering_key)];
            let filter: EventFilter = list::asked(flags.into_iter().chain(created.query()))?;
            with(&common, async |server| server.search(&KIND, PATH, &filter, &list).await)
        }
        What::Get { id, tenant, common } => {
            let query: Vec<_> = tenant.into_iter().map(|tenant| ("tenant_id", tenant)).collect();
            with(&common, async |server| server.get(&KIND, &[PATH, &id], &query).await)
        }
        What::Send(args) => send::run(args),
    }
}
