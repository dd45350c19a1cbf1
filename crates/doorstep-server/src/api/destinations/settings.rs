//! A destination as people write it, and everything that can be wrong with it.

use std::collections::BTreeMap;

use doorstep_core::address::{AddressRules, TargetUrl};
use doorstep_core::consent::Verification;
use doorstep_core::custom_headers::CustomHeaders;
use doorstep_core::defaults::{Defaults, Maxima, TIMEOUT_MIN, burst_of};
use doorstep_core::delivery::{BehindDead, Ordering};
use doorstep_core::destination::{Destination, DestinationSecrets, DestinationSettings, SigningSecret, TlsSettings};
use doorstep_core::filter::Filter;
use doorstep_core::gate::Rate;
use doorstep_core::id::TenantId;
use doorstep_core::outcome::{Class, StatusOverrides};
use doorstep_core::output::link::{LINK_KEY_LEN, LinkKey};
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::retry::PolicySpec;
use doorstep_core::route::TypePatterns;
use doorstep_core::signature::{ExtraStyle, PrivateKey, Secret, SharedSecret};
use doorstep_core::time::Millis;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};
use zeroize::Zeroizing;

use super::pace::{PinnedPace, read_per_second};
use crate::api::tenants::check_name;
use crate::field::Field;
use crate::object;
use crate::problem::{FieldFault, Problem};
use crate::shape;

/// Bytes of a new secret.
const SECRET_LEN: usize = 32;

/// What may be said of a destination. In a change, what is left out stays, and null takes it back to its default.
// Without `Debug`: there are secrets in it.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DestinationBody {
    /// Whose it is. Needed for a new one, and never changed.
    #[schema(value_type = Option<shape::TenantId>)]
    pub(super) tenant_id: Option<TenantId>,
    /// The signing secret of a new one, of the kind that `signing.algorithm` says; made if it is not given.
    #[schema(value_type = Option<shape::SigningSecret>)]
    secret: Option<Zeroizing<String>>,
    /// Where to: `https://…`
    #[schema(value_type = Option<shape::TargetUrl>)]
    url: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<shape::Name>)]
    name: Field<String>,
    /// Which types of events, with globs. All unless given.
    #[serde(default)]
    #[schema(value_type = Option<shape::TypePatterns>)]
    event_types: Field<Box<RawValue>>,
    /// Which payloads: see the reference of filters.
    #[serde(default)]
    #[schema(value_type = Option<shape::Filter>)]
    filter: Field<Box<RawValue>>,
    /// A preset's name (`standard`, `patient`, `brief`, or one of the operator's) or an object. The tenant's default, or the
    /// operator's, unless given.
    #[serde(default)]
    #[schema(value_type = Option<shape::Policy>)]
    policy: Field<PolicySpec>,
    /// What a status means for this receiver, where it is not what it usually means.
    #[serde(default)]
    #[schema(value_type = Option<shape::StatusOverrides>)]
    status_overrides: Field<BTreeMap<u16, Class>>,
    /// At most this many requests at once. The operator may allow fewer. 10, or the tenant's or the operator's default, unless given.
    #[serde(default)]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1000)]
    concurrency: Field<u32>,
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<RateLimit>)]
    rate_limit: Field<RateLimit>,
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<PinnedPace>)]
    pinned_pace: Field<PinnedPace>,
    #[serde(default)]
    #[schema(value_type = Option<OrderingName>)]
    ordering: Field<OrderingName>,
    /// What happens behind a dead delivery with the same ordering key.
    #[serde(default)]
    #[schema(value_type = Option<shape::BehindDeadName>)]
    behind_dead: Field<BehindDead>,
    /// How long one request may take. The operator may allow less. 15 000, or the tenant's or the operator's default, unless given.
    #[serde(default)]
    #[schema(value_type = Option<u64>, minimum = 100, maximum = 300_000)]
    timeout_ms: Field<u64>,
    /// Sent along with each request. Their values are never shown again.
    #[serde(default)]
    #[schema(value_type = Option<shape::Headers>)]
    headers: Field<BTreeMap<String, Zeroizing<String>>>,
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<Signing>)]
    signing: Field<Signing>,
    /// `full`: the body is the payload; `thin`: a reference to it. `full` unless given.
    #[serde(default)]
    #[schema(value_type = Option<shape::PayloadModeName>)]
    payload_mode: Field<PayloadMode>,
    /// `plain`, `cloudevents_binary` or `cloudevents_structured`. `plain` unless given.
    #[serde(default)]
    #[schema(value_type = Option<shape::FormatName>)]
    format: Field<Format>,
    /// Whether requests carry the `traceparent` of their event on. They do unless told otherwise.
    #[serde(default)]
    #[schema(value_type = Option<bool>)]
    send_traceparent: Field<bool>,
    /// Whether the receiver has to agree before anything is sent: `none`, or `cloudevents_options` for the handshake of
    /// the CloudEvents webhook specification. `none` unless given.
    #[serde(default)]
    #[schema(value_type = Option<shape::VerificationName>)]
    verification: Field<Verification>,
    #[serde(default, deserialize_with = "object::field")]
    #[schema(value_type = Option<TlsBody>)]
    tls: Field<TlsBody>,
}

