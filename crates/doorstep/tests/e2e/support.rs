//! The binary as a process, a client for it, and receivers.

mod client;
mod journal;
mod judge;
mod listener;
mod name_server;
mod receiver;
mod server;
#[path = "../shared/waiting.rs"]
mod waiting;

use aws_lc_rs::digest::{SHA256, digest};

pub(crate) use client::{Answer, Client, text};
pub(crate) use journal::Journal;
pub(crate) use judge::Judge;
pub(crate) use listener::Listener;
pub(crate) use name_server::NameServer;
pub(crate) use receiver::{OK, Receiver, Request};
pub(crate) use server::{Home, KEY, Server};
pub(crate) use waiting::{PATIENCE, in_repository, skipped, until};

/// In hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
