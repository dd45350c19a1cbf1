//! SIGTERM: what is in flight comes to its end, and nothing is sent twice (C5, D6).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Home, Listener, Server, text};

#[test]
fn what_is_in_flight_comes_to_its_end_and_is_not_sent_again() {
    let home = Home::new();
    let (server, slow) = (Server::start(&home), Listener::start(&["--delay", "1500ms"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"concurrency": 2});
    let destination = text(&client.destination(&tenant, &slow.url("/"), settings), "id");
    let events: Vec<String> = (0..3).map(|_| client.event(&tenant, json!({}))).collect();
    for event in &events[..2] {
        client.delivery_in(&destination, event, "in_flight");
    }
    let address = server.address;
    server.terminate();
    crate::support::until("not to be ready any more", || {
        let answer = crate::support::Client::new(address).ask("GET", "/readyz", &[], b"");
        answer.map_or(true, |answer| answer.status == 503).then_some(())
    });
    let status = server.ended();
    assert_eq!(status.code(), Some(0));
    assert_eq!(slow.records.len(), 2, "what was in flight was answered, and what waited was not sent");

    let server = Server::start(&home);
    let mut client = server.client();
    slow.wait_for(&events[2], 200);
    for event in &events {
        let delivery = client.delivery_in(&destination, event, "delivered");
        assert_eq!(delivery["attempt_count"], 1);
    }
    assert_eq!(slow.records.len(), 3, "each once");
}

#[test]
fn a_drain_ends_in_time_and_what_was_cut_off_costs_no_attempt() {
    let home = Home::new();
    let options = ["--allow-targets", "127.0.0.0/8", "--drain-timeout-ms", "500"];
    let (server, hanging) = (Server::start_with(&home, &options), Listener::start(&["--hang"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &hanging.url("/"), json!({})), "id");
    let event = client.event(&tenant, json!({}));
    hanging.wait_for(&event, "hang");
    let started = Instant::now();
    server.terminate();
    assert_eq!(server.ended().code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());

    let port = hanging.address.port();
    drop(hanging);
    let up = Listener::start_at(port, &[]);
    let server = Server::start(&home);
    up.wait_for(&event, 200);
    let delivery = server.client().delivery_in(&destination, &event, "delivered");
    assert_eq!(delivery["attempt_count"], 1, "{delivery}");
}
