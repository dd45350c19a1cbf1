//! What Doorstep does: it carries out over the network what `doorstep-core` decides.
//!
//! [`run`] tells the scheduler what happened and carries out what it says; [`ingest`] takes events in; [`writer`] commits in
//! groups; [`maintain`] forgets what is old; [`consent`] asks receivers who have to agree first; [`desk`] is where the API asks. [`sender`] makes one HTTP request and reports
//! what came back; [`resolve`] finds the addresses that it may go to.

pub mod clock;
pub mod chance;
mod tenant_queues;
pub mod compute_pool;
pub mod catalog;
mod telling;
pub mod types;
pub mod writer;
pub mod unreadable;
pub mod events;
pub mod ingest;
pub mod run;
pub mod maintain;
pub mod timekeeper;
pub mod consent;
pub mod trials;
pub mod desk;
pub mod resolve;
pub mod sender;
