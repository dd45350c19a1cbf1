//! `doorstep serve` as a process of the test's own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// Killed when it is dropped.
pub(crate) struct Running {
    pub(crate) process: Child,
    /// Where it listens.
    pub(crate) base: String,
}

impl Running {
    /// Starts what was put together, and waits until it is ready.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let base = lines.find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.trim().to_owned())).unwrap();
        // Whatever else it says has to go somewhere.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        Self { process, base }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
