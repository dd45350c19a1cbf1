//! `doorstep serve` as a process.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

use tempfile::TempDir;

use super::{Client, Journal, until};

pub(crate) const KEY: &str = "the-administrators-key-of-these-tests";

/// Where a server keeps its data and its log; they outlive it.
#[derive(Debug)]
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    pub(crate) address: SocketAddr,
    /// Everything on standard output.
    pub(crate) printed: Arc<Journal<String>>,
    log: PathBuf,
}

impl Server {
    /// With loopback as an allowed target.
    pub(crate) fn start(home: &Home) -> Self {
        Self::start_with(home, &["--allow-targets", "127.0.0.0/8"])
    }

    pub(crate) fn start_with(home: &Home, options: &[&str]) -> Self {
        Self::spawn(Self::command(home, options), home)
    }

    /// What would start it, for those who need it to be different, or not to start.
    pub(crate) fn command(home: &Home, options: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(home.data()).args(options);
        command.env_clear().env("DOORSTEP_ADMIN_KEY", KEY);
        command
    }

    /// Starts what was put together, and waits until it is ready.
    pub(crate) fn spawn(mut command: Command, home: &Home) -> Self {
        let log = home.path().join("log");
        let log_file = File::options().create(true).append(true).open(&log).unwrap();
        command.current_dir(home.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file);
        let mut process = command.spawn().unwrap();
        let printed = Arc::new(Journal::default());
        let (lines, journal) = (BufReader::new(process.stdout.take().unwrap()).lines(), Arc::clone(&printed));
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| journal.push(line)));
        let mut server = Self { process, address: ([0, 0, 0, 0], 0).into(), printed, log };
        server.address = until("the line `listening on`", || {
            assert!(server.process.try_wait().unwrap().is_none(), "the server has ended at its start");
            let printed = server.printed.all();
            let address = printed.iter().find_map(|line| line.split_once("listening on http://"));
            address.map(|(_, address)| address.parse().unwrap())
        });
        server
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.address)
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as a power cut would.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Stops it as `kill -STOP` or a frozen container does; nobody tells it.
    pub(crate) fn freeze(&self) {
        self.signal("-STOP");
    }

    pub(crate) fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    pub(crate) fn ended(mut self) -> ExitStatus {
        until("the server's end", || self.process.try_wait().unwrap())
    }

    /// What it holds in memory, in KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4_000);
            // A help, no more.
            let mut aside = stderr();
            let _ = writeln!(aside, "the server's log ends with:\n{}", log.get(from..).unwrap_or(&log));
        } else {
            assert!(!self.log().contains("panicked at"), "a part of the server panicked:\n{}", self.log());
        }
    }
}
