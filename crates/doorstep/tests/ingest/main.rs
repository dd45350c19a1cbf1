//! Taking events in, over HTTP, with the real binary.
#![expect(clippy::unwrap_used, reason = "a test stops where something is missing")]

#[path = "../shared/running.rs"]
mod running;
mod support;
mod event_types;
mod rates;
mod quotas;
mod repeated;
mod cloud_events;
