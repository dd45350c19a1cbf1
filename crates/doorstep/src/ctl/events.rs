//! `doorstep events`: what happened.

use clap::Subcommand;

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
        /// Only of this type
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
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
        What::List { tenant, event_type, created, list, common } => {
            let filters = [("tenant_id", tenant), ("type", event_type)].into_iter().chain(created.query());
            with(&common, async |server| server.list(&KIND, PATH, filters, &list).await)
        }
        What::Get { id, tenant, common } => {
            let query: Vec<_> = tenant.into_iter().map(|tenant| ("tenant_id", tenant)).collect();
            with(&common, async |server| server.get(&KIND, &[PATH, &id], &query).await)
        }
        What::Send(args) => send::run(args),
    }
}
