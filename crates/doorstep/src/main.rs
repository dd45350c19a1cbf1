//! Doorstep, the command: reads its arguments and its configuration, and puts the parts together.

mod cli;
mod failure;
mod output;

mod config;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
