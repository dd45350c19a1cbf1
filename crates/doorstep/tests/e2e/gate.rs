//! The gate of a destination: throttle, breaker, limits, suspension and pause, and what those who wait are told (G1–G16).

use std::time::Instant;

use serde_json::{Value, json};

use crate::answers::every;
use crate::support::{Home, Listener, Receiver, Server, text};

#[test]
fn a_limited_receiver_is_paced_and_nothing_is_lost_or_delayed_elsewhere() {
    const EVENTS: usize = 40;
    let home = Home::new();
    let server = Server::start(&home);
    let (limited, free) = (Listener::start(&["--rate-limit", "10/2s"]), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    // So few attempts that throttled ones must not count.
    let settings = json!({"policy": every(60_000, 2)});
    let destination = text(&client.destination(&tenant, &limited.url("/"), settings), "id");
    client.destination(&tenant, &free.url("/"), json!({}));
    let started = Instant::now();
    let events: Vec<String> = (0..EVENTS).map(|_| client.event(&tenant, json!({}))).collect();
    let shown = client.destination_in(&destination, "throttled");
    assert!(shown["throttled_until"].is_string() && shown["throttle_reason"].is_string(), "{shown}");
    assert_eq!((&shown["breaker"], shown["throttle_count"].as_u64() >= Some(1)), (&json!("closed"), true));
    free.records.wait_for(EVENTS);
    let elsewhere = started.elapsed();
    let waiting = crate::support::until("a delivery that waits for the throttle", || {
        let page = client.read(&format!("/v1/deliveries?destination_id={destination}&status=queued&limit=200"));
        let lines = page["data"].as_array().unwrap().clone();
        lines.into_iter().find(|line| line["waiting_for"] == "throttle")
    });
    assert!(waiting["until"].is_string() && waiting["attempt_count"] == 0, "{waiting}");

    for event in &events {
        limited.wait_for(event, 200);
    }
    let records = limited.records.all();
    let refused = records.iter().filter(|record| record["answered"] == 429).count();
    println!("{refused} × 429 for {EVENTS} events in {:?}; elsewhere {elsewhere:?}", started.elapsed());
    assert!(refused <= EVENTS / 2, "{refused} × 429");
    assert_eq!(records.len(), EVENTS + refused, "each arrived once");
    for event in &events {
        let delivery = client.delivery_in(&destination, event, "delivered");
        assert_eq!(delivery["attempt_count"], 1, "a 429 costs no attempt: {delivery}");
    }
    let shown = client.destination_in(&destination, "active");
    assert_eq!((&shown["throttle_count"], &shown["throttled_until"]), (&json!(0), &Value::Null));
}

#[test]
fn a_throttle_survives_a_restart_and_can_be_cleared() {
    let home = Home::new();
    let server = Server::start(&home);
    let limited = Listener::start(&["--rate-limit", "1/10m"]);
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &limited.url("/"), json!({})), "id");
    let first = client.event(&tenant, json!({}));
    limited.wait_for(&first, 200);
    let second = client.event(&tenant, json!({}));
    limited.wait_for(&second, 429);
    // Once it is on disk: what is known only in memory may be asked of the receiver anew.
    client.delivery_when(&destination, &second, "settled", |delivery| delivery["request_count"] == 1);
    let before = client.destination_in(&destination, "throttled");
    server.kill();

    let server = Server::start(&home);
    let mut client = server.client();
    let after = client.destination_in(&destination, "throttled");
    for field in ["throttled_until", "throttle_reason", "throttle_count"] {
        assert_eq!(before[field], after[field], "{field}");
    }
    client.delivery_waiting(&destination, &second, "throttle");
    // At once, and so it may be throttled anew before anybody looks.
    client.tell(&destination, "clear-throttle");
    limited.records.wait("a second request after the throttle was cleared", |records| {
        (records.iter().filter(|record| record["event_id"] == *second).count() == 2).then_some(())
    });
}

#[test]
fn a_503_that_says_for_how_long_holds_the_whole_destination_and_is_no_throttle() {
    const AWAY: &[u8] = b"HTTP/1.1 503 Away\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n";
    let receiver = Receiver::answering(move |peer, request| {
        use std::io::Write;
        let first = request.header("x-delivery-attempt") == Some("1") && request.header("x-event-type") == Some("away");
        peer.write_all(if first { AWAY } else { crate::support::OK })
    });
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(50, 5)});
    let destination = text(&client.destination(&tenant, &receiver.url("/"), settings), "id");
    let refused = client.event(&tenant, json!({"type": "away"}));
    client.delivery_when(&destination, &refused, "settled", |delivery| delivery["request_count"] == 1);
    let later = client.event(&tenant, json!({"type": "new"}));
    server.kill();

    let server = Server::start(&home);
    let mut client = server.client();
    let shown = client.destination_in(&destination, "throttled");
    assert_eq!((&shown["throttle_reason"], &shown["throttle_count"]), (&json!("maintenance"), &json!(0)));
    for event in [&refused, &later] {
        let waiting = client.delivery_waiting(&destination, event, "throttle");
        assert_eq!(waiting["until"], shown["throttled_until"], "retries and new events wait alike: {waiting}");
    }
    client.tell(&destination, "probe");
    assert_eq!(receiver.requests.len(), 1, "nothing else was sent");
    client.tell(&destination, "clear-throttle");
    for event in [&refused, &later] {
        client.delivery_in(&destination, event, "delivered");
    }
}

