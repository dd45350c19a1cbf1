//! How a command fails: a number for scripts, and for people what is wrong, where, and how to put it right.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

use serde_json::Value;

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

impl Exit {
    /// In a line of JSON.
    fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::ConfigInvalid => "config_invalid",
            Self::NotFound => "not_found",
            Self::Auth => "auth",
            Self::Conflict => "conflict",
            Self::Unreachable => "unreachable",
            Self::Partial => "partial",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A command's failure: the exit code, and the reason with its causes.
pub(crate) struct Failure {
    exit: Exit,
    reason: anyhow::Error,
    /// What the server said, if it refused.
    problem: Option<Box<Value>>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, reason: impl Into<anyhow::Error>) -> Self {
        Self { exit, reason: reason.into(), problem: None }
    }

    /// A failure that is told in one sentence.
    pub(crate) fn said(exit: Exit, message: impl fmt::Display) -> Self {
        Self::new(exit, anyhow::anyhow!("{message}"))
    }

    /// With the problem (RFC 9457) that the server answered with.
    pub(crate) fn with_problem(self, problem: Value) -> Self {
        Self { problem: Some(Box::new(problem)), ..self }
    }

    /// The server's problem as it is, or else one in the same form.
    pub(crate) fn as_problem(&self) -> Value {
        if let Some(problem) = &self.problem {
            return Value::clone(problem);
        }
        let detail: Vec<String> = self.reason.chain().map(ToString::to_string).collect();
        serde_json::json!({ "type": "about:blank", "title": "The command failed", "detail": detail.join(": "), "code": self.exit.name() })
    }

    /// Prints the failure, for programs as a line of JSON, and gives the process its exit code.
    pub(crate) fn tell(&self, for_programs: bool) -> ExitCode {
        // When standard error is gone as well, the exit code has to say it all.
        let mut stderr = std::io::stderr().lock();
        let _ = if for_programs { writeln!(stderr, "{}", self.as_problem()) } else { write!(stderr, "{self}") };
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
        Self::new(Exit::Failed, reason)
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
    fn programs_are_told_in_one_line_and_in_the_servers_words_if_it_has_any() {
        let lost: Result<(), _> = Err(std::io::Error::other("the\ndisk is full"));
        let failure = Failure::from(lost.context("cannot write").unwrap_err());
        let told = failure.as_problem();
        assert_eq!((&told["detail"], &told["code"]), (&"cannot write: the\ndisk is full".into(), &"failed".into()));
        assert!(!told.to_string().contains('\n'));
        let problem = serde_json::json!({ "code": "not_found", "status": 404, "trace": "kept" });
        assert_eq!(failure.with_problem(problem.clone()).as_problem(), problem);
    }

    #[test]
    fn the_numbers_are_the_promised_ones() {
        let numbers = [Exit::Failed, Exit::Usage, Exit::ConfigInvalid, Exit::Partial, Exit::Interrupted];
        assert_eq!(numbers.map(|exit| exit as u8), [1, 2, 3, 8, 130]);
    }
}
