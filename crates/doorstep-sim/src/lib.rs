//! What Doorstep doubts: its own decisions, under a virtual clock.
//!
//! [`world`] runs the scheduler, the gates and the memory store against hostile receivers and faults, and [`checker`] asks
//! after every step whether the promises still hold. [`arena`] measures instead: [`limits`], [`capacity`] and [`storm`].
//!
//! ```
//! let report = doorstep_sim::check::check(42, false).expect("every promise is kept in this world");
//! assert!(report.deliveries > 0);
//! ```

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
pub mod capacity;
pub mod storm;
