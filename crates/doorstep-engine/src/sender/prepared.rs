//! What every request to a destination has in common, read once and kept until the destination changes.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use doorstep_core::address::{AddressRules, TargetHost, TargetUrl};
use doorstep_core::attempt::KeptHeaders;
use doorstep_core::consent;
use doorstep_core::custom_headers::{self, CustomHeaders};
use doorstep_core::destination::Destination;
use doorstep_core::event::Event;
use doorstep_core::id::{AttemptId, DestinationId, TenantId};
use doorstep_core::id_map::IdMap;
use doorstep_core::outcome::Fault;
use doorstep_core::output::{Output, percent_encoded};
use doorstep_core::signature::{ExtraStyle, Message, Secret, Signer};
use doorstep_core::time::Timestamp;
use http::Method;
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Scheme, Uri};
use rustls::ClientConfig;

use super::connection::Outgoing;
use super::fault::NoAnswer;
use super::pool::Origin;
use super::tls::Tls;
use super::{Request, SendFault};

/// So many bytes are kept of an attempt's request headers, and as many of its response headers; those that come later are left out.
pub const HEADER_BYTES_KEPT: usize = 8 * 1024;

/// So many destinations are kept prepared. One more, and all are prepared anew when they are next used.
const PREPARED_MAX: usize = 16_384;

const AGENT: &str = concat!("Doorstep/", env!("CARGO_PKG_VERSION"));
const EVENT_ID: HeaderName = HeaderName::from_static("x-event-id");
const EVENT_TYPE: HeaderName = HeaderName::from_static("x-event-type");
const DELIVERY_ID: HeaderName = HeaderName::from_static("x-delivery-id");
const DELIVERY_ATTEMPT: HeaderName = HeaderName::from_static("x-delivery-attempt");
const REPLAY_ID: HeaderName = HeaderName::from_static("x-replay-id");
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
const GITHUB_EVENT: HeaderName = HeaderName::from_static("x-github-event");
const GITHUB_DELIVERY: HeaderName = HeaderName::from_static("x-github-delivery");
const SEQUENCE: HeaderName = HeaderName::from_static("x-sequence");
const ORDERING_KEY: HeaderName = HeaderName::from_static("x-ordering-key");
const SCHEMA_VERSION: HeaderName = HeaderName::from_static("x-schema-version");
const PRODUCED_AT: HeaderName = HeaderName::from_static("x-produced-at");

/// What people see instead of a secret.
const MASK: &str = "***";

/// A destination, ready to be sent to.
#[derive(Debug)]
pub(super) struct Prepared {
    version: u64,
    /// From then on another set of secrets signs.
    until: Timestamp,
    target: Result<Target, String>,
    /// The destination's own, then those of ours that never change.
    headers: HeaderMap,
    signer: Signer,
}

/// Where its requests go.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: TargetUrl,
    pub(super) origin: Arc<Origin>,
    pub(super) tenant_id: TenantId,
    /// With the destination's client certificate, if it has one.
    pub(super) tls: Arc<ClientConfig>,
    path: Uri,
    absolute: Uri,
}

/// All prepared destinations.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<IdMap<DestinationId, Arc<Prepared>>>);

impl Cache {
    pub(super) fn get(
        &self,
        destination: &Destination,
        rules: &AddressRules,
        tls: &Tls,
        now: Timestamp,
    ) -> Result<Arc<Prepared>, SendFault> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(prepared) = kept.get(&destination.id)
            && prepared.version == destination.version
            && now < prepared.until
        {
            return Ok(Arc::clone(prepared));
        }
        let prepared = Arc::new(Prepared::new(destination, rules, tls, now)?);
        if kept.len() >= PREPARED_MAX {
            kept.clear();
        }
        kept.insert(destination.id, Arc::clone(&prepared));
        Ok(prepared)
    }
}

impl Prepared {
    pub(super) fn new(
        destination: &Destination,
        rules: &AddressRules,
        tls: &Tls,
        now: Timestamp,
    ) -> Result<Self, SendFault> {
        let target = Target::new(destination, rules, tls)?;
        let given = destination.secrets.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let custom = CustomHeaders::parse(given).map_err(|source| SendFault::Headers(destination.id, source))?;

        let mut headers = HeaderMap::with_capacity(custom.iter().count() + 16);
        if let Ok(target) = &target {
            headers.insert(HOST, target.host_header());
        }
        add(&mut headers, &custom, hushed);
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        let (signer, until) = signer(destination, now)?;
        Ok(Self { version: destination.version, until, target, headers, signer })
    }

    pub(super) fn target(&self) -> Result<&Target, NoAnswer> {
        self.target.as_ref().map_err(|why| NoAnswer::new(Fault::AddressBlocked, why))
    }

