//! Clients of the real binary that are slow, greedy or sly, and what it writes into its log about all of them (S6, S8, M5).
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test: whatever is missing fails it")]

#[expect(dead_code, unused_imports, reason = "the other tests that share it use the rest")]
#[path = "../guide/support.rs"]
mod support;
mod raw;

mod access;
mod clients;
mod framing;
mod logs;
mod memory;
mod strangers;
