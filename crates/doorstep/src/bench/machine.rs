//! What the machine is, and what a process has taken of it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

/// Syncs that are tried: the middle one counts.
const PROBES: usize = 51;
/// Ticks that `/proc` counts in a second, on every Linux that there is.
const TICKS_PER_SECOND: f64 = 100.0;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    cores: usize,
    kernel: String,
    filesystem: String,
    fsync_ms: f64,
}

impl Machine {
    pub(super) fn look(directory: &Path) -> anyhow::Result<Self> {
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let system = std::env::consts::OS;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: format!("{system} {}", kernel.trim()).trim_end().to_owned(),
            filesystem: filesystem(directory).unwrap_or_else(|| "unknown filesystem".to_owned()),
            fsync_ms: fsync(directory)?.as_secs_f64() * 1e3,
        })
    }
}

impl std::fmt::Display for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cores, kernel, filesystem, fsync_ms } = self;
        write!(f, "{cores} cores, {kernel}, {filesystem}, {fsync_ms:.2} ms to sync 4 KiB")
    }
}

fn filesystem(directory: &Path) -> Option<String> {
    let directory = directory.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?))
    });
    let holding = mounts.filter(|(at, _)| directory.starts_with(at));
    holding.max_by_key(|(at, _)| at.len()).map(|(_, kind)| kind.to_owned())
}

fn fsync(directory: &Path) -> anyhow::Result<Duration> {
    let mut file = File::create(directory.join("fsync"))?;
    let mut took = Vec::with_capacity(PROBES);
    for _ in 0..PROBES {
        let began = Instant::now();
        file.write_all(&[0x55; 4_096])?;
        file.sync_data()?;
        took.push(began.elapsed());
    }
    took.sort_unstable();
    Ok(took[PROBES / 2])
}

/// Memory in MB: now, and at most so far. Nothing where there is no `/proc`.
pub(super) fn memory(pid: u32) -> Option<(f64, f64)> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? * 1_024.0 / 1e6)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// Processor time that a process has used, in seconds.
pub(super) fn cpu(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, and ends with the last bracket.
    let mut words = stat.rsplit_once(") ")?.1.split(' ').skip(11);
    let mut ticks = || words.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_lives_has_memory_and_used_time() {
        let (now, most) = memory(std::process::id()).unwrap();
        assert!(0.1 < now && now <= most, "{now} MB now, {most} MB at most");
        assert!(cpu(std::process::id()).is_some());
        assert!(memory(u32::MAX).is_none());
    }
}
