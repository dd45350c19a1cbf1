//! `doorstep keys`: the keys of the data directory.

mod rotate_master;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Seal all stored secrets with another master key; the server must not be running
    RotateMaster(rotate_master::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.what {
        What::RotateMaster(args) => rotate_master::run(args),
    }
}
