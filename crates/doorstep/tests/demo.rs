//! The demo shows what it promises.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Slower than any machine should be.
const PATIENCE: Duration = Duration::from_secs(60);

struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_newcomer_sees_throttling_and_the_breaker_at_work() {
    let mut demo = Demo(
        Command::new(env!("CARGO_BIN_EXE_doorstep"))
            .args(["demo", "--port", "0", "--rate", "20/s"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let lines = BufReader::new(demo.0.stdout.take().unwrap()).lines();
    let (said, heard) = mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| said.send(line)));
    let mut wanted = vec!["healthy   first delivery: 200", "limited   throttled", "flaky     503", "outage    tripped"];
    let mut seen = Vec::new();
    while !wanted.is_empty() {
        let line =
            heard.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{wanted:?} did not come:\n{}", seen.join("\n")));
        wanted.retain(|part| !line.contains(part));
        seen.push(line);
    }
}