/// The body of a new one.
#[derive(Debug)]
pub(crate) enum NewDestination {}

impl PartialSchema for NewDestination {
    fn schema() -> RefOr<Schema> {
        shape::needing(DestinationBody::schema(), &["tenant_id", "url"])
    }
}

impl ToSchema for NewDestination {
    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        DestinationBody::schemas(all);
    }
}

/// The body of a change.
#[derive(Debug)]
pub(crate) enum DestinationChange {}

impl PartialSchema for DestinationChange {
    fn schema() -> RefOr<Schema> {
        shape::without(DestinationBody::schema(), &["tenant_id", "secret"])
    }
}

impl ToSchema for DestinationChange {
    fn schemas(all: &mut Vec<(String, RefOr<Schema>)>) {
        DestinationBody::schemas(all);
    }
}

/// What TLS proves to this receiver, and whom it believes there. Given, it replaces all of what was there.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsBody {
    /// The client certificate, and those that lead to its root.
    #[schema(max_length = 32_768)]
    client_certificate_pem: Option<String>,
    /// Its key. It is never shown again.
    #[schema(value_type = Option<String>, max_length = 32_768)]
    client_key_pem: Option<Zeroizing<String>>,
    /// Roots that are believed beside the usual ones.
    #[schema(max_length = 32_768)]
    ca_pem: Option<String>,
}

