//! Commands for the things of a running server, over its HTTP API.

pub(crate) mod tenants;
pub(crate) mod dest;
pub(crate) mod events;
pub(crate) mod deliveries;
pub(crate) mod event_types;
pub(crate) mod keys;
pub(crate) mod portal;
pub(crate) mod audit;
pub(crate) mod apply;

mod list;
mod many;
pub(crate) mod given;
pub(crate) mod moment;
mod seen;
mod show;
mod sure;
mod table;

use reqwest::Method;
use serde_json::Value;

use crate::client::{self, Client};
use crate::failure::Failure;
use crate::{output, runtime};
use seen::Seen;
use show::Kind;

/// Which server, and in what form its answers are shown.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Common {
    /// JSON, one object per line, as the server has it
    #[arg(long)]
    json: bool,
    /// IDs only
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    server: client::Args,
}

impl Common {
    fn form(&self) -> Form {
        match (self.json, self.quiet) {
            (true, _) => Form::Json,
            (false, true) => Form::Quiet,
            (false, false) => Form::People,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    People,
    Json,
    Quiet,
}

/// A running server, and how to speak of its things.
struct Session {
    client: Client,
    form: Form,
}

/// Runs a command that talks to a server.
fn with<T>(common: &Common, command: impl AsyncFnOnce(Session) -> Result<T, Failure>) -> Result<T, Failure> {
    let session = Session { client: Client::of(&common.server)?, form: common.form() };
    runtime::run(1, command(session))
}

impl Session {
    async fn get(&self, kind: &Kind, path: &[&str], query: &[(&str, String)]) -> Result<(), Failure> {
        let text = self.client.ask(Method::GET, path, query, None).await?;
        output::print(&show::one(kind, &text, self.form)?)
    }

    async fn send(&self, kind: &Kind, method: Method, path: &[&str], body: Option<&Value>) -> Result<(), Failure> {
        let text = self.client.ask(method, path, &[], body).await?;
        output::print(&show::one(kind, &text, self.form)?)
    }

    /// Changes a thing, if its version is still the one that was seen.
    async fn change(
        &self,
        kind: &Kind,
        (method, path): (Method, &[&str]),
        body: &Value,
        seen: &Seen,
    ) -> Result<(), Failure> {
        let text = self.client.ask_seen(method, path, &[], Some(body), seen.header().as_deref()).await?;
        output::print(&show::one(kind, &text, self.form)?)
    }

    /// Does something to a thing, and shows in a line how it is now.
    async fn act(&self, kind: &Kind, path: &[&str], body: Option<&Value>) -> Result<(), Failure> {
        let text = self.client.ask(Method::POST, path, &[], body).await?;
        output::print(&match self.form {
            Form::People => show::line(kind, &text)?,
            Form::Json | Form::Quiet => show::one(kind, &text, self.form)?,
        })
    }

    /// Removes a thing, if its version is still the one that was seen.
    async fn remove(&self, path: &[&str], id: &str, done: &str, seen: Option<&str>) -> Result<(), Failure> {
        self.client.ask_seen(Method::DELETE, path, &[], None, seen).await?;
        self.tell_done(id, done)
    }

    /// What was done to a thing of which there is nothing to show.
    fn tell_done(&self, id: &str, done: &str) -> Result<(), Failure> {
        output::print(&match self.form {
            Form::People => format!("{id}: {done}\n"),
            Form::Json => format!("{}\n", serde_json::json!({"id": id, done: true})),
            Form::Quiet => format!("{id}\n"),
        })
    }
}
