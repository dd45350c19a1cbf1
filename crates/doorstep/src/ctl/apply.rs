//! `doorstep apply`: a file says what there should be, and what differs is made or changed.

mod compare;
mod file;
mod plan;

use std::collections::BTreeMap;
use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Map, Value};

use super::{Common, Form, Session, with};
use crate::failure::{Exit, Failure};
use crate::output;
use compare::Rules;
use file::Thing;
use plan::{Deed, Step};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// What there should be: YAML, or JSON or TOML by the file's ending
    #[arg(long, short, value_name = "FILE")]
    file: PathBuf,
    /// Say what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Send headers and TLS keys again: the server does not show them, so whether they differ is not known
    #[arg(long)]
    rewrite_secrets: bool,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let wanted = file::read(&args.file)?;
    with(&args.common, async |server| {
        let rules = Rules { rewrite_secrets: args.rewrite_secrets };
        let tenants = server.everything("tenants", &[]).await?;
        let (dry, destinations) = (args.dry_run, BTreeMap::new());
        let mut work = Work { server: &server, dry, rules, tenants, destinations, n_changed: 0 };
        for tenant in &wanted.tenants {
            work.tenant(tenant).await?;
        }
        for event_type in &wanted.event_types {
            work.event_type(event_type).await?;
        }
        for destination in &wanted.destinations {
            work.destination(destination).await?;
        }
        if server.form == Form::People {
            let done = if args.dry_run { "to do" } else { "done" };
            let n = work.n_changed;
            output::note(&if n == 0 { "-- nothing to do\n".to_owned() } else { format!("-- {n} {done}\n") });
        }
        Ok(())
    })
}

/// Goes through the file from the top. What was done stays done when something later fails: the next run goes on there.
struct Work<'a> {
    server: &'a Session,
    dry: bool,
    rules: Rules,
    /// All there are. In a dry run those that would be made are among them, without an ID.
    tenants: Vec<Value>,
    /// By the ID of their tenant, as far as they were asked for.
    destinations: BTreeMap<String, Vec<Value>>,
    n_changed: usize,
}

impl Work<'_> {
    async fn tenant(&mut self, wanted: &Thing) -> Result<(), Failure> {
        let there = named("tenants", &self.tenants, &wanted.name)?;
        let is_new = there.is_none();
        let made = self.settle("tenant", "tenants", &wanted.name, wanted.fields.clone(), there).await?;
        self.tenants.extend(made.filter(|_| is_new));
        Ok(())
    }

    async fn event_type(&mut self, wanted: &Thing) -> Result<(), Failure> {
        let there = match self.server.client.ask(Method::GET, &["event-types", &wanted.name], &[], None).await {
            Ok(text) => Some(serde_json::from_str(&text).unwrap_or_default()),
            Err(missing) if missing.exit() == Exit::NotFound => None,
            Err(failure) => return Err(failure),
        };
        self.settle("event type", "event-types", &wanted.name, wanted.fields.clone(), there).await?;
        Ok(())
    }

    async fn destination(&mut self, wanted: &Thing) -> Result<(), Failure> {
        let tenant = wanted.tenant.as_deref().unwrap_or_default();
        let called = format!("{tenant}/{}", wanted.name);
        let Some(owner) = named("tenants", &self.tenants, tenant)? else {
            let advice = format!("destination {called}: there is no tenant {tenant}; list it under tenants, too");
            return Err(Failure::said(Exit::NotFound, advice));
        };
        let there = match owner["id"].as_str() {
            Some(owner) => named("destinations", self.destinations_of(owner).await?, &wanted.name)?,
            None => None,
        };
        let mut fields = wanted.fields.clone();
        if there.is_none() {
            fields.insert("tenant_id".to_owned(), owner["id"].clone());
        }
        self.settle("destination", "destinations", &called, fields, there).await?;
        Ok(())
    }

    async fn destinations_of(&mut self, tenant: &str) -> Result<&[Value], Failure> {
        if !self.destinations.contains_key(tenant) {
            let all = self.server.everything("destinations", &[("tenant_id", tenant.to_owned())]).await?;
            self.destinations.insert(tenant.to_owned(), all);
        }
        Ok(self.destinations.get(tenant).map_or(&[], Vec::as_slice))
    }

    /// Makes the thing, changes it, or leaves it alone; and says so. Gives it as it is now, if it was touched.
    async fn settle(
        &mut self,
        kind: &'static str,
        path: &str,
        called: &str,
        fields: Map<String, Value>,
        there: Option<Value>,
    ) -> Result<Option<Value>, Failure> {
        let wrong = |why| Failure::said(Exit::ConfigInvalid, format!("{kind} {called}: {why}"));
        let mut seen = None;
        let deed = match &there {
            None => Deed::Create(fields.clone()),
            Some(there) => {
                let mut changes = compare::changes(&fields, there, self.rules).map_err(wrong)?;
                if !changes.is_empty() && !self.dry {
                    // The list may be old by now, and says nothing of versions.
                    let (now, version) = self.server.client.look(&[path, id_of(there)]).await?;
                    changes = compare::changes(&fields, &now, self.rules).map_err(wrong)?;
                    seen = version;
                }
                if changes.is_empty() { Deed::Keep } else { Deed::Change(changes) }
            }
        };
        self.n_changed += usize::from(!matches!(deed, Deed::Keep));
        let mut step = Step { kind, called, deed: &deed, secret: None };
        let made = match self.dry {
            true => Some(Value::from(fields)),
            false => self.carry_out(path, &deed, there.as_ref(), seen).await?,
        };
        step.secret = made.as_ref().filter(|_| !self.dry).and_then(|made| made["secret"].as_str());
        output::print(&match self.server.form {
            Form::People => step.to_string(),
            Form::Json => format!("{}\n", step.json()),
            Form::Quiet if matches!(deed, Deed::Keep) => String::new(),
            Form::Quiet => format!("{called}\n"),
        })?;
        Ok(made)
    }

    async fn carry_out(
        &self,
        path: &str,
        deed: &Deed,
        there: Option<&Value>,
        seen: Option<String>,
    ) -> Result<Option<Value>, Failure> {
        let text = match (deed, there.map(id_of)) {
            (Deed::Create(fields), _) => {
                let body = Value::from(fields.clone());
                self.server.client.ask(Method::POST, &[path], &[], Some(&body)).await?
            }
            (Deed::Change(changes), Some(id)) => {
                let fields = changes.iter().map(|change| (change.field.clone(), change.sent.clone()));
                let body = Value::from(fields.collect::<Map<_, _>>());
                self.server.client.ask_seen(Method::PATCH, &[path, id], &[], Some(&body), seen.as_deref()).await?
            }
            (Deed::Change(_), None) | (Deed::Keep, _) => return Ok(None),
        };
        Ok(serde_json::from_str(&text).ok())
    }
}

/// Event types are called by their name.
fn id_of(thing: &Value) -> &str {
    thing["id"].as_str().or(thing["name"].as_str()).unwrap_or_default()
}

/// The one thing with this name. Names are for people, so there may be several: then the file cannot mean one of them.
fn named(what: &str, things: &[Value], name: &str) -> Result<Option<Value>, Failure> {
    let mut found = things.iter().filter(|thing| thing["name"] == name);
    match (found.next(), found.next()) {
        (Some(one), Some(other)) => {
            let detail = format!("several {what} are named {name}: {} and {}; rename one", one["id"], other["id"]);
            Err(Failure::said(Exit::Conflict, detail))
        }
        (only, _) => Ok(only.cloned()),
    }
}
