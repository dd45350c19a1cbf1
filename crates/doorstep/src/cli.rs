//! The commands, and how their failures are told.

use std::process::ExitCode;

use clap::Parser;

/// A self-hosted webhook delivery engine
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {}

pub(crate) fn run() -> ExitCode {
    Cli::parse();
    ExitCode::SUCCESS
}
