//! Where Doorstep is touched: the HTTP API.
//!
//! [`router`] has every route; [`connections`] serves them to clients that may be slow, many or gone. The API knows the engine
//! and the store by core's traits alone.

pub mod router;
pub mod connections;
pub mod openapi;
pub mod auth;

mod app;
mod problem;
mod ask;
mod body;
mod bodies;
mod answers;
mod field;
mod object;
mod etag;
mod page;
mod rates;
mod shares;
mod searches;
pub mod watchers;
mod shape;
mod when;
mod api;

pub use app::{App, Limits, Place};
