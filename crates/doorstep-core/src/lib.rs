//! What Doorstep decides.
//!
//! Everything here is a plain function or a state machine over `(state, input, now, dice)`: no clock, no
//! randomness of its own, no I/O, no async. The same code runs in production, in the simulator and in
//! `doorstep policy simulate`.

pub mod time;
pub mod dice;
pub mod id;

pub mod hints;
pub mod outcome;
pub mod retry;
pub mod gate;
pub mod delivery;
pub mod scheduler;

pub mod route;
pub mod filter;
pub mod signature;
pub mod address;
pub mod custom_headers;
