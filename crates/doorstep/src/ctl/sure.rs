//! Asking before something is gone.

use std::io::{BufRead, IsTerminal};

use anyhow::Context;

use crate::failure::{Exit, Failure};
use crate::output;

/// Asks on a terminal; a script has to say so with `--yes`.
pub(super) fn sure(yes: bool, what: &str) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::said(Exit::Usage, format!("{what} cannot be undone: confirm it with --yes")));
    }
    output::note(&format!("{what}: this cannot be undone. Go on? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("cannot read the answer")?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::said(Exit::Failed, "nothing was done")),
    }
}
