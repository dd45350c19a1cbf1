//! What a receiver answers decides what follows (D3–D5, D7).

use std::io::Write;

use serde_json::{Value, json};

use crate::support::{Client, Home, Listener, Receiver, Server, text};

/// Retries after so many milliseconds, always.
pub(crate) fn every(ms: u64, max_attempts: u32) -> Value {
    // Without a floor of its own a policy waits for a second at least.
    let (strategy, jitter) = ("fixed", "none");
    json!({"strategy": strategy, "base_ms": ms, "floor_ms": ms, "jitter": jitter, "max_attempts": max_attempts, "window_ms": 600_000})
}

/// A receiver that answers `/503` with 503, and so on.
fn echo() -> Receiver {
    Receiver::answering(|peer, request| {
        let status = request.path.trim_start_matches('/');
        let more = if status.starts_with('3') { "location: /200\r\n" } else { "" };
        let body = if status == "204" { "" } else { "content-length: 0\r\n" };
        peer.write_all(format!("HTTP/1.1 {status} Said\r\n{more}{body}\r\n").as_bytes())
    })
}

/// A destination of its own for each status, which takes events of the type `s503` and so on; its ID.
fn destination(client: &mut Client, tenant: &str, receiver: &Receiver, status: u16, more: Value) -> String {
    let mut settings = more;
    settings["event_types"] = json!([format!("s{status}")]);
    settings["policy"] = every(20, 7);
    text(&client.destination(tenant, &receiver.url(&format!("/{status}")), settings), "id")
}

#[test]
fn each_status_has_the_consequence_of_its_class() {
    // Status, how it ends, after how many requests. Ten failures in a row would trip the breaker.
    let cases: &[(&[u16], &str, Value, u64)] = &[
        (&[200, 201, 202, 204, 299], "delivered", Value::Null, 1),
        (&[408, 409, 425, 500, 502, 503, 504, 505, 599], "dead", json!("exhausted"), 7),
        (&[404, 300, 301, 302, 303, 304, 307, 308], "dead", json!("rejected"), 5),
        (&[400, 401, 403, 405, 410, 415, 418, 422, 451, 499, 501], "dead", json!("rejected"), 1),
    ];
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), echo());
    let mut client = server.client();
    let tenant = client.tenant();
    let mut sent = Vec::new();
    for (statuses, status, reason, requests) in cases {
        for code in *statuses {
            let destination = destination(&mut client, &tenant, &receiver, *code, json!({}));
            sent.push((*code, destination, *status, reason, *requests));
        }
    }
    let events: Vec<String> =
        sent.iter().map(|(code, ..)| client.event(&tenant, json!({"type": format!("s{code}")}))).collect();
    for ((code, destination, status, reason, requests), event) in sent.into_iter().zip(events) {
        let delivery = client.delivery_in(&destination, &event, status);
        assert_eq!(&delivery["reason"], reason, "{code}");
        let counts = (&delivery["attempt_count"], &delivery["request_count"], &delivery["last_status_code"]);
        assert_eq!(counts, (&json!(requests), &json!(requests), &json!(code)), "{code}");
        assert_eq!(delivery["attempts"].as_array().unwrap().len() as u64, requests, "{code}");
        let mut arrived = receiver.requests.all();
        arrived.retain(|one| one.header("webhook-id") == Some(&event));
        assert_eq!(arrived.len() as u64, requests, "{code}: {arrived:#?}\n{delivery:#}");
    }
    let followed = receiver.requests.all().iter().filter(|request| request.path == "/200").count();
    assert_eq!(followed, 1, "a redirect was followed");
}

#[test]
fn a_destination_may_read_statuses_in_its_own_way() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), echo());
    let mut client = server.client();
    let tenant = client.tenant();
    for (code, class, reason, requests) in
        [(404, "transient", "exhausted", 7), (500, "permanent", "rejected", 1), (418, "ambiguous", "rejected", 5)]
    {
        let more = json!({"status_overrides": {code.to_string(): class}});
        let destination = destination(&mut client, &tenant, &receiver, code, more);
        let event = client.event(&tenant, json!({"type": format!("s{code}")}));
        let delivery = client.delivery_in(&destination, &event, "dead");
        assert_eq!((&delivery["reason"], &delivery["attempt_count"]), (&json!(reason), &json!(requests)), "{code}");
    }
}

