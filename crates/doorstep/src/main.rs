//! Doorstep, the command: reads its arguments and its configuration, and puts the parts together.

mod cli;
mod failure;
mod output;
mod runtime;

mod config;
mod logging;
mod admin_key;
mod master_key;
mod private_file;
mod wire;
mod serve;
mod check;
mod rotate_master;
mod listen;
mod secret_source;
mod client;
mod send;
mod tail;
mod ctl;
mod sign;
mod verify;
mod about;
mod demo;
mod policy;
mod bench;

mod rate;
mod share;
mod span;

use std::process::ExitCode;

/// Many threads make and drop small things that others have made: see docs/benchmarks.md.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
