//! `doorstep deliveries`: one event to one destination, and what has come of it.

use clap::Subcommand;
use doorstep_core::search::DeliveryFilter;
use serde_json::json;

use super::show::Kind;
use super::sure::sure;
use super::{Common, list, many, with};
use crate::failure::Failure;

const PATH: &str = "deliveries";
const KIND: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("TYPE", "/event_type"),
        ("DESTINATION", "/destination_id"),
        ("STATUS", "/status"),
        ("WHY", "/reason"),
        ("WAITS FOR", "/waiting_for"),
        ("TRIES", "/attempt_count"),
        ("CODE", "/last_status_code"),
        ("NEXT", "/next_attempt_at"),
        ("CREATED", "/created_at"),
    ],
    within: Some((
        "attempts",
        &[
            ("NO", "/number"),
            ("STARTED", "/started_at"),
            ("CODE", "/status_code"),
            ("ERROR", "/error"),
            ("MS", "/timings/total_ms"),
            ("ANSWER", "/response/body"),
        ],
    )),
};

const ATTEMPT: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("NO", "/number"),
        ("STARTED", "/started_at"),
        ("CODE", "/status_code"),
        ("ERROR", "/error"),
        ("MS", "/timings/total_ms"),
        ("ANSWER", "/response/body"),
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
    /// Deliveries, newest first
    List(Box<List>),
    /// One delivery, with every attempt at it
    Get {
        #[arg(value_name = "DELIVERY")]
        id: String,
        #[command(flatten)]
        common: Common,
    },
    /// Show one attempt of a delivery, with what was sent and what came back
    Attempt {
        /// The delivery's ID
        #[arg(value_name = "DELIVERY")]
        id: String,
        /// The attempt's number, from 1
        #[arg(value_name = "NUMBER")]
        number: u32,
        #[command(flatten)]
        common: Common,
    },
    /// Send again, now
    Retry {
        #[arg(value_name = "DELIVERY", required = true)]
        ids: Vec<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Give up on deliveries that wait
    Abandon {
        #[arg(value_name = "DELIVERY", required = true)]
        ids: Vec<String>,
        /// Why, for whoever looks at it later
        #[arg(long)]
        note: Option<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

#[derive(clap::Args)]
struct List {
    /// Only in this state: queued, retry_scheduled, delivered, dead, or failed for what was tried in vain; several with commas
    #[arg(long)]
    status: Vec<String>,
    /// Only to this destination
    #[arg(long, value_name = "DESTINATION")]
    destination: Option<String>,
    /// Only this tenant's
    #[arg(long, value_name = "TENANT")]
    tenant: Option<String>,
    /// Only of events of this type, or of types like invoice.*; several with commas
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// Only of this event
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only those that are dead for this reason: exhausted, expired, rejected, abandoned
    #[arg(long)]
    reason: Option<String>,
    /// Only with this last status code, such as 503, or one of a class, such as 5xx
    #[arg(long)]
    code: Option<String>,
    #[command(flatten)]
    created: list::Created,
    #[command(flatten)]
    list: list::Args,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List(args) => {
            let List { status, destination, tenant, types, event, reason, code, created, list, common } = *args;
            let flags = [
                ("status", list::joined(&status)),
                ("type", list::joined(&types)),
                ("event_id", event),
                ("destination_id", destination),
                ("tenant_id", tenant),
                ("reason", reason),
                ("code", code),
            ];
            let filter: DeliveryFilter = list::asked(flags.into_iter().chain(created.query()))?;
            with(&common, async |server| server.search(&KIND, PATH, &filter, &list).await)
        }
        What::Get { id, common } => with(&common, async |server| server.get(&KIND, &[PATH, &id], &[]).await),
        What::Attempt { id, number, common } => {
            with(&common, async |server| server.get(&ATTEMPT, &[PATH, &id, "attempts", &number.to_string()], &[]).await)
        }
        What::Retry { ids, common } => with(&common, async |server| {
            many::each(&ids, server.form, async |id| server.act(&KIND, &[PATH, id, "retry"], None).await).await
        }),
        What::Abandon { ids, note, yes, common } => {
            sure(yes, &format!("abandoning {}", ids.join(", ")))?;
            let body = json!({ "note": note });
            with(&common, async |server| {
                many::each(&ids, server.form, async |id| server.act(&KIND, &[PATH, id, "abandon"], Some(&body)).await)
                    .await
            })
        }
    }
}
