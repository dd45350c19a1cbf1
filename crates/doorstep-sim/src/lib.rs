//! What Doorstep doubts: its own decisions, under a virtual clock.

pub mod limiter;

pub mod arena;
pub mod senders;
pub mod limits;
