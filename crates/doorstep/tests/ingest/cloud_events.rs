//! CloudEvents 1.0 as input.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Server};

const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

async fn structured(server: &Server, path: &str, body: &str) -> Answer {
    server.send(Method::POST, path, &[("content-type", STRUCTURED)], body.to_owned()).await
}

async fn kept(server: &Server, answer: &Answer) -> Value {
    assert_eq!(answer.status, 202, "{answer:?}");
    server.get(&format!("/v1/events/{}", answer.body["id"].as_str().unwrap())).await.body
}

#[tokio::test]
async fn a_structured_event_is_taken_with_its_data_as_it_stands() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let body = format!(
        r#"{{"specversion": "1.0", "id": "A234-1", "source": "/mycontext", "type": "com.example.someevent", "subject": "x",
            "time": "2018-04-05T17:31:00Z", "tenantid": "{tenant}", "comexampleextension1": "value",
            "data": {{"b" :1.0,  "a":2}}}}"#
    );
    let event = kept(&server, &structured(&server, "/v1/events", &body).await).await;
    assert_eq!((&event["id"], &event["type"]), (&json!("A234-1"), &json!("com.example.someevent")));
    assert_eq!((&event["produced_at"], &event["payload_bytes"]), (&json!("2018-04-05T17:31:00.000Z"), &json!(18)));
    assert_eq!(event["content_type"], "application/json");

    let by_query = format!("/v1/events?tenant_id={tenant}");
    let text = r#"{"specversion":"1.0","id":"A-2","source":"/s","type":"a.b","datacontenttype":"text/xml","data":"<a b=\"c\"/>"}"#;
    let event = kept(&server, &structured(&server, &by_query, text).await).await;
    assert_eq!((&event["content_type"], &event["payload_base64"]), (&json!("text/xml"), &json!("PGEgYj0iYyIvPg==")));
    let bytes =
        r#"{"specversion":"1.0","id":"A-3","source":"/s","type":"a.b","datacontenttype":"x/y","data_base64":"AAE="}"#;
    let event = kept(&server, &structured(&server, &by_query, bytes).await).await;
    assert_eq!((&event["content_type"], &event["payload_base64"]), (&json!("x/y"), &json!("AAE=")));
}

#[tokio::test]
async fn a_binary_event_is_its_headers_and_its_body() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let headers = [
        ("ce-specversion", "1.0"),
        ("ce-id", "B-1"),
        ("ce-source", "/s"),
        ("ce-type", "a.b"),
        ("ce-time", "2020-03-19T06:54:28Z"),
        ("ce-tenantid", &tenant),
        ("content-type", "text/plain"),
    ];
    let event = kept(&server, &server.send(Method::POST, "/v1/events", &headers, "h\u{e9}llo").await).await;
    assert_eq!((&event["id"], &event["content_type"]), (&json!("B-1"), &json!("text/plain")));
    assert_eq!(event["payload_base64"], "aMOpbGxv");
    let again = server.send(Method::POST, "/v1/events", &headers, "h\u{e9}llo").await;
    assert_eq!(again.body["duplicate"], true);
}

#[tokio::test]
async fn what_is_wrong_is_told_in_the_words_of_the_event() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let good =
        json!({ "specversion": "1.0", "id": "C-1", "source": "/s", "type": "a.b", "tenantid": tenant, "data": 1 });
    for (field, value, pointer, status) in [
        ("specversion", json!("0.3"), "/specversion", 422),
        ("id", json!("not an ID!"), "/id", 422),
        ("type", json!("a..b"), "/type", 422),
        ("tenantid", json!("ten_00000000000000000000000000"), "/tenantid", 404),
        ("tenantid", Value::Null, "/tenantid", 422),
        ("data", Value::String("x".repeat(300_000)), "", 413),
        ("time", json!("yesterday"), "/time", 422),
    ] {
        let mut wrong = good.clone();
        wrong[field] = value;
        let answer = structured(&server, "/v1/events", &wrong.to_string()).await;
        assert!(answer.status == status, "{field}: {answer:?}");
        assert_eq!(answer.faults().first().map_or("", |fault| fault.0), pointer, "{answer:?}");
    }
    let headers = [("ce-specversion", "1.0"), ("ce-id", "C-1"), ("ce-tenantid", tenant.as_str())];
    let answer = server.send(Method::POST, "/v1/events", &headers, "{}").await;
    assert_eq!(answer.faults()[0].0, "ce-type:");
}

#[tokio::test]
async fn a_batch_is_a_list_of_structured_events() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let event =
        |id: &str, kind: &str| json!({ "specversion": "1.0", "id": id, "source": "/s", "type": kind, "data": [] });
    let batch = json!([event("D-1", "a.b"), event("D-2", "a b")]).to_string();
    let headers = [("content-type", "application/cloudevents-batch+json")];
    let path = format!("/v1/events/batch?tenant_id={tenant}");
    let answer = server.send(Method::POST, &path, &headers, batch).await;
    assert_eq!(answer.body["results"][0]["id"], "D-1", "{answer:?}");
    assert_eq!(answer.body["results"][1]["error"]["errors"][0]["pointer"], "/1/type");
}
