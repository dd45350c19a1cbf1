use std::collections::BTreeSet;

use serde_json::Value;

use super::cloud_event::percent_encoded;
use super::link::{LinkFault, LinkKey};
use super::*;
use crate::consent::Verification;
use crate::delivery::Ordering;
use crate::destination::{DestinationSecrets, DestinationSettings, TlsSettings};
use crate::event::CloudAttributes;
use crate::gate::GateLimits;
use crate::id::{DeliveryId, DestinationId, EventId, TenantId};
use crate::outcome::StatusOverrides;
use crate::retry::{Progress, RetryPolicy};
use crate::route::Subscription;
use crate::time::{Millis, Timestamp};

const NOW: Timestamp = Timestamp(1_794_744_000_123);

fn key() -> LinkKey {
    [7; 32].into()
}

fn destination(payload_mode: PayloadMode, format: Format) -> Destination {
    let settings = DestinationSettings {
        name: None,
        url: String::new(),
        subscription: Subscription::default(),
        policy: RetryPolicy::standard(),
        status_overrides: StatusOverrides::default(),
        limits: GateLimits::default(),
        ordering: Ordering::Unordered,
        timeout: Millis::ZERO,
        extra_signatures: BTreeSet::new(),
        tls: TlsSettings::default(),
        payload_mode,
        format,
        send_traceparent: true,
        verification: Verification::default(),
        chosen: None,
        preset: None,
    };
    Destination {
        id: DestinationId(1),
        tenant_id: TenantId(2),
        settings,
        secrets: DestinationSecrets { link_key: Some(key()), ..DestinationSecrets::default() },
        created_at: NOW,
        updated_at: NOW,
        version: 1,
        consent: None,
    }
}

fn event(content_type: &str, payload: &[u8]) -> Event {
    Event {
        id: EventId::new("evt-1").unwrap(),
        tenant_id: TenantId(2),
        event_type: "invoice.paid".parse().unwrap(),
        content_type: content_type.into(),
        payload: Bytes::copy_from_slice(payload),
        ordering_key: None,
        produced_at: None,
        schema_version: None,
        headers: vec![],
        ttl: None,
        accepted_at: NOW,
        wall_offset_ms: 0,
        trace: None,
        cloud: None,
    }
}

fn delivery(give_up_at: Timestamp) -> Delivery {
    Delivery {
        id: DeliveryId(3),
        event_seq: 1,
        destination_id: DestinationId(1),
        seq: 1,
        due_at: NOW,
        requests: 0,
        progress: Progress { attempts: 0, ambiguous: 0, last_delay: Millis::ZERO, give_up_at },
        ordering: None,
        unreadable: 0,
    }
}

fn output(mode: PayloadMode, format: Format, content_type: &str, payload: &[u8]) -> Output {
    let (destination, event) = (destination(mode, format), event(content_type, payload));
    Output::of(&destination, &event, &delivery(NOW), "https://hooks.example").unwrap()
}

fn read(body: &[u8]) -> Value {
    serde_json::from_slice(body).unwrap()
}

#[test]
fn a_full_plain_body_is_the_payload_byte_for_byte() {
    let sent = output(PayloadMode::Full, Format::Plain, "text/plain; charset=latin1", b"\xff {");
    let expected =
        Output { content_type: "text/plain; charset=latin1".into(), body: b"\xff {".to_vec().into(), headers: vec![] };
    assert_eq!(sent, expected);
}

#[test]
fn a_thin_body_refers_to_the_payload_and_is_the_same_each_time() {
    let (destination, event) = (destination(PayloadMode::Thin, Format::Plain), event("text/plain", b"12345"));
    let of = |delivery: &Delivery| Output::of(&destination, &event, delivery, "https://hooks.example").unwrap();
    let mut delivery = delivery(NOW);
    let first = of(&delivery);
    assert_eq!(&*first.content_type, "application/json");
    let body = read(&first.body);
    assert_eq!(body["event_id"], "evt-1");
    assert_eq!(body["type"], "invoice.paid");
    assert_eq!(body["tenant_id"], TenantId(2).to_string());
    assert_eq!(body["produced_at"], "2026-11-15T12:00:00.123Z");
    assert_eq!((&body["content_type"], &body["payload_bytes"]), (&"text/plain".into(), &5.into()));
    assert_eq!(body["expires_at"], "2026-11-16T12:00:00.000Z");
    let id = DestinationId(1);
    let url =
        format!("https://hooks.example/v1/events/evt-1/payload?destination_id={id}&expires=1794830400&signature=");
    assert!(body["payload_url"].as_str().unwrap().starts_with(&url), "{body}");

    (delivery.requests, delivery.progress.attempts, delivery.due_at) = (5, 3, NOW + Millis::from_hours(1));
    assert_eq!(of(&delivery), first, "a later attempt says the same");
}

