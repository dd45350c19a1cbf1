//! Things to store.

use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use doorstep_core::api_key::{ApiKey, KeyHash, OldSecret, Scope};
use doorstep_core::attempt::{Answer, Attempt, KeptHeaders, Timings};
use doorstep_core::audit::{Action, Actor, AuditEntry, AuditOutcome};
use doorstep_core::consent::{Consent, Leave, Verification};
use doorstep_core::delivery::{BehindDead, Delivery, Ordering, Settlement};
use doorstep_core::destination::{
    Destination, DestinationSecrets, DestinationSettings, SigningSecret, Tenant, TlsSettings,
};
use doorstep_core::event::{Event, NewDelivery, NewEvent};
use doorstep_core::event_type::RegisteredType;
use doorstep_core::gate::{Gate, GateLimits, GateState};
use doorstep_core::id::{AttemptId, DeliveryId, DestinationId, EventId, KeyId, SessionId, TenantId};
use doorstep_core::ingest_rate::IngestRate;
use doorstep_core::outcome::{Outcome, StatusOverrides};
use doorstep_core::output::{Format, PayloadMode};
use doorstep_core::portal::{PortalKey, PortalSession};
use doorstep_core::quota::OwnQuota;
use doorstep_core::retry::{Charge, DeadReason, Decision, RetryPolicy};
use doorstep_core::route::Subscription;
use doorstep_core::signature::ExtraStyle;
use doorstep_core::store::{Settled, Write};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_core::trace::TraceParent;

pub const NOW: Timestamp = Timestamp(1_700_000_000_000);
pub const TENANT: TenantId = TenantId(7);
pub const DST: DestinationId = DestinationId(1);

pub fn tenant(id: TenantId, version: u64) -> Tenant {
    Tenant {
        id,
        name: format!("Tenant {}", id.0),
        contact_email: Some("ops@example.com".to_owned()),
        weight: 3,
        ingest_rate: Some(IngestRate { per_second: 5, burst: 9 }),
        quota: OwnQuota::default(),
        defaults: doorstep_core::defaults::TenantDefaults::default(),
        created_at: NOW,
        version,
    }
}

/// One with something in every field.
pub fn destination(id: DestinationId, version: u64) -> Destination {
    let subscription = r#"{"event_types":["invoice.*"],"filter":{"amount":{"gte":10.5}}}"#;
    let subscription: Subscription = serde_json::from_str(subscription).expect("a valid subscription");
    Destination {
        id,
        tenant_id: TENANT,
        settings: DestinationSettings {
            name: Some(format!("Version {version}")),
            url: "https://example.com/hook".to_owned(),
            subscription,
            policy: RetryPolicy::default(),
            status_overrides: StatusOverrides::new([(404, doorstep_core::outcome::Class::Transient)])
                .expect("404 may be overridden"),
            limits: GateLimits::default(),
            ordering: Ordering::ByKey { behind_dead: BehindDead::Hold },
            timeout: Millis::from_secs(15),
            extra_signatures: [ExtraStyle::Github].into(),
            tls: TlsSettings {
                client_certificate_pem: Some("a certificate".to_owned()),
                ca_pem: Some("a root".to_owned()),
            },
            payload_mode: PayloadMode::Thin,
            format: Format::CloudeventsBinary,
            send_traceparent: false,
            verification: Verification::CloudeventsOptions,
            chosen: None,
            preset: None,
        },
        secrets: DestinationSecrets {
            signing: vec![SigningSecret { text: "whsec_c2VjcmV0".to_owned().into(), retires_at: Some(NOW) }],
            headers: vec![("authorization".to_owned(), "Bearer x".to_owned().into())],
            client_key_pem: Some("a key".to_owned().into()),
            link_key: Some([9; 32].into()),
        },
        created_at: NOW,
        updated_at: NOW + Millis(version),
        version,
        consent: None,
    }
}

/// The `n`th that was given, by the receiver of [`destination`].
pub fn a_consent(n: u32) -> Consent {
    Consent {
        url: "https://example.com/hook".to_owned(),
        origin: "hooks.example.net".to_owned(),
        leave: Leave { per_minute: NonZeroU32::new(n) },
        given_at: NOW + Millis(n.into()),
    }
}

pub fn registered(name: &str, version: u64) -> RegisteredType {
    let schema = |max: u64| serde_json::json!({ "type": "object", "properties": { "a/b": { "maximum": max } } });
    RegisteredType {
        name: name.parse().expect("a valid type"),
        description: Some(format!("Version {version}")),
        schemas: [("1".to_owned(), schema(7)), ("2024-11".to_owned(), schema(version))].into(),
        default_version: Some("1".to_owned()),
        example: Some(serde_json::json!({ "amount": 10.1, "list": [null, "ü"] })),
        ttl: Some(Millis::from_mins(1)),
        archived: version > 1,
        created_at: NOW,
        updated_at: NOW + Millis(version),
        version,
    }
}

pub fn put(id: DestinationId) -> Write {
    Write::PutDestination(Box::new(destination(id, 1)))
}

