//! Events as CloudEvents 1.0 over HTTP, in both of its content modes.

use std::borrow::Cow;
use std::fmt::Write;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Serialize;

use super::json;
use crate::event::Event;

pub(super) const CONTENT_TYPE: &str = "application/cloudevents+json";
const SPEC_VERSION: &str = "1.0";

/// The binary mode: the body is the data, and its content type is the request's.
pub(super) fn headers(event: &Event) -> Vec<(&'static str, String)> {
    let mut headers = vec![
        ("ce-specversion", SPEC_VERSION.to_owned()),
        ("ce-id", percent_encoded(id(event))),
        ("ce-source", percent_encoded(&source(event))),
        ("ce-type", percent_encoded(event.event_type.as_str())),
        ("ce-time", time(event)),
    ];
    headers.extend(subject(event).map(|subject| ("ce-subject", percent_encoded(subject))));
    headers
}

/// The structured mode: JSON stands in it as it is, anything else in base64.
pub(super) fn body(event: &Event, content_type: &str, data: &[u8]) -> Bytes {
    let text = std::str::from_utf8(data)
        .ok()
        .filter(|text| is_json(content_type) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok());
    let attributes = Attributes {
        specversion: SPEC_VERSION,
        id: id(event),
        source: source(event),
        r#type: event.event_type.as_str(),
        subject: subject(event),
        time: time(event),
        datacontenttype: content_type,
        data_base64: text.is_none().then(|| STANDARD.encode(data)),
    };
    let attributes = json(&attributes);
    let Some(text) = text else { return attributes };
    // As it came, and not as it would be written again: numbers keep their digits.
    let open = &attributes[..attributes.len() - 1];
    [open, b",\"data\":", text.as_bytes(), b"}"].concat().into()
}

#[derive(Serialize)]
struct Attributes<'a> {
    specversion: &'static str,
    id: &'a str,
    source: Cow<'a, str>,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    time: String,
    datacontenttype: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_base64: Option<String>,
}

/// What came as a CloudEvent goes out with the same ID, source and subject: they are what its producer calls it.
fn id(event: &Event) -> &str {
    event.cloud.as_ref().map_or(event.id.as_str(), |cloud| &cloud.id)
}

/// Together with the ID it identifies the event. An ID of ours is unique within its tenant.
fn source(event: &Event) -> Cow<'_, str> {
    match &event.cloud {
        Some(cloud) => Cow::Borrowed(&cloud.source),
        None => Cow::Owned(format!("/tenants/{}", event.tenant_id)),
    }
}

fn subject(event: &Event) -> Option<&str> {
    event.cloud.as_ref()?.subject.as_deref()
}

fn time(event: &Event) -> String {
    event.happened_at().to_rfc3339()
}

fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || essence.ends_with("+json")
}

/// Text as a header's value: a space, `"`, `%` and whatever is not printable ASCII is encoded (HTTP binding, 3.1.3.2).
pub fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'"' | b'%' => _ = write!(encoded, "%{byte:02X}"),
            b'!'..=b'~' => encoded.push(char::from(byte)),
            _ => _ = write!(encoded, "%{byte:02X}"),
        }
    }
    encoded
}
