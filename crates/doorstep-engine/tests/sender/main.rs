//! The sender over real sockets on loopback, against receivers of every kind.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod support;
#[path = "../peers/frames.rs"]
#[expect(dead_code, reason = "the engine's tests use the rest")]
mod frames;

mod ordinary;
mod hostile;
mod asleep;
mod connections;
mod addresses;
mod secure;
mod http2;
mod identity;
mod outputs;
mod consent;
