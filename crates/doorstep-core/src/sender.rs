//! What the engine asks of whatever sends.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use thiserror::Error as ThisError;

use crate::attempt::Attempt;
use crate::consent::Leave;
use crate::delivery::Delivery;
use crate::destination::Destination;
use crate::event::Event;
use crate::outcome::Outcome;
use crate::time::Millis;

/// One request: to whom, what, and as which delivery.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub destination: Arc<Destination>,
    pub event: Arc<Event>,
    pub delivery: Delivery,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Sent {
    pub attempt: Attempt,
    pub outcome: Outcome,
}

/// What came of asking a receiver for its consent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// In whose name it was asked.
    pub origin: String,
    /// What it agreed to, or why that was no consent, for the people who own the destination.
    pub leave: Result<Leave, String>,
    /// It asks to be left alone for this long.
    pub wait: Option<Millis>,
}

pub trait Sender: Send + Sync {
    /// Makes one request. Whatever the receiver does is an outcome; only our own faults are errors.
    fn send(&self, parcel: Parcel) -> Pin<Box<dyn Future<Output = Result<Sent, SendFault>> + Send + '_>>;

    /// In whose name receivers are asked for their consent.
    fn origin(&self) -> &str {
        "localhost"
    }

    /// Asks for the receiver's consent.
    fn ask(&self, _: Arc<Destination>) -> Pin<Box<dyn Future<Output = Result<Asked, SendFault>> + Send + '_>> {
        Box::pin(async { Err(SendFault("this sender asks nobody".into())) })
    }

    /// Whether requests to this destination could be made at all.
    fn check(&self, _destination: &Destination) -> Result<(), Unsendable> {
        Ok(())
    }
}

/// What is wrong with a destination, for the person who wrote it.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("{detail}")]
pub struct Unsendable {
    /// As the API calls it.
    pub field: &'static str,
    pub detail: String,
}

/// The request could not be made, or its answer was lost, by our own fault: the delivery pays nothing for it (D6).
#[derive(Debug, ThisError)]
#[error("the request could not be made or was lost: {0}")]
pub struct SendFault(#[source] pub Box<dyn Error + Send + Sync>);
