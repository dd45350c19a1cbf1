//! What Doorstep remembers.
//!
//! [`memory`] is the runnable specification: the plainest code that keeps the promises. Other stores are compared
//! with it.

pub mod memory;
