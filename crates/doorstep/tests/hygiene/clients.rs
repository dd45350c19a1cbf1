//! However many clients stall, the others are served as if they were alone (S8).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::raw::{Raw, head};
use crate::support::{Home, Receiver, Server};

/// Somebody who stalls is waited for longer than this, so whoever had to wait for them would take longer, too.
const PROMPTLY: Duration = Duration::from_secs(10);
const ROUNDS: usize = 20;

#[test]
fn clients_that_stall_hold_up_nobody_else() {
    let home = Home::new();
    let (server, receiver) = (Server::start(&home), Receiver::start());
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &receiver.url("/"), json!({}));

    let half_a_head = head("POST /v1/events");
    let half_a_body = head("POST /v1/events") + "content-length: 1000\r\n\r\n{\"tenant_id\":";
    let half_a_chunk = head("POST /v1/events/batch") + "transfer-encoding: chunked\r\n\r\nff\r\n{\"events\": [";
    let no_reader = "GET /openapi.json HTTP/1.1\r\nhost: x\r\n\r\n".repeat(100);
    let watcher = head("GET /v1/stream") + "\r\n";
    let mut stalled = Vec::new();
    for (says, n) in [("", 50), (&*half_a_head, 100), (&half_a_body, 100), (&half_a_chunk, 50), (&watcher, 20)] {
        stalled.extend((0..n).map(|_| Raw::saying(&server, says)));
    }
    for _ in 0..20 {
        let mut greedy = Raw::to(server.address);
        // It is cut short where the server's and our buffers are full.
        let _ = greedy.try_to_say(no_reader.as_bytes());
        stalled.push(greedy);
    }

    let begun = Instant::now();
    for nth in 1..=ROUNDS {
        client.event(&tenant, json!({}));
        assert_eq!(server.client().get("/healthz").status, 200, "on a new connection");
        assert_eq!(receiver.requests.wait_for(nth).len(), nth);
    }
    assert!(begun.elapsed() < PROMPTLY, "{ROUNDS} rounds took {:?}", begun.elapsed());
    drop(stalled);
    assert_eq!(client.get("/readyz").status, 200);
}

#[test]
fn clients_that_go_away_in_the_middle_leave_nothing_behind() {
    let home = Home::new();
    let server = Server::start(&home);
    let mut client = server.client();
    let tenant = client.tenant();
    let event = json!({"tenant_id": tenant, "type": "a", "payload": 1}).to_string();
    let whole = format!("{}content-length: {}\r\n\r\n{event}", head("POST /v1/events"), event.len());
    for cut in [1, 20, whole.len() - event.len() - 1, whole.len() - event.len(), whole.len() - 1] {
        drop(Raw::saying(&server, &whole[..cut]));
    }
    // Connections are taken in the order in which they came.
    assert_eq!(server.client().get("/healthz").status, 200);
    assert_eq!(client.read("/v1/events")["data"], json!([]), "half a request is none");
}

#[test]
fn watchers_and_batches_are_limited_as_configured() {
    let home = Home::new();
    let server = Server::start_with(&home, &["--watchers-max", "1", "--batch-max-bytes", "1024"]);
    let mut client = server.client();
    let tenant = client.tenant();
    let event = |letters: usize| json!({"tenant_id": tenant, "type": "a.b", "payload": "x".repeat(letters)});
    client.post("/v1/events/batch", json!({"events": [event(500)]})).expect(200);
    client.post("/v1/events/batch", json!({"events": [event(500), event(500)]})).expect(413);
    let watch = || Raw::saying(&server, head("GET /v1/stream") + "\r\n");
    let mut first = watch();
    assert_eq!(first.hear().unwrap().unwrap().status, 200);
    assert_eq!(watch().hear().unwrap().unwrap().status, 503);
}
