//! How much of the store a tenant may take (G12): deliveries that are queued, and bytes that are kept.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attempt::Attempt;
use crate::event::Event;

/// What an event, a delivery and an attempt take beside what a producer or a receiver can make long: their rows and indexes, about.
pub const EVENT_BYTES: u64 = 512;
pub const DELIVERY_BYTES: u64 = 256;
pub const ATTEMPT_BYTES: u64 = 256;

/// Unfinished deliveries of one tenant, unless the operator says otherwise.
pub const QUEUED_DELIVERIES_MAX: u64 = 10_000_000;

impl Event {
    /// What it counts towards its tenant's quota, without its deliveries.
    pub fn stored_bytes(&self) -> u64 {
        EVENT_BYTES + self.content_bytes() as u64
    }
}

impl Attempt {
    /// What it counts towards its tenant's quota.
    pub fn stored_bytes(&self) -> u64 {
        ATTEMPT_BYTES + self.content_bytes() as u64
    }
}

/// The limits of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// `None`: any number.
    pub queued_deliveries: Option<u64>,
    pub stored_bytes: Option<u64>,
}

impl Quota {
    pub const UNLIMITED: Self = Self { queued_deliveries: None, stored_bytes: None };

    /// The operator's limits, with those that the tenant has of its own in their place.
    pub fn with(self, own: OwnQuota) -> Self {
        let limit = |own: Option<u64>, default: Option<u64>| own.map_or(default, |n| Some(n).filter(|n| *n > 0));
        Self {
            queued_deliveries: limit(own.queued_deliveries, self.queued_deliveries),
            stored_bytes: limit(own.stored_bytes, self.stored_bytes),
        }
    }

    /// What would be exceeded if so much were added.
    pub fn exceeded_by(self, usage: Usage, added: Usage) -> Option<QuotaExceeded> {
        let check = |what, limit: Option<u64>, used: u64, added: u64| {
            let limit = limit.filter(|limit| added > 0 && used.saturating_add(added) > *limit)?;
            Some(QuotaExceeded { what, limit, used })
        };
        check(Resource::QueuedDeliveries, self.queued_deliveries, usage.queued_deliveries, added.queued_deliveries)
            .or_else(|| check(Resource::StoredBytes, self.stored_bytes, usage.stored_bytes, added.stored_bytes))
    }
}

/// What a tenant has of its own: `None` is the operator's limit, 0 is none at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnQuota {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queued_deliveries: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
}

impl OwnQuota {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// What a tenant takes of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub queued_deliveries: u64,
    pub stored_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    QueuedDeliveries,
    StoredBytes,
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueuedDeliveries => "queued deliveries",
            Self::StoredBytes => "stored bytes",
        })
    }
}

/// A tenant has as much as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tenant has {used} {what}, and {limit} are allowed")]
pub struct QuotaExceeded {
    pub what: Resource,
    pub limit: u64,
    pub used: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenants_own_quota_stands_in_place_of_the_operators_and_zero_is_no_limit() {
        let default = Quota { queued_deliveries: Some(10), stored_bytes: None };
        for (own, expected) in [
            (OwnQuota::default(), default),
            (
                OwnQuota { queued_deliveries: Some(3), stored_bytes: Some(5) },
                Quota { queued_deliveries: Some(3), stored_bytes: Some(5) },
            ),
            (OwnQuota { queued_deliveries: Some(0), stored_bytes: None }, Quota::UNLIMITED),
        ] {
            assert_eq!(default.with(own), expected, "{own:?}");
        }
    }

    #[test]
    fn only_what_grows_is_refused_and_only_beyond_the_limit() {
        let quota = Quota { queued_deliveries: Some(10), stored_bytes: Some(1_000) };
        let usage = |queued_deliveries, stored_bytes| Usage { queued_deliveries, stored_bytes };
        let exceeded = |what, limit, used| Some(QuotaExceeded { what, limit, used });
        for (used, added, expected) in [
            (usage(9, 900), usage(1, 100), None),
            (usage(9, 900), usage(2, 1), exceeded(Resource::QueuedDeliveries, 10, 9)),
            (usage(9, 900), usage(1, 101), exceeded(Resource::StoredBytes, 1_000, 900)),
            (usage(12, 0), usage(0, 1), None),
            (usage(12, 0), usage(1, 1), exceeded(Resource::QueuedDeliveries, 10, 12)),
            (usage(u64::MAX, 0), usage(u64::MAX, 1), exceeded(Resource::QueuedDeliveries, 10, u64::MAX)),
        ] {
            assert_eq!(quota.exceeded_by(used, added), expected, "{used:?} {added:?}");
            assert_eq!(Quota::UNLIMITED.exceeded_by(used, added), None);
        }
    }
}
