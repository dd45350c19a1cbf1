//! `doorstep-sim`: doubts Doorstep's decisions, and measures them.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use doorstep_core::time::Millis;
use doorstep_sim::capacity::target::Target;
use doorstep_sim::capacity::{judge_all, report};
use doorstep_sim::check::{check, check_all};
use doorstep_sim::limiter::Kind;
use doorstep_sim::limits::{self, Limit, Measured, Who};
use doorstep_sim::storm::{self, Storm, Strategy};

/// Runs Doorstep's decisions under a virtual clock, with hostile receivers and faults, and checks its promises.
#[derive(Parser)]
#[command(name = "doorstep-sim", version)]
struct Args {
    /// How many worlds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The seed of the first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Run the world of this seed alone.
    #[arg(long, conflicts_with_all = ["seeds", "from"])]
    seed: Option<u64>,
    /// With --seed: print everything that happens.
    #[arg(long, requires = "seed")]
    trace: bool,
    #[command(subcommand)]
    command: Option<What>,
}

#[derive(Subcommand)]
enum What {
    /// How close we get to what rate-limiting receivers admit, as a Markdown table.
    Limits {
        /// Seeds per row; the table shows the worst.
        #[arg(long, default_value_t = 1)]
        seeds: u64,
        /// Another limit than those of the table, as requests and seconds: 100/30.
        #[arg(long = "limit", value_parser = read_limit)]
        limits: Vec<(u64, Millis)>,
    },
    /// Judge senders on receivers drawn at random, against the best obedient sender. Prints Markdown tables.
    Capacity {
        /// How many receivers to draw.
        #[arg(long, default_value_t = 100)]
        receivers: u64,
        /// The seed of the first receiver; each further one has the next seed.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Virtual minutes for each receiver, from 6 to 1440.
        #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(6..=1_440))]
        minutes: u64,
        /// Judge the named receivers instead, one row for each.
        #[arg(long, conflicts_with_all = ["receivers", "seed"])]
        named: bool,
        /// Judge the receiver of this seed alone; with --named, that of this number.
        #[arg(long, conflicts_with_all = ["receivers", "seed"])]
        receiver: Option<u64>,
        /// With --receiver: print what each sender had, in slices of ten seconds.
        #[arg(long, requires = "receiver")]
        trace: bool,
        /// Print a line of JSON for each receiver instead of the tables.
        #[arg(long, conflicts_with = "trace")]
        json: bool,
        /// Also write the distribution as a picture to this file.
        #[arg(long, value_name = "FILE")]
        svg: Option<std::path::PathBuf>,
    },
    /// What a receiver meets when it comes back from an outage, as a Markdown table.
    Storm {
        /// Seeds per row; the table shows the worst.
        #[arg(long, default_value_t = 5)]
        seeds: u64,
    },
}

fn main() -> ExitCode {
    let args = Args::parse();
    match (args.command, args.seed) {
        (Some(What::Limits { seeds, limits }), _) => show_limits(seeds.max(1), &limits),
        (Some(What::Capacity { receivers, seed, minutes, named, receiver, trace, json, svg }), _) => {
            let targets = match (named, receiver) {
                (true, None) => Target::named(),
                (true, Some(n)) => Target::named().into_iter().filter(|target| target.seed == n).collect(),
                (false, Some(seed)) => vec![Target::random(seed)],
                (false, None) => (seed..seed.saturating_add(receivers)).map(Target::random).collect(),
            };
            let form = match (trace, json, named || receiver.is_some()) {
                (true, ..) => Form::Trace,
                (false, true, _) => Form::Json,
                (false, false, true) => Form::Rows,
                (false, false, false) => Form::Summary,
            };
            show_capacity(targets, minutes, form, svg.as_deref())
        }
        (Some(What::Storm { seeds }), _) => show_storm(seeds.max(1)),
        (None, Some(seed)) => replay(seed, args.trace),
        (None, None) => doubt(args.from, args.seeds),
    }
}

/// A run stops after so many failures: the first few tell enough.
const FAILURES_MAX: usize = 10;

fn doubt(from: u64, seeds: u64) -> ExitCode {
    let began = Instant::now();
    let live = std::io::stderr().is_terminal();
    let step = (seeds / 100).max(1);
    let totals = check_all(from..from.saturating_add(seeds), FAILURES_MAX, |done| {
        if live && done.is_multiple_of(step) {
            eprint!("\r{done} of {seeds} worlds");
        }
    });
    if live {
        eprintln!("\r{:40}\r", "");
    }
    for failure in &totals.failures {
        println!("seed {}: {}", failure.seed, failure.promise);
        println!("  replay: cargo run --release -p doorstep-sim -- --seed {} --trace", failure.seed);
    }
    println!(
        "{} worlds from seed {from} on, {} deliveries, {} commands, {} of virtual time in {:.1} s",
        totals.worlds,
        totals.deliveries,
        totals.commands,
        totals.lasted,
        began.elapsed().as_secs_f64()
    );
    let kept = totals.worlds - totals.failures.len() as u64;
    println!("{kept} passed, {} failed", totals.failures.len());
    if totals.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64, trace: bool) -> ExitCode {
    match check(seed, trace) {
        Ok(report) => {
            println!(
                "seed {seed}: every promise kept: {} deliveries, {} commands, {} of virtual time",
                report.deliveries, report.commands, report.lasted
            );
            ExitCode::SUCCESS
        }
        Err(failure) => {
            for line in &failure.trace {
                println!("{line}");
            }
            println!("seed {seed}: {}", failure.promise);
            ExitCode::FAILURE
        }
    }
}