impl std::fmt::Debug for TlsBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsBody").finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RateLimit {
    #[schema(minimum = 0.001, maximum = 100_000, example = 1000)]
    pub(super) per_second: f64,
    /// So many at once after a silence. A tenth of a second's worth unless given.
    #[schema(minimum = 1, maximum = 100_000)]
    pub(super) burst: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderingName {
    Unordered,
    /// One at a time per ordering key, in the order in which they came.
    ByKey,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Signing {
    /// What a new secret is made for. `hmac_sha256` unless given.
    #[serde(default)]
    pub(super) algorithm: Algorithm,
    /// Header styles beside the standard one, for receivers that already verify them: `x_signature`, `github`, `stripe`.
    #[serde(default)]
    #[schema(value_type = Vec<shape::ExtraStyleName>, example = json!(["github"]))]
    pub(super) also: std::collections::BTreeSet<ExtraStyle>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Algorithm {
    #[default]
    HmacSha256,
    Ed25519,
}

/// What a new secret is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSecret(Algorithm);

impl NewSecret {
    /// Of the same kind as the newest that is there.
    pub(super) fn like(secrets: &DestinationSecrets) -> Self {
        Self(algorithm(secrets))
    }

    /// The given one, or one that is made now.
    pub(super) fn read(self, given: Option<Zeroizing<String>>) -> Result<Secret, Problem> {
        let secret = match given {
            Some(text) => text.parse().map_err(|fault| Problem::invalid_at("/secret", fault))?,
            None => self.make()?,
        };
        let fits = matches!(
            (&secret, self.0),
            (Secret::Shared(_), Algorithm::HmacSha256) | (Secret::Private(_), Algorithm::Ed25519)
        );
        if fits {
            return Ok(secret);
        }
        let wanted = match self.0 {
            Algorithm::HmacSha256 => "hmac_sha256 signs with a `whsec_` secret",
            Algorithm::Ed25519 => "ed25519 signs with a `whsk_` key",
        };
        Err(Problem::invalid_at("/secret", format!("is not of the kind that is asked for: {wanted}")))
    }

    fn make(self) -> Result<Secret, Problem> {
        let mut bytes = Zeroizing::new([0; SECRET_LEN]);
        // Without chance there are no secrets: better none than a weak one.
        getrandom::fill(&mut *bytes).map_err(|_| Problem::busy("the machine gives no random numbers now"))?;
        let made = match self.0 {
            Algorithm::HmacSha256 => SharedSecret::new(&*bytes).map(Secret::Shared),
            Algorithm::Ed25519 => PrivateKey::from_seed(&bytes).map(Secret::Private),
        };
        made.map_err(|fault| Problem::invalid_at("/signing", fault))
    }
}

/// What the newest secret signs with.
pub(super) fn algorithm(secrets: &DestinationSecrets) -> Algorithm {
    match secrets.signing.first().map(|newest| newest.text.parse()) {
        Some(Ok(Secret::Private(_))) => Algorithm::Ed25519,
        Some(Ok(Secret::Shared(_)) | Err(_)) | None => Algorithm::HmacSha256,
    }
}

impl DestinationBody {
    /// A new destination's settings, its secrets, and the one that signs.
    pub(super) fn read(
        mut self,
        rules: &AddressRules,
        defaults: &Defaults,
    ) -> Result<(DestinationSettings, DestinationSecrets, Secret), Problem> {
        let mut faults = Vec::new();
        if self.url.is_none() {
            faults.push(FieldFault::new("/url", "is missing: give the URL that receives the events"));
        }
        let algorithm = match &self.signing {
            Field::Given(signing) => signing.algorithm,
            Field::Absent | Field::Null => Algorithm::default(),
        };
        let mut settings = DestinationSettings::new(String::new());
        let (mut secrets, secret) = (DestinationSecrets::default(), self.secret.take());
        self.put_into(&mut settings, &mut secrets, rules, defaults, &mut faults);
        if !faults.is_empty() {
            return Err(Problem::invalid(faults));
        }
        let secret = NewSecret(algorithm).read(secret)?;
        secrets.signing.push(SigningSecret { text: secret.reveal(), retires_at: None });
        Ok((settings, secrets, secret))
    }

    /// The operator wants every receiver to be asked: that of a new destination, and of a URL that was not there `before`. One that is asked already stays so.
    pub(super) fn require_verification(
        &mut self,
        before: Option<&DestinationSettings>,
        rules: &AddressRules,
    ) -> Result<(), Problem> {
        let is_asked = before.is_some_and(|before| before.verification != Verification::None);
        let is_same = |url: &str, before: &str| TargetUrl::parse(url, rules).is_ok_and(|url| url.as_str() == before);
        let leads_elsewhere = match (before, &self.url) {
            (Some(before), Some(url)) => !is_same(url, &before.url),
            (Some(_), None) => false,
            (None, _) => true,
        };
        if !is_asked && !leads_elsewhere {
            return Ok(());
        }
        match self.verification {
            Field::Given(Verification::CloudeventsOptions) => {}
            Field::Absent if is_asked => {}
            Field::Absent => self.verification = Field::Given(Verification::CloudeventsOptions),
            Field::Null | Field::Given(Verification::None) => {
                let detail = "this server sends nothing before the receiver has consented: leave it out, or give `cloudevents_options`";
                return Err(Problem::invalid_at("/verification", detail));
            }
        }
        Ok(())
    }

    /// Changes one that is there.
    pub(super) fn apply(
        self,
        destination: &mut Destination,
        rules: &AddressRules,
        defaults: &Defaults,
    ) -> Result<(), Problem> {
        let mut faults = Vec::new();
        if self.tenant_id.is_some_and(|tenant_id| tenant_id != destination.tenant_id) {
            faults.push(FieldFault::new("/tenant_id", "a destination never changes hands: make a new one"));
        }
        if self.secret.is_some() {
            faults.push(FieldFault::new(
                "/secret",
                "is changed with POST …/secrets/rotate, so that the old one signs along",
            ));
        }
        if let Field::Given(signing) = &self.signing
            && signing.algorithm != algorithm(&destination.secrets)
        {
            faults.push(FieldFault::new(
                "/signing/algorithm",
                "cannot be changed while receivers rely on it: make a new destination",
            ));
        }
        let Destination { settings, secrets, .. } = destination;
        if let Some(url) = &self.url
            && matches!(self.headers, Field::Absent)
            && !secrets.headers.is_empty()
            && !same_origin(url, &settings.url, rules)
        {
            faults.push(FieldFault::new(
                "/headers",
                "their values were given for another host, and nobody can read them there: give them again, or null for none",
            ));
        }
        self.put_into(settings, secrets, rules, defaults, &mut faults);
        if faults.is_empty() { Ok(()) } else { Err(Problem::invalid(faults)) }
    }

    fn put_into(
        self,
        settings: &mut DestinationSettings,
        secrets: &mut DestinationSecrets,
        rules: &AddressRules,
        defaults: &Defaults,
        faults: &mut Vec<FieldFault>,
    ) {
        let maxima = &defaults.maxima;
        let chosen = settings.chosen.get_or_insert_default();
        let mut fault = |pointer: &str, detail: String| faults.push(FieldFault::new(pointer, detail));
        if let Some(url) = self.url {
            match TargetUrl::parse(&url, rules) {
                Ok(target) => settings.url = target.as_str().to_owned(),
                Err(wrong) => fault("/url", wrong.to_string()),
            }
        }
        match self.name {
            Field::Absent => {}
            Field::Null => settings.name = None,
            Field::Given(name) => match check_name(&name) {
                Ok(()) => settings.name = Some(name),
                Err(wrong) => fault("/name", wrong),
            },
        }
        match self.event_types {
            Field::Absent => {}
            Field::Null => settings.subscription.event_types = TypePatterns::default(),
            Field::Given(raw) => match serde_json::from_str::<TypePatterns>(raw.get()) {
                Ok(patterns) => settings.subscription.event_types = patterns,
                Err(wrong) => fault("/event_types", plain(&wrong)),
            },
        }
        match self.filter {
            Field::Absent => {}
            Field::Null => settings.subscription.filter = None,
            Field::Given(raw) => match Filter::parse(raw.get()) {
                Ok(filter) => settings.subscription.filter = Some(filter),
                Err(wrong) => fault(&format!("/filter{}", wrong.pointer), wrong.problem.to_string()),
            },
        }
        match self.policy {
            Field::Absent => {}
            Field::Null => chosen.policy = None,
            Field::Given(spec) => match defaults.presets.read(spec.clone()) {
                Ok(_) => chosen.policy = Some(spec),
                Err(wrong) => fault("/policy", wrong.to_string()),
            },
        }
        if let Some(entries) = self.status_overrides.or_default(BTreeMap::new) {
            match StatusOverrides::new(entries) {
                Ok(overrides) => settings.status_overrides = overrides,
                Err(wrong) => fault("/status_overrides", wrong.to_string()),
            }
        }
        match self.concurrency {
            Field::Absent => {}
            Field::Null => chosen.concurrency = None,
            Field::Given(concurrency) => match within("requests at once", 1, maxima.concurrency, concurrency) {
                Ok(()) => chosen.concurrency = Some(concurrency),
                Err(wrong) => fault("/concurrency", wrong),
            },
        }
        match self.rate_limit {
            Field::Absent => {}
            Field::Null => chosen.rate = None,
            Field::Given(limit) => match limit.read(maxima) {
                Ok(rate) => chosen.rate = Some(rate),
                Err((pointer, wrong)) => fault(pointer, wrong),
            },
        }
        match self.pinned_pace {
            Field::Absent => {}
            Field::Null => chosen.pinned = None,
            Field::Given(pace) => match pace.read(maxima) {
                Ok(rate) => chosen.pinned = Some(rate),
                Err(wrong) => fault("/pinned_pace/per_second", wrong),
            },
        }
        match self.timeout_ms {
            Field::Absent => {}
            Field::Null => chosen.timeout = None,
            Field::Given(timeout) => match within("milliseconds", TIMEOUT_MIN.0, maxima.timeout.0, timeout) {
                Ok(()) => chosen.timeout = Some(Millis(timeout)),
                Err(wrong) => fault("/timeout_ms", wrong),
            },
        }
        if let Some(given) = self.headers.or_default(BTreeMap::new) {
            match CustomHeaders::parse(given.iter().map(|(name, value)| (name.as_str(), value.as_str()))) {
                Ok(custom) => {
                    secrets.headers =
                        custom.iter().map(|(name, value)| (name.to_owned(), value.to_owned().into())).collect();
                }
                Err(wrong) => fault("/headers", wrong.to_string()),
            }
        }
        if let Some(signing) = self.signing.or_default(Signing::default) {
            settings.extra_signatures = signing.also;
        }
        if let Some(mode) = self.payload_mode.or_default(PayloadMode::default) {
            settings.payload_mode = mode;
        }
        if let Some(verification) = self.verification.or_default(Verification::default) {
            settings.verification = verification;
        }
        let needs_links = settings.payload_mode == PayloadMode::Thin || settings.verification != Verification::None;
        if needs_links && secrets.link_key.is_none() {
            match new_link_key() {
                Ok(key) => secrets.link_key = Some(key),
                Err(wrong) => fault("", wrong),
            }
        }
        if let Some(format) = self.format.or_default(Format::default) {
            settings.format = format;
        }
        if let Some(send) = self.send_traceparent.or_default(|| true) {
            settings.send_traceparent = send;
        }
        if let Some(TlsBody { client_certificate_pem, client_key_pem, ca_pem }) = self.tls.or_default(TlsBody::default)
        {
            settings.tls = TlsSettings { client_certificate_pem, ca_pem };
            secrets.client_key_pem = client_key_pem;
        }
        settings.ordering = ordering(settings.ordering, self.ordering, self.behind_dead);
    }
}

/// What cannot be read leads nowhere: it is told as a fault of its own.
fn same_origin(new: &str, before: &str, rules: &AddressRules) -> bool {
    let origin = |url: &str| TargetUrl::parse(url, rules).ok().map(|url| (url.is_https(), url.authority().to_owned()));
    origin(new).is_none_or(|new| Some(new) == origin(before))
}

pub(super) fn new_link_key() -> Result<LinkKey, String> {
    let mut key = Zeroizing::new([0; LINK_KEY_LEN]);
    getrandom::fill(&mut *key).map_err(|_| "the machine gives no random numbers now: try again".to_owned())?;
    Ok(key)
}

fn ordering(before: Ordering, name: Field<OrderingName>, behind_dead: Field<BehindDead>) -> Ordering {
    let (was_by_key, was_behind) = match before {
        Ordering::Unordered => (OrderingName::Unordered, BehindDead::default()),
        Ordering::ByKey { behind_dead } => (OrderingName::ByKey, behind_dead),
    };
    let name = name.or_default(|| OrderingName::Unordered).unwrap_or(was_by_key);
    let behind_dead = behind_dead.or_default(BehindDead::default).unwrap_or(was_behind);
    match name {
        OrderingName::Unordered => Ordering::Unordered,
        OrderingName::ByKey => Ordering::ByKey { behind_dead },
    }
}

impl RateLimit {
    fn read(self, maxima: &Maxima) -> Result<(Rate, u32), (&'static str, String)> {
        let Self { per_second, burst } = self;
        let rate = read_per_second(per_second, maxima).map_err(|wrong| ("/rate_limit/per_second", wrong))?;
        let burst = burst.unwrap_or_else(|| burst_of(rate));
        within("requests", 1, maxima.burst(), burst).map_err(|wrong| ("/rate_limit/burst", wrong))?;
        Ok((rate, burst))
    }
}

fn within<N: PartialOrd + std::fmt::Display>(of: &str, least: N, most: N, given: N) -> Result<(), String> {
    if least <= given && given <= most {
        return Ok(());
    }
    Err(format!("must be between {least} and {most} {of}, but is {given}"))
}

/// A message without the line and column of a part of the body.
fn plain(fault: &serde_json::Error) -> String {
    let told = fault.to_string();
    told.rfind(" at line ").map_or(told.clone(), |at| told[..at].to_owned())
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    #[test]
    fn secrets_in_a_body_are_wiped_when_it_is_dropped() {
        fn is_wiped(_: &impl ZeroizeOnDrop) {}
        let body = r#"{"secret": "whsec_x", "headers": {"a": "b"}, "tls": {"client_key_pem": "-----BEGIN"}}"#;
        let DestinationBody { secret, headers, tls, .. } = serde_json::from_str(body).unwrap();
        secret.iter().for_each(is_wiped);
        headers.or_default(BTreeMap::new).iter().flat_map(BTreeMap::values).for_each(is_wiped);
        let TlsBody { client_certificate_pem: _, client_key_pem, ca_pem: _ } =
            tls.or_default(TlsBody::default).unwrap();
        client_key_pem.iter().for_each(is_wiped);
    }
}