#[test]
fn a_receiver_that_was_down_gets_everything_when_it_is_back() {
    let home = Home::new();
    let (server, down) = (Server::start(&home), Listener::start(&["--status", "503"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &down.url("/"), json!({"policy": every(700, 50)})), "id");
    let event = client.event(&tenant, json!({}));
    down.records.wait_for(2);
    let waiting = client.delivery_waiting(&destination, &event, "due_time");
    assert_eq!((&waiting["status"], &waiting["last_status_code"]), (&json!("retry_scheduled"), &json!(503)));
    assert_eq!(waiting["until"], waiting["next_attempt_at"]);
    assert!(waiting["until"].as_str() > waiting["attempts"][1]["started_at"].as_str(), "{waiting}");
    let failed = down.records.len();

    let port = down.address.port();
    drop(down);
    let up = Listener::start_at(port, &[]);
    let record = up.wait_for(&event, 200);
    assert!(record["attempt"].as_u64().unwrap() > failed as u64, "{record}");
    let delivery = client.delivery_in(&destination, &event, "delivered");
    let attempts = delivery["attempts"].as_array().unwrap();
    assert!(attempts[..failed].iter().all(|attempt| attempt["status_code"] == 503), "{delivery}");
    assert_eq!(attempts.last().unwrap()["status_code"], 200);
    assert_eq!(attempts.len() as u64, delivery["attempt_count"].as_u64().unwrap());
}

#[test]
fn nobody_at_the_port_is_a_transient_failure() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = json!({"policy": every(60_000, 3)});
    let destination = text(&client.destination(&tenant, &format!("http://{free}/"), settings), "id");
    let event = client.event(&tenant, json!({}));
    let delivery = client.delivery_in(&destination, &event, "retry_scheduled");
    assert_eq!(delivery["attempts"][0]["error"], "connect_refused");
}

#[test]
fn with_a_share_of_failures_everything_still_arrives() {
    let home = Home::new();
    // The seed decides the answers in their order: with this one the breaker stays closed.
    let (server, listener) = (Server::start(&home), Listener::start(&["--fail", "30%", "--seed", "3"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(100, 100), "concurrency": 4});
    let destination = text(&client.destination(&tenant, &listener.url("/"), settings), "id");
    let events: Vec<String> = (0..60).map(|_| client.event(&tenant, json!({}))).collect();
    for event in &events {
        listener.wait_for(event, 200);
    }
    let records = listener.records.all();
    let answered = |status: u16| records.iter().filter(|record| record["answered"] == status).count();
    assert_eq!(answered(200), 60, "each once");
    assert!(answered(503) > 10, "{} failures are no test", answered(503));
    for event in &events {
        client.delivery_in(&destination, event, "delivered");
    }
}

#[test]
fn a_slow_answer_is_waited_for_and_measured() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&["--delay", "400ms"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &listener.url("/"), json!({})), "id");
    let event = client.event(&tenant, json!({}));
    let in_flight = client.delivery_in(&destination, &event, "in_flight");
    assert_eq!((&in_flight["waiting_for"], &in_flight["until"]), (&Value::Null, &Value::Null));
    let delivery = client.delivery_in(&destination, &event, "delivered");
    assert!(delivery["attempts"][0]["timings"]["first_byte_ms"].as_u64().unwrap() >= 400, "{delivery}");
}

/// One event to a receiver that misbehaves like this, and its delivery once it has been tried.
fn tried(options: &[&str], status: &str) -> Value {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(options));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(60_000, 3), "timeout_ms": 600});
    let destination = text(&client.destination(&tenant, &listener.url("/"), settings), "id");
    let event = client.event(&tenant, json!({}));
    client.delivery_in(&destination, &event, status)
}

#[test]
fn a_receiver_that_hangs_times_out_and_is_tried_again() {
    let delivery = tried(&["--hang"], "retry_scheduled");
    let attempt = &delivery["attempts"][0];
    assert_eq!((&attempt["error"], &attempt["status_code"]), (&json!("answer_timed_out"), &Value::Null));
    let total = attempt["timings"]["total_ms"].as_u64().unwrap();
    assert!((600..3_000).contains(&total), "{total} ms");
    assert_eq!(delivery["attempt_count"], 1);
}

#[test]
fn a_reset_connection_is_tried_again() {
    let delivery = tried(&["--reset"], "retry_scheduled");
    assert_eq!(delivery["attempts"][0]["error"], "connection_lost");
}

#[test]
fn a_dripping_body_is_cut_and_its_status_counts() {
    let delivery = tried(&["--drip"], "delivered");
    let attempt = &delivery["attempts"][0];
    assert_eq!((&attempt["status_code"], &attempt["response"]["truncated"]), (&json!(200), &json!(true)));
}

#[test]
fn the_first_event_of_a_new_destination_is_sent_once() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), echo());
    let mut client = server.client();
    let tenant = client.tenant();
    let mut sent = Vec::new();
    for n in 0..200 {
        let (status, expected) = if n % 2 == 0 { (200, 1) } else { (503, 7) };
        let settings = json!({"event_types": [format!("n{n}")], "policy": every(20, 7)});
        client.destination(&tenant, &receiver.url(&format!("/{status}")), settings);
        sent.push((client.event(&tenant, json!({"type": format!("n{n}")})), expected));
    }
    for (event, expected) in sent {
        let of =
            |all: &[crate::support::Request]| all.iter().filter(|one| one.header("webhook-id") == Some(&event)).count();
        receiver.requests.wait(&event, |all| (of(all) >= expected).then_some(()));
        assert_eq!(of(&receiver.requests.all()), expected, "{event}");
    }
}
