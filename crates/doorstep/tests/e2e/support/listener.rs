//! `doorstep listen` as a process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use serde_json::Value;

use super::Journal;

#[derive(Debug)]
pub(crate) struct Listener {
    process: Child,
    pub(crate) address: SocketAddr,
    /// What it says of each request.
    pub(crate) records: Arc<Journal<Value>>,
}

impl Listener {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_at(0, options)
    }

    pub(crate) fn start_at(port: u16, options: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_doorstep"))
            .args(["listen", "--json", "--port", &port.to_string()])
            .args(options)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = Arc::new(Journal::default());
        let (lines, journal) = (BufReader::new(process.stderr.take().unwrap()).lines(), Arc::clone(&said));
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line: String| journal.push(line)));
        let records = Arc::new(Journal::default());
        let (lines, journal) = (BufReader::new(process.stdout.take().unwrap()).lines(), Arc::clone(&records));
        thread::spawn(move || {
            lines.map_while(Result::ok).for_each(|line| journal.push(serde_json::from_str(&line).unwrap()));
        });
        let line = said.wait_for(1).swap_remove(0);
        let address = line.strip_prefix("listening on http://").unwrap_or_else(|| panic!("{line}"));
        Self { process, address: address.parse().unwrap(), records }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// What it said of this event's requests.
    pub(crate) fn of(&self, event: &str) -> Vec<Value> {
        self.records.all().into_iter().filter(|record| record["event_id"] == event).collect()
    }

    /// Waits until this event was answered with this.
    pub(crate) fn wait_for(&self, event: &str, answered: impl Into<Value>) -> Value {
        let answered = answered.into();
        self.records.wait(&format!("{event} answered {answered}"), |records| {
            records.iter().find(|record| record["event_id"] == event && record["answered"] == answered).cloned()
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
