//! `doorstep check --deep`: everything that is stored.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use doorstep_store::seal::{Keyring, MasterKey};
use doorstep_store::sqlite::{CheckResult, DataDir, Finding as Stored, Progress};

use super::{Finding, Verdict};
use crate::config::Config;
use crate::failure::Failure;
use crate::{master_key, output};

/// How often progress is shown: on a terminal, and in a file.
const ON_A_TERMINAL: Duration = Duration::from_millis(200);
const IN_A_FILE: Duration = Duration::from_secs(10);

pub(super) fn look(config: &Config) -> Result<Vec<Finding>, Failure> {
    let keys = keys(config)?;
    let mut shown = Shown::new(io::stderr().is_terminal());
    let found = DataDir::inspect(&config.data_dir, keys, &mut |progress| shown.show(&progress));
    shown.end();
    let found = found.with_context(|| format!("cannot check {}", config.data_dir.display()))?;
    Ok(found.into_iter().map(finding).collect())
}

/// The master key, if it is at hand.
fn keys(config: &Config) -> anyhow::Result<Option<Keyring>> {
    if let Some(key) = &config.master_key {
        return Ok(Some(Keyring::new(MasterKey::new(&key.0))));
    }
    let path: &Path = &config.data_dir.join(master_key::FILE);
    if !path.exists() {
        return Ok(None);
    }
    Ok(Some(Keyring::new(MasterKey::new(&*master_key::read(path)?))))
}

fn finding(Stored { check, result }: Stored) -> Finding {
    let (result, detail) = match result {
        CheckResult::Sound(what) => (Verdict::Ok, what),
        CheckResult::Skipped(why) => (Verdict::Warn, format!("not checked: {why}")),
        CheckResult::Faulty { n, named, advice } => {
            let more = n.saturating_sub(named.len() as u64);
            let more = if more > 0 { format!("\n        and {more} more") } else { String::new() };
            (Verdict::Fail, format!("{n} found; {advice}\n        {}{more}", named.join("\n        ")))
        }
    };
    Finding { check, result, detail }
}

/// Progress on standard error, not too often.
struct Shown {
    on_a_terminal: bool,
    last: Option<(Instant, &'static str)>,
}

impl Shown {
    fn new(on_a_terminal: bool) -> Self {
        Self { on_a_terminal, last: None }
    }

    fn show(&mut self, progress: &Progress) {
        let Progress { check, rows } = *progress;
        let every = if self.on_a_terminal { ON_A_TERMINAL } else { IN_A_FILE };
        if self.last.is_some_and(|(at, of)| of == check && at.elapsed() < every) {
            return;
        }
        self.last = Some((Instant::now(), check));
        let of = rows.map_or(String::new(), |(n, of)| format!(": {n} of {of}"));
        let line = format!("checking {check}{of}");
        output::note(&if self.on_a_terminal { format!("\r\x1b[K{line}") } else { format!("{line}\n") });
    }

    fn end(&self) {
        if self.on_a_terminal && self.last.is_some() {
            output::note("\r\x1b[K");
        }
    }
}
