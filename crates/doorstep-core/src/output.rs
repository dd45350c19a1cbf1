//! What is really sent of an event: its payload or a reference to it (I5), plain or as a CloudEvent.
//!
//! It is the same on every attempt of a delivery (D2), as long as nobody changes the destination.

mod cloud_event;
pub mod link;

pub use cloud_event::percent_encoded;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::delivery::Delivery;
use crate::destination::Destination;
use crate::event::Event;
use link::PayloadLink;

/// What the body is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PayloadMode {
    /// The payload, byte for byte.
    #[default]
    Full,
    /// A reference, with a URL that the payload can be fetched from.
    Thin,
}

/// How event and body are put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    #[default]
    Plain,
    /// What there is to say about the event is in `ce-` headers.
    CloudeventsBinary,
    /// The body is a JSON object with the payload in it.
    CloudeventsStructured,
}

/// The body of a delivery's requests, and the headers that say what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    pub content_type: Arc<str>,
    pub body: Bytes,
    /// Names in lower case, values of printable ASCII characters.
    pub headers: Vec<(&'static str, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("there is no key to sign links to payloads with: set payload_mode to thin once more")]
pub struct NoLinkKey;

impl Output {
    /// `public_url` is where receivers find this server.
    pub fn of(
        destination: &Destination,
        event: &Event,
        delivery: &Delivery,
        public_url: &str,
    ) -> Result<Self, NoLinkKey> {
        let settings = &destination.settings;
        let (content_type, body) = match settings.payload_mode {
            PayloadMode::Full => (Arc::clone(&event.content_type), event.payload.clone()),
            PayloadMode::Thin => {
                let key = destination.secrets.link_key.as_ref().ok_or(NoLinkKey)?;
                let link = PayloadLink::of(delivery, &event.id);
                (JSON.into(), reference(event, &link, &link.url(public_url, key)))
            }
        };
        Ok(match settings.format {
            Format::Plain => Self { content_type, body, headers: Vec::new() },
            Format::CloudeventsBinary => Self { content_type, body, headers: cloud_event::headers(event) },
            Format::CloudeventsStructured => Self {
                content_type: cloud_event::CONTENT_TYPE.into(),
                body: cloud_event::body(event, &content_type, &body),
                headers: Vec::new(),
            },
        })
    }
}

const JSON: &str = "application/json";

#[derive(Serialize)]
struct Reference<'a> {
    event_id: &'a str,
    r#type: &'a str,
    tenant_id: String,
    produced_at: String,
    content_type: &'a str,
    payload_bytes: usize,
    payload_url: &'a str,
    expires_at: String,
}

fn reference(event: &Event, link: &PayloadLink<'_>, payload_url: &str) -> Bytes {
    let reference = Reference {
        event_id: event.id.as_str(),
        r#type: event.event_type.as_str(),
        tenant_id: event.tenant_id.to_string(),
        produced_at: event.happened_at().to_rfc3339(),
        content_type: &event.content_type,
        payload_bytes: event.payload.len(),
        payload_url,
        expires_at: event.by_the_wall(link.expires_at).to_rfc3339(),
    };
    json(&reference)
}

fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap_or_else(|fault| unreachable!("text and numbers are JSON: {fault}")).into()
}

#[cfg(test)]
mod tests;
