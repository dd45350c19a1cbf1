//! What Doorstep doubts: its own decisions, under a virtual clock.

pub mod roll;
pub mod limiter;
pub mod receiver;

pub mod scenario;
pub mod checker;
pub mod world;
pub mod fairness;
pub mod check;

pub mod arena;
pub mod senders;
pub mod limits;
pub mod storm;
