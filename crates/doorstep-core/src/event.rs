//! What happened: an event as a producer gave it, and as it is kept.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::id::{DeliveryId, DestinationId, EventId, TenantId};
use crate::route::EventType;
use crate::store::Refusal;
use crate::time::{Millis, Timestamp};
use crate::trace::TraceParent;

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
    /// How far the wall clock was ahead of schedule time when it was accepted. Kept, so that what is sent says the same on every
    /// attempt, although the clock may be set in between (D2).
    pub wall_offset_ms: i64,
    /// Where it comes from, for whoever follows its trace. A repetition may come from elsewhere.
    pub trace: Option<TraceParent>,
    /// What it says of itself as a CloudEvent, if it came as one.
    pub cloud: Option<Arc<CloudAttributes>>,
}

/// The attributes of a CloudEvent that no other event has. `source` and `id` together say which event it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudAttributes {
    /// As the producer gave it. [`Event::id`] is the same where it can be.
    pub id: Arc<str>,
    pub source: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Arc<str>>,
}

impl Event {
    /// Bytes of what a producer may make long.
    pub fn content_bytes(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        let cloud = self.cloud.as_ref().map_or(0, |cloud| {
            cloud.id.len() + cloud.source.len() + cloud.subject.as_ref().map_or(0, |subject| subject.len())
        });
        self.payload.len() + headers + cloud
    }

    /// Why another event with the same ID is refused, unless it is the same again. `has_its_key`: it comes with the key that
    /// this one was accepted with.
    pub fn differs_from(&self, other: &Self, has_its_key: bool) -> Option<Refusal> {
        // An event that did not come as a CloudEvent has no source.
        let source = |event: &Self| event.cloud.as_ref().map(|cloud| Arc::clone(&cloud.source));
        if self.says_the_same_as(other) {
            None
        } else if has_its_key {
            Some(Refusal::KeyReused)
        } else if source(self) != source(other) {
            Some(Refusal::SourceDiffers)
        } else {
            Some(Refusal::EventDiffers)
        }
    }

    /// When it happened by the wall clock, as receivers are told: as the producer said, or else when it was accepted.
    pub fn happened_at(&self) -> Timestamp {
        self.produced_at.unwrap_or(self.by_the_wall(self.accepted_at))
    }

    /// What the wall clock showed, or was to show, at this schedule time, as it looked when the event was accepted.
    pub fn by_the_wall(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_add(self.wall_offset_ms))
    }

    /// Whether a producer said the same with both, whenever that was (I2).
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        let Self { id, tenant_id, event_type, content_type, payload, .. } = self;
        let Self { ordering_key, produced_at, schema_version, headers, ttl, cloud, .. } = self;
        (id, tenant_id, event_type) == (&other.id, &other.tenant_id, &other.event_type)
            && (content_type, payload) == (&other.content_type, &other.payload)
            && (ordering_key, produced_at) == (&other.ordering_key, &other.produced_at)
            && (schema_version, headers, ttl) == (&other.schema_version, &other.headers, &other.ttl)
            && cloud == &other.cloud
    }
}

/// What is kept of a producer's `Idempotency-Key`: a digest of it, and of whatever else it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDigest(pub u128);

impl KeyDigest {
    /// The event that is named by the key, where it has no ID of its own. It needs no other record of the key.
    pub fn event_id(self) -> EventId {
        EventId::generated(self.0)
    }
}

/// An event as a producer offers it, with the key that says when it is the same again (I2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub event: Event,
    pub key: Option<KeyDigest>,
    /// The ID to take the event under if its own is that of an event from another source.
    pub other_id: Option<EventId>,
}

impl From<Event> for Offer {
    fn from(event: Event) -> Self {
        Self { event, key: None, other_id: None }
    }
}

/// An event to be accepted, with the deliveries that routing made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub event: Event,
    /// Kept as long as the event; no other event of the tenant is accepted with it.
    pub key: Option<KeyDigest>,
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
