//! Destinations of every kind through the API of the real server, and what their receivers get.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../shared/running.rs"]
mod running;
mod support;

mod identity;
mod signing;
mod statuses;
mod outputs;
mod hosts;
mod consent;
mod number;
mod filter_work;
