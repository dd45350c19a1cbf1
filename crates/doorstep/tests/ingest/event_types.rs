//! Registered event types (I4, D8).

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::Server;

fn amount(kind: &str) -> Value {
    json!({ "type": "object", "required": ["amount"], "properties": { "amount": { "type": kind } } })
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_refused_with_its_place() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let made = json!({ "name": "invoice.paid", "schemas": { "1": amount("string") }, "description": "Paid in full" });
    let made = server.post("/v1/event-types", &made).await;
    assert_eq!((made.status.as_u16(), made.header("etag")), (201, Some("\"1\"")), "{made:?}");
    assert_eq!(made.body["default_version"], "1");
    let added = json!({ "schemas": { "2": amount("integer") } });
    let added = server.patch("/v1/event-types/invoice.paid", &added).await;
    assert_eq!((added.status.as_u16(), &added.body["default_version"]), (200, &json!("2")), "{added:?}");

    let send = |version: Option<&'static str>, payload: Value| {
        let event =
            json!({ "tenant_id": tenant, "type": "invoice.paid", "payload": payload, "schema_version": version });
        let server = &server;
        async move { server.post("/v1/events", &event).await }
    };
    assert_eq!(send(None, json!({ "amount": 1 })).await.status, 202);
    assert_eq!(send(Some("1"), json!({ "amount": "1" })).await.status, 202);
    let refused = send(None, json!({ "amount": "1" })).await;
    assert_eq!(refused.status, 422);
    assert_eq!(refused.faults(), [("/payload/amount", "value is not of type \"integer\"")]);
    assert_eq!(send(Some("3"), json!({})).await.faults()[0].0, "/schema_version");

    let batch = json!({ "events": [
        { "tenant_id": tenant, "type": "invoice.paid", "payload": { "amount": 1 } },
        { "tenant_id": tenant, "type": "invoice.paid", "payload": {} },
    ] });
    let results = server.post("/v1/events/batch", &batch).await.body;
    assert_eq!(results["results"][0]["duplicate"], false);
    assert_eq!(results["results"][1]["error"]["errors"][0]["pointer"], "/events/1/payload");

    let server = server.restart(&[]);
    let event = json!({ "tenant_id": tenant, "type": "invoice.paid", "payload": {} });
    assert_eq!(server.post("/v1/events", &event).await.faults()[0].0, "/payload", "schemas survive a restart");
}

#[tokio::test]
async fn a_type_is_changed_archived_and_removed() {
    let server = Server::start(&[]);
    let tenant = server.tenant(json!({})).await;
    let at = "/v1/event-types/invoice.paid";
    let new = json!({ "name": "invoice.paid", "schemas": { "1": amount("string") } });
    assert_eq!(server.post("/v1/event-types", &new).await.status, 201);
    assert_eq!(server.post("/v1/event-types", &new).await.body["code"], "already_exists");
    let replaced = server.patch(at, &json!({ "schemas": { "1": amount("integer") } })).await;
    assert_eq!(replaced.faults()[0].0, "/schemas/1", "{replaced:?}");
    let broken = server.patch(at, &json!({ "schemas": { "2": { "properties": { "a": { "pattern": "(" } } } } })).await;
    assert_eq!(broken.faults()[0].0, "/schemas/2/properties/a/pattern", "{broken:?}");
    let removed = |seen: &'static str| {
        let server = &server;
        async move { server.send(Method::DELETE, at, &[("if-match", seen)], "").await }
    };
    assert_eq!(removed("\"1\"").await.body["code"], "not_archived");
    assert_eq!(server.patch(at, &json!({ "archived": true })).await.body["archived"], true);
    let event = json!({ "tenant_id": tenant, "type": "invoice.paid", "payload": { "amount": "1" } });
    assert_eq!(server.post("/v1/events", &event).await.faults()[0].0, "/type");
    assert_eq!(removed("\"1\"").await.status, 412);
    assert_eq!(removed("\"2\"").await.status, 204);
    assert_eq!(server.get(at).await.status, 404);
    assert_eq!(server.post("/v1/events", &event).await.status, 202);
}

#[tokio::test]
async fn in_strict_mode_an_unregistered_type_is_refused_with_the_nearest_name() {
    let server = Server::start(&[("DOORSTEP_STRICT_EVENT_TYPES", "true")]);
    let tenant = server.tenant(json!({})).await;
    for name in ["invoice.paid", "user.left"] {
        assert_eq!(server.post("/v1/event-types", &json!({ "name": name })).await.status, 201);
    }
    let send = |name: &str| json!({ "tenant_id": tenant, "type": name, "payload": {} });
    assert_eq!(server.post("/v1/events", &send("invoice.paid")).await.status, 202);
    let refused = server.post("/v1/events", &send("invoice.payd")).await;
    let told = "no event type is registered as `invoice.payd`: did you mean `invoice.paid`?";
    assert_eq!(refused.faults(), [("/type", told)]);
    let batch = json!({ "events": vec![send("invoice.payd"); 9] });
    let refused = server.post("/v1/events/batch", &batch).await.body;
    let refused: Vec<&Value> =
        refused["results"].as_array().unwrap().iter().map(|one| &one["error"]["errors"]).collect();
    let helped = refused.iter().filter(|errors| errors[0]["detail"] == told).count();
    assert_eq!((refused.len(), helped), (9, 5), "a request is helped so often");
    assert_eq!(refused[8][0]["detail"], "no event type is registered as `invoice.payd`");
    let listed = server.get("/v1/event-types?limit=1").await.body;
    assert_eq!(listed["data"][0]["name"], "invoice.paid");
    let cursor = listed["next_cursor"].as_str().unwrap();
    let listed = server.get(&format!("/v1/event-types?cursor={cursor}")).await.body;
    assert_eq!((&listed["data"][0]["name"], &listed["next_cursor"]), (&json!("user.left"), &Value::Null));
}

#[tokio::test]
async fn a_types_ttl_limits_what_its_events_are_tried_for() {
    let server = Server::start(&[("DOORSTEP_ALLOW_TARGETS", "127.0.0.0/8")]);
    let tenant = server.tenant(json!({})).await;
    let destination = json!({ "tenant_id": tenant, "url": "http://127.0.0.1:9/" });
    assert_eq!(server.post("/v1/destinations", &destination).await.status, 201);
    let new = json!({ "name": "code.sent", "ttl_ms": 60_000 });
    assert_eq!(server.post("/v1/event-types", &new).await.status, 201);
    let mut windows = Vec::new();
    for (name, ttl) in [("code.sent", None), ("code.sent", Some(120_000)), ("other", None)] {
        let event = json!({ "tenant_id": tenant, "type": name, "payload": 1, "ttl_ms": ttl });
        assert_eq!(server.post("/v1/events", &event).await.status, 202);
        let listed = server.get("/v1/deliveries?limit=1").await.body;
        let at = |field: &str| {
            let text = listed["data"][0][field].as_str().unwrap();
            let format = &time::format_description::well_known::Rfc3339;
            time::OffsetDateTime::parse(text, format).unwrap()
        };
        windows.push((at("give_up_at") - at("created_at")).whole_seconds());
    }
    assert_eq!(windows, [60, 120, 72 * 3_600]);
}
