//! Results on standard output.

use std::io::{self, Write};

use anyhow::Context;

use crate::failure::Failure;

/// Says on standard error how it goes.
pub(crate) fn note(text: &str) {
    // Nobody listens any more: the work goes on.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Prints what is told once and never again: it is a failure if nobody can have seen it.
pub(crate) fn print_once(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    Ok(written.context("cannot write to standard output")?)
}

/// Prints what the command was asked for.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // `doorstep … | head` has seen enough.
        Err(closed) if closed.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written.context("cannot write to standard output")?),
    }
}
