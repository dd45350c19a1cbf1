//! `doorstep demo`: a server on a temporary directory, receivers that misbehave, traffic, and plain words about what happens.

mod cast;
mod narrator;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use doorstep_core::time::Millis;
use doorstep_server::auth::KeyHash;
use doorstep_server::connections::{self, ConnectionLimits};
use doorstep_server::router::router;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::client::Client;
use crate::config::{self, Config};
use crate::failure::Failure;
use crate::rate::Rate;
use crate::{admin_key, output, runtime, span, wire};
use cast::{CAST, Role, Troupe};
use narrator::Narrator;

/// The receiver that is called "outage" works, then is gone, then is back.
const GONE_AFTER: Duration = Duration::from_secs(6);
const BACK_AFTER: Duration = Duration::from_secs(24);
/// How often the whole picture is shown.
const PICTURE_EVERY: Duration = Duration::from_secs(10);
const ENDS_WITHIN: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Port of the API; another is taken if it is in use
    #[arg(long, value_name = "N", default_value_t = 8080)]
    port: u16,
    /// Events that are sent: each goes to every receiver
    #[arg(long, value_name = "N/SPAN", default_value = "5/s")]
    rate: Rate,
    /// End after this long instead of at Ctrl-C
    #[arg(long = "for", value_name = "SPAN", value_parser = span::read)]
    lasts: Option<Millis>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let directory = tempfile::tempdir().context("cannot make a temporary directory")?;
    let key = admin_key::new_key()?;
    let config = config(directory.path())?;
    let threads = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    runtime::run(threads, play(args, &config, &key))
}

/// The defaults, but for where the data is and that this machine may be delivered to.
fn config(directory: &std::path::Path) -> Result<Config, Failure> {
    let given =
        [("DOORSTEP_DATA_DIR", directory.display().to_string()), ("DOORSTEP_ALLOW_TARGETS", "127.0.0.1/32".to_owned())];
    let given = given.map(|(name, value)| (name.to_owned(), value));
    Ok(config::load(&config::Args::default(), given, &[]).context("the demo's own configuration is refused")?.config)
}

async fn play(args: &Args, config: &Config, key: &str) -> Result<(), Failure> {
    let end = runtime::asked_to_end()?;
    let listener = listen(args.port).await?;
    let address = listener.local_addr().context("cannot tell the address that was taken")?;
    let running = wire::start(config, KeyHash::of(key), address).await?;
    let (stop, stopped) = oneshot::channel::<()>();
    let door = connections::serve(
        listener,
        router(Arc::clone(&running.app)),
        ConnectionLimits::default(),
        async { drop(stopped.await) },
        ENDS_WITHIN,
    );
    let door = tokio::spawn(door);

    let base: Url = format!("http://{address}").parse().context("cannot write the server's address")?;
    let client = Client::new(base, key.to_owned())?;
    let mut troupe = Troupe::start().await?;
    let (tenant_id, names) = set_the_scene(&client, &troupe).await?;
    output::print(&welcome(address, key, &tenant_id, args))?;
    let mut narrator = Narrator::new(running.app.watch(), names);
    let played = {
        let acts = act(args, &client, &tenant_id, &mut troupe, &mut narrator);
        tokio::select! {
            played = acts => played,
            () = end => Ok(()),
        }
    };
    output::print(&narrator.farewell(&client.get("/v1/destinations").await?))?;
    let _ = stop.send(());
    running.app.end_streams();
    // It ends by itself now; whatever it was doing is over.
    let _ = door.await;
    running.stop(ENDS_WITHIN).await;
    played
}

async fn listen(port: u16) -> Result<TcpListener, Failure> {
    let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
    match TcpListener::bind(at(port)).await {
        Ok(listener) => Ok(listener),
        Err(_) => Ok(TcpListener::bind(at(0)).await.context("cannot listen on any port")?),
    }
}

