//! What Doorstep remembers: the [`Store`](doorstep_core::store::Store) that core asks for, several times over.
//!
//! - [`memory`] is the runnable specification: the plainest code that keeps the promises. Other stores are compared with it.

pub mod memory;

mod minute;
