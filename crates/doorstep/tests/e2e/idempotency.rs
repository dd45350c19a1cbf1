//! The same event again makes no second delivery (I1, I2).

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use serde_json::{Value, json};

use crate::support::{Home, KEY, Listener, Server, text};

#[test]
fn the_same_id_again_is_answered_as_before_and_another_body_is_refused() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &listener.url("/"), json!({})), "id");
    let body = json!({"tenant_id": tenant, "id": "order-7", "type": "order.paid", "payload": {"n": 1}});
    let said = client.post("/v1/events", &body).expect(202);
    assert_eq!(said, json!({"id": "order-7", "deliveries": 1, "duplicate": false}));
    let again = json!({"id": "order-7", "deliveries": 1, "duplicate": true});
    assert_eq!(client.post("/v1/events", &body).expect(202), again);
    client.delivery_in(&destination, "order-7", "delivered");
    assert_eq!(client.post("/v1/events", &body).expect(202), again, "also after it was delivered");
    for (field, other) in [("payload", json!({"n": 2})), ("type", json!("order.sent")), ("ordering_key", json!("k"))] {
        let mut other_body = body.clone();
        other_body[field] = other;
        assert_eq!(client.post("/v1/events", other_body).expect(422)["code"], "event_differs", "{field}");
    }
    // Another tenant's IDs are its own.
    let other_tenant = client.tenant();
    let mut elsewhere = body.clone();
    elsewhere["tenant_id"] = json!(other_tenant);
    assert_eq!(client.post("/v1/events", elsewhere).expect(202)["duplicate"], false);
    server.kill();

    let server = Server::start(&home);
    let mut client = server.client();
    assert_eq!(client.post("/v1/events", &body).expect(202), again, "and after a restart");
    let marker = client.event(&tenant, json!({}));
    listener.wait_for(&marker, 200);
    assert_eq!(listener.of("order-7").len(), 1);
}

#[test]
fn an_idempotency_key_stands_for_an_id() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/"), json!({}));
    let mut post = |key: &str, n: u32| {
        let body = json!({"tenant_id": tenant, "type": "order.paid", "payload": {"n": n}}).to_string();
        client.ask("POST", "/v1/events", &[("idempotency-key", key)], body.as_bytes()).unwrap()
    };
    let first = post("\"8e03-978e\"", 1).expect(202);
    assert_eq!(first["duplicate"], false);
    for same in ["\"8e03-978e\"", "8e03-978e"] {
        let again = post(same, 1).expect(202);
        assert_eq!((&again["id"], &again["duplicate"]), (&first["id"], &json!(true)));
    }
    assert_eq!(post("\"8e03-978e\"", 2).expect(422)["code"], "idempotency_key_reused");
    let other = post("another", 1).expect(202);
    assert_ne!(other["id"], first["id"]);
    for bad in ["", "\"\"", &"x".repeat(256)] {
        let problem = post(bad, 1).expect(422);
        assert_eq!(problem["errors"][0]["pointer"], "idempotency-key:", "{bad:?}");
    }
    listener.wait_for(other["id"].as_str().unwrap(), 200);
    listener.wait_for(first["id"].as_str().unwrap(), 200);
    assert_eq!(listener.records.len(), 2);
}

#[test]
fn producers_who_repeat_themselves_at_once_make_one_event() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/"), json!({}));
    let body = json!({"tenant_id": tenant, "id": "same", "type": "order.paid", "payload": 1}).to_string();
    let answers: Vec<_> = std::thread::scope(|scope| {
        let posts: Vec<_> = (0..16).map(|_| scope.spawn(|| server.client().post("/v1/events", &body))).collect();
        posts.into_iter().map(|post| post.join().unwrap()).collect()
    });
    let of = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!(of(202) + of(409), 16, "accepted, the same, or one still in progress: {answers:?}");
    let new = answers.iter().filter(|answer| answer.status == 202 && answer.expect(202)["duplicate"] == false).count();
    assert_eq!(new, 1);
    let marker = client.event(&tenant, json!({}));
    listener.wait_for(&marker, 200);
    listener.wait_for("same", 200);
    assert_eq!(listener.of("same").len(), 1);
}

#[test]
fn a_producer_that_hangs_up_before_the_answer_finds_everything_delivered() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/"), json!({}));
    let body = |n: usize| json!({"tenant_id": tenant, "id": format!("h{n}"), "type": "a.b", "payload": n}).to_string();
    for n in 0..200 {
        let body = body(n);
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\ncontent-length: {}",
            body.len()
        );
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        // At different moments of the server's work on it.
        std::thread::sleep(std::time::Duration::from_micros(50 * (n as u64 % 60)));
        stream.shutdown(Shutdown::Both).unwrap();
    }
    // The producer sends them again, and trusts the answer.
    for n in 0..200 {
        client.post("/v1/events", body(n)).expect(202);
    }
    for n in 0..200 {
        listener.wait_for(&format!("h{n}"), 200);
    }
    assert_eq!(listener.records.len(), 200, "each once");
}

#[test]
fn each_event_of_a_batch_has_its_own_result_in_order() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    client.destination(&tenant, &listener.url("/"), json!({}));
    let event = |id: &str, payload: Value| json!({"tenant_id": tenant, "id": id, "type": "a.b", "payload": payload});
    let mut unknown = event("e3", json!(1));
    unknown["tenant_id"] = json!("ten_00000000000000000000000000");
    let mut mistaken = event("e4", json!(1));
    mistaken["typ"] = json!("a.b");
    let events = json!([
        event("e0", json!(1)),
        {"tenant_id": tenant, "type": "a b", "payload": 1},
        event("e0", json!(1)),
        unknown,
        mistaken,
        event("e0", json!(2)),
        5,
        event("e7", json!("x".repeat(300_000))),
        event("e8", Value::Null),
    ]);
    let said = client.post("/v1/events/batch", json!({"events": events})).expect(200);
    let results = said["results"].as_array().unwrap();
    assert_eq!(results.len(), 9);
    assert_eq!(results[0], json!({"id": "e0", "deliveries": 1, "duplicate": false}));
    assert_eq!(results[2], json!({"id": "e0", "deliveries": 1, "duplicate": true}));
    assert_eq!(results[8], json!({"id": "e8", "deliveries": 1, "duplicate": false}));
    for (at, status, code, pointer) in [
        (1, 422, "invalid_request", json!("/events/1/type")),
        (3, 404, "not_found", json!("/events/3/tenant_id")),
        (4, 422, "invalid_request", json!("/events/4/typ")),
        (5, 422, "event_differs", Value::Null),
        (6, 422, "invalid_request", json!("/events/6")),
        (7, 413, "too_large", Value::Null),
    ] {
        let error = &results[at]["error"];
        assert_eq!((&error["status"], &error["code"]), (&json!(status), &json!(code)), "{at}: {error}");
        assert_eq!(error["errors"][0]["pointer"], pointer, "{at}: {error}");
    }
    listener.wait_for("e0", 200);
    listener.wait_for("e8", 200);
    assert_eq!(listener.records.len(), 2);
}
