//! The real binary as its users meet it: a process with an HTTP API, receivers on real sockets, and judges that do not know
//! Doorstep. Each test has a server, a directory and ports of its own, so that they can run side by side.
//!
//! What is expected is written from the specification, not from the code.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test: whatever is missing fails it")]

mod support;
mod signatures;
mod payloads;
mod cloud_events;
mod erasing;
mod answers;
mod gate;
mod defaults;
mod dead_letters;
mod ordering;
mod crash;
mod clock;
mod learned;
mod asleep;
mod api;
mod proxies;
mod schemathesis;
mod generated_clients;
mod idempotency;
mod first_start;
mod targets;
mod connection_settings;
mod hostile;
mod drain;
mod disk;
mod damage;
