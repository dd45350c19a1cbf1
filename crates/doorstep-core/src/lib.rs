//! What Doorstep decides.
//!
//! Everything here is a plain function or a state machine over `(state, input, now, dice)`: no clock, no
//! randomness of its own, no I/O, no async. The same code runs in production, in the simulator and in
//! `doorstep policy simulate`.
//!
//! ```
//! use doorstep_core::dice::Jitter;
//! use doorstep_core::hints::Hints;
//! use doorstep_core::outcome::{Outcome, StatusOverrides};
//! use doorstep_core::retry::{Charge, Decision, Progress, RetryPolicy};
//! use doorstep_core::time::{Millis, Timestamp};
//!
//! let now = Timestamp::from_secs(1_700_000_000);
//! let hints = Hints { retry_after: Some(Millis::from_mins(5)), ..Hints::default() };
//! let outcome = Outcome::from_status(500, hints, &StatusOverrides::default());
//!
//! let policy = RetryPolicy::standard();
//! let progress =
//!     Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at: policy.give_up_at(now, None) };
//! let decision = policy.next(&outcome, &progress, Charge::Attempt, now, Jitter::LOWEST);
//! assert_eq!(decision, Decision::RetryAt(now + Millis::from_mins(5)));
//! ```

pub mod time;
pub mod clock;
pub mod dice;
pub mod id;
pub mod id_map;

pub mod hints;
pub mod outcome;
pub mod retry;
pub mod gate;
pub mod delivery;
pub mod scheduler;

pub mod event;
pub mod event_type;
pub mod destination;
pub mod defaults;
pub mod consent;
pub mod ingest_rate;
pub mod quota;
pub mod attempt;
pub mod reach;
pub mod api_key;
pub mod audit;
pub mod portal;
pub mod search;
pub mod store;
pub mod sender;
pub mod engine;

pub mod route;
pub mod filter;
pub mod signature;
pub mod address;
pub mod custom_headers;
pub mod output;
pub mod trace;
pub mod similar;
