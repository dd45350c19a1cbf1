//! An event as a producer sends it, and everything that can be wrong with it.

pub(super) mod cloud;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use doorstep_core::custom_headers::CustomHeaders;
use doorstep_core::event::{CloudAttributes, Event, KeyDigest, Offer};
use doorstep_core::id::{EventId, TenantId};
use doorstep_core::reach::Reach;
use doorstep_core::route::EventType;
use doorstep_core::search::ORDERING_KEY_CHARS_MAX;
use doorstep_core::similar::nearest;
use doorstep_core::time::Millis;
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::app::App;
use crate::problem::{FieldFault, Problem};
use crate::shape;
use crate::when::{self, Given};

/// `POST /v1/events/batch` stands where an event with this ID would be read.
const RESERVED_ID: &str = "batch";
pub(crate) const SCHEMA_VERSION_CHARS_MAX: usize = 64;
const CONTENT_TYPE_BYTES_MAX: usize = 256;
const IDEMPOTENCY_KEY_BYTES_MAX: usize = 255;
/// An event that nobody wants any more after this long; ninety days at most.
pub(crate) const TTL_MIN: u64 = 1_000;
pub(crate) const TTL_MAX: u64 = 90 * 24 * 3_600_000;
/// A name that resembles an unknown one is looked for among so many, and for so many events of a request: it takes time.
const SUGGESTED_OF_MAX: usize = 1_000;
pub(super) const SUGGESTED_MAX: usize = 5;
const JSON: &str = "application/json";

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewEvent<'a> {
    #[schema(value_type = shape::TenantId)]
    tenant_id: TenantId,
    #[serde(borrow)]
    #[schema(value_type = shape::EventType)]
    r#type: Cow<'a, str>,
    /// Any JSON value. Its bytes are sent exactly as they stand here.
    #[serde(borrow, default, deserialize_with = "even_null")]
    #[schema(value_type = Value, required = false, example = json!({"amount": 100}))]
    payload: Option<&'a RawValue>,
    /// Anything else, together with `content_type`.
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::Base64>)]
    payload_base64: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::ContentType>)]
    content_type: Option<Cow<'a, str>>,
    /// The producer's own ID; made if it is not given.
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::EventId>)]
    id: Option<Cow<'a, str>>,
    /// Deliveries with the same key go in order to destinations that ask for it.
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::OrderingKey>)]
    ordering_key: Option<Cow<'a, str>>,
    #[serde(default)]
    produced_at: Option<Given>,
    #[serde(borrow, default)]
    #[schema(value_type = Option<shape::SchemaVersion>)]
    schema_version: Option<Cow<'a, str>>,
    /// It is given up after this long, whatever its destinations' policies say.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 7_776_000_000_u64)]
    ttl_ms: Option<u64>,
    /// Sent along with each of its deliveries.
    #[serde(default)]
    #[schema(value_type = Option<shape::Headers>)]
    headers: Option<BTreeMap<String, String>>,
    /// The payload, where it comes neither as JSON nor in base64.
    #[serde(skip)]
    bytes: Option<Cow<'a, [u8]>>,
    #[serde(skip)]
    cloud: Option<CloudAttributes>,
}

/// The body of a new event: its payload is JSON, or it is in base64 and has a content type.
#[derive(Debug)]
pub(crate) enum EventBody {}

impl PartialSchema for EventBody {
    fn schema() -> RefOr<Schema> {
        shape::with_rule(
            NewEvent::schema(),
            [
                json!({"required": ["payload"]}),
                json!({"properties": {"payload_base64": {"type": "null"}}}),
                json!({
                    "required": ["payload_base64", "content_type"],
                    "properties": {"payload_base64": {"type": "string"}, "content_type": {"type": "string"}},
                }),
            ],
        )
    }
}

impl ToSchema for EventBody {
    fn name() -> std::borrow::Cow<'static, str> {
        "NewEvent".into()
    }

    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        NewEvent::schemas(all);
    }
}

impl<'a> NewEvent<'a> {
    /// A CloudEvent with nothing but what identifies it.
    fn bare(tenant_id: TenantId, r#type: Cow<'a, str>, cloud: CloudAttributes) -> Self {
        Self {
            tenant_id,
            r#type,
            payload: None,
            payload_base64: None,
            content_type: None,
            id: None,
            ordering_key: None,
            produced_at: None,
            schema_version: None,
            ttl_ms: None,
            headers: None,
            bytes: None,
            cloud: Some(cloud),
        }
    }

