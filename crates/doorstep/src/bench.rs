//! `doorstep bench`: what this machine can do, as ratios to what its network and its disk allow.
//!
//! Receiver, engine and load are processes of their own on loopback. What the engine does is set against the *raw
//! ceiling*, measured in the same run: the same load straight to the same receiver.

mod histogram;
mod payload;
mod client;
pub(crate) mod receiver;
pub(crate) mod load;
mod machine;
mod children;
mod table;
mod parts;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tempfile::TempDir;

use crate::failure::{Exit, Failure};
use crate::{output, runtime};
use children::{Engine, Receiver};
use machine::Machine;
use parts::Part;
use table::Row;

/// Hosts that the receiver plays: connections are kept per host.
const HOSTS: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Seconds rather than minutes, and a smaller backlog: whether it works, not how fast
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_name = "PART", value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Deliveries that wait while the backlog is measured [default: 1000000, with --quick 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    backlog: Option<u64>,
    /// Where the engine keeps its data meanwhile: the disk that is measured [default: the system's directory for such]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One JSON object on standard output
    #[arg(long)]
    json: bool,
    /// Fail if a target is missed
    #[arg(long)]
    strict: bool,
}

/// What all parts work with.
struct Bench {
    scale: Scale,
    directory: TempDir,
    n_engines: usize,
    receiver: Receiver,
    /// Requests a second without Doorstep.
    raw: f64,
    /// Deliveries a second at most, once that is known.
    saturation: Option<f64>,
    rows: Vec<Row>,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
struct Scale {
    /// How long one measurement takes.
    each: Duration,
    backlog: u64,
}

#[derive(Serialize)]
struct Outcome<'a> {
    version: &'static str,
    machine: &'a Machine,
    rows: &'a [Row],
    missed: usize,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    runtime::run(1, async {
        let end = runtime::asked_to_end()?;
        tokio::select! {
            done = bench(args) => done,
            () = end => Err(Failure::said(Exit::Interrupted, "interrupted before everything was measured")),
        }
    })
}

async fn bench(args: &Args) -> Result<(), Failure> {
    if cfg!(debug_assertions) {
        say("this is a debug build: its figures say nothing about a release");
    }
    let (each, backlog) = if args.quick { (2, 20_000) } else { (10, 1_000_000) };
    let scale = Scale { each: Duration::from_secs(each), backlog: args.backlog.unwrap_or(backlog) };
    let directory = match &args.dir {
        Some(at) => tempfile::tempdir_in(at).with_context(|| format!("cannot make a directory in {}", at.display()))?,
        None => tempfile::tempdir().context("cannot make a temporary directory")?,
    };
    let machine = Machine::look(directory.path())?;
    say(&machine.to_string());
    let receiver = Receiver::start(HOSTS).await?;
    let mut bench = Bench { scale, directory, n_engines: 0, receiver, raw: 0.0, saturation: None, rows: Vec::new() };
    bench.raw = bench.raw_ceiling().await?;
    for part in Part::ALL.iter().filter(|part| args.only.is_empty() || args.only.contains(part)) {
        say(&format!("{part}: {}", part.about()));
        bench.measure(*part).await.with_context(|| format!("the part {part} could not be measured"))?;
    }
    let missed = bench.rows.iter().filter(|row| row.is_missed()).count();
    output::print(&shown(args, &machine, &bench.rows, missed)?)?;
    if args.strict && missed > 0 {
        return Err(Failure::said(Exit::Failed, format!("{missed} targets are missed")));
    }
    Ok(())
}

fn shown(args: &Args, machine: &Machine, rows: &[Row], missed: usize) -> anyhow::Result<String> {
    if args.json {
        let outcome = Outcome { version: env!("CARGO_PKG_VERSION"), machine, rows, missed };
        return Ok(format!("{}\n", serde_json::to_string_pretty(&outcome)?));
    }
    Ok(format!("{machine}\n\n{}", table::table(rows)))
}

/// How far it is, for whoever waits.
fn say(what: &str) {
    // When standard error is gone, nobody waits.
    let _ = writeln!(std::io::stderr().lock(), "bench: {what}");
}

impl Bench {
    fn row(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// An engine with an empty store, which the receiver has heard nothing of.
    async fn engine(&mut self) -> anyhow::Result<Engine> {
        self.n_engines += 1;
        self.receiver.reset().await?;
        Engine::start(&self.data_dir()).await
    }

    /// Where the latest engine keeps its data.
    fn data_dir(&self) -> PathBuf {
        Path::join(self.directory.path(), self.n_engines.to_string())
    }
}
