//! What Doorstep does: it carries out over the network what `doorstep-core` decides.
//!
//! [`sender`] makes one HTTP request and reports what came back; [`resolve`] finds the addresses that it may go to.

pub mod resolve;
pub mod sender;
