//! Event types that were registered (I4): what they are for, what their payloads look like, how long they matter (D8).
//!
//! Registering is optional: an event of a type that nobody registered is taken as it is, unless the operator wants it
//! otherwise. Types are the operator's, the same for all tenants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::route::EventType;
use crate::time::{Millis, Timestamp};

/// So many types can be registered …
pub const EVENT_TYPES_MAX: usize = 10_000;
/// … each with so many versions of its schema …
pub const SCHEMAS_MAX: usize = 32;
/// … each of so many bytes …
pub const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// … and all of them together of so many: they are kept in memory, ready for use.
pub const SCHEMA_BYTES_IN_ALL_MAX: usize = 32 * 1024 * 1024;

/// One registered type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisteredType {
    pub name: EventType,
    pub description: Option<String>,
    /// JSON Schemas by their version. One that is there is neither changed nor taken away: events that were taken by it
    /// may be on their way still.
    pub schemas: BTreeMap<String, Value>,
    /// The one that counts for an event that names none. There is one if there are schemas.
    pub default_version: Option<String>,
    pub example: Option<Value>,
    /// For events that bring none of their own.
    pub ttl: Option<Millis>,
    /// No more events of it are taken.
    pub archived: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Counts the changes, for `ETag` and `If-Match`.
    pub version: u64,
}

impl RegisteredType {
    /// How much its schemas weigh.
    pub fn schema_bytes(&self) -> usize {
        self.schemas.values().map(|schema| schema.to_string().len()).sum()
    }

    /// The version that counts for an event, given the one that it names.
    pub fn version_for<'a>(&'a self, named: Option<&'a str>) -> Option<&'a str> {
        named.or(self.default_version.as_deref())
    }
}

/// Where something does not fit: a payload its schema, a schema the rules for schemas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// A JSON Pointer into the event, or into the type.
    pub pointer: String,
    pub detail: String,
}

impl Misfit {
    pub fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// A key of an object as one step of a JSON Pointer (RFC 6901).
pub fn pointer_step(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