    /// Whether it has an ID of its producer's.
    pub(super) fn is_named(&self) -> bool {
        self.id.is_some() || self.cloud.is_some()
    }

    /// The event that is meant, whatever its type asks for. `keep` makes bytes of ours out of those of the body.
    pub(super) fn read(
        self,
        app: &App,
        reach: Reach,
        key: Option<&IdempotencyKey>,
        keep: impl FnOnce(&[u8]) -> Bytes,
    ) -> Result<Offer, Problem> {
        if app.engine.tenant(reach, self.tenant_id).is_none() {
            return Err(Problem::names_nothing("/tenant_id", format!("there is no tenant {}", self.tenant_id)));
        }
        let mut faults = Vec::new();
        let mut fault = |pointer: &str, detail: String| faults.push(FieldFault::new(pointer, detail));
        let event_type: Option<EventType> =
            self.r#type.parse().map_err(|wrong| fault("/type", format!("{wrong}"))).ok();
        let key = key.map(|key| key.digest(self.tenant_id));
        let other_id = self.cloud.as_ref().map(|cloud| cloud_event_id(self.tenant_id, cloud));
        let id = match (&self.id, key) {
            // Its own ID if it can be ours too; otherwise there is no need for another one.
            (None, _) if self.cloud.is_some() => {
                let own = self.cloud.as_ref().filter(|cloud| *cloud.id != *RESERVED_ID);
                own.and_then(|cloud| EventId::new(&cloud.id).ok()).or_else(|| other_id.clone())
            }
            (Some(id), _) if id == RESERVED_ID => {
                fault(
                    "/id",
                    format!(
                        "`{RESERVED_ID}` is the name of a route, so that the event could not be read: choose another"
                    ),
                );
                None
            }
            (Some(id), _) => EventId::new(id).map_err(|wrong| fault("/id", wrong.to_string())).ok(),
            (None, Some(key)) => Some(key.event_id()),
            (None, None) => Some(EventId::generated(app.engine.new_id())),
        };
        for (pointer, text, max) in [
            ("/ordering_key", &self.ordering_key, ORDERING_KEY_CHARS_MAX),
            ("/schema_version", &self.schema_version, SCHEMA_VERSION_CHARS_MAX),
        ] {
            if let Some(text) = text
                && (!(1..=max).contains(&text.chars().count()) || text.chars().any(char::is_control))
            {
                fault(pointer, format!("has 1 to {max} characters, and no line breaks or other control characters"));
            }
        }
        if let Some(ttl) = self.ttl_ms
            && !(TTL_MIN..=TTL_MAX).contains(&ttl)
        {
            fault("/ttl_ms", format!("must be between {TTL_MIN} and {TTL_MAX}, but is {ttl}"));
        }
        let headers = self.headers.unwrap_or_default();
        let headers = CustomHeaders::parse(headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        let headers = headers.map_err(|wrong| fault("/headers", wrong.to_string())).ok();
        let content_type = content_type(self.content_type.as_deref(), self.payload_base64.is_some());
        let content_type = content_type.map_err(|wrong| fault("/content_type", wrong)).ok();
        let payload = match self.bytes {
            Some(Cow::Borrowed(bytes)) => Ok(keep(bytes)),
            Some(Cow::Owned(bytes)) => Ok(bytes.into()),
            None => payload(self.payload, self.payload_base64.as_deref(), keep),
        };
        let payload = payload.map_err(|(pointer, wrong)| fault(pointer, wrong)).ok();
        let (Some(event_type), Some(id), Some(headers), Some(content_type), Some(payload), true) =
            (event_type, id, headers, content_type, payload, faults.is_empty())
        else {
            return Err(Problem::invalid(faults));
        };
        let max = app.limits.payload_max;
        if payload.len() > max {
            let detail =
                format!("the payload has {} bytes, {max} are allowed: send a reference to the data", payload.len());
            return Err(Problem::too_large(detail));
        }
        let accepted_at = app.engine.now();
        let event = Event {
            id,
            tenant_id: self.tenant_id,
            event_type,
            content_type,
            payload,
            ordering_key: self.ordering_key.map(|key| Arc::from(&*key)),
            produced_at: self.produced_at.map(|at| at.0),
            schema_version: self.schema_version.map(|version| Arc::from(&*version)),
            headers: headers.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            ttl: self.ttl_ms.map(Millis),
            accepted_at,
            wall_offset_ms: when::offset(accepted_at),
            trace: None,
            cloud: self.cloud.map(Arc::new),
        };
        let other_id = other_id.filter(|other| *other != event.id);
        Ok(Offer { event, key, other_id })
    }
}

/// Whether it is of a type that may come, with a payload as that type's look (I4). One that came before may come again, whatever
/// has become of its type since: it is nothing new (I2). `names` are the IDs that it may have come under: none if its ID was made here. `suggest_max` goes down with each
/// name that is suggested.
pub(super) async fn check_type(
    app: &App,
    reach: Reach,
    (event, names): (&Event, [Option<&EventId>; 2]),
    suggest_max: &mut usize,
) -> Result<(), Problem> {
    let name = &event.event_type;
    let unknown = app.limits.strict_event_types && app.engine.event_type(name).is_none();
    let misfits = if unknown { Vec::new() } else { app.engine.misfits(event).await? };
    if !unknown && misfits.is_empty() || came_before(app, reach, event, names).await? {
        return Ok(());
    }
    if !unknown {
        return Err(Problem::invalid(misfits.into_iter().map(FieldFault::from).collect()));
    }
    let near = suggest_max.checked_sub(1).and_then(|left| {
        *suggest_max = left;
        let known = app.engine.event_types(None, SUGGESTED_OF_MAX);
        nearest(name.as_str(), known.iter().map(|one| one.name.as_str())).map(str::to_owned)
    });
    let near = near.map_or(String::new(), |near| format!(": did you mean `{near}`?"));
    Err(Problem::invalid_at("/type", format!("no event type is registered as `{name}`{near}")))
}

async fn came_before(app: &App, reach: Reach, event: &Event, names: [Option<&EventId>; 2]) -> Result<bool, Problem> {
    for id in names.into_iter().flatten() {
        let found = app.fetch(|store| store.event(reach, Some(event.tenant_id), id.clone())).await?;
        let under_this_id = Event { id: id.clone(), ..event.clone() };
        if found.iter().any(|(_, before)| before.says_the_same_as(&under_this_id)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `null` is a payload like any other: only one that is left out is missing.
fn even_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn payload(
    json: Option<&RawValue>,
    base64: Option<&str>,
    keep: impl FnOnce(&[u8]) -> Bytes,
) -> Result<Bytes, (&'static str, String)> {
    match (json, base64) {
        (Some(json), None) => Ok(keep(json.get().as_bytes())),
        (None, Some(text)) => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|wrong| ("/payload_base64", format!("is not base64 (the standard alphabet, padded): {wrong}"))),
        (None, None) => {
            Err(("/payload", "is missing: give any JSON value, or payload_base64 and content_type".to_owned()))
        }
        (Some(_), Some(_)) => Err(("/payload_base64", "stands beside payload: give one of them".to_owned())),
    }
}

fn content_type(given: Option<&str>, is_bytes: bool) -> Result<Arc<str>, String> {
    match given {
        None if is_bytes => Err("is missing: say what payload_base64 holds, like text/plain".to_owned()),
        None => Ok(JSON.into()),
        Some(given) => {
            let fits = given.len() <= CONTENT_TYPE_BYTES_MAX
                && given.contains('/')
                && !given.starts_with('/')
                && given.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
                && HeaderValue::from_str(given).is_ok();
            if fits { Ok(given.into()) } else { Err("is not a content type, like application/xml".to_owned()) }
        }
    }
}

/// The producer's key for a request, or for one event of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IdempotencyKey(Vec<u8>);

impl IdempotencyKey {
    /// What is kept of it. It names the event if that has no ID of its own: the same each time, so that the store itself
    /// recognises a repetition, in the very transaction that accepts the event.
    fn digest(&self, tenant_id: TenantId) -> KeyDigest {
        KeyDigest(hashed(tenant_id, &[&self.0]))
    }

    /// The key of one event of a batch. No key that is given has a NUL in it.
    pub(super) fn of_item(&self, at: usize) -> Self {
        Self([self.0.as_slice(), b"\0", at.to_string().as_bytes()].concat())
    }
}

/// The ID of a CloudEvent whose own cannot be used: the same each time, and another for each source. No key that is given
/// starts with a NUL, and no source contains one.
fn cloud_event_id(tenant_id: TenantId, cloud: &CloudAttributes) -> EventId {
    EventId::generated(hashed(tenant_id, &[b"\0", cloud.source.as_bytes(), b"\0", cloud.id.as_bytes()]))
}

fn hashed(tenant_id: TenantId, parts: &[&[u8]]) -> u128 {
    let mut context = Context::new(&SHA256);
    context.update(&tenant_id.0.to_be_bytes());
    parts.iter().for_each(|part| context.update(part));
    let mut bits = [0; 16];
    bits.copy_from_slice(&context.finish().as_ref()[..16]);
    u128::from_be_bytes(bits)
}

/// The producer's key for this request, quoted or not (the draft has it as a structured field's string).
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut lines = headers.get_all("idempotency-key").iter();
    let Some(value) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(Problem::invalid_at("idempotency-key:", "is there more than once: send one key per request"));
    }
    let wrong = || {
        let detail = format!("is 1 to {IDEMPOTENCY_KEY_BYTES_MAX} visible ASCII characters, with or without quotes");
        Problem::invalid_at("idempotency-key:", detail)
    };
    let text = value.to_str().map_err(|_| wrong())?.trim();
    let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    let fits =
        (1..=IDEMPOTENCY_KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
    if fits { Ok(Some(IdempotencyKey(key.into()))) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_each_time_and_another_for_another_tenant() {
        let (one, two) = (TenantId(1), TenantId(2));
        let key = |text: &str| IdempotencyKey(text.into());
        assert_eq!(key("a").digest(one), key("a").digest(one));
        assert_ne!(key("a").digest(one), key("a").digest(two));
        assert_ne!(key("a").digest(one), key("b").digest(one));
        assert_ne!(key("a").digest(one), key("a").of_item(0).digest(one));
        assert_ne!(key("a").of_item(1).digest(one), key("a").of_item(11).digest(one));
    }

    #[test]
    fn a_key_is_read_quoted_or_bare() {
        let read = |value: &str| {
            let headers = HeaderMap::from_iter([("idempotency-key".parse().unwrap(), value.parse().unwrap())]);
            idempotency_key(&headers)
        };
        for text in ["\"8e03\"", "8e03"] {
            assert_eq!(read(text).unwrap(), Some(IdempotencyKey("8e03".into())));
        }
        assert!(read("\"\"").is_err() && read(&"x".repeat(256)).is_err());
        assert_eq!(idempotency_key(&HeaderMap::new()).unwrap(), None);
        let twice = ["a", "a"].map(|key| ("idempotency-key".parse().unwrap(), key.parse().unwrap()));
        assert!(idempotency_key(&HeaderMap::from_iter(twice)).is_err(), "nobody knows which one is meant");
    }

    #[test]
    fn a_cloud_events_other_id_is_the_same_each_time_and_another_for_each_source_and_id() {
        let of = |source: &str, id: &str| CloudAttributes { id: id.into(), source: source.into(), subject: None };
        let id = |source: &str, id: &str| cloud_event_id(TenantId(1), &of(source, id));
        assert_eq!(id("/a", "1"), id("/a", "1"));
        for other in [id("/b", "1"), id("/a", "2"), id("/a1", ""), cloud_event_id(TenantId(2), &of("/a", "1"))] {
            assert_ne!(id("/a", "1"), other);
        }
    }

    #[test]
    fn bytes_need_a_content_type_and_json_has_one() {
        assert_eq!(&*content_type(None, false).unwrap(), "application/json");
        assert!(content_type(None, true).is_err());
        assert_eq!(&*content_type(Some("text/plain; charset=utf-8"), true).unwrap(), "text/plain; charset=utf-8");
        for wrong in ["", "text", "/x", "text/plain\r\nx: y", "täxt/plain"] {
            assert!(content_type(Some(wrong), true).is_err(), "{wrong:?}");
        }
    }
}
