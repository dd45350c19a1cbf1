//! How tests wait, and where they find things.

use std::io::Write;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// No test waits longer than this for what should have come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Where there is no event to wait for, so often is asked.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(20);

/// Asks until there is an answer.
pub(crate) fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain for {what}");
        thread::sleep(ASK_AGAIN_AFTER);
    }
}

/// A file of this repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Says what is left out on this machine, and why: a test that cannot run here is no success.
pub(crate) fn skipped(why: &str) {
    // Not by a macro: what those write is shown only when a test fails.
    let mut aside = std::io::stderr();
    writeln!(aside, "SKIPPED: {why}").unwrap();
}
