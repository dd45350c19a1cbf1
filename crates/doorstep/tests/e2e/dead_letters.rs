//! What a person does with a destination and its dead letters (R1, R2, G14).

use serde_json::{Value, json};

use crate::answers::every;
use crate::support::{Home, Listener, Server, text};

#[test]
fn a_dead_letter_is_found_looked_at_and_sent_again() {
    let home = Home::new();
    let (server, refusing) = (Server::start(&home), Listener::start(&["--status", "400"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &refusing.url("/"), json!({})), "id");
    let event = client.event(&tenant, json!({}));
    let dead = client.delivery_in(&destination, &event, "dead");
    assert_eq!(dead["reason"], "rejected");
    assert!(dead["ended_at"].is_string(), "{dead}");
    let id = text(&dead, "id");
    for (query, found) in [
        (format!("status=dead&destination_id={destination}"), 1),
        (format!("status=dead&tenant_id={tenant}&reason=rejected&code=400&type=invoice.paid"), 1),
        ("status=dead&created_after=2020-01-01T00:00:00Z&created_before=2100-01-01T00:00:00Z".to_owned(), 1),
        ("status=dead&reason=expired".to_owned(), 0),
        ("status=dead&code=401".to_owned(), 0),
        ("status=dead&type=invoice.sent".to_owned(), 0),
        ("status=dead&created_before=2020-01-01T00:00:00Z".to_owned(), 0),
        ("status=delivered".to_owned(), 0),
    ] {
        let page = client.read(&format!("/v1/deliveries?{query}"));
        assert_eq!(page["data"].as_array().unwrap().len(), found, "{query}: {page}");
    }
    let wire = &dead["attempts"][0];
    let sent = wire["request"]["headers"].as_array().unwrap();
    let header = |name: &str| sent.iter().find(|header| header["name"] == name).map(|header| &header["value"]);
    assert_eq!(header("webhook-id"), Some(&json!(event)));
    assert!(!header("webhook-signature").unwrap().as_str().unwrap().contains("v1,"), "signatures are masked");

    // Still refused: the same dead letter, one more attempt.
    client.post(&format!("/v1/deliveries/{id}/retry"), "").expect(200);
    refusing.records.wait_for(2);
    let dead = client.delivery_in(&destination, &event, "dead");
    assert_eq!(dead["request_count"], 2);

    let port = refusing.address.port();
    drop(refusing);
    let up = Listener::start_at(port, &[]);
    client.post(&format!("/v1/deliveries/{id}/retry"), "").expect(200);
    assert_eq!(up.wait_for(&event, 200)["delivery_id"], id);
    let delivered = client.delivery_in(&destination, &event, "delivered");
    assert_eq!(delivered["attempts"].as_array().unwrap().len(), 3, "every attempt is kept");
    let again = client.post(&format!("/v1/deliveries/{id}/retry"), "").expect(409);
    assert_eq!(again["code"], "not_dead");
}

#[test]
fn an_abandoned_delivery_is_never_sent_and_keeps_its_note() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let destination = text(&client.destination(&tenant, &listener.url("/"), json!({})), "id");
    client.tell(&destination, "pause");
    let unwanted = client.event(&tenant, json!({}));
    let wanted = client.event(&tenant, json!({}));
    let id = text(&client.delivery_of(&destination, &unwanted), "id");
    let note = "the customer has left; see ticket 7";
    let abandoned = client.post(&format!("/v1/deliveries/{id}/abandon"), json!({"note": note})).expect(200);
    assert_eq!((&abandoned["status"], &abandoned["reason"]), (&json!("dead"), &json!("abandoned")));
    assert_eq!(abandoned["note"], note);

    client.tell(&destination, "resume");
    listener.wait_for(&wanted, 200);
    client.delivery_in(&destination, &wanted, "delivered");
    assert_eq!(listener.records.len(), 1);
    let delivered = text(&client.delivery_of(&destination, &wanted), "id");
    assert_eq!(client.post(&format!("/v1/deliveries/{delivered}/abandon"), "").expect(409)["code"], "already_ended");

    // A dead letter can be sent even so, if somebody decides that.
    client.post(&format!("/v1/deliveries/{id}/retry"), "").expect(200);
    listener.wait_for(&unwanted, 200);
}

#[test]
fn a_test_shows_what_the_receiver_says_and_leaves_no_trace() {
    let home = Home::new();
    let (server, down) = (Server::start(&home), Listener::start(&["--status", "503"]));
    let mut client = server.client();
    let tenant = client.tenant();
    let created = client.destination(&tenant, &down.url("/"), json!({}));
    let path = format!("/v1/destinations/{}", created["id"].as_str().unwrap());
    let result = client.post(&format!("{path}/test"), "").expect(200);
    assert_eq!((&result["success"], &result["class"]), (&json!(false), &json!("transient")));
    assert_eq!(result["attempt"]["status_code"], 503);

    let up = Listener::start(&["--secret", created["secret"].as_str().unwrap()]);
    client.patch(&path, json!({"url": up.url("/moved")})).expect(200);
    let asked = json!({"type": "my.test", "payload": {"n": 1.0}});
    let result = client.post(&format!("{path}/test"), asked).expect(200);
    assert_eq!((&result["success"], &result["class"]), (&json!(true), &json!("success")));
    let record = up.records.wait_for(1).swap_remove(0);
    assert_eq!((&record["path"], &record["event_type"]), (&json!("/moved"), &json!("my.test")));
    assert_eq!((&record["bytes"], &record["signature"]), (&json!(9), &json!("ok")));
    assert_eq!(client.read("/v1/deliveries")["data"], json!([]));
    assert_eq!(client.read("/v1/events")["data"], json!([]));
}

#[test]
fn an_edited_destination_gets_what_waits_at_its_new_address() {
    let home = Home::new();
    let (server, down, up) = (Server::start(&home), Listener::start(&["--status", "503"]), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let settings = json!({"policy": every(300, 50)});
    let destination = text(&client.destination(&tenant, &down.url("/"), settings), "id");
    let event = client.event(&tenant, json!({}));
    down.wait_for(&event, 503);
    client.patch(&format!("/v1/destinations/{destination}"), json!({"url": up.url("/new")})).expect(200);
    assert_eq!(up.wait_for(&event, 200)["path"], "/new");
}

#[test]
fn a_deleted_destination_gets_nothing_more() {
    let home = Home::new();
    let (server, listener) = (Server::start(&home), Listener::start(&[]));
    let mut client = server.client();
    let tenant = client.tenant();
    let deleted = text(&client.destination(&tenant, &listener.url("/deleted"), json!({})), "id");
    client.destination(&tenant, &listener.url("/other"), json!({}));
    client.tell(&deleted, "pause");
    let before = client.event(&tenant, json!({}));
    let path = format!("/v1/destinations/{deleted}");
    assert_eq!(client.ask("DELETE", &path, &[], b"").unwrap().expect(204), Value::Null);
    assert_eq!(client.get(&path).status, 404);
    assert_eq!(client.ask("DELETE", &path, &[], b"").unwrap().status, 404);
    let after = client.event(&tenant, json!({}));
    for event in [before, after] {
        assert_eq!(listener.wait_for(&event, 200)["path"], "/other");
        assert_eq!(listener.of(&event).len(), 1);
    }
}
