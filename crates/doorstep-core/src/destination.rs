//! Who receives, and on whose behalf.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::consent::{Consent, Verification};
use crate::defaults::{Chosen, TIMEOUT_DEFAULT, TenantDefaults};
use crate::delivery::Ordering;
use crate::gate::GateLimits;
use crate::id::{DestinationId, TenantId};
use crate::ingest_rate::IngestRate;
use crate::outcome::StatusOverrides;
use crate::output::link::LinkKey;
use crate::output::{Format, PayloadMode};
use crate::quota::OwnQuota;
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
    /// How much it may take of the store, where that differs from the operator's limits.
    #[serde(default, skip_serializing_if = "OwnQuota::is_none")]
    pub quota: OwnQuota,
    /// What its destinations get that were given nothing of their own.
    #[serde(default)]
    pub defaults: TenantDefaults,
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
    /// What its receiver has agreed to, if it was asked. Kept apart: changing the rest leaves it as it is.
    pub consent: Option<Consent>,
}

impl Destination {
    /// Nothing may be sent to it: its receiver has to be asked, and has not agreed to be sent to at this URL.
    pub fn awaits_consent(&self) -> bool {
        self.is_verified() && self.consent_in_force().is_none()
    }

    /// What its receiver has agreed to, where it has to be asked.
    pub fn consent_in_force(&self) -> Option<&Consent> {
        self.consent.as_ref().filter(|consent| self.is_verified() && consent.url == self.settings.url)
    }

    fn is_verified(&self) -> bool {
        match self.settings.verification {
            Verification::None => false,
            Verification::CloudeventsOptions => true,
        }
    }

    /// Its limits, or what its receiver has agreed to if that is less.
    pub fn limits(&self) -> GateLimits {
        let leave = self.consent_in_force().map(|consent| consent.leave).unwrap_or_default();
        leave.narrow(self.settings.limits.clone())
    }
}

/// What a person may see and change. Policy, limits and timeout are those in force: [`Defaults`](crate::defaults::Defaults) sets
/// them from what was chosen.
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
    #[serde(default)]
    pub verification: Verification,
    /// What it was given of what has a default. `None`: it was stored before there was a choice, and was given all that it has.
    #[serde(default)]
    pub chosen: Option<Chosen>,
    /// The name of the preset that its policy is.
    #[serde(default)]
    pub preset: Option<String>,
}

impl DestinationSettings {
    /// Those of a destination that was given a URL and nothing else.
    pub fn new(url: String) -> Self {
        Self {
            name: None,
            url,
            subscription: Subscription::default(),
            policy: RetryPolicy::standard(),
            status_overrides: StatusOverrides::default(),
            limits: GateLimits::default(),
            ordering: Ordering::default(),
            timeout: TIMEOUT_DEFAULT,
            extra_signatures: BTreeSet::new(),
            tls: TlsSettings::default(),
            payload_mode: PayloadMode::default(),
            format: Format::default(),
            send_traceparent: true,
            verification: Verification::default(),
            chosen: Some(Chosen::default()),
            preset: None,
        }
    }
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

/// Secrets in the clear, as the sender needs them, wiped when they are dropped. A store keeps them sealed.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestinationSecrets {
    /// Signing secrets as text (`whsec_…`, `whsk_…`), newest first, each with the time at which it stops being used.
    pub signing: Vec<SigningSecret>,
    /// Custom request headers, `Authorization` among them.
    pub headers: Vec<(String, Zeroizing<String>)>,
    /// The key of the client certificate, in PEM.
    #[serde(default)]
    pub client_key_pem: Option<Zeroizing<String>>,
    /// Signs the links to payloads. It is known to nobody else, and stays until all links shall end, or
    /// as long as the destination.
    #[serde(default)]
    pub link_key: Option<LinkKey>,
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningSecret {
    pub text: Zeroizing<String>,
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

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    /// Whoever adds a field has to say here what it is.
    #[test]
    fn every_secret_is_wiped_when_it_is_dropped() {
        fn is_wiped(_: &impl ZeroizeOnDrop) {}
        let DestinationSecrets { signing, headers, client_key_pem, link_key } = DestinationSecrets {
            signing: vec![SigningSecret { text: "whsec_".to_owned().into(), retires_at: None }],
            headers: vec![("authorization".to_owned(), "Bearer".to_owned().into())],
            client_key_pem: Some("-----BEGIN".to_owned().into()),
            link_key: Some([1; 32].into()),
        };
        for SigningSecret { text, retires_at: _ } in &signing {
            is_wiped(text);
        }
        for (_name, value) in &headers {
            is_wiped(value);
        }
        client_key_pem.iter().for_each(is_wiped);
        link_key.iter().for_each(is_wiped);
    }
}