pub fn event(id: &str, ordering_key: Option<&str>, accepted_at: Timestamp) -> Event {
    Event {
        id: EventId::new(id).expect("a valid ID"),
        tenant_id: TENANT,
        event_type: "invoice.paid".parse().expect("a valid type"),
        content_type: "application/json".into(),
        payload: Bytes::from(format!("{{\"for\": \"{id}\"}}\0\u{fe}")),
        ordering_key: ordering_key.map(Arc::from),
        produced_at: Some(Timestamp(-5)),
        schema_version: Some("2".into()),
        headers: vec![("x-trace".to_owned(), id.to_owned())],
        ttl: Some(Millis(u64::MAX)),
        accepted_at,
        wall_offset_ms: 0,
        trace: Some(TraceParent { trace_id: u128::MAX, parent_id: 1, flags: 1 }),
        cloud: None,
    }
}

/// Gives up after this long.
pub const WINDOW: Millis = Millis::from_hours(72);

pub fn new_delivery(id: u128, destination_id: DestinationId) -> NewDelivery {
    NewDelivery { id: DeliveryId(id), destination_id, ordered: true, give_up_at: NOW + WINDOW }
}

/// An event with one delivery, which has the same number, to [`DST`].
pub fn accept(id: u128, ordering_key: Option<&str>) -> Write {
    let event = event(&format!("event-{id}"), ordering_key, NOW);
    Write::Accept(Box::new(NewEvent { event, key: None, deliveries: vec![new_delivery(id, DST)] }))
}

pub fn attempt(number: u32, answer: Answer, started_at: Timestamp) -> Attempt {
    Attempt {
        id: AttemptId(number.into()),
        number,
        started_at,
        timings: Timings {
            dns: None,
            connect: Some(Millis(2)),
            tls: Some(Millis(0)),
            first_byte: None,
            total: Millis(100 + u64::from(number)),
        },
        answer,
        request_headers: [("webhook-id", "event-1")].into_iter().collect(),
        response_headers: KeptHeaders::default(),
        response_body: Bytes::from_static(b"\0no"),
        response_truncated: number % 2 == 1,
    }
}

pub const RETRY: Decision = Decision::RetryAt(Timestamp(NOW.0 + 60_000));
pub const DEAD: Decision = Decision::Dead(DeadReason::Rejected);

/// A settlement of a delivery as it was read, after a request that was answered accordingly.
pub fn settle(delivery: &Delivery, decision: Decision, behind_dead: BehindDead, at: Timestamp) -> Write {
    let (outcome, status) = match decision {
        Decision::Delivered => (Outcome::Accepted { quota: None }, 204),
        Decision::RetryAt(_) => (Outcome::Failed { status: 503, wait: None }, 503),
        Decision::Requeue => (Outcome::Throttled { wait: None }, 429),
        Decision::Dead(_) => (Outcome::Rejected { status: 400 }, 400),
    };
    let after = delivery.after(&outcome, decision, Charge::Attempt, at);
    let attempt = attempt(after.requests, Answer::Status(status), at);
    let settlement = Settlement::new(after, Some(outcome), decision, Ordering::ByKey { behind_dead }, at);
    Write::Settle(Arc::new(Settled { settlement, attempt: Some(attempt) }))
}

pub fn a_gate() -> GateState {
    let mut gate = Gate::restore(GateState::default());
    gate.pause(Timestamp(0));
    gate.state().clone()
}

/// One with something in every field but those that end it.
pub fn api_key(id: KeyId, tenant_id: Option<TenantId>) -> ApiKey {
    ApiKey {
        id,
        name: format!("Key {}", id.0),
        scopes: [Scope::Ingest, Scope::Read].into(),
        tenant_id,
        source_cidrs: vec!["10.0.0.0/8".parse().expect("a range"), "::1/128".parse().expect("a range")],
        created_at: NOW,
        expires_at: None,
        last_used_at: None,
        revoked_at: None,
        hash: KeyHash::of("a key"),
        old: Some(OldSecret { hash: KeyHash::of("an old key"), until: NOW }),
        version: 1,
    }
}

/// Its code is `code`.
pub fn portal_session(id: SessionId, tenant_id: TenantId, now: Timestamp) -> PortalSession {
    let key = PortalKey::Code { hash: KeyHash::of("code"), until: now + Millis(60) };
    PortalSession { id, tenant_id, key, created_at: now, expires_at: now + Millis::from_hours(1) }
}

pub fn audit_entry(n: u8, tenant_id: Option<TenantId>, at: Timestamp) -> AuditEntry {
    let changes = serde_json::json!({ "name": { "before": null, "after": n } });
    AuditEntry {
        at,
        actor: match n % 2 {
            0 => Actor::Bootstrap,
            _ => Actor::Key { id: KeyId(n.into()), name: format!("Key {n}") },
        },
        from: "192.0.2.1".parse().ok(),
        tenant_id,
        action: Action::KeyCreate,
        resource: format!("thing {n}"),
        outcome: AuditOutcome::Done,
        changes: changes.as_object().cloned().unwrap_or_default(),
    }
}
