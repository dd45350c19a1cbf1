//! Who changed what, when and from where (S7).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::id::{KeyId, SessionId, TenantId};
use crate::reach::Reach;
use crate::similar::none_of;
use crate::time::Timestamp;

/// Somebody's leave to change something, with what will be noted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mandate {
    pub reach: Reach,
    pub entry: AuditEntry,
}

/// A line of the audit log. It is written along with the change, and never changed itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: Actor,
    /// The address that the request came from.
    pub from: Option<IpAddr>,
    /// Whose the thing is, if it is a tenant's.
    pub tenant_id: Option<TenantId>,
    pub action: Action,
    /// The ID of what was acted on.
    pub resource: String,
    pub outcome: AuditOutcome,
    /// Field by field: `{"name": {"before": …, "after": …}}`. Secrets are masked.
    pub changes: Map<String, Value>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Actor {
    /// Whoever has the key that the server was started with.
    Bootstrap,
    /// A command on the machine itself, while no server runs.
    Console,
    Key {
        id: KeyId,
        name: String,
    },
    Portal {
        id: SessionId,
    },
}

impl Actor {
    /// The text that a search asks for.
    pub fn name(&self) -> String {
        match self {
            Self::Bootstrap => "bootstrap".to_owned(),
            Self::Console => "console".to_owned(),
            Self::Key { id, .. } => id.to_string(),
            Self::Portal { id } => id.to_string(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    Done,
    Denied,
}

macro_rules! actions {
    ($($name:ident = $text:literal,)*) => {
        /// What was done, as `kind.verb`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum Action {
            $(#[serde(rename = $text)] $name,)*
        }

        impl Action {
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

actions! {
    TenantCreate = "tenant.create",
    TenantUpdate = "tenant.update",
    TenantErasePayloads = "tenant.erase_payloads",
    DestinationCreate = "destination.create",
    DestinationUpdate = "destination.update",
    DestinationDelete = "destination.delete",
    DestinationPause = "destination.pause",
    DestinationResume = "destination.resume",
    DestinationProbe = "destination.probe",
    DestinationClearThrottle = "destination.clear_throttle",
    DestinationTest = "destination.test",
    DestinationVerify = "destination.verify",
    DestinationRotateSecret = "destination.rotate_secret",
    DeliveryRetry = "delivery.retry",
    DeliveryAbandon = "delivery.abandon",
    EventTypeCreate = "event_type.create",
    EventTypeUpdate = "event_type.update",
    EventTypeDelete = "event_type.delete",
    KeyCreate = "key.create",
    KeyUpdate = "key.update",
    KeyRotate = "key.rotate",
    KeyRevoke = "key.revoke",
    MasterKeyRotate = "master_key.rotate",
    PortalSessionCreate = "portal_session.create",
    PortalSessionOpen = "portal_session.open",
    PortalSessionEnd = "portal_session.end",
    PortalSessionEndAll = "portal_session.end_all",
    RequestDenied = "request.denied",
}

impl Action {
    /// What kind of thing it is done to.
    pub fn kind(self) -> &'static str {
        self.name().split_once('.').map_or("", |(kind, _)| kind)
    }
}

impl std::str::FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|action| action.name() == text);
        known.copied().ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|action| action.name()).collect();
            none_of(text, &names)
        })
    }
}

/// So much of what has changed is noted, in bytes of JSON; of more only which fields they were.
pub const CHANGES_BYTES_MAX: usize = 16 * 1024;

/// The fields that differ, with what they were and what they are. `Null` stands for nothing at all.
pub fn changes(before: &Value, after: &Value) -> Map<String, Value> {
    let empty = Map::new();
    let (before, after) = (before.as_object().unwrap_or(&empty), after.as_object().unwrap_or(&empty));
    let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
    let differs = names.filter(|name| before.get(*name) != after.get(*name));
    let both = |name: &String| (name.clone(), json!({ "before": before.get(name), "after": after.get(name) }));
    let changes: Map<String, Value> = differs.map(both).collect();
    if Value::Object(changes.clone()).to_string().len() <= CHANGES_BYTES_MAX {
        return changes;
    }
    let too_long = || json!({ "before": "(too long to be noted)", "after": "(too long to be noted)" });
    changes.into_iter().map(|(name, _)| (name, too_long())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_noted() {
        let before = json!({ "name": "a", "url": "u", "gone": 1 });
        let after = json!({ "name": "b", "url": "u", "new": [2] });
        let expected = json!({
            "gone": { "before": 1, "after": null },
            "name": { "before": "a", "after": "b" },
            "new": { "before": null, "after": [2] },
        });
        assert_eq!(Value::Object(changes(&before, &after)), expected);
        assert_eq!(changes(&before, &before), Map::new());
    }

    #[test]
    fn a_change_that_is_too_long_is_noted_by_its_name() {
        let noted = changes(&Value::Null, &json!({ "filter": "x".repeat(CHANGES_BYTES_MAX) }));
        assert!(noted["filter"]["after"].as_str().unwrap().contains("too long"));
    }

    #[test]
    fn actions_are_read_as_they_are_written() {
        for action in Action::ALL {
            assert_eq!(action.name().parse::<Action>().unwrap(), *action);
            assert_eq!(serde_json::to_value(action).unwrap(), action.name());
            assert!(!action.kind().is_empty());
        }
        assert!("x".parse::<Action>().unwrap_err().contains("destination.pause"));
    }
}