    /// The headers of one request, signed with the wall clock's time. Ours come last and replace whatever came before them.
    pub(super) fn headers(
        &self,
        request: &Request<'_>,
        output: &Output,
        attempt_id: AttemptId,
        wall: Timestamp,
    ) -> Result<HeaderMap, SendFault> {
        let event = request.event;
        let mut headers = self.headers.clone();
        if !event.headers.is_empty() {
            add(&mut headers, &headers_of(event)?, value);
        }
        let message = Message { id: event.id.as_str(), at: wall, body: &output.body };
        let signatures = self.signer.sign(&message).map_err(|source| SendFault::EventId(event.id.clone(), source))?;
        for header in signatures {
            // The others are the time and the ID that were signed, which are no secrets.
            let value = if header.name.contains("signature") { hushed } else { value };
            headers.insert(HeaderName::from_static(header.name), value(header.value));
        }
        let content_type = HeaderValue::from_str(&output.content_type);
        headers.insert(CONTENT_TYPE, content_type.map_err(|_| SendFault::ContentType(event.id.clone()))?);
        for (name, text) in &output.headers {
            headers.insert(HeaderName::from_static(name), value(text.clone()));
        }
        if let Some(trace) = event.trace.filter(|_| request.destination.settings.send_traceparent) {
            // Each attempt is a step of its own in the trace, and has the last half of its ID as its name.
            headers.insert(TRACE_PARENT, value(trace.with_parent(attempt_id.0 as u64).to_string()));
        }
        headers.insert(EVENT_ID, value(event.id.to_string()));
        headers.insert(EVENT_TYPE, value(event.event_type.to_string()));
        headers.insert(DELIVERY_ID, value(request.delivery.id.to_string()));
        headers.insert(DELIVERY_ATTEMPT, HeaderValue::from(request.number()));
        if let Some(version) = &event.schema_version {
            headers.insert(SCHEMA_VERSION, value(percent_encoded(version)));
        }
        if let Some(at) = event.produced_at {
            headers.insert(PRODUCED_AT, value(at.to_rfc3339()));
        }
        if request.destination.settings.extra_signatures.contains(&ExtraStyle::Github) {
            // Receivers made for GitHub read nothing without them. A name that the producer or the destination gives the
            // event stays: it may be the one that the receiver knows.
            headers.entry(GITHUB_EVENT).or_insert_with(|| value(event.event_type.to_string()));
            headers.entry(GITHUB_DELIVERY).or_insert_with(|| value(request.delivery.id.to_string()));
        }
        if let Some(replay_id) = request.replay_id {
            let header = HeaderValue::from_str(replay_id);
            headers.insert(REPLAY_ID, header.map_err(|_| SendFault::ReplayId(request.delivery.id))?);
        }
        if let Some(consent) = request.destination.consent_in_force() {
            headers.insert(HeaderName::from_static(consent::REQUEST_ORIGIN), value(consent.origin.clone()));
        }
        if let Some(slot) = &request.delivery.ordering {
            headers.insert(SEQUENCE, HeaderValue::from(slot.sequence));
            headers.insert(ORDERING_KEY, value(percent_encoded(&slot.key)));
        }
        Ok(headers)
    }
}

impl Target {
    /// Reads the stored URL again, with the rules that are in force now.
    fn new(destination: &Destination, rules: &AddressRules, tls: &Tls) -> Result<Result<Self, String>, SendFault> {
        let config = tls.of(destination).map_err(|source| SendFault::Tls(destination.id, source))?;
        Ok(Self::at(destination, rules, config))
    }

    fn at(destination: &Destination, rules: &AddressRules, tls: Arc<ClientConfig>) -> Result<Self, String> {
        let url = &destination.settings.url;
        let url = TargetUrl::parse(url, rules).map_err(|fault| fault.to_string())?;
        let path = PathAndQuery::try_from(url.path_and_query()).map_err(|fault| fault.to_string())?;
        let scheme = if url.is_https() { Scheme::HTTPS } else { Scheme::HTTP };
        let absolute = Uri::builder().scheme(scheme).authority(url.authority()).path_and_query(path.clone()).build();
        let absolute = absolute.map_err(|fault| fault.to_string())?;
        let host = match url.host() {
            TargetHost::Name(name) => name.into(),
            TargetHost::Address(address) => address.to_string().into(),
        };
        // Who has proved who they are does not lend their connection to somebody else, nor to who they were before.
        let own = (!destination.settings.tls.is_usual()).then_some((destination.id, destination.version));
        let origin = Arc::new(Origin { https: url.is_https(), host, port: url.port(), own });
        Ok(Self { origin, tenant_id: destination.tenant_id, tls, path: path.into(), absolute, url })
    }

    pub(super) fn outgoing(&self, headers: HeaderMap, body: Bytes) -> Outgoing {
        Outgoing { method: Method::POST, path: self.path.clone(), url: self.absolute.clone(), headers, body }
    }

