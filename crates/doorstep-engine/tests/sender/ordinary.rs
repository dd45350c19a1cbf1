//! What a receiver gets, and what is kept of its answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doorstep_core::delivery::OrderingSlot;
use doorstep_core::destination::SigningSecret;
use doorstep_core::id::AttemptId;
use doorstep_core::outcome::{Class, Outcome, Quota, StatusOverrides};
use doorstep_core::signature::{ExtraStyle, SharedSecret, TOLERANCE_DEFAULT, VerifyingKey, verify};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::sender::SendFault;

use crate::support::{Bench, NOW, OK, Order, Receiver, SECRET, expect_status};

#[tokio::test]
async fn the_payload_arrives_byte_for_byte_and_signed() {
    let bench = Bench::default();
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let payload: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let mut order = Order::to(receiver.url()).with_payload(payload.clone());
    order.event.content_type = "application/octet-stream".into();
    order.destination.settings.extra_signatures = BTreeSet::from([ExtraStyle::Github, ExtraStyle::Stripe]);
    order.delivery.requests = 2;
    expect_status(&bench.send(&order).await, 200);

    let got = requests.recv().await.unwrap();
    assert_eq!(got.line, "POST /hook?a=b HTTP/1.1");
    assert!(got.body == payload);
    for (name, value) in [
        ("host", receiver.address.to_string().as_str()),
        ("content-type", "application/octet-stream"),
        ("content-length", "300000"),
        ("accept-encoding", "identity"),
        ("user-agent", concat!("Doorstep/", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", "evt-1"),
        ("webhook-timestamp", "1700000000"),
        ("x-event-id", "evt-1"),
        ("x-event-type", "invoice.paid"),
        ("x-delivery-id", "dlv_00000000000000000000000007"),
        ("x-delivery-attempt", "3"),
    ] {
        assert_eq!(got.headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    // The producer said neither, and nothing is ordered.
    let unsaid = ["x-replay-id", "x-sequence", "x-ordering-key", "x-schema-version", "x-produced-at"];
    for absent in unsaid.into_iter().chain(["transfer-encoding", "connection", "cookie"]) {
        assert_eq!(got.headers.get(absent), None);
    }
    let secret: SharedSecret = SECRET.parse().unwrap();
    let keys = [VerifyingKey::Shared(secret.clone())];
    verify(|name| got.header(name), &got.body, &keys, NOW, TOLERANCE_DEFAULT).unwrap();
    for style in [ExtraStyle::Github, ExtraStyle::Stripe] {
        style
            .verify(|name| got.header(name), &got.body, std::slice::from_ref(&secret), NOW, TOLERANCE_DEFAULT)
            .unwrap();
    }
}

#[tokio::test]
async fn replayed_and_ordered_requests_say_so() {
    let bench = Bench::default();
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let mut order = Order::to(receiver.url());
    order.replay_id = Some("rpl_1".to_owned());
    order.delivery.ordering = Some(OrderingSlot { key: "customer-1 Ä%".into(), sequence: 42 });
    expect_status(&bench.send(&order).await, 200);
    let got = requests.recv().await.unwrap();
    assert_eq!(got.header("x-replay-id"), Some(&b"rpl_1"[..]));
    assert_eq!(got.header("x-sequence"), Some(&b"42"[..]));
    assert_eq!(got.header("x-ordering-key"), Some(&b"customer-1%20%C3%84%25"[..]));
}

#[tokio::test]
async fn what_the_producer_said_of_version_and_time_is_sent_along() {
    let bench = Bench::default();
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let mut order = Order::to(receiver.url());
    order.event.schema_version = Some("2026-11 \u{df}".into());
    order.event.produced_at = Some(Timestamp(1_700_000_000_123));
    expect_status(&bench.send(&order).await, 200);
    let got = requests.recv().await.unwrap();
    assert_eq!(got.header("x-schema-version"), Some(&b"2026-11%20%C3%9F"[..]));
    assert_eq!(got.header("x-produced-at"), Some(&b"2023-11-14T22:13:20.123Z"[..]));
}

#[tokio::test]
async fn custom_headers_are_sent_and_their_values_are_not_kept() {
    let bench = Bench::default();
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let mut order = Order::to(receiver.url());
    let own = [("Authorization", "Bearer hunter2"), ("X-Shop", "hunter2")];
    order.destination.secrets.headers = own.map(|(name, value)| (name.to_owned(), value.to_owned().into())).into();
    let events = [("x-trace", "abc"), ("x-shop", "from the event"), ("x-access-token", "hunter2")];
    order.event.headers = events.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let sent = bench.send(&order).await;

    let got = requests.recv().await.unwrap();
    for (name, value) in [("authorization", "Bearer hunter2"), ("x-shop", "hunter2"), ("x-trace", "abc")] {
        assert_eq!(got.headers.get(name).map(String::as_str), Some(value));
    }
    let kept = sent.attempt.request_headers.pairs();
    let of = |name: &str| kept.iter().find(|(kept, _)| kept == name).map(|(_, value)| value.as_str());
    assert_eq!(of("x-trace"), Some("abc"));
    assert_eq!(of("x-event-id"), Some("evt-1"));
    for masked in ["authorization", "x-shop", "x-access-token", "webhook-signature"] {
        assert_eq!(of(masked), Some("***"), "{masked}");
    }
    assert!(!format!("{sent:?}").contains("hunter2"));
}

#[tokio::test]
async fn an_answer_is_kept_with_its_secrets_masked() {
    let bench = Bench::default();
    let answer = "HTTP/1.1 418 I'm a teapot\r\nset-cookie: a=hunter2\r\nX-Api-Key: hunter2\r\nx-odd: \u{fc}\r\n\
        content-encoding: gzip\r\ncontent-length: 5\r\n\r\n\u{1f}\0abc";
    let (receiver, _requests) = Receiver::answering(answer).await;
    let mut order = Order::to(receiver.url());
    order.delivery.requests = 4;
    let sent = bench.send(&order).await;
    expect_status(&sent, 418);
    assert_eq!(sent.outcome, Outcome::Rejected { status: 418 });
    let kept = sent.attempt.response_headers.pairs();
    let expected = [
        ("set-cookie", "***"),
        ("x-api-key", "***"),
        ("x-odd", "\u{fc}"),
        ("content-encoding", "gzip"),
        ("content-length", "5"),
    ];
    assert_eq!(kept.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect::<Vec<_>>(), expected);
    assert_eq!(&sent.attempt.response_body[..], b"\x1f\0abc", "bodies are not unpacked");
    assert!(!sent.attempt.response_truncated);
    assert_eq!((sent.attempt.number, sent.attempt.started_at), (5, NOW));
    assert_eq!(sent.attempt.id, AttemptId(1_700_000_000_000));
    let timings = sent.attempt.timings;
    assert!(timings.dns.is_none() && timings.tls.is_none());
    assert!(timings.connect.is_some() && timings.first_byte.is_some());
}

#[tokio::test]
async fn the_status_decides_with_what_the_headers_ask_for() {
    let throttled = "HTTP/1.1 429 Slow\r\nretry-after: 7\r\ncontent-length: 0\r\n\r\n";
    let spent = "HTTP/1.1 204 No Content\r\nratelimit: \"a\";r=0;t=9\r\n\r\n";
    let conflict = "HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n";
    for (answer, outcome) in [
        (throttled, Outcome::Throttled { wait: Some(Millis::from_secs(7)) }),
        (spent, Outcome::Accepted { quota: Some(Quota::spent(Millis::from_secs(9))) }),
        (conflict, Outcome::Accepted { quota: None }),
    ] {
        let bench = Bench::default();
        let (receiver, _requests) = Receiver::answering(answer).await;
        let mut order = Order::to(receiver.url());
        order.destination.settings.status_overrides = StatusOverrides::new([(409, Class::Success)]).unwrap();
        assert_eq!(bench.send(&order).await.outcome, outcome, "{answer}");
    }
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let bench = Bench::default();
    let (elsewhere, _requests) = Receiver::answering(OK).await;
    for status in [301, 302, 303, 307, 308] {
        let answer = format!("HTTP/1.1 {status} Go\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", elsewhere.url());
        let (receiver, _requests) = Receiver::answering(answer).await;
        let mut order = Order::to(receiver.url());
        order.destination.version = status.into();
        let sent = bench.send(&order).await;
        expect_status(&sent, status);
        assert_eq!(sent.outcome, Outcome::Ambiguous { status, wait: None });
    }
    assert_eq!(elsewhere.n_connections(), 0);
}

#[tokio::test]
async fn a_changed_destination_is_read_anew_and_an_unchanged_one_is_not() {
    let bench = Bench::default();
    let (first, _requests) = Receiver::answering(OK).await;
    let (second, _requests) = Receiver::answering(OK).await;
    let mut order = Order::to(first.url());
    expect_status(&bench.send(&order).await, 200);
    order.destination.settings.url = second.url();
    expect_status(&bench.send(&order).await, 200);
    assert_eq!((first.n_connections(), second.n_connections()), (1, 0));
    order.destination.version = 2;
    expect_status(&bench.send(&order).await, 200);
    assert_eq!((first.n_connections(), second.n_connections()), (1, 1));
}

#[tokio::test]
async fn a_secret_signs_along_until_it_retires() {
    let bench = Bench::default();
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let mut order = Order::to(receiver.url());
    let retires_at = Some(NOW + Millis(1));
    order.destination.secrets.signing.push(SigningSecret { text: SECRET.to_owned().into(), retires_at });
    let mut n_signatures = Vec::new();
    for now in [NOW, NOW + Millis(1)] {
        bench.clock.store(now.0, Ordering::SeqCst);
        expect_status(&bench.send(&order).await, 200);
        let got = requests.recv().await.unwrap();
        n_signatures.push(got.headers["webhook-signature"].split(' ').count());
    }
    assert_eq!(n_signatures, [2, 1]);
}

#[tokio::test]
async fn what_cannot_be_written_is_our_fault_and_nothing_is_sent() {
    let bench = Bench::default();
    let (receiver, _requests) = Receiver::answering(OK).await;
    let order = Order::to(receiver.url());
    let refused = async |change: fn(&mut Order)| {
        let mut order = order.clone();
        change(&mut order);
        bench.try_send(&order).await.unwrap_err()
    };
    let no_secret = refused(|order| order.destination.secrets.signing.clear()).await;
    assert!(matches!(no_secret, SendFault::Signer(..)), "{no_secret:?}");
    let bad_secret = refused(|order| order.destination.secrets.signing[0].text = "hunter2".to_owned().into()).await;
    assert!(matches!(bad_secret, SendFault::Secret(..)), "{bad_secret:?}");
    let own =
        refused(|order| order.destination.secrets.headers = vec![("webhook-id".into(), "1".to_owned().into())]).await;
    assert!(matches!(own, SendFault::Headers(..)), "{own:?}");
    let events = refused(|order| order.event.headers = vec![("x-a".into(), "a\r\nx-evil: 1".into())]).await;
    assert!(matches!(events, SendFault::EventHeaders(..)), "{events:?}");
    let content_type = refused(|order| order.event.content_type = "a\r\nb".into()).await;
    assert!(matches!(content_type, SendFault::ContentType(..)), "{content_type:?}");
    assert_eq!(receiver.n_connections(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_at_once_all_arrive_and_connections_are_used_again() {
    const SENDERS: usize = 16;
    let bench = Arc::new(Bench::default());
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let order = Arc::new(Order::to(receiver.url()));
    let senders: Vec<_> = (0..SENDERS)
        .map(|_| {
            let (bench, order) = (Arc::clone(&bench), Arc::clone(&order));
            tokio::spawn(async move {
                for _ in 0..100 {
                    expect_status(&bench.send(&order).await, 200);
                }
            })
        })
        .collect();
    for sender in senders {
        sender.await.unwrap();
    }
    for _ in 0..SENDERS * 100 {
        requests.recv().await.unwrap();
    }
    assert!(receiver.n_connections() <= 2 * SENDERS, "{} connections", receiver.n_connections());
}
