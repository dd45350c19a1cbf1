//! The pages keep their word: the programs of the receiver guide run and judge what the real binary sends, and the limits are those of the code.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test: whatever is missing fails it")]

#[expect(dead_code, unused_imports, reason = "the other tests that share it use the rest")]
mod support;
/// The Rust of the page, as it stands there.
#[expect(unreachable_pub, reason = "on the page it is somebody's library")]
mod receiver;

mod receiving;
mod lists;
mod limits;