/// A tenant, and a destination for each receiver. Answers the destinations' IDs with the receivers' names.
async fn set_the_scene(client: &Client, troupe: &Troupe) -> Result<(String, Vec<(String, &'static str)>), Failure> {
    let text = |answer: &Value, field: &str| answer[field].as_str().unwrap_or_default().to_owned();
    let tenant: Value = client.post("/v1/tenants", &json!({"name": "Acme"})).await?;
    let tenant_id = text(&tenant, "id");
    let mut names = Vec::new();
    for (role, port) in CAST.iter().zip(troupe.ports()) {
        // Shorter waits than anybody would want in earnest: nobody watches a demo for an hour.
        let policy = json!({"strategy": "exponential", "base_ms": 1000, "cap_ms": 8000, "window_ms": 600_000, "max_attempts": 100});
        let url = format!("http://127.0.0.1:{port}/hooks/{}", role.name);
        let new = json!({"tenant_id": tenant_id, "name": role.name, "url": url, "policy": policy, "timeout_ms": 5000});
        let destination: Value = client.post("/v1/destinations", &new).await?;
        names.push((text(&destination, "id"), role.name));
    }
    Ok((tenant_id, names))
}

/// Traffic, the receivers' fate, and the telling of it, all at once.
async fn act(
    args: &Args,
    client: &Client,
    tenant_id: &str,
    troupe: &mut Troupe,
    narrator: &mut Narrator,
) -> Result<(), Failure> {
    let mut ticks = interval(Duration::from_secs_f64(1.0 / args.rate.per_second()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut pictures = interval(PICTURE_EVERY);
    pictures.tick().await;
    let ends = async {
        match args.lasts {
            Some(span) => sleep(Duration::from_millis(span.0)).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(ends);
    let mut fate = Box::pin(async {
        sleep(GONE_AFTER).await;
        troupe.kill(Role::OUTAGE).await?;
        sleep(BACK_AFTER - GONE_AFTER).await;
        troupe.revive(Role::OUTAGE).await
    });
    let mut fate_done = false;
    let mut n = 0_u64;
    loop {
        tokio::select! {
            () = &mut ends => return Ok(()),
            _ = ticks.tick() => {
                n += 1;
                let kind = ["invoice.paid", "invoice.created", "user.created"][(n % 3) as usize];
                let event = json!({"tenant_id": tenant_id, "type": kind, "payload": {"number": n, "amount": 100 + n % 900}});
                let _: Value = client.post("/v1/events", &event).await?;
                narrator.accepted();
            }
            line = narrator.next() => output::print(&line)?,
            _ = pictures.tick() => {
                let destinations = client.get("/v1/destinations").await?;
                output::print(&narrator.picture(&destinations))?;
            }
            done = &mut fate, if !fate_done => {
                done?;
                fate_done = true;
            }
        }
    }
}

fn welcome(address: SocketAddr, key: &str, tenant_id: &str, args: &Args) -> String {
    let mut text = format!(
        "doorstep {} demo, data in a temporary directory that is deleted at the end\n\n",
        env!("CARGO_PKG_VERSION")
    );
    text.push_str(&format!("  API        http://{address}/v1\n  key        {key}\n  tenant     {tenant_id}\n"));
    text.push_str(&format!("  traffic    {} events, each to {} receivers:\n", args.rate, CAST.len()));
    for role in CAST {
        text.push_str(&format!("             {:<9} {}\n", role.name, role.about));
    }
    let end = match args.lasts {
        Some(span) => format!("It ends after {span}."),
        None => "Ctrl-C ends it.".to_owned(),
    };
    text.push_str(&format!(
        "\n  In another terminal:  export DOORSTEP_URL=http://{address} DOORSTEP_API_KEY={key}\n                        \
         doorstep tail                                   every request as it is made\n                        \
         doorstep send invoice.paid -d '{{\"amount\": 5}}'   an event of your own\n\n{end}\n\n"
    ));
    text
}
