//! The commands as scripts use them: the real binary against a real server.
#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

#[path = "../shared/running.rs"]
mod running;
mod support;

mod about;
mod apply;
mod resources;
mod secret_sources;
mod signatures;
