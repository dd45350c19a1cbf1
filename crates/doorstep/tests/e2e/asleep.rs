//! SIGSTOP: what happens while the server is stopped is not its receivers' fault (D6).

use std::io::Write;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::support::{Home, Journal, OK, Receiver, Server, text};

#[test]
fn answers_that_came_while_the_server_was_stopped_count_and_the_breaker_stays_closed() {
    // As many failures in a row open a breaker.
    const EVENTS: usize = 10;
    const TIMEOUT_MS: u64 = 2_000;
    let home = Home::new();
    let server = Server::start(&home);
    let frozen: Arc<Journal<()>> = Arc::default();
    let waits = Arc::clone(&frozen);
    let receiver = Receiver::answering(move |peer, _| {
        waits.wait_for(1);
        peer.write_all(OK)
    });
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"timeout_ms": TIMEOUT_MS, "concurrency": EVENTS});
    let destination = text(&client.destination(&tenant, &receiver.url("/"), settings), "id");
    // All at once: the first one must not time out before the last one is sent.
    let event = json!({"tenant_id": tenant, "type": "invoice.paid", "payload": {}});
    let accepted = client.post("/v1/events/batch", json!({"events": vec![event; EVENTS]})).expect(200);
    let events: Vec<String> = accepted["results"].as_array().unwrap().iter().map(|event| text(event, "id")).collect();
    receiver.requests.wait_for(EVENTS);
    server.freeze();
    frozen.push(());
    thread::sleep(Duration::from_millis(2 * TIMEOUT_MS));
    server.thaw();

    for event in &events {
        let delivery = client.delivery_in(&destination, event, "delivered");
        assert_eq!((&delivery["attempt_count"], &delivery["request_count"]), (&json!(1), &json!(1)), "{delivery}");
    }
    assert_eq!(receiver.requests.len(), EVENTS, "each was sent once");
    let shown = client.destination_in(&destination, "active");
    assert_eq!(shown["breaker"], "closed", "{shown}");
}
