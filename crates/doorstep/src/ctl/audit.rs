//! `doorstep audit`: who changed what.

use clap::Subcommand;

use super::show::Kind;
use super::{Common, list, with};
use crate::failure::Failure;

const KIND: Kind = Kind {
    id: "/resource/id",
    columns: &[
        ("AT", "/at"),
        ("WHO", "/actor/kind"),
        ("NAME", "/actor/name"),
        ("FROM", "/from"),
        ("ACTION", "/action"),
        ("RESOURCE", "/resource/id"),
        ("OUTCOME", "/outcome"),
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
    /// Lines of the audit log, newest first; what changed is in --json
    List {
        /// Only this tenant's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Only by this key or session
        #[arg(long, value_name = "ID")]
        actor: Option<String>,
        /// Only this, such as destination.update
        #[arg(long)]
        action: Option<String>,
        /// Only on this thing
        #[arg(long, value_name = "ID")]
        resource: Option<String>,
        #[command(flatten)]
        created: list::Created,
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    let What::List { tenant, actor, action, resource, created, list, common } = args.what;
    let filters = [("tenant_id", tenant), ("actor", actor), ("action", action), ("resource", resource)];
    let filters = filters.into_iter().chain(created.query());
    with(&common, async |server| server.list(&KIND, "audit", filters, &list).await)
}
