//! What happened: an event as a producer gave it, and as it is kept.

use std::sync::Arc;

use bytes::Bytes;

use crate::id::{DeliveryId, DestinationId, EventId, TenantId};
use crate::route::EventType;
use crate::time::{Millis, Timestamp};

/// An event as it is kept. Its payload is sent byte for byte as it came (D2, I7).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub tenant_id: TenantId,
    pub event_type: EventType,
    pub content_type: Arc<str>,
    pub payload: Bytes,
    pub ordering_key: Option<Arc<str>>,
    pub produced_at: Option<Timestamp>,
    pub schema_version: Option<Arc<str>>,
    /// Sent along with each of its deliveries.
    pub headers: Vec<(String, String)>,
    pub ttl: Option<Millis>,
    pub accepted_at: Timestamp,
}

/// An event to be accepted, with the deliveries that routing made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub event: Event,
    pub deliveries: Vec<NewDelivery>,
}

/// A delivery to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewDelivery {
    pub id: DeliveryId,
    pub destination_id: DestinationId,
    /// Whether it keeps its place among the event's ordering key at this destination.
    pub ordered: bool,
    pub give_up_at: Timestamp,
}
