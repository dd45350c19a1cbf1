//! Who receives, and on whose behalf.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::delivery::Ordering;
use crate::gate::GateLimits;
use crate::id::{DestinationId, TenantId};
use crate::ingest_rate::IngestRate;
use crate::outcome::StatusOverrides;
use crate::output::link::LinkKey;
use crate::output::{Format, PayloadMode};
use crate::retry::RetryPolicy;
use crate::route::Subscription;
use crate::signature::ExtraStyle;
use crate::time::{Millis, Timestamp};

/// A customer of the operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    pub id: TenantId,
    pub name: String,
    pub contact_email: Option<String>,
    /// Its share in the turns.
    pub weight: u32,
    /// How fast its producers may send, if it has a limit of its own.
    #[serde(default)]
    pub ingest_rate: Option<IngestRate>,
    pub created_at: Timestamp,
    /// Counts the changes, for `ETag` and `If-Match`.
    #[serde(default = "first")]
    pub version: u64,
}

fn first() -> u64 {
    1
}

/// A URL that receives events, with its own filter, policy, limits and secrets.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    pub id: DestinationId,
    pub tenant_id: TenantId,
    pub settings: DestinationSettings,
    /// What must not be shown, logged or kept in the clear.
    pub secrets: DestinationSecrets,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Counts the changes, for `ETag` and `If-Match`.
    pub version: u64,
}

/// What a person may see and change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DestinationSettings {
    pub name: Option<String>,
    /// Normalised; read again with the address rules in force before each use.
    pub url: String,
    #[serde(flatten)]
    pub subscription: Subscription,
    pub policy: RetryPolicy,
    pub status_overrides: StatusOverrides,
    pub limits: GateLimits,
    pub ordering: Ordering,
    /// How long one request may take in all.
    pub timeout: Millis,
    /// Header styles beside the standard one.
    pub extra_signatures: BTreeSet<ExtraStyle>,
    /// What its connections prove and believe beyond the usual.
    #[serde(default)]
    pub tls: TlsSettings,
    #[serde(default)]
    pub payload_mode: PayloadMode,
    #[serde(default)]
    pub format: Format,
    /// Whether its requests carry the trace of their event on.
    #[serde(default = "yes")]
    pub send_traceparent: bool,
}

fn yes() -> bool {
    true
}

/// What TLS proves to one receiver, and whom it believes there (S3). Whoever set any of it has connections of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSettings {
    /// The certificate that is shown to the receiver, and those that lead to its root. Its key is among the secrets.
    pub client_certificate_pem: Option<String>,
    /// Roots that are believed at this receiver beside the usual ones.
    pub ca_pem: Option<String>,
}

impl TlsSettings {
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// Secrets in the clear, as the sender needs them. A store keeps them sealed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationSecrets {
    /// Signing secrets as text (`whsec_…`, `whsk_…`), newest first, each with the time at which it stops being used.
    pub signing: Vec<SigningSecret>,
    /// Custom request headers, `Authorization` among them.
    pub headers: Vec<(String, String)>,
    /// The key of the client certificate, in PEM.
    #[serde(default)]
    pub client_key_pem: Option<String>,
    /// Signs the links to payloads. It is known to nobody else, and stays as long as the destination.
    #[serde(default)]
    pub link_key: Option<LinkKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningSecret {
    pub text: String,
    /// Set when it was rotated out: it signs along until then.
    pub retires_at: Option<Timestamp>,
}

impl std::fmt::Debug for DestinationSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("DestinationSecrets")
            .field("signing", &self.signing.len())
            .field("headers", &names)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SigningSecret").field("retires_at", &self.retires_at).finish_non_exhaustive()
    }
}
