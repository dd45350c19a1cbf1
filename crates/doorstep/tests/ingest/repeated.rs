//! The same request again (I2).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Server};

async fn post(server: &Server, path: &str, key: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json"), ("idempotency-key", key)];
    server.send(Method::POST, path, &headers, body.to_string()).await
}

#[tokio::test]
async fn a_repeated_key_is_answered_as_before_and_another_body_is_refused() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event = |n: u8| json!({ "tenant_id": tenant, "type": "a.b", "payload": { "n": n } });
    let first = post(&server, "/v1/events", "key-1", &event(1)).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (202, None));
    let server = server.restart(&[]);
    let again = post(&server, "/v1/events", "\"key-1\"", &event(1)).await;
    assert_eq!((again.status.as_u16(), again.header("idempotency-replayed")), (202, Some("true")));
    assert_eq!((&again.body["id"], &again.body["duplicate"]), (&first.body["id"], &json!(true)));
    let other = post(&server, "/v1/events", "key-1", &event(2)).await;
    assert_eq!((other.status.as_u16(), &other.body["code"]), (422, &json!("idempotency_key_reused")));
    assert_eq!(post(&server, "/v1/events", "key-2", &event(2)).await.body["duplicate"], false);
}

#[tokio::test]
async fn two_requests_with_one_key_at_the_same_time_make_one_event() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event = json!({ "tenant_id": tenant, "type": "a.b", "payload": {} });
    let post = || post(&server, "/v1/events", "at once", &event);
    let (a, b, c, d) = tokio::join!(post(), post(), post(), post());
    let answers = [a, b, c, d];
    assert!(answers.iter().all(|answer| answer.status == 202 && answer.body["id"] == answers[0].body["id"]));
    assert_eq!(answers.iter().filter(|answer| answer.body["duplicate"] == false).count(), 1);
    assert_eq!(server.get("/v1/events").await.body["data"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_covers_a_whole_batch() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event = |n: u8| json!({ "tenant_id": tenant, "type": "a.b", "payload": { "n": n } });
    let batch = json!({ "events": [event(1), event(1), { "bad": 1 }] });
    let first = post(&server, "/v1/events/batch", "b", &batch).await;
    assert_eq!(first.header("idempotency-replayed"), None);
    let ids = |answer: &Answer| [0, 1].map(|n| answer.body["results"][n]["id"].as_str().unwrap().to_owned());
    assert_ne!(ids(&first)[0], ids(&first)[1], "two alike in one batch are two");
    let again = post(&server, "/v1/events/batch", "b", &batch).await;
    assert_eq!((again.header("idempotency-replayed"), ids(&again)), (Some("true"), ids(&first)));
    let other = json!({ "events": [event(1), event(2)] });
    let other = post(&server, "/v1/events/batch", "b", &other).await;
    assert_eq!(other.body["results"][1]["error"]["code"], "idempotency_key_reused");
    assert_eq!(server.get("/v1/events").await.body["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_key_beside_an_id_is_for_that_event_alone() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event = |id: &str, n: u8| json!({ "tenant_id": tenant, "id": id, "type": "a.b", "payload": { "n": n } });
    let nameless = json!({ "tenant_id": tenant, "type": "a.b", "payload": { "n": 1 } });
    let first = post(&server, "/v1/events", "k", &event("one", 1)).await;
    assert_eq!((first.status.as_u16(), &first.body["duplicate"]), (202, &json!(false)));
    let server = server.restart(&[]);
    let again = post(&server, "/v1/events", "k", &event("one", 1)).await;
    assert_eq!((again.header("idempotency-replayed"), &again.body["duplicate"]), (Some("true"), &json!(true)));
    for other in [event("two", 2), event("two", 1), event("one", 2), nameless.clone()] {
        let refused = post(&server, "/v1/events", "k", &other).await;
        assert_eq!(
            (refused.status.as_u16(), &refused.body["code"]),
            (422, &json!("idempotency_key_reused")),
            "{other}"
        );
    }
    assert_eq!(post(&server, "/v1/events", "l", &nameless).await.status, 202);
    let refused = post(&server, "/v1/events", "l", &event("two", 2)).await;
    assert_eq!(refused.body["code"], "idempotency_key_reused", "nor does it name an event and stand beside another");
    assert_eq!(post(&server, "/v1/events", "m", &event("two", 2)).await.body["duplicate"], false, "nothing was kept");
    assert_eq!(server.get("/v1/events").await.body["data"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn a_key_beside_ids_covers_each_item_of_a_batch() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event = |id: &str| json!({ "specversion": "1.0", "source": "/", "tenantid": tenant, "id": id, "type": "a.b", "data": 1 });
    let send = async |events: Value| {
        let headers = [("content-type", "application/cloudevents-batch+json"), ("idempotency-key", "b")];
        server.send(Method::POST, "/v1/events/batch", &headers, events.to_string()).await
    };
    let first = send(json!([event("one"), event("two")])).await;
    assert_eq!((first.status.as_u16(), first.header("idempotency-replayed")), (200, None));
    let again = send(json!([event("one"), event("two")])).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    let other = send(json!([event("one"), event("three")])).await.body;
    assert_eq!(
        (&other["results"][0]["duplicate"], &other["results"][1]["error"]["code"]),
        (&json!(true), &json!("idempotency_key_reused"))
    );
}

#[tokio::test]
async fn what_came_before_is_known_whatever_has_become_of_its_type() {
    let server = Server::start(&[("DOORSTEP_STRICT_EVENT_TYPES", "true")]);
    let tenant = server.tenant(json!({})).await;
    let register = async |name: &str| server.post("/v1/event-types", &json!({ "name": name })).await.status;
    assert_eq!((register("a.b").await.as_u16(), register("a.c").await.as_u16()), (201, 201));
    let event = |kind: &str, n: u8| json!({ "tenant_id": tenant, "type": kind, "payload": { "n": n } });
    let mut first = Vec::new();
    for kind in ["a.b", "a.c"] {
        first.push(post(&server, "/v1/events", kind, &event(kind, 1)).await.body);
    }
    let schema = json!({ "schemas": { "1": { "required": ["m"] } } });
    assert_eq!(server.patch("/v1/event-types/a.b", &schema).await.status, 200);
    let archived = server.patch("/v1/event-types/a.c", &json!({ "archived": true })).await;
    assert_eq!(archived.status, 200, "{archived:?}");
    for (kind, first) in ["a.b", "a.c"].into_iter().zip(&first) {
        let again = post(&server, "/v1/events", kind, &event(kind, 1)).await;
        assert_eq!((again.status.as_u16(), &again.body["id"]), (202, &first["id"]), "{again:?}");
        assert_eq!(again.body["duplicate"], true);
        let other = post(&server, "/v1/events", kind, &event(kind, 2)).await;
        assert_eq!((other.status.as_u16(), &other.body["code"]), (422, &json!("invalid_request")));
    }
    let seen = [("if-match", archived.header("etag").unwrap())];
    assert_eq!(server.send(Method::DELETE, "/v1/event-types/a.c", &seen, "").await.status, 204);
    assert_eq!(post(&server, "/v1/events", "a.c", &event("a.c", 1)).await.body["duplicate"], true, "unregistered");
}