#[test]
fn ten_failures_in_a_row_open_the_breaker_and_a_probe_closes_it() {
    let home = Home::new();
    let (server, down) = (Server::start(&home), Listener::start(&["--status", "500"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(50, 200)});
    let destination = text(&client.destination(&tenant, &down.url("/"), settings), "id");
    let events: Vec<String> = (0..10).map(|_| client.event(&tenant, json!({}))).collect();
    let failing = client.destination_in(&destination, "failing");
    assert_eq!(failing["breaker"], "open");
    assert!(failing["next_probe_at"].is_string(), "{failing}");
    let waiting = client.delivery_waiting(&destination, &events[0], "breaker");
    assert_eq!(waiting["until"], failing["next_probe_at"]);
    let sent = down.records.len();
    assert!((10..20).contains(&sent), "{sent} requests until the breaker opened");

    // Still down: exactly one probe, and it stays open.
    client.tell(&destination, "probe");
    let probed = down.records.wait_for(sent + 1).pop().unwrap();
    let probed = client.delivery_when(&destination, probed["event_id"].as_str().unwrap(), "settled", |delivery| {
        delivery["request_count"].as_u64() == probed["attempt"].as_u64()
    });
    let counts = (probed["attempt_count"].as_u64().unwrap(), probed["request_count"].as_u64().unwrap());
    assert_eq!(counts.0 + 1, counts.1, "a probe costs no attempt: {probed}");
    let again = client.destination_in(&destination, "failing");
    assert_ne!(again["next_probe_at"], failing["next_probe_at"]);
    assert_eq!(down.records.len(), sent + 1);

    let port = down.address.port();
    drop(down);
    let up = Listener::start_at(port, &[]);
    client.tell(&destination, "probe");
    let recovering = &client.destination_in(&destination, "recovering")["recovering"];
    let per_second = |field: &str| recovering[field].as_f64().unwrap();
    let (pace, target) = (per_second("per_second"), per_second("target_per_second"));
    assert!(1.0 <= pace && pace <= target && (18.0..=20.0).contains(&target), "{recovering}");
    assert!(recovering["since"].is_string(), "{recovering}");
    for event in &events {
        up.wait_for(event, 200);
    }
    let active = client.destination_in(&destination, "active");
    assert_eq!((&active["breaker"], &active["next_probe_at"]), (&json!("closed"), &Value::Null));
    assert_eq!(active["recovering"], Value::Null);
    assert_eq!(up.records.len(), 10, "each once");
}

#[test]
fn three_times_gone_suspends_the_destination_until_somebody_resumes_it() {
    let home = Home::new();
    let (server, gone) = (Server::start(&home), Listener::start(&["--status", "410"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &gone.url("/"), json!({})), "id");
    for n in 1..=3 {
        let event = client.event(&tenant, json!({}));
        let delivery = client.delivery_in(&destination, &event, "dead");
        assert_eq!((&delivery["reason"], &delivery["last_status_code"]), (&json!("rejected"), &json!(410)));
        let expected = if n < 3 { "active" } else { "suspended" };
        client.destination_in(&destination, expected);
    }
    let kept = client.event(&tenant, json!({}));
    let waiting = client.delivery_waiting(&destination, &kept, "suspension");
    assert_eq!((&waiting["status"], &waiting["until"]), (&json!("queued"), &Value::Null));
    let port = gone.address.port();
    assert_eq!(gone.records.len(), 3);
    drop(gone);

    let up = Listener::start_at(port, &[]);
    client.tell(&destination, "resume");
    up.wait_for(&kept, 200);
    client.destination_in(&destination, "active");
}

#[test]
fn paused_means_held_and_never_discarded() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let paused = text(&client.destination(&tenant, &listener.url("/paused"), json!({})), "id");
    client.destination(&tenant, &listener.url("/other"), json!({}));
    assert_eq!(client.tell(&paused, "pause")["status"], "paused");
    let event = client.event(&tenant, json!({}));
    listener.wait_for(&event, 200);
    let waiting = client.delivery_waiting(&paused, &event, "pause");
    assert_eq!((&waiting["status"], &waiting["until"]), (&json!("queued"), &Value::Null));
    assert_eq!(client.read(&format!("/v1/destinations/{paused}"))["queued_events"], 1);
    server.kill();

    let server = Server::start(&home);
    let mut client = server.client();
    assert_eq!(client.destination_in(&paused, "paused")["queued_events"], 1, "a pause survives a restart");
    client.delivery_waiting(&paused, &event, "pause");
    let sent_to_it = |records: &[Value]| records.iter().find(|record| record["path"] == "/paused").cloned();
    assert_eq!(sent_to_it(&listener.records.all()), None, "only the other one was sent to");
    client.tell(&paused, "resume");
    assert_eq!(listener.records.wait("what was held", sent_to_it)["event_id"], event);
    client.destination_in(&paused, "active");
}

#[test]
fn limits_hold_and_those_who_wait_say_why() {
    let home = Home::new();
    let (server, hanging, fine) = (Server::start(&home), Listener::start(&["--hang"]), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let narrow = json!({"concurrency": 1, "event_types": ["narrow"]});
    let narrow = text(&client.destination(&tenant, &hanging.url("/"), narrow), "id");
    let slow = json!({"rate_limit": {"per_second": 0.01, "burst": 1}, "event_types": ["slow"]});
    let slow = text(&client.destination(&tenant, &fine.url("/"), slow), "id");

    let first = client.event(&tenant, json!({"type": "narrow"}));
    hanging.wait_for(&first, "hang");
    let second = client.event(&tenant, json!({"type": "narrow"}));
    client.delivery_waiting(&narrow, &second, "concurrency");
    assert_eq!(client.read(&format!("/v1/destinations/{narrow}"))["in_flight"], 1);
    assert_eq!(hanging.records.len(), 1);

    let first = client.event(&tenant, json!({"type": "slow"}));
    fine.wait_for(&first, 200);
    let second = client.event(&tenant, json!({"type": "slow"}));
    let waiting = client.delivery_waiting(&slow, &second, "pace");
    assert!(waiting["until"].is_string(), "{waiting}");
}

#[test]
fn a_concurrency_cap_is_never_exceeded() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, peak) = (Arc::clone(&now), Arc::clone(&most));
    let receiver = Receiver::answering(move |peer, _| {
        use std::io::Write;
        peak.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(std::time::Duration::from_millis(10));
        counted.fetch_sub(1, Ordering::SeqCst);
        peer.write_all(crate::support::OK)
    });
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &receiver.url("/"), json!({"concurrency": 3}));
    for _ in 0..60 {
        client.event(&tenant, json!({}));
    }
    receiver.requests.wait_for(60);
    assert_eq!(most.load(Ordering::SeqCst), 3, "as many as allowed, and no more");
}