fn read_limit(text: &str) -> Result<(u64, Millis), String> {
    let wanted = || format!("\"{text}\" is not a limit: write requests and seconds, such as 100/30");
    let (capacity, secs) = text.split_once('/').ok_or_else(wanted)?;
    match (capacity.parse(), secs.parse()) {
        (Ok(capacity @ 1..=1_000_000), Ok(secs @ 1..=86_400)) => Ok((capacity, Millis::from_secs(secs))),
        _ => Err(wanted()),
    }
}

fn show_limits(seeds: u64, others: &[(u64, Millis)]) -> ExitCode {
    let sizes = if others.is_empty() { &limits::SIZES } else { others };
    println!("| limit | kind | says when | used, Doorstep | refused, Doorstep | used, naive | refused, naive |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut missed = 0;
    for says_when in [true, false] {
        for &(capacity, window) in sizes {
            for kind in Kind::ALL {
                let limit = Limit { capacity, window, kind, says_when };
                let ours = worst(limit, Who::Doorstep, seeds);
                let naive = worst(limit, Who::Naive, seeds);
                let says = if says_when { "yes" } else { "no" };
                println!(
                    "| {capacity} per {window} | {} | {says} | {:.1} % | {:.2} % | {:.1} % | {:.2} % |",
                    kind.name(),
                    ours.used * 100.0,
                    ours.refused * 100.0,
                    naive.used * 100.0,
                    naive.refused * 100.0
                );
                missed += usize::from(!ours.is_good());
            }
        }
    }
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn worst(limit: Limit, who: Who, seeds: u64) -> Measured {
    let all = (1..=seeds).map(|seed| limits::measure(limit, who, seed));
    all.fold(Measured { used: f64::MAX, refused: 0.0 }, |a, b| Measured {
        used: a.used.min(b.used),
        refused: a.refused.max(b.refused),
    })
}

/// How the verdicts on receivers are printed.
enum Form {
    Summary,
    Rows,
    Json,
    Trace,
}

/// Fails if the judge itself is wrong: a sender that is better than the oracle. Missed targets do not fail.
fn show_capacity(targets: Vec<Target>, minutes: u64, form: Form, svg: Option<&Path>) -> ExitCode {
    if targets.is_empty() {
        eprintln!(
            "no receiver to judge: --receivers must be at least 1, --receiver with --named from 1 to {}",
            Target::named().len()
        );
        return ExitCode::FAILURE;
    }
    let n = targets.len();
    let live = std::io::stderr().is_terminal();
    let verdicts = judge_all(targets, minutes, |done| {
        if live {
            eprint!("\r{done} of {n} receivers");
        }
    });
    if live {
        eprint!("\r{:40}\r", "");
    }
    match form {
        Form::Summary => print!("{}", report::summary(&verdicts, minutes)),
        Form::Rows => print!("{}", report::named(&verdicts, minutes)),
        Form::Json => verdicts.iter().for_each(|verdict| println!("{}", report::json(verdict, minutes))),
        Form::Trace => verdicts.iter().for_each(|verdict| print!("{}", report::trace(verdict, minutes))),
    }
    if let Some(path) = svg
        && let Err(error) = std::fs::write(path, report::picture(&verdicts))
    {
        eprintln!("cannot write {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    let mut sound = true;
    for verdict in &verdicts {
        for above in &verdict.above_oracle {
            sound = false;
            eprintln!(
                "receiver {}: the oracle is not the best: {above} ({})",
                verdict.target.seed, verdict.target.name
            );
        }
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn show_storm(seeds: u64) -> ExitCode {
    println!("| strategy | per second before | in vain during | peak second after | peak ÷ before | drained after |");
    println!("| --- | --- | --- | --- | --- | --- |");
    let mut ours = f64::MAX;
    for strategy in Strategy::ALL {
        let peak = |storm: &Storm| storm.peak_after();
        let worst = (1..=seeds).map(|seed| storm::run(strategy, seed)).max_by_key(peak);
        let Some(storm) = worst else { continue };
        let ratio = f64::from(u32::try_from(storm.peak_after()).unwrap_or(u32::MAX)) / storm.before();
        println!(
            "| {} | {:.0} | {} | {} | {ratio:.1} | {} |",
            strategy.name(),
            storm.before(),
            storm.during(),
            storm.peak_after(),
            storm.drained_after()
        );
        if strategy == Strategy::Doorstep {
            ours = ratio;
        }
    }
    if ours <= 2.0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
