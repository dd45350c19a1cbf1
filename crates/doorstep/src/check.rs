//! `doorstep check`: whether the server could start here, and if not, what to do; and with `--deep`, whether all data is sound.

mod connections;
mod deep;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

use doorstep_core::time::Timestamp;
use doorstep_engine::clock::Clock;
use doorstep_store::sqlite::DataDir;
use serde::Serialize;

use crate::config::{self, Config};
use crate::failure::{Exit, Failure};
use crate::{master_key, output, private_file};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    config: config::Args,
    /// Check all stored data instead: structure, consistency, secrets and every payload. Changes nothing, and may run beside a server
    #[arg(long)]
    deep: bool,
    /// One JSON object per line
    #[arg(long)]
    json: bool,
}

/// Open files of the server itself: its data, its log, and what the runtime waits with.
const OWN_DESCRIPTORS: u64 = 64;

/// 2026-01-01: this version was not there before.
const CLOCK_MIN: Timestamp = Timestamp::from_secs(1_767_225_600);

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    result: Verdict,
    detail: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    // A faulty configuration is told in its own words, with its own exit code.
    let loaded = config::load_here(&args.config)?;
    let read = match &loaded.file {
        Some(path) => format!("read from {}, the environment and flags", path.display()),
        None => "no file; the environment, flags and defaults".to_owned(),
    };
    let mut findings = vec![Finding { check: "configuration", result: Verdict::Ok, detail: read }];
    findings.extend(if args.deep { deep::look(&loaded.config)? } else { look(&loaded.config)? });
    output::print(&shown(&findings, args.json))?;
    match findings.iter().filter(|finding| finding.result == Verdict::Fail).count() {
        0 => Ok(()),
        n => Err(Failure::said(Exit::Failed, format!("{n} of {} checks failed", findings.len()))),
    }
}

fn look(config: &Config) -> Result<Vec<Finding>, Failure> {
    let metrics = config.metrics_listen.map(|address| port("metrics", address, "--metrics-listen"));
    let mut findings = vec![
        data_dir(&config.data_dir),
        port("address", config.listen, "--listen"),
        admin_key(config),
        master_key(config),
        links(config),
        targets(config),
        descriptors(config),
        clock(Clock::start().wall()),
    ];
    findings.extend(metrics);
    findings.extend(connections::look(config)?);
    Ok(findings)
}

/// Nothing in it is touched: an older server's data must not be brought up to date by a look at it.
fn data_dir(path: &Path) -> Finding {
    let there = path.exists();
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (result, detail) = match tempfile::tempfile_in(if there { path } else { parent }) {
        Ok(_) if there => match private_file::open_to_others(path) {
            Some(mode) => {
                let advice = "other users of this machine can read in it: `chmod 700` it";
                (Verdict::Warn, format!("{} can be written, but has the mode {mode:o}; {advice}", path.display()))
            }
            None => (Verdict::Ok, format!("{} can be written", path.display())),
        },
        Ok(_) => (Verdict::Ok, format!("{} is made at the start", path.display())),
        Err(fault) => {
            let advice = "give this user the right to, or choose another with --data-dir";
            (Verdict::Fail, format!("{} cannot be written: {fault}; {advice}", path.display()))
        }
    };
    Finding { check: "data directory", result, detail }
}

fn port(check: &'static str, address: SocketAddr, flag: &str) -> Finding {
    let (result, detail) = match std::net::TcpListener::bind(address) {
        Ok(_) => (Verdict::Ok, format!("{address} is free")),
        Err(fault) => (Verdict::Fail, format!("{address} cannot be listened on: {fault}; choose another with {flag}")),
    };
    Finding { check, result, detail }
}

fn admin_key(config: &Config) -> Finding {
    let (result, detail) = match &config.admin_key {
        Some(_) => (Verdict::Ok, "given"),
        None => (Verdict::Ok, "made at the first start and printed once"),
    };
    Finding { check: "admin key", result, detail: detail.to_owned() }
}

fn master_key(config: &Config) -> Finding {
    let path = config.data_dir.join(master_key::FILE);
    let shown = path.display();
    let (result, detail) = match (&config.master_key, path.exists()) {
        (Some(_), _) => (Verdict::Ok, "given".to_owned()),
        (None, true) => match master_key::read(&path) {
            Ok(_) if !DataDir::holds_data(&config.data_dir) => (Verdict::Fail, master_key::without_data(&path)),
            Ok(_) => (Verdict::Ok, format!("in {shown}")),
            Err(fault) => {
                (Verdict::Fail, format!("{fault:#}: put the right one back, or give it as DOORSTEP_MASTER_KEY"))
            }
        },
        // A new one would not open anything, so the server does not start.
        (None, false) if DataDir::holds_data(&config.data_dir) => {
            let advice = "put it back, or give it as DOORSTEP_MASTER_KEY";
            (Verdict::Fail, format!("{shown} is not there, and what is stored is sealed with it: {advice}"))
        }
        (None, false) => (Verdict::Ok, format!("made at the first start, in {shown}")),
    };
    Finding { check: "master key", result, detail }
}

fn targets(config: &Config) -> Finding {
    let (result, detail) = if config.allow_targets.makes_exceptions() {
        (
            Verdict::Warn,
            "private ranges may be delivered to: make sure that only those who may reach them make destinations",
        )
    } else {
        (Verdict::Ok, "only public addresses may be delivered to, over https")
    };
    Finding { check: "targets", result, detail: detail.to_owned() }
}

