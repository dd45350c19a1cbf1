//! `doorstep dest`: the URLs that receive events, and a hand on their gates.

mod settings;

use clap::Subcommand;
use doorstep_core::time::Millis;
use reqwest::Method;
use serde_json::{Map, Value, json};

use super::seen::Seen;
use super::show::{self, Kind};
use super::{Common, Form, given, list, many, with};
use crate::failure::{Exit, Failure};
use crate::{output, span};

const PATH: &str = "destinations";
const KIND: Kind = Kind {
    id: "/id",
    columns: &[
        ("ID", "/id"),
        ("NAME", "/name"),
        ("STATUS", "/status"),
        ("BREAKER", "/breaker"),
        ("QUEUED", "/queued_events"),
        ("TYPES", "/event_types"),
        ("URL", "/url"),
    ],
    within: None,
};
const ROTATED: Kind = Kind { id: "/secret", columns: &[], within: None };
const TESTED: Kind = Kind { id: "/class", columns: &[], within: None };

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// All destinations, oldest first
    List {
        /// Only this tenant's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        list: list::Args,
        #[command(flatten)]
        common: Common,
    },
    /// One destination, with its state at a glance
    Get(One),
    /// Make a destination; its signing secret is shown this once
    Create {
        /// Whose it is
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        #[command(flatten)]
        settings: Box<settings::Args>,
        #[command(flatten)]
        common: Common,
    },
    /// Change a destination; what is not given stays as it is
    Update {
        #[arg(value_name = "DESTINATION")]
        id: String,
        #[command(flatten)]
        settings: Box<settings::Args>,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
    /// Remove a destination, and everything queued for it
    Delete {
        #[arg(value_name = "DESTINATION", required = true)]
        ids: Vec<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        seen: Seen,
        #[command(flatten)]
        common: Common,
    },
    /// Send nothing more until it is resumed
    Pause(Several),
    /// Go on sending
    Resume(Several),
    /// Let one request through an open breaker now
    Probe(Several),
    /// Forget what the receiver said about waiting
    ClearThrottle {
        #[command(flatten)]
        some: Several,
        /// Also forget the pace that the receiver has taught
        #[arg(long)]
        forget_learned: bool,
    },
    /// Make one request now, past the gate; no record is kept
    Test {
        #[arg(value_name = "DESTINATION")]
        id: String,
        /// The type of the event
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Its payload: JSON, @FILE, or - for standard input
        #[arg(long, short, value_name = "JSON")]
        data: Option<String>,
        #[command(flatten)]
        common: Common,
    },
    /// Ask the receiver for its consent now, where it has to agree before anything is sent
    Verify(One),
    /// Make a new signing secret, or a new key for links; the old secret signs along for a while
    RotateSecret(Rotate),
}