#[test]
fn receivers_are_told_the_wall_clocks_time_as_it_was_when_the_event_was_accepted() {
    let ahead = Event { wall_offset_ms: 3_600_000, ..event("application/json", b"1") };
    let sent =
        |mode, format| Output::of(&destination(mode, format), &ahead, &delivery(NOW), "https://d.example").unwrap();
    let thin = read(&sent(PayloadMode::Thin, Format::Plain).body);
    let expires_at = PayloadLink::of(&delivery(NOW), &ahead.id).expires_at + Millis::from_hours(1);
    assert_eq!(
        (&thin["produced_at"], &thin["expires_at"]),
        (&"2026-11-15T13:00:00.123Z".into(), &expires_at.to_rfc3339().into())
    );
    let structured = read(&sent(PayloadMode::Full, Format::CloudeventsStructured).body);
    assert_eq!(structured["time"], "2026-11-15T13:00:00.123Z");
    let producers = Event { produced_at: Some(NOW), ..ahead };
    assert_eq!(producers.happened_at(), NOW, "a producer's time is the producer's");
}

#[test]
fn without_a_key_there_is_no_link() {
    let mut destination = destination(PayloadMode::Thin, Format::Plain);
    destination.secrets.link_key = None;
    let made = Output::of(&destination, &event("text/plain", b"1"), &delivery(NOW), "");
    assert_eq!(made, Err(NoLinkKey));
}

#[test]
fn a_link_is_good_for_what_it_was_signed_for_and_nothing_else() {
    let (event_id, other) = (EventId::new("evt-1").unwrap(), EventId::new("evt-2").unwrap());
    let link = PayloadLink { destination_id: DestinationId(1), event_id: &event_id, expires_at: Timestamp(5_000) };
    let signature = link.signature(&key());
    let before = Timestamp(4_999);
    assert_eq!(link.check(&key(), &signature, before), Ok(()));
    assert_eq!(link.check(&key(), &signature, Timestamp(5_000)), Err(LinkFault::Expired));
    assert_eq!(link.check(&[8; 32].into(), &signature, before), Err(LinkFault::Forged));
    for wrong in ["", "x", &signature[1..], &format!("{signature}A"), "AAAA"] {
        for now in [before, Timestamp(5_000)] {
            assert_eq!(link.check(&key(), wrong, now), Err(LinkFault::Forged), "{wrong}");
        }
    }
    for changed in [
        PayloadLink { destination_id: DestinationId(2), ..link.clone() },
        PayloadLink { event_id: &other, ..link.clone() },
        PayloadLink { expires_at: Timestamp(6_000), ..link.clone() },
    ] {
        assert_eq!(changed.check(&key(), &signature, before), Err(LinkFault::Forged), "{changed:?}");
    }
}

#[test]
fn a_delivery_without_end_has_a_link_that_can_be_written() {
    let event_id = EventId::new("evt-1").unwrap();
    let link = PayloadLink::of(&delivery(Timestamp::MAX), &event_id);
    assert_eq!(link.expires_at.to_rfc3339(), "9999-12-31T23:59:59.000Z");
}

