//! The learned pace of a destination: seen, forgotten, pinned, and still there after `kill -9`. What a receiver says of its quota.

use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clock::WallClock;
use crate::support::{Client, Home, Listener, OK, Receiver, Server, text};

const BUSY: &[u8] = b"HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";

/// Refuses the request after the first `n`, and no other.
fn refuses_once_after(n: usize) -> Receiver {
    let seen = AtomicUsize::new(0);
    Receiver::answering(move |peer, _| {
        let refuses = seen.fetch_add(1, Ordering::SeqCst) == n;
        std::io::Write::write_all(peer, if refuses { BUSY } else { OK })
    })
}

fn shown(client: &mut Client, destination: &str) -> Value {
    client.read(&format!("/v1/destinations/{destination}"))
}

/// A destination whose pace has been learned, and has climbed since.
fn taught(client: &mut Client, tenant: &str, receiver: &Receiver) -> String {
    const EVENTS: usize = 60;
    let destination = text(&client.destination(tenant, &receiver.url("/"), json!({})), "id");
    assert_eq!(shown(client, &destination)["learned"], Value::Null);
    let events: Vec<String> = (0..EVENTS).map(|_| client.event(tenant, json!({}))).collect();
    for event in &events {
        client.delivery_in(&destination, event, "delivered");
    }
    assert_eq!(receiver.requests.len(), EVENTS + 1);
    destination
}

#[test]
fn a_learned_pace_survives_kill_9_as_far_as_it_had_climbed() {
    let home = Home::new();
    let Some(clock) = WallClock::new(&home, true) else { return };
    let (server, receiver) = (clock.serve(&[]), refuses_once_after(20));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = taught(&mut client, &tenant, &receiver);
    let other = text(&client.destination(&tenant, &receiver.url("/other"), json!({"event_types": ["none"]})), "id");
    let before = shown(&mut client, &destination);
    assert_eq!(before["learned"]["reason"], "refused", "{before}");
    // What is due by then is written no later than the pause, which is on disk when it is answered.
    clock.set(40);
    let mut client = server.client();
    client.tell(&other, "pause");
    assert_eq!(shown(&mut client, &destination)["learned_pace"], before["learned_pace"], "nothing was sent since");
    server.kill();

    let server = clock.serve(&[]);
    let after = shown(&mut server.client(), &destination);
    assert_eq!((&after["learned_pace"], &after["learned"]), (&before["learned_pace"], &before["learned"]));
}

#[test]
fn a_learned_pace_says_why_and_since_when_and_is_forgotten_only_when_asked() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), refuses_once_after(20));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = taught(&mut client, &tenant, &receiver);
    let seen = shown(&mut client, &destination);
    let learned = &seen["learned"];
    assert_eq!(learned["per_second"], seen["learned_pace"]);
    assert!(learned["per_second"].as_f64().unwrap() > 0.0 && learned["since"].is_string(), "{learned}");
    let unknown = (&learned["estimate_per_second"], &learned["next_probe_at"]);
    assert_eq!(unknown, (&Value::Null, &Value::Null), "one refusal tells no ceiling");

    let path = format!("/v1/destinations/{destination}/clear-throttle");
    for keeps in [json!({}), json!({"forget_learned": false})] {
        assert_eq!(client.post(&path, keeps).expect(200)["learned"], *learned);
    }
    let wrong = client.post(&path, json!({"forget": true}));
    assert!((400..500).contains(&wrong.status), "{}", wrong.text());
    let forgot = client.post(&path, json!({"forget_learned": true})).expect(200);
    assert_eq!((&forgot["learned"], &forgot["learned_pace"]), (&Value::Null, &Value::Null));
    let audit = client.read("/v1/audit?action=destination.clear_throttle");
    let changes: Vec<&Value> = audit["data"].as_array().unwrap().iter().map(|entry| &entry["changes"]).collect();
    assert_eq!(changes, [&json!({"forget_learned": {"before": null, "after": true}}), &json!({}), &json!({})]);
}

#[test]
fn a_pinned_pace_holds_from_its_next_request_until_it_is_taken_away() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"pinned_pace": {"per_second": 0.01}});
    let made = client.destination(&tenant, &listener.url("/"), settings);
    assert_eq!(made["pinned_pace"], json!({"per_second": 0.01}));
    let destination = text(&made, "id");
    let first = client.event(&tenant, json!({}));
    listener.wait_for(&first, 200);
    let second = client.event(&tenant, json!({}));
    client.delivery_waiting(&destination, &second, "pace");
    let path = format!("/v1/destinations/{destination}");
    for wrong in [json!({"per_second": 0}), json!({"per_second": 100_001})] {
        let refused = client.patch(&path, json!({"pinned_pace": wrong})).expect(422);
        assert_eq!(refused["errors"][0]["pointer"], "/pinned_pace/per_second", "{refused}");
        let detail = refused["errors"][0]["detail"].as_str().unwrap();
        assert!(detail.contains("between 0.001 and 100000") && detail.contains("null"), "{detail}");
    }
    assert_eq!(listener.records.len(), 1, "it is still pinned");
    let changed = client.patch(&path, json!({"pinned_pace": null})).expect(200);
    assert_eq!(changed["pinned_pace"], Value::Null);
    listener.wait_for(&second, 200);

    client.patch(&path, json!({"pinned_pace": {"per_second": 4.1}})).expect(200);
    server.kill();
    let server = Server::start(&home);
    assert_eq!(shown(&mut server.client(), &destination)["pinned_pace"], json!({"per_second": 4.1}));
}

/// Admits so many per second, refuses the others without saying for how long, and says in each answer what is left.
fn says_what_is_left(capacity: u64) -> Receiver {
    let window = Mutex::new((Instant::now(), 0));
    Receiver::answering(move |peer, _| {
        let mut window = window.lock().unwrap();
        if window.0.elapsed() >= Duration::from_secs(1) {
            *window = (Instant::now(), 0);
        }
        let status = if window.1 < capacity { "200 OK" } else { "429 Busy" };
        window.1 = (window.1 + 1).min(capacity);
        let left = capacity - window.1;
        write!(peer, "HTTP/1.1 {status}\r\nratelimit: \"second\";r={left};t=1\r\ncontent-length: 0\r\n\r\n")
    })
}

#[test]
fn a_quota_that_the_receiver_advertises_is_used_up_without_a_refusal() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), says_what_is_left(5));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &receiver.url("/"), json!({})), "id");
    assert_eq!(shown(&mut client, &destination)["advertised_quota"], Value::Null);
    // The first answer tells of the quota.
    let first = client.event(&tenant, json!({}));
    client.delivery_in(&destination, &first, "delivered");
    let events: Vec<String> = (0..17).map(|_| client.event(&tenant, json!({}))).collect();
    for event in &events {
        client.delivery_in(&destination, event, "delivered");
    }
    assert_eq!(receiver.requests.len(), 18, "each was sent once");
    let seen = shown(&mut client, &destination);
    assert_eq!(seen["learned"], Value::Null, "nothing was refused: {seen}");
    let quota = &seen["advertised_quota"];
    assert!(quota["left"].as_u64().unwrap() < 5 && quota["resets_at"].is_string(), "{quota}");
}
