//! `doorstep policy`: a retry policy can be looked at before it is used (B5).

mod source;
mod schedule;
mod words;
mod show;
mod timeline;
mod recovery;
mod simulate;
mod terminal;
mod svg;

use clap::Subcommand;

use crate::failure::Failure;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// When a delivery is tried again, as a table and in words
    Show(show::Args),
    /// What an outage would look like: one delivery's attempts, and the load when the receiver comes back
    Simulate(simulate::Args),
}

pub(crate) fn run(args: Args) -> Result<(), Failure> {
    match args.what {
        What::Show(args) => show::run(args),
        What::Simulate(args) => simulate::run(args),
    }
}