fn links(config: &Config) -> Finding {
    let (result, detail) = match &config.public_url {
        Some(url) => (Verdict::Ok, format!("start with {url}")),
        None if config.listen.ip().is_unspecified() => {
            let advice = "set public_url (DOORSTEP_PUBLIC_URL) to where receivers reach this server";
            (Verdict::Warn, format!("thin payloads are refused, their links would lead nowhere: {advice}"))
        }
        None => (Verdict::Ok, format!("start with http://{}", config.listen)),
    };
    Finding { check: "links", result, detail }
}

fn descriptors(config: &Config) -> Finding {
    let check = "open files";
    let needed = descriptors_needed(config);
    let (result, detail) = match open_files_max() {
        None => (Verdict::Ok, "the limit cannot be read here".to_owned()),
        Some(max) if max < needed => (
            Verdict::Warn,
            format!("{max} are allowed, up to {needed} are needed under full load: raise it with `ulimit -n {needed}`"),
        ),
        Some(max) => (Verdict::Ok, format!("{max} are allowed")),
    };
    Finding { check, result, detail }
}

/// A machine whose clock was never set starts in 1970.
fn clock(wall: Timestamp) -> Finding {
    let shown = wall.to_rfc3339();
    let (result, detail) = if wall < CLOCK_MIN {
        let advice = "set it, or wait for time synchronisation: receivers refuse signatures with a wrong time";
        (Verdict::Warn, format!("{shown} cannot be right; {advice}"))
    } else {
        (Verdict::Ok, shown)
    };
    Finding { check: "clock", result, detail }
}

/// Each request in flight and each client takes one.
fn descriptors_needed(config: &Config) -> u64 {
    (config.in_flight_max + config.connections_max) as u64 + OWN_DESCRIPTORS
}

fn open_files_max() -> Option<u64> {
    let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits.lines().find(|line| line.starts_with("Max open files"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

fn shown(findings: &[Finding], json: bool) -> String {
    let mut text = String::new();
    for finding in findings {
        // Writing to a string does not fail.
        let _ = if json {
            writeln!(text, "{}", serde_json::to_string(finding).unwrap_or_default())
        } else {
            let word = match finding.result {
                Verdict::Ok => "ok",
                Verdict::Warn => "warn",
                Verdict::Fail => "FAIL",
            };
            writeln!(text, "{word:<4}  {:<14}  {}", finding.check, finding.detail)
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use doorstep_store::sqlite::SqliteLimits;

    use super::*;

    /// What is said of the master key of this directory.
    fn said(data_dir: &Path) -> (Verdict, String) {
        let mut config = config::load(&config::Args::default(), [], &[]).unwrap().config;
        config.data_dir = data_dir.to_owned();
        let Finding { result, detail, .. } = master_key(&config);
        (result, detail)
    }

    #[test]
    fn links_without_a_host_are_warned_of() {
        let said = |listen: &str, public_url: Option<&str>| {
            let mut config = config::load(&config::Args::default(), [], &[]).unwrap().config;
            (config.listen, config.public_url) = (listen.parse().unwrap(), public_url.map(str::to_owned));
            links(&config).result
        };
        assert_eq!([said("0.0.0.0:80", None), said("[::]:80", None)], [Verdict::Warn; 2]);
        assert_eq!([said("127.0.0.1:80", None), said("0.0.0.0:80", Some("https://a.b"))], [Verdict::Ok; 2]);
    }

    #[test]
    fn a_clock_that_was_never_set_is_warned_of() {
        let said = |secs| clock(Timestamp::from_secs(secs));
        assert_eq!((said(40).result, said(1_794_744_000).result), (Verdict::Warn, Verdict::Ok));
        assert!(said(40).detail.starts_with("1970-01-01T00:00:40.000Z"), "{}", said(40).detail);
    }

    #[test]
    fn open_files_are_counted_as_configured() {
        let needed = |env: &[(&str, &str)]| {
            let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            descriptors_needed(&config::load(&config::Args::default(), env, &[]).unwrap().config)
        };
        assert_eq!(needed(&[]), 4_096 + 4_096 + 64);
        assert_eq!(needed(&[("DOORSTEP_CONNECTIONS_MAX", "65536")]), 4_096 + 65_536 + 64);
        assert_eq!(needed(&[("DOORSTEP_IN_FLIGHT_MAX", "10"), ("DOORSTEP_CONNECTIONS_MAX", "1")]), 10 + 1 + 64);
    }

    #[test]
    fn a_master_key_is_made_only_where_nothing_is_sealed_yet() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        let (result, detail) = said(&path);
        assert_eq!((result, detail.starts_with("made at the first start")), (Verdict::Ok, true), "{detail}");

        let taken = DataDir::take(&path).unwrap();
        let keys = master_key::keyring(None, &taken).unwrap();
        drop(taken.open(keys, &SqliteLimits::default()).unwrap());
        let (result, detail) = said(&path);
        assert_eq!((result, detail.starts_with("in ")), (Verdict::Ok, true), "{detail}");

        let file = path.join(master_key::FILE);
        let (database, away) = (path.join("doorstep.db"), path.join("away.db"));
        std::fs::rename(&database, &away).unwrap();
        let (result, detail) = said(&path);
        assert_eq!((result, detail.contains("is missing or empty")), (Verdict::Fail, true), "{detail}");
        std::fs::rename(&away, &database).unwrap();

        std::fs::write(&file, "no key").unwrap();
        let (result, detail) = said(&path);
        assert_eq!((result, detail.contains("does not hold a key")), (Verdict::Fail, true), "{detail}");

        std::fs::remove_file(&file).unwrap();
        let (result, detail) = said(&path);
        assert_eq!((result, detail.contains("is not there")), (Verdict::Fail, true), "{detail}");
        assert!(!file.exists(), "a look makes nothing");
    }
}
