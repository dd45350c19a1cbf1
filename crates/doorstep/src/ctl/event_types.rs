//! `doorstep event-types`: what events are for, and what their payloads look like.

use clap::Subcommand;
use doorstep_core::time::Millis;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::seen::Seen;
use super::show::Kind;
use super::sure::sure;
use super::{Common, given, list, many, with};
use crate::failure::{Exit, Failure};
use crate::span;

const PATH: &str = "event-types";
const KIND: Kind = Kind {
    id: "/name",
    columns: &[
        ("NAME", "/name"),
        ("VERSION", "/default_version"),
        ("ARCHIVED", "/archived"),
        ("UPDATED", "/updated_at"),
        ("DESCRIPTION", "/description"),
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
    /// All event types, by their names
    List {
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One event type, with its schemas
    Get {
        #[arg(value_name = "TYPE")]
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Register an event type, or change it; what is not given stays as it is
    Put {
        #[arg(value_name = "TYPE")]
        name: String,
        /// What it is for
        #[arg(long)]
        description: Option<String>,
        /// Add a JSON Schema: JSON, or @FILE
        #[arg(long, value_name = "JSON", requires = "schema_version")]
        schema: Option<String>,
        /// The version of that schema
        #[arg(long, value_name = "VERSION", requires = "schema")]
        schema_version: Option<String>,
        /// A payload as it might be: JSON, or @FILE
        #[arg(long, value_name = "JSON")]
        example: Option<String>,
        /// For how long events of it are tried that do not say so themselves: 6h
        #[arg(long, value_name = "SPAN", value_parser = span::read)]
        ttl: Option<Millis>,
        /// Whether no more events of it are taken
        #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
        archived: Option<bool>,
        /// More fields, as the API has them: JSON, @FILE, or - for standard input
        #[arg(long, short, value_name = "JSON")]
        data: Option<String>,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
    /// Remove event types; they have to be archived first
    Delete {
        #[arg(value_name = "TYPE", required = true)]
        names: Vec<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { list, common } => with(&common, async |server| server.list(&KIND, PATH, [], &list).await),
        What::Get { name, common } => with(&common, async |server| server.get(&KIND, &[PATH, &name], &[]).await),
        What::Put { name, description, schema, schema_version, example, ttl, archived, data, seen, common } => {
            let mut fields: Map<String, Value> = given::fields(data.as_deref())?;
            let schema = schema.map(|given| given::json("--schema", &given)).transpose()?;
            let example = example.map(|given| given::json("--example", &given)).transpose()?;
            let given = [
                ("description", description.map(Value::from)),
                ("schemas", schema.zip(schema_version).map(|(schema, version)| json!({ version: schema }))),
                ("example", example),
                ("ttl_ms", ttl.map(|ttl| Value::from(ttl.0))),
                ("archived", archived.map(Value::from)),
            ];
            fields.extend(given.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))));
            put(&name, fields, &seen, &common)
        }
        What::Delete { names, yes, seen, common } => {
            let seen = seen.header_of(&names)?;
            sure(yes, &format!("deleting {}", names.join(", ")))?;
            with(&common, async |server| {
                let delete = async |name: &str| server.remove(&[PATH, name], name, "deleted", seen.as_deref()).await;
                many::each(&names, server.form, delete).await
            })
        }
    }
}

/// Changes the type if it is there, and registers it otherwise; but not one that was seen and is gone.
fn put(name: &str, mut fields: Map<String, Value>, seen: &Seen, common: &Common) -> Result<(), Failure> {
    with(common, async |server| {
        let body = Value::from(fields.clone());
        match server.change(&KIND, (Method::PATCH, &[PATH, name]), &body, seen).await {
            Err(missing) if missing.exit() == Exit::NotFound && seen.header().is_none() => {
                fields.insert("name".to_owned(), name.into());
                server.send(&KIND, Method::POST, &[PATH], Some(&fields.into())).await
            }
            changed => changed,
        }
    })
}
