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
