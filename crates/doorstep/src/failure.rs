//! How a command fails: a number for scripts, and for people what is wrong, where, and how to put it right.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// What a script can tell a failure by. The numbers are promised: docs and other people's scripts rely on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Anything without a number of its own.
    Failed = 1,
    /// The command line makes no sense; clap uses the same number.
    Usage = 2,
    ConfigInvalid = 3,
    NotFound = 4,
    /// No key, a wrong one, or one that may not do this.
    Auth = 5,
    Conflict = 6,
    /// The server does not answer.
    Unreachable = 7,
    /// Of many things some were done and some failed.
    Partial = 8,
    /// Ctrl-C before the work was done.
    Interrupted = 130,
}

/// A command's failure: the exit code, and the reason with its causes.
pub(crate) struct Failure {
    exit: Exit,
    reason: anyhow::Error,
}

impl Failure {
    pub(crate) fn new(exit: Exit, reason: impl Into<anyhow::Error>) -> Self {
        Self { exit, reason: reason.into() }
    }

    /// A failure that is told in one sentence.
    pub(crate) fn said(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, reason: anyhow::anyhow!("{message}") }
    }

    /// Prints the failure and gives the process its exit code.
    pub(crate) fn tell(&self) -> ExitCode {
        // When standard error is gone as well, the exit code has to say it all.
        let _ = write!(std::io::stderr().lock(), "{self}");
        ExitCode::from(self.exit as u8)
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }
}

/// The reason, then each cause on its own line.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "error: {}", self.reason)?;
        for cause in self.reason.chain().skip(1) {
            writeln!(f, "  because: {cause}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.exit)
    }
}

/// With `?`, whatever has no number of its own is an ordinary failure.
impl From<anyhow::Error> for Failure {
    fn from(reason: anyhow::Error) -> Self {
        Self { exit: Exit::Failed, reason }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_failure_tells_its_causes_in_order() {
        let lost: Result<(), _> = Err(std::io::Error::other("the disk is full"));
        let failure = Failure::from(lost.context("cannot write curve.svg").unwrap_err());
        assert_eq!(failure.to_string(), "error: cannot write curve.svg\n  because: the disk is full\n");
        assert_eq!(failure.exit(), Exit::Failed);
    }

    #[test]
    fn the_numbers_are_the_promised_ones() {
        let numbers = [Exit::Failed, Exit::Usage, Exit::ConfigInvalid, Exit::Partial, Exit::Interrupted];
        assert_eq!(numbers.map(|exit| exit as u8), [1, 2, 3, 8, 130]);
    }
}