    /// A request that brings nothing and asks for consent. Of the destination's own headers it has none: what opens the
    /// door is not shown before the receiver has agreed to be who it is said to be.
    pub(super) fn asking(&self, asks: &[(&'static str, String)]) -> Outgoing {
        let mut headers = HeaderMap::with_capacity(asks.len() + 3);
        headers.insert(HOST, self.host_header());
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        for (name, text) in asks {
            headers.insert(HeaderName::from_static(name), value(text.clone()));
        }
        Outgoing { method: Method::OPTIONS, ..self.outgoing(headers, Bytes::new()) }
    }

    fn host_header(&self) -> HeaderValue {
        value(self.url.authority().to_owned())
    }
}

/// Signs with all secrets that have not retired, until the next one does.
fn signer(destination: &Destination, now: Timestamp) -> Result<(Signer, Timestamp), SendFault> {
    let id = destination.id;
    let active = || destination.secrets.signing.iter().filter(|one| one.retires_at.is_none_or(|at| now < at));
    let secrets = active().map(|one| one.text.parse::<Secret>()).collect::<Result<Vec<_>, _>>();
    let secrets = secrets.map_err(|source| SendFault::Secret(id, source))?;
    let extra = destination.settings.extra_signatures.clone();
    let signer = Signer::new(secrets, extra).map_err(|source| SendFault::Signer(id, source))?;
    Ok((signer, active().filter_map(|one| one.retires_at).min().unwrap_or(Timestamp::MAX)))
}

fn headers_of(event: &Event) -> Result<CustomHeaders, SendFault> {
    let given = event.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    CustomHeaders::parse(given).map_err(|source| SendFault::EventHeaders(event.id.clone(), source))
}

/// Where an event and its destination both name a header, the destination's stays: it may be what opens the door.
fn add(headers: &mut HeaderMap, custom: &CustomHeaders, value: fn(String) -> HeaderValue) {
    for (name, text) in custom.iter() {
        let value = if name.contains("signature") { hushed } else { value };
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            headers.entry(name).or_insert_with(|| value(text.to_owned()));
        }
    }
}

/// A header of text that was checked to be printable.
fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// The same for a secret: neither `Debug` shows it, whoever logs it, nor does HTTP/2 put it into the tables of a connection
/// (RFC 7541, 7.1.3).
fn hushed(text: String) -> HeaderValue {
    let mut value = value(text);
    value.set_sensitive(true);
    value
}

/// The headers of a request or an answer as people may see them: no signature, and no secret that we put into it or know by its
/// name. Bytes that are no text are replaced. In their order, as long as they fit into what is kept.
pub(super) fn shown(headers: &HeaderMap) -> KeptHeaders {
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum::<usize>();
    let mut room = HEADER_BYTES_KEPT;
    let mut shown = KeptHeaders::with_capacity(bytes.min(room), headers.len());
    for (name, value) in headers {
        let name = name.as_str();
        let hidden = value.is_sensitive() || custom_headers::is_sensitive(name);
        let value = if hidden { MASK.as_bytes() } else { value.as_bytes() };
        let Some(left) = room.checked_sub(name.len() + value.len()) else { break };
        room = left;
        shown.push(name, value);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_kept_in_their_order_as_far_as_there_is_room() {
        let mut headers = HeaderMap::new();
        for n in 0..100 {
            headers.append("x-long", HeaderValue::try_from(format!("{n:0>500}")).unwrap());
        }
        let kept = shown(&headers).pairs();
        let bytes: usize = kept.iter().map(|(name, value)| name.len() + value.len()).sum();
        assert!(bytes <= HEADER_BYTES_KEPT && HEADER_BYTES_KEPT - bytes < 506, "{bytes}");
        assert!(kept.iter().enumerate().all(|(n, (_, value))| *value == format!("{n:0>500}")));
        headers.clear();
        headers.insert("x-longest", HeaderValue::try_from("x".repeat(60_000)).unwrap());
        assert!(shown(&headers).is_empty());
    }

    #[test]
    fn a_destinations_own_headers_do_not_show_themselves() {
        let own = CustomHeaders::parse([("x-shop", "hush")]).unwrap();
        let mut headers = HeaderMap::new();
        add(&mut headers, &own, hushed);
        assert_eq!(headers["x-shop"], "hush");
        assert!(!format!("{headers:?}").contains("hush"), "{headers:?}");
        let of_event = CustomHeaders::parse([("x-signature-v2", "hush"), ("x-plain", "seen")]).unwrap();
        add(&mut headers, &of_event, value);
        let shown = shown(&headers).pairs();
        let expected = [("x-shop", MASK), ("x-signature-v2", MASK), ("x-plain", "seen")];
        assert_eq!(shown, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }
}