#[derive(clap::Args)]
struct Rotate {
    #[arg(value_name = "DESTINATION")]
    id: String,
    /// How long the old one signs along, such as 24h
    #[arg(long, value_name = "SPAN", value_parser = span::read)]
    overlap: Option<Millis>,
    /// File with the new secret, of the same kind as the old one, or - for standard input; it is made unless given
    #[arg(long, value_name = "FILE")]
    secret_file: Option<String>,
    /// Instead: a new key for the links to payloads and to consent; those that were sent end at once
    #[arg(long, conflicts_with_all = ["overlap", "secret_file"])]
    links: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct One {
    #[arg(value_name = "DESTINATION")]
    id: String,
    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Several {
    #[arg(value_name = "DESTINATION", required = true)]
    ids: Vec<String>,
    #[command(flatten)]
    common: Common,
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::List { tenant, list, common } => {
            with(&common, async |server| server.list(&KIND, PATH, [("tenant_id", tenant)], &list).await)
        }
        What::Get(One { id, common }) => with(&common, async |server| server.get(&KIND, &[PATH, &id], &[]).await),
        What::Create { tenant, settings, common } => create(tenant, *settings, &common),
        What::Update { id, settings, seen, common } => {
            let (body, which) = (settings.body()?, (Method::PATCH, &[PATH, &id][..]));
            with(&common, async |server| server.change(&KIND, which, &body, &seen).await)
        }
        What::Delete { ids, yes, seen, common } => delete(&ids, yes, &seen, &common),
        What::Pause(some) => hand(&some, "pause", None),
        What::Resume(some) => hand(&some, "resume", None),
        What::Probe(some) => hand(&some, "probe", None),
        What::ClearThrottle { some, forget_learned } => {
            let body = forget_learned.then(|| json!({"forget_learned": true}));
            hand(&some, "clear-throttle", body.as_ref())
        }
        What::Test { id, event_type, data, common } => test(&id, event_type, data.as_deref(), &common),
        What::Verify(One { id, common }) => verify(&id, &common),
        What::RotateSecret(args) => rotate(&args),
    }
}

fn create(tenant: Option<String>, settings: settings::Args, common: &Common) -> Result<(), Failure> {
    let mut body = settings.body()?;
    if let Some(tenant) = tenant {
        body["tenant_id"] = tenant.into();
    }
    with(common, async |server| {
        if body["tenant_id"].is_null() {
            body["tenant_id"] = crate::send::only_tenant(&server.client).await?.into();
        }
        server.send(&KIND, Method::POST, &[PATH], Some(&body)).await
    })
}

fn delete(ids: &[String], yes: bool, seen: &Seen, common: &Common) -> Result<(), Failure> {
    let seen = seen.header_of(ids)?;
    super::sure::sure(yes, &format!("deleting {}, with what is queued there,", ids.join(", ")))?;
    with(common, async |server| {
        let delete = async |id: &str| server.remove(&[PATH, id], id, "deleted", seen.as_deref()).await;
        many::each(ids, server.form, delete).await
    })
}

fn rotate(Rotate { id, overlap, secret_file, links, common }: &Rotate) -> Result<(), Failure> {
    let path = [PATH, id, "secrets", "rotate"];
    if *links {
        return with(common, async |server| {
            server.client.ask(Method::POST, &path, &[], Some(&json!({"links": true}))).await?;
            server.tell_done(id, "rotated")
        });
    }
    let mut fields = Map::new();
    if let Some(overlap) = overlap {
        fields.insert("overlap_ms".to_owned(), overlap.0.into());
    }
    if let Some(file) = secret_file {
        fields.insert("secret".to_owned(), given::secret(file)?.into());
    }
    let body = Value::from(fields);
    with(common, async |server| server.send(&ROTATED, Method::POST, &path, Some(&body)).await)
}

fn hand(some: &Several, verb: &str, body: Option<&Value>) -> Result<(), Failure> {
    let does = async |server: super::Session| {
        many::each(&some.ids, server.form, async |id| server.act(&KIND, &[PATH, id, verb], body).await).await
    };
    with(&some.common, does)
}

/// A receiver that does not agree makes the command fail, so that a script can rely on it.
fn verify(id: &str, common: &Common) -> Result<(), Failure> {
    with(common, async |server| {
        let text = server.client.ask(Method::POST, &[PATH, id, "verify"], &[], None).await?;
        let destination: Value = serde_json::from_str(&text).unwrap_or_default();
        let consent = &destination["consent"];
        let agreed = !consent["given_at"].is_null();
        output::print(&match server.form {
            Form::People if agreed => match consent["per_minute"].as_u64() {
                Some(n) => format!("its receiver agrees to {n} requests per minute\n"),
                None => "its receiver agrees to be sent to\n".to_owned(),
            },
            Form::People => String::new(),
            Form::Json | Form::Quiet => show::one(&KIND, &text, server.form)?,
        })?;
        if agreed {
            return Ok(());
        }
        let why = consent["last_answer"].as_str().unwrap_or("it has not answered yet");
        Err(Failure::said(Exit::Failed, format!("the receiver has not agreed to be sent to: {why}")))
    })
}

/// A receiver that refuses makes the command fail, so that a script can rely on it.
fn test(id: &str, event_type: Option<String>, data: Option<&str>, common: &Common) -> Result<(), Failure> {
    let mut fields = Map::new();
    if let Some(event_type) = event_type {
        fields.insert("type".to_owned(), event_type.into());
    }
    if let Some(data) = data {
        fields.insert("payload".to_owned(), given::json("--data", data)?);
    }
    let body = Value::from(fields);
    with(common, async |server| {
        let text = server.client.ask(Method::POST, &[PATH, id, "test"], &[], Some(&body)).await?;
        let result: Value = serde_json::from_str(&text).unwrap_or_default();
        output::print(&match server.form {
            Form::People => told(&result),
            Form::Json | Form::Quiet => show::one(&TESTED, &text, server.form)?,
        })?;
        if result["success"] == true {
            return Ok(());
        }
        Err(Failure::said(Exit::Failed, "the receiver did not take the test event"))
    })
}

fn told(result: &Value) -> String {
    let attempt = &result["attempt"];
    let answer = match (attempt["status_code"].as_u64(), attempt["error"].as_str()) {
        (Some(code), _) => code.to_string(),
        (None, error) => error.unwrap_or("no answer").to_owned(),
    };
    let body = attempt["response"]["body"].as_str().filter(|body| !body.is_empty());
    let body = body.map_or(String::new(), |body| format!("{}\n", super::table::tame(body)));
    let (class, ms) = (result["class"].as_str().unwrap_or("?"), &attempt["timings"]["total_ms"]);
    format!("{class}: {answer} after {ms} ms\n{body}")
}
