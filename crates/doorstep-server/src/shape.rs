//! What values look like, in the API's description: the rules of the domain once more, as JSON Schema.
//!
//! None of these types is ever made. A field names the one that describes it: `#[schema(value_type = shape::TenantId)]`.

use doorstep_core::api_key::Scope;
use doorstep_core::audit::{Action, AuditOutcome};
use doorstep_core::consent::Verification;
use doorstep_core::delivery::BehindDead;
use doorstep_core::gate::{GateStatus, LearnedReason, SuspensionReason, ThrottleReason, Why};
use doorstep_core::outcome::{Class, Fault};
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::retry::{BUILT_IN, DeadReason, PRESET_NAME_MAX};
use doorstep_core::route::{EVENT_TYPE_LEN_MAX, PATTERNS_MAX};
use doorstep_core::signature::ExtraStyle;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::schema::{SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::page::{CURSOR_BYTES_MAX, LIMIT_DEFAULT, LIMIT_MAX};

macro_rules! shapes {
    ($(#[doc = $about:literal] $name:ident = $schema:expr;)*) => {
        $(
            #[doc = $about]
            #[derive(Debug)]
            pub(crate) enum $name {}

            impl PartialSchema for $name {
                fn schema() -> RefOr<Schema> {
                    read(about($schema, $about))
                }
            }

            impl ToSchema for $name {}
        )*

        /// Each by its name. The ones that parameters name are found here alone.
        pub(crate) fn all() -> Vec<(&'static str, RefOr<Schema>)> {
            vec![$((stringify!($name), $name::schema()),)*]
        }

        #[cfg(test)]
        fn written() -> Vec<(&'static str, Value)> {
            vec![$((stringify!($name), about($schema, $about)),)*]
        }
    };
}

shapes! {
    /// A tenant's ID.
    TenantId = id("ten_");
    /// A destination's ID.
    DestinationId = id("dst_");
    /// A delivery's ID.
    DeliveryId = id("dlv_");
    /// An attempt's ID.
    AttemptId = id("att_");
    /// An API key's ID.
    KeyId = id("key_");
    /// A portal session's ID.
    SessionId = id("pss_");
    /// An event's ID: the producer's own, or one that was made. `batch` is the name of a route.
    EventId = text("^(?!batch$)[A-Za-z0-9_:-]+$", 1, 128, "evt_01j9zq3k5v8w2x4y6z7a8b9c0d");
    /// What kind of event it is: up to ten segments with dots between them.
    EventType = text(r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+){0,9}$", 1, 128, "invoice.paid");
    /// An event type in which `*` may stand for a segment; as the last one, for all that follow.
    TypePattern = text(r"^(\*|[A-Za-z0-9_-]+)(\.(\*|[A-Za-z0-9_-]+)){0,9}$", 1, 128, "invoice.*");
    /// Event types that a destination asks for.
    TypePatterns = json!({"type": "array", "items": refer("TypePattern"), "minItems": 1, "maxItems": 100, "example": ["invoice.*"]});
    /// A name for people, on one line.
    Name = text(ONE_LINE, 1, 200, "Acme");
    /// An e-mail address.
    Email = text(r"^[^@\s\u0000-\u001f\u007f-\u009f]+@[^@\s\u0000-\u001f\u007f-\u009f]+$", 3, 254, "ops@acme.example");
    /// A version of an event type's schema.
    SchemaVersion = text(ONE_LINE, 1, 64, "2026-11");
    /// Deliveries with the same key go in order to destinations that ask for it.
    OrderingKey = text(ONE_LINE, 1, 256, "invoice-17");
    /// A content type.
    ContentType = text("^[ -.0-~][ -~]*/[ -~]*$", 2, 256, "text/plain");
    /// Base64, with the standard alphabet, padded.
    Base64 = json!({
        "type": "string", "contentEncoding": "base64", "example": "aGVsbG8=",
        "pattern": "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=|[A-Za-z0-9+/][AQgw]==)?$",
    });
    /// Where events are delivered to. `http://` only where the operator allows it; no user and no fragment.
    TargetUrl = json!({
        "type": "string", "pattern": r"^[Hh][Tt][Tt][Pp][Ss]?:[^@#\u0000-\u001f\u007f-\u009f]+$", "maxLength": 2_048,
        "example": "https://acme.example/webhooks",
    });
    /// A signing secret: `whsec_` and 24 to 64 bytes in base64, or `whsk_` and the 32 bytes of an Ed25519 seed.
    SigningSecret = json!({
        "type": "string", "example": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "pattern": "^(whsec_(([A-Za-z0-9+/]{4}){8,20}([A-Za-z0-9+/][AQgw](==)?|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=?)?|\
            ([A-Za-z0-9+/]{4}){21}([A-Za-z0-9+/][AQgw](==)?)?)|whsk_([A-Za-z0-9+/]{4}){10}[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=?)$",
    });
    /// Headers that are sent along. Those that Doorstep or the connection sets cannot be given, and none twice.
    Headers = json!({
        "type": "object", "maxProperties": 32, "example": {"x-shop": "17"},
        "propertyNames": {"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$", "minLength": 1, "maxLength": 128},
        "additionalProperties": {"type": "string", "pattern": "^([!-~]([ -~]*[!-~])?)?$", "maxLength": 4_096},
    });
    /// A range of addresses that a key may be used from.
    Cidr = text(&format!("^({V4}/(3[0-2]|[12]?[0-9])|{}/(12[0-8]|1[01][0-9]|[1-9]?[0-9]))$", v6()), 4, 64, "10.0.0.0/8");
    /// What a key is good for. `admin` is good for everything.
    ScopeName = names(&[Scope::Ingest, Scope::Read, Scope::Operate, Scope::Admin]);
    /// What kind of answer a status is.
    ClassName = names(&[Class::Success, Class::Transient, Class::Throttled, Class::Ambiguous, Class::Permanent]);
    /// Why there was no answer.
    FaultName = names(&Fault::ALL);
    /// Why a delivery is dead.
    DeadReasonName = names(&DeadReason::ALL);
    /// What a delivery waits for.
    WaitName = names(&[
        Why::DueTime, Why::Pause, Why::Suspension, Why::Consent, Why::Throttle, Why::Breaker, Why::Concurrency, Why::Pace,
        Why::Ordering, Why::ReplayRate, Why::HostConcurrency, Why::Capacity, Why::UnreadablePayload,
    ]);
    /// What happens behind a dead delivery with the same ordering key: the others go on, or wait for a person.
    BehindDeadName = names(&[BehindDead::Skip, BehindDead::Hold]);
    /// Whether the body is the payload, or a reference to it.
    PayloadModeName = names(&[PayloadMode::Full, PayloadMode::Thin]);
    /// Whether the receiver has to agree before anything is sent, and how it is asked.
    VerificationName = names(&[Verification::None, Verification::CloudeventsOptions]);
    /// Requests per minute that a receiver agrees to, or `*` for as many as come.
    AllowedRate = json!({"type": "string", "pattern": "^(\\*|0*[1-9][0-9]*)$", "maxLength": 64, "example": "120"});
    /// How event and body are put together.
    FormatName = names(&[Format::Plain, Format::CloudeventsBinary, Format::CloudeventsStructured]);
    /// Header styles beside the standard one, for receivers that already verify them.
    ExtraStyleName = names(&[ExtraStyle::XSignature, ExtraStyle::Github, ExtraStyle::Stripe]);
    /// How a destination is doing.
    GateStatusName = names(&[
        GateStatus::Active, GateStatus::Throttled, GateStatus::Failing, GateStatus::Probing, GateStatus::Recovering,
        GateStatus::Suspended, GateStatus::Paused,
    ]);
    /// Why a destination is throttled: its receiver said for how long, did not say it, said that a quota is spent, or answered 503 and said for how long.
    ThrottleReasonName = names(&[ThrottleReason::Asked, ThrottleReason::Unsaid, ThrottleReason::QuotaSpent, ThrottleReason::Maintenance]);
    /// What taught a destination's pace: its receiver answered 429 (`refused`).
    LearnedReasonName = names(&[LearnedReason::Refused, LearnedReason::Overloaded]);
    /// Why a destination is suspended.
    SuspensionReasonName = names(&[SuspensionReason::Gone, SuspensionReason::OnlyRejections]);
    /// Whether it was done.
    AuditOutcomeName = names(&[AuditOutcome::Done, AuditOutcome::Denied]);
    /// What was done, in the audit log.
    ActionName = names(Action::ALL);
    /// States of deliveries with commas between them; `failed` is `retry_scheduled,dead`.
    StatusesAsked = json!({
        "type": "string", "example": "retry_scheduled,dead",
        "pattern": "^(queued|retry_scheduled|delivered|dead|failed)(,(queued|retry_scheduled|delivered|dead|failed))*$",
    });
    /// Event types, or patterns for them, with commas between them: any of these.
    TypesAsked = types_asked();
    /// A status code, or all of a class.
    CodesAsked = json!({"type": "string", "pattern": "^[1-5]([0-9]{2}|xx)$", "example": "5xx"});
    /// What statuses mean for a receiver, where it is not what they usually mean. Every 2xx is a success.
    StatusOverrides = json!({
        "type": "object", "maxProperties": 50, "example": {"404": "transient"},
        "propertyNames": {"type": "string", "pattern": "^[13-5][0-9]{2}$"},
        "additionalProperties": refer("ClassName"),
    });
    /// How deliveries are retried: a preset's name (`standard`, `patient`, `brief`, or one that the operator has defined) or an object. `cap_ms` is not less than `base_ms` (30 000 unless given).
    Policy = policy();
    /// Which payloads: paths and tests, all of which have to hold. At most 50 tests, and five groups within each other.
    Filter = json!({
        "type": "object", "minProperties": 1, "example": {"data.amount": {"gte": 100}},
        "properties": {
            "all": {"type": "array", "items": refer("Filter"), "minItems": 1},
            "any": {"type": "array", "items": refer("Filter"), "minItems": 1},
            "not": refer("Filter"),
        },
        "propertyNames": {"type": "string", "pattern": r"^((/([^/~]|~[01])*){1,16}|[^./][^.]*(\.[^.]+){0,15})$"},
        "additionalProperties": refer("FilterTest"),
    });
    /// What is said of one field: a value that it equals, a list that it is in, or operators.
    FilterTest = json!({
        "anyOf": [
            refer("FilterValue"),
            {"type": "array", "items": refer("FilterValue"), "minItems": 1, "maxItems": 100},
            {
                "type": "object", "minProperties": 1, "additionalProperties": false,
                "properties": {
                    "eq": refer("FilterValue"), "ne": refer("FilterValue"),
                    "gt": {"type": ["number", "string"]}, "gte": {"type": ["number", "string"]},
                    "lt": {"type": ["number", "string"]}, "lte": {"type": ["number", "string"]},
                    "in": {"type": "array", "items": refer("FilterValue"), "minItems": 1, "maxItems": 100},
                    "exists": {"type": "boolean"}, "prefix": {"type": "string"}, "suffix": {"type": "string"},
                    "contains": refer("FilterValue"),
                },
            },
        ],
    });
    /// A value that a field is compared with.
    FilterValue = json!({"type": ["string", "number", "boolean", "null"]});
    /// JSON Schemas (2020-12) of an event type by their versions.
    JsonSchemas = json!({
        "type": "object", "maxProperties": 32, "example": {"1": {"type": "object", "required": ["amount"]}},
        "propertyNames": {"type": "string", "pattern": ONE_LINE, "minLength": 1, "maxLength": 64},
        "additionalProperties": {"type": ["object", "boolean"]},
    });
    /// Lines of a page.
    Limit = json!({"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT});
    /// `next_cursor` of the page before, as it is.
    Cursor = json!({"type": "string", "pattern": "^[A-Za-z0-9_-]*$", "maxLength": CURSOR_BYTES_MAX});
    /// The producer's key for a request, with or without quotes.
    IdempotencyKey = json!({
        "type": "string", "pattern": r#"^(?!""$)[!-~]([ -~]*[!-~])?$"#, "minLength": 1, "maxLength": 255,
        "example": "8e03978e-40d5-43dd-bc93-6894a57f9324",
    });
    /// The trace that an event belongs to (W3C Trace Context). What is no `traceparent` is ignored.
    TraceParent = json!({"type": "string", "example": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"});
    /// The `ETag` that was seen last: the change is made only if it is still the one. Several with commas, or `*` for any.
    IfMatch = json!({"type": "string", "example": "\"1\""});
    /// The version of the specification.
    CloudEventsVersion = json!({"type": "string", "enum": ["1.0"]});
    /// Together with the source it identifies a CloudEvent.
    CloudEventId = text(ONE_LINE, 1, 256, "A234-1234-1234");
    /// Where a CloudEvent happened.
    CloudEventSource = text(ONE_LINE, 1, 1_024, "/shops/berlin");
    /// What a CloudEvent is about, within its source.
    CloudEventSubject = text(ONE_LINE, 1, 1_024, "orders/1234");
    /// `1.0` makes this a CloudEvent in binary mode: its attributes are headers, and the body is its data, of any content type.
    CeSpecVersion = json!({"type": "string", "example": "1.0"});
    /// The ID of a CloudEvent in binary mode, which has to have one.
    CeId = json!({"type": "string", "example": "A234-1234-1234"});
    /// The source of a CloudEvent in binary mode, which has to have one. Attributes in headers are percent-encoded.
    CeSource = json!({"type": "string", "example": "/shops/berlin"});
    /// The subject of a CloudEvent in binary mode.
    CeSubject = json!({"type": "string", "example": "orders/1234"});
    /// The type of a CloudEvent in binary mode, which has to have one.
    CeType = json!({"type": "string", "example": "invoice.paid"});
    /// The producer's time of a CloudEvent in binary mode.
    CeTime = json!({"type": "string", "example": "2026-11-15T12:00:00Z"});
    /// Whose event a CloudEvent in binary mode is, unless `?tenant_id=` says so.
    CeTenantId = json!({"type": "string", "example": "ten_01j9zq3k5v8w2x4y6z7a8b9c0d"});
    /// The code of a portal session, which works once.
    PortalCode = json!({"type": "string", "pattern": format!("^pss_{LETTERS}_[0-9a-hjkmnp-tv-z]{{52}}$")});
}

/// A body that must have these fields, none of them null.
pub(crate) fn needing(mut body: RefOr<Schema>, fields: &[&str]) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut body {
        for field in fields {
            object.required.push((*field).to_owned());
            if let Some(property) = object.properties.get_mut(*field) {
                not_null(property);
            }
        }
    }
    body
}

/// A body that must not have these fields.
pub(crate) fn without(mut body: RefOr<Schema>, fields: &[&str]) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut body {
        for field in fields {
            object.properties.remove(*field);
        }
    }
    body
}

/// A body for which something more holds if it is like this. Clients that are made from the description take the body for an object with its
/// properties; with `oneOf` beside them they cannot make it at all.
pub(crate) fn with_rule(mut body: RefOr<Schema>, [if_so, then, otherwise]: [Value; 3]) -> RefOr<Schema> {
    if let RefOr::T(Schema::Object(object)) = &mut body {
        object.extensions = Some(Extensions::from_iter([("if", if_so), ("then", then), ("else", otherwise)]));
    }
    body
}

/// Takes null away from what may be left out.
pub(crate) fn not_null(schema: &mut RefOr<Schema>) {
    let is_null = |one: &RefOr<Schema>| match one {
        RefOr::T(Schema::Object(object)) => object.schema_type == SchemaType::Type(Type::Null),
        RefOr::T(_) | RefOr::Ref(_) => false,
    };
    let RefOr::T(Schema::OneOf(either)) = schema else { return };
    if let Some(other) = either.items.iter().find(|one| !is_null(one)).cloned() {
        *schema = other;
    }
}

/// 128 bits in letters.
const LETTERS: &str = "[0-7][0-9a-hjkmnp-tv-z]{25}";
/// No control characters.
const ONE_LINE: &str = r"^[^\u0000-\u001f\u007f-\u009f]+$";
const V4: &str = r"((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])\.){3}(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";

/// Without an IPv4 address at its end, which may stand there too.
fn v6() -> String {
    let part = "[0-9A-Fa-f]{1,4}";
    let mut ways = vec![format!("({part}:){{7}}{part}"), format!("({part}:){{1,7}}:")];
    ways.extend((1..=6).map(|n| format!("({part}:){{1,{}}}(:{part}){{1,{n}}}", 7 - n)));
    ways.push(format!(":((:{part}){{1,7}}|:)"));
    format!("({})", ways.join("|"))
}

fn id(prefix: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}{LETTERS}$"), "example": format!("{prefix}01j9zq3k5v8w2x4y6z7a8b9c0d")})
}

fn text(pattern: &str, least: usize, most: usize, example: &str) -> Value {
    json!({"type": "string", "pattern": pattern, "minLength": least, "maxLength": most, "example": example})
}

fn types_asked() -> Value {
    let pattern = r"(\*|[A-Za-z0-9_-]+)(\.(\*|[A-Za-z0-9_-]+)){0,9}";
    let (longest, others) = (EVENT_TYPE_LEN_MAX + 1, PATTERNS_MAX - 1);
    let whole = format!("^(?!([^,]*,)*[^,]{{{longest}}}){pattern}(,{pattern}){{0,{others}}}$");
    json!({"type": "string", "pattern": whole, "example": "invoice.*,*.paid"})
}

fn names<T: Serialize>(all: &[T]) -> Value {
    json!({"type": "string", "enum": all})
}

fn delay() -> Value {
    json!({"type": ["integer", "null"], "minimum": 10, "maximum": 2_592_000_000_u64})
}

fn schedule() -> Value {
    let delays = json!({"type": "integer", "minimum": 10, "maximum": 2_592_000_000_u64});
    let delays = json!({"delays_ms": {"type": "array", "items": delays, "minItems": 1, "maxItems": 100}});
    let mut schedule = strategy("schedule", delays, &["full", "equal", "none"]);
    schedule["required"] = json!(["strategy", "delays_ms"]);
    schedule
}

fn policy() -> Value {
    json!({
        "oneOf": [
            {"type": "string", "pattern": format!("^[a-z0-9_-]{{1,{PRESET_NAME_MAX}}}$"), "examples": BUILT_IN},
            strategy("exponential", json!({"base_ms": delay(), "cap_ms": delay()}), &["full", "equal", "decorrelated", "none"]),
            strategy("fixed", json!({"base_ms": delay()}), &["full", "equal", "none"]),
            schedule(),
        ],
        "example": "standard",
    })
}

fn strategy(name: &str, own: Value, jitters: &[&str]) -> Value {
    let mut properties = json!({
        "strategy": {"type": "string", "enum": [name]},
        "jitter": {"type": ["string", "null"], "enum": jitters.iter().map(|name| json!(name)).chain([Value::Null]).collect::<Vec<_>>()},
        "floor_ms": delay(),
        "max_attempts": {"type": ["integer", "null"], "minimum": 1, "maximum": 1_000},
        "window_ms": {"type": ["integer", "null"], "minimum": 10, "maximum": 7_776_000_000_u64},
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut properties, own) {
        all.extend(own);
    }
    json!({"type": "object", "required": ["strategy"], "properties": properties, "additionalProperties": false})
}

fn refer(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn about(mut schema: Value, about: &str) -> Value {
    schema["description"] = about.trim().into();
    schema
}

fn read(schema: Value) -> RefOr<Schema> {
    // That nothing is lost here is tested.
    serde_json::from_value(schema).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_shape_is_in_the_document() {
        for ((name, read), (_, written)) in all().into_iter().zip(written()) {
            assert_eq!(serde_json::to_value(read).unwrap(), written, "{name}");
        }
    }
}
