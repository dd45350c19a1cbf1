//! What goes over the wire of an event: thin or full, plain or as a CloudEvent, with its trace.

use doorstep_core::output::{Format, NoLinkKey, PayloadMode};
use doorstep_core::signature::{TOLERANCE_DEFAULT, verify};
use doorstep_core::time::{Millis, Timestamp};
use doorstep_engine::sender::SendFault;
use std::sync::atomic::Ordering;

use crate::support::{Bench, NOW, OK, Order, Received, Receiver, SECRET, expect_status};

fn verifies(got: &Received) {
    let now = Timestamp::from_secs(got.headers["webhook-timestamp"].parse().unwrap());
    verify(|name| got.header(name), &got.body, &[SECRET.parse().unwrap()], now, TOLERANCE_DEFAULT).unwrap();
}

#[tokio::test]
async fn a_thin_body_is_signed_and_the_same_on_every_attempt() {
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let bench = Bench::default();
    let mut order = Order::to(receiver.url());
    order.destination.settings.payload_mode = PayloadMode::Thin;
    order.destination.secrets.link_key = Some([1; 32].into());
    order.delivery.progress.give_up_at = NOW + Millis::from_hours(1);
    let mut bodies = Vec::new();
    for n in 0..2 {
        order.delivery.requests = n;
        expect_status(&bench.send(&order).await, 200);
        let got = requests.recv().await.unwrap();
        verifies(&got);
        assert_eq!(got.headers["content-type"], "application/json");
        bodies.push(got.body);
        bench.clock.fetch_add(60_000, Ordering::SeqCst);
    }
    assert_eq!(bodies[0], bodies[1]);
    let body: serde_json::Value = serde_json::from_slice(&bodies[0]).unwrap();
    assert!(body["payload_url"].as_str().unwrap().starts_with("https://hooks.example/v1/events/evt-1/payload?"));
    assert_eq!(body["expires_at"], "2023-11-15T23:13:20.000Z");

    order.destination.secrets.link_key = None;
    let id = order.destination.id;
    assert_eq!(bench.try_send(&order).await.unwrap_err(), SendFault::Output(id, NoLinkKey));
}

#[tokio::test]
async fn a_cloud_event_is_signed_as_it_is_sent() {
    let (receiver, mut requests) = Receiver::answering(OK).await;
    for format in [Format::CloudeventsBinary, Format::CloudeventsStructured] {
        let mut order = Order::to(receiver.url());
        order.destination.settings.format = format;
        expect_status(&Bench::default().send(&order).await, 200);
        let got = requests.recv().await.unwrap();
        verifies(&got);
        match format {
            Format::CloudeventsStructured => {
                assert_eq!(got.headers["content-type"], "application/cloudevents+json");
                assert!(got.headers.keys().all(|name| !name.starts_with("ce-")));
                let body: serde_json::Value = serde_json::from_slice(&got.body).unwrap();
                assert_eq!(body["data"], serde_json::json!({"n": 1}));
            }
            Format::CloudeventsBinary | Format::Plain => {
                assert_eq!(got.headers["content-type"], "application/json");
                assert_eq!((&*got.headers["ce-specversion"], &*got.headers["ce-id"]), ("1.0", "evt-1"));
                assert_eq!(got.headers["ce-type"], "invoice.paid");
                assert_eq!(got.body, b"{\"n\": 1}");
            }
        }
    }
}

#[tokio::test]
async fn each_attempt_is_a_step_of_its_own_in_the_events_trace() {
    let (receiver, mut requests) = Receiver::answering(OK).await;
    let bench = Bench::default();
    let mut order = Order::to(receiver.url());
    order.event.trace = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".parse().unwrap());
    let mut parents = vec!["00f067aa0ba902b7".to_owned()];
    for _ in 0..2 {
        let sent = bench.send(&order).await;
        let got = requests.recv().await.unwrap();
        let (start, rest) = got.headers["traceparent"].split_at(36);
        assert_eq!((start, &rest[16..]), ("00-4bf92f3577b34da6a3ce929d0e0e4736-", "-01"));
        assert!(!parents.contains(&rest[..16].to_owned()), "{parents:?}");
        assert_eq!(u64::from_str_radix(&rest[..16], 16).unwrap(), sent.attempt.id.0 as u64);
        parents.push(rest[..16].to_owned());
        assert!(!got.headers.contains_key("tracestate"));
        bench.clock.fetch_add(1, Ordering::SeqCst);
    }
    for (trace, send) in [(order.event.trace, false), (None, true)] {
        order.event.trace = trace;
        order.destination.settings.send_traceparent = send;
        bench.send(&order).await;
        assert!(!requests.recv().await.unwrap().headers.contains_key("traceparent"));
    }
}
