//! The binary as a process, a client for it, and a receiver: those of the end-to-end tests.

#[path = "../e2e/support/client.rs"]
mod client;
#[path = "../e2e/support/journal.rs"]
mod journal;
#[path = "../e2e/support/receiver.rs"]
mod receiver;
#[path = "../e2e/support/server.rs"]
mod server;
#[path = "../shared/waiting.rs"]
mod waiting;

pub(crate) use client::{Answer, Client, text};
pub(crate) use journal::Journal;
pub(crate) use receiver::{Receiver, Request};
pub(crate) use server::{Home, KEY, Server};
pub(crate) use waiting::{PATIENCE, in_repository, skipped, until};
