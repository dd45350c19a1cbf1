//! A server of its own for each test, and the command that talks to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::running::Running;

pub(crate) const KEY: &str = "a-key-for-these-tests-and-nothing-else";

/// The real binary on a port and a directory of its own.
pub(crate) struct Server {
    running: Running,
    pub(crate) directory: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--allow-targets", "127.0.0.0/8", "--log-level", "warn"])
            .args(flags)
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .env_clear()
            .env("DOORSTEP_ADMIN_KEY", KEY);
        Self { running: Running::start(&mut command), directory }
    }

    pub(crate) fn base(&self) -> &str {
        &self.running.base
    }

    /// Runs a command with the administrator's key.
    pub(crate) fn run(&self, words: &[&str]) -> Ran {
        self.run_with(words, KEY)
    }

    pub(crate) fn run_with(&self, words: &[&str], key: &str) -> Ran {
        let env = [("DOORSTEP_URL", self.base()), ("DOORSTEP_API_KEY", key)];
        run(words, &env, self.directory.path().to_str().unwrap())
    }
}

/// Runs a command, with no variables but these and nothing on standard input.
pub(crate) fn run(words: &[&str], env: &[(&str, &str)], at: &str) -> Ran {
    run_reading(words, env, at, "")
}

/// The same with this on standard input.
pub(crate) fn run_reading(words: &[&str], env: &[(&str, &str)], at: &str, input: &str) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doorstep"));
    command.args(words).current_dir(at).env_clear().envs(env.iter().copied());
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever reads nothing may have ended already.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    Ran { words: words.join(" "), output: process.wait_with_output().unwrap() }
}

/// What came of a command.
pub(crate) struct Ran {
    words: String,
    output: Output,
}

impl Ran {
    /// What it printed, if it ended like this.
    #[track_caller]
    pub(crate) fn ended(&self, code: i32) -> &str {
        assert_eq!(self.output.status.code(), Some(code), "{}: {}{}", self.words, self.out(), self.told());
        self.out()
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> &str {
        self.ended(0)
    }

    /// The one object that it printed.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(self.ok()).unwrap()
    }

    /// The objects that it printed, one per line.
    #[track_caller]
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The ID, or whatever else stands alone.
    #[track_caller]
    pub(crate) fn word(&self) -> String {
        let out = self.ok().trim_end();
        assert!(!out.is_empty() && !out.contains(char::is_whitespace), "{}: {out}", self.words);
        out.to_owned()
    }

    pub(crate) fn told(&self) -> &str {
        std::str::from_utf8(&self.output.stderr).unwrap()
    }

    fn out(&self) -> &str {
        std::str::from_utf8(&self.output.stdout).unwrap()
    }
}

/// Where everything is answered with 200.
pub(crate) fn receiver() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let head: Vec<String> =
                stream.by_ref().lines().map_while(Result::ok).take_while(|l| !l.is_empty()).collect();
            let length =
                head.iter().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            if stream.read_exact(&mut body).is_ok() {
                // Who has gone away needs no answer.
                let _ =
                    stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok");
            }
        }
    });
    url
}