#[test]
fn an_event_that_has_lost_its_meaning_is_given_up() {
    let home = Home::new();
    let (server, down) = (Server::start(&home), Listener::start(&["--status", "503"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(300, 100)});
    let destination = text(&client.destination(&tenant, &down.url("/"), settings), "id");
    let event = client.event(&tenant, json!({"ttl_ms": 1_000}));
    let delivery = client.delivery_in(&destination, &event, "dead");
    assert_eq!(delivery["reason"], "expired");
    assert!((2..=5).contains(&delivery["attempt_count"].as_u64().unwrap()), "{delivery}");
}

#[test]
fn a_tenant_whose_receivers_hang_leaves_slots_to_others() {
    const DESTINATIONS: usize = 20;
    let home = Home::new();
    let options = ["--allow-targets", "127.0.0.0/8", "--in-flight-max", "64"];
    let (server, hanging) = (Server::start_with(&home, &options), Listener::start(&["--hang"]));
    let mut client = server.client();
    let greedy = client.tenant();
    let settings = json!({"timeout_ms": 300_000});
    let destinations: Vec<String> = (0..DESTINATIONS)
        .map(|n| text(&client.destination(&greedy, &hanging.url(&format!("/{n}")), settings.clone()), "id"))
        .collect();
    let events: Vec<String> = (0..10).map(|_| client.event(&greedy, json!({}))).collect();
    hanging.records.wait_for(DESTINATIONS);
    // Everything that it may hold is out once one of the last waits for a slot, and nothing of that ends for minutes.
    client.delivery_waiting(&destinations[DESTINATIONS - 1], &events[9], "capacity");

    // Others find slots at once, one after the other, and so does what is tried again.
    for settings in [json!({}), json!({"policy": every(50, 200)})] {
        let (other, fails) = (client.tenant(), !settings["policy"].is_null());
        let to = Listener::start(if fails { &["--status", "500"] } else { &[] });
        client.destination(&other, &to.url("/"), settings);
        let first = client.event(&other, json!({}));
        if fails {
            to.records.wait("a second request", |records| {
                (records.iter().filter(|record| record["event_id"] == *first).count() >= 2).then_some(())
            });
        } else {
            to.wait_for(&first, 200);
        }
    }
    let hung = hanging.records.len();
    assert!((DESTINATIONS..40).contains(&hung), "{hung} of 64 slots");
}