#[test]
fn the_binary_mode_says_it_in_headers_and_leaves_the_payload_alone() {
    let sent = output(PayloadMode::Full, Format::CloudeventsBinary, "text/csv", b"a,b");
    assert_eq!((&*sent.content_type, &sent.body[..]), ("text/csv", &b"a,b"[..]));
    let expected = [
        ("ce-specversion", "1.0".to_owned()),
        ("ce-id", "evt-1".to_owned()),
        ("ce-source", format!("/tenants/{}", TenantId(2))),
        ("ce-type", "invoice.paid".to_owned()),
        ("ce-time", "2026-11-15T12:00:00.123Z".to_owned()),
    ];
    assert_eq!(sent.headers, expected);
}

#[test]
fn the_structured_mode_holds_json_as_it_came_and_anything_else_in_base64() {
    let of = |content_type: &str, payload: &[u8]| {
        output(PayloadMode::Full, Format::CloudeventsStructured, content_type, payload)
    };
    let sent = of("application/json", br#" {"n": 1.10, "n2": 12345678901234567890123} "#);
    assert_eq!(&*sent.content_type, "application/cloudevents+json");
    assert!(sent.headers.is_empty());
    let text = std::str::from_utf8(&sent.body).unwrap();
    assert!(text.contains(r#""data": {"n": 1.10, "n2": 12345678901234567890123} }"#), "{text}");
    let body = read(&sent.body);
    assert_eq!((&body["specversion"], &body["id"]), (&"1.0".into(), &"evt-1".into()));
    assert_eq!((&body["type"], &body["datacontenttype"]), (&"invoice.paid".into(), &"application/json".into()));
    assert_eq!(body["source"], format!("/tenants/{}", TenantId(2)));
    assert_eq!(body["time"], "2026-11-15T12:00:00.123Z");
    assert_eq!(body.get("data_base64"), None);

    assert_eq!(read(&of("application/vnd.shop+json; charset=utf-8", b"[1]").body)["data"], serde_json::json!([1]));
    for (content_type, payload) in [
        ("text/plain", &b"1"[..]),
        ("application/json", b"{\"broken\":"),
        ("application/json", b"1, \"data\": 2"),
        ("application/json", b"\"\xff\""),
        ("application/json", b""),
    ] {
        let body = read(&of(content_type, payload).body);
        assert_eq!(body["data_base64"], base64::Engine::encode(&base64::engine::general_purpose::STANDARD, payload));
        assert_eq!(body.get("data"), None, "{content_type}");
    }
}

#[test]
fn what_came_as_a_cloud_event_keeps_its_id_source_and_subject() {
    let mut event = event("application/json", b"1");
    let cloud = CloudAttributes { id: "a.1".into(), source: "/ä b".into(), subject: Some("\"s\"".into()) };
    event.cloud = Some(cloud.into());
    let of = |format| {
        Output::of(&destination(PayloadMode::Full, format), &event, &delivery(NOW), "https://hooks.example").unwrap()
    };
    let headers = of(Format::CloudeventsBinary).headers;
    for expected in [("ce-id", "a.1"), ("ce-source", "/%C3%A4%20b"), ("ce-subject", "%22s%22")] {
        assert!(headers.contains(&(expected.0, expected.1.to_owned())), "{headers:?}");
    }
    let body = read(&of(Format::CloudeventsStructured).body);
    assert_eq!((&body["id"], &body["source"], &body["subject"]), (&"a.1".into(), &"/ä b".into(), &"\"s\"".into()));
}

#[test]
fn a_thin_event_can_be_a_cloud_event_too() {
    let thin = output(PayloadMode::Thin, Format::Plain, "text/plain", b"1");
    let binary = output(PayloadMode::Thin, Format::CloudeventsBinary, "text/plain", b"1");
    assert_eq!((binary.content_type, &binary.body), ("application/json".into(), &thin.body));
    let structured = read(&output(PayloadMode::Thin, Format::CloudeventsStructured, "text/plain", b"1").body);
    assert_eq!(structured["data"], read(&thin.body));
    assert_eq!(structured["datacontenttype"], "application/json");
}

#[test]
fn header_values_are_encoded_as_the_specification_shows() {
    for (text, encoded) in [
        ("Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"),
        ("a\"b%c", "a%22b%25c"),
        ("!~", "!~"),
        ("\n\u{7f}", "%0A%7F"),
    ] {
        assert_eq!(percent_encoded(text), encoded);
    }
}
