//! The commands. Each is a module with its `Args` and a `run` that either succeeds or says how it failed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config;
use crate::failure::Failure;

/// A self-hosted webhook delivery engine
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, infer_subcommands = false)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the configuration in force, and where each value comes from
    Config(config::show::Args),
}

pub(crate) fn run() -> ExitCode {
    // A usage mistake ends here, in clap's words and with its exit code, which is ours: 2.
    match dispatch(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Config(args) => config::show::run(args),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_and_their_options_fit_together() {
        Cli::command().debug_assert();
    }
}
